"""Pods that share boards take of them, in a snapshot, two more resources of the node."""

from __future__ import annotations

__all__ = ["BANDWIDTH_MILLI", "COMPUTE_MILLI", "UNLIMITED"]

COMPUTE_MILLI = "wattpack.io/shared-compute-milli"
BANDWIDTH_MILLI = "wattpack.io/shared-bandwidth-milli"
#: Beyond any number of pods on a node.
UNLIMITED = 10**9
