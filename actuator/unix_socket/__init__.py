"""The actuator's Unix socket: encoding, listener, and the client that the agent uses."""
