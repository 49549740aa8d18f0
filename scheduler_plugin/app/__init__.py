"""Processes of placement: scheduler, webhook, watchdog and the offline planner."""
