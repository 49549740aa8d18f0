"""The console process: HTTP, server-sent events, and where its figures come from."""
