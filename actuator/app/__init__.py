"""The actuator's process, its parent, and the host unit that caps before any work."""
