"""Placement: the pure planner core, admission, applier and watchdog."""
