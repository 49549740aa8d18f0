"""The agent's processes and their wiring."""
