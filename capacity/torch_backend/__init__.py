"""Kernels through PyTorch: CUDA and, by the same names, ROCm."""

from capacity.torch_backend.torch_backend import TorchBackend, open_torch_backend, tuning_key

__all__ = ["TorchBackend", "open_torch_backend", "tuning_key"]
