"""A row of servers under a power policy, as arrays: for thousands of fault runs (ADR 0029)."""
