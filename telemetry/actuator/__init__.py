"""The actuator: the one privileged process that writes limits, under leases."""
