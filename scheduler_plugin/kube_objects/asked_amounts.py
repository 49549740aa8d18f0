"""Amounts of pods and nodes as a snapshot's fields, within what a snapshot may hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from scheduler_plugin.documents.snapshot import MAX_QUANTITY, MILLI_PER_GPU
from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from scheduler_plugin.kube_objects.part_draws import drawn_milli
from wattpack.device_requests import Devices
from wattpack.errors import InputError
from wattpack.gpu_resources import gpu_demand

__all__ = ["MOST_OFFERED", "asked_amounts", "other_amounts"]

#: One less than what a pod may ask for: what is cut on both sides never fits.
MOST_OFFERED = MAX_QUANTITY - 1


def asked_amounts(
    requests: Mapping[str, int],
    claimed: Devices,
    shares: Mapping[str, int],
    cut_into: Collection[str] = (),
) -> dict[str, Any]:
    """The amounts of a pod in a snapshot's fields.

    Args:
        requests: By resource name.
        claimed: What its claims ask for or hold.
        shares: Of boards that it shares, and ports of the host.
        cut_into: MIG profiles into which boards are cut as claims ask for them.
    """
    instances = claimed.instances
    if instances and not gpu_demand(requests).present and set(instances) <= set(cut_into):
        rest = asked_amounts(requests, Devices(), shares)
        return rest | {"mig_profiles": dict(instances)}
    gpus = gpu_demand(requests).whole + claimed.boards
    if gpus > MAX_GPUS:
        raise InputError("spec.containers.resources", f"at most {MAX_GPUS} GPUs in one pod", gpus)
    return {
        "gpu_milli": gpus * MILLI_PER_GPU,
        "milli_cpu": min(requests.get("cpu", 0), MAX_QUANTITY),
        "memory_bytes": min(requests.get("memory", 0), MAX_QUANTITY),
        "resources": {**other_amounts(requests, MAX_QUANTITY), **claimed.resources, **shares},
        # What a pod holds of a board by a claim counts as the board.
        "drawn_milli": drawn_milli({**requests, **({} if claimed.boards else claimed.resources)}),
    }


def other_amounts(amounts: Mapping[str, int], most: int) -> dict[str, int]:
    """What has no field of its own in a snapshot, cut to what a snapshot may hold."""
    return {
        name: min(amount, most)
        for name, amount in amounts.items()
        if amount and name not in ("cpu", "memory", "pods")
    }
