"""The device port of wattpack and its adapters: NVML, recorded and simulated boards."""
