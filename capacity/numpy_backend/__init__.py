"""Kernels on this machine's processor: the benchmark's whole path where no GPU is."""

from capacity.numpy_backend.numpy_backend import HostMeter, NumpyBackend

__all__ = ["HostMeter", "NumpyBackend"]
