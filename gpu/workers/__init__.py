"""Worker threads around driver calls that may never return."""
