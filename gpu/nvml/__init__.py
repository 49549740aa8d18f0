"""NVIDIA boards through NVML; the library is loaded by ``open_nvml`` only."""

from gpu.nvml.nvml_device import NvmlDevice, NvmlDriver, open_nvml

__all__ = ["NvmlDevice", "NvmlDriver", "open_nvml"]
