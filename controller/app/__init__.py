"""The controller process: streams, tick, desired state, status, HTTP."""
