"""Snapshots, plans and changes as values: ``wattpack.io/snapshot/v1``, ``wattpack.io/plan/v1``."""
