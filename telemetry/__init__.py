"""Node telemetry: GPU devices, sampling, attribution to pods, export, and the actuator."""
