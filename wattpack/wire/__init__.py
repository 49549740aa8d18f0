"""The agent stream: generated messages and transport helpers."""
