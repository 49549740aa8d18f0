"""The NVML adapter of the device port; the only module family that knows milliwatts."""
