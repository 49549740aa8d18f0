"""Workloads as kernel mixes: the catalogue in ``capacity/workloads`` and what follows from it."""
