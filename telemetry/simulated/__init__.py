"""The simulated adapter of the device port: boards that behave as real ones do."""
