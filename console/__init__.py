"""HTTP and server-sent events for the dashboard: read only."""
