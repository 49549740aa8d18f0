"""Benchmarks of single kernels: what is measured, how it is timed, when a figure is believed."""
