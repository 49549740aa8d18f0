"""Amounts of pods and nodes as a snapshot's fields, within what a snapshot may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler_plugin.part_draws import drawn_milli
from scheduler_plugin.snapshot import MAX_QUANTITY, MILLI_PER_GPU
from scheduler_plugin.snapshot_limits import MAX_GPUS
from wattpack.device_requests import Devices
from wattpack.errors import InputError
from wattpack.gpu_resources import gpu_demand

__all__ = ["MOST_OFFERED", "asked_amounts", "other_amounts"]

#: One less than what a pod may ask for: what is cut on both sides never fits.
MOST_OFFERED = MAX_QUANTITY - 1


def asked_amounts(
    requests: Mapping[str, int], claimed: Devices, shares: Mapping[str, int]
) -> dict[str, Any]:
    """The amounts of a pod in a snapshot's fields."""
    gpus = gpu_demand(requests).whole + claimed.boards
    if gpus > MAX_GPUS:
        raise InputError("spec.containers.resources", f"at most {MAX_GPUS} GPUs in one pod", gpus)
    return {
        "gpu_milli": gpus * MILLI_PER_GPU,
        "milli_cpu": min(requests.get("cpu", 0), MAX_QUANTITY),
        "memory_bytes": min(requests.get("memory", 0), MAX_QUANTITY),
        "resources": {**other_amounts(requests, MAX_QUANTITY), **claimed.resources, **shares},
        "drawn_milli": drawn_milli({**requests, **claimed.resources}),
    }


def other_amounts(amounts: Mapping[str, int], most: int) -> dict[str, int]:
    """What has no field of its own in a snapshot, cut to what a snapshot may hold."""
    return {
        name: min(amount, most)
        for name, amount in amounts.items()
        if amount and name not in ("cpu", "memory", "pods")
    }
