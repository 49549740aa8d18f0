"""The built front end as package data (``static/``); its TypeScript source lies beside it."""
