"""Kernels under test in processes of their own, on this machine's processor."""
