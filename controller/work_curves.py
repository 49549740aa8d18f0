"""What the known work on each GPU does under a cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from capacity.gpu_profile import GpuProfile
from capacity.work_mix import CapCurve
from controller.membership import PodSpec
from wattpack.power.domain_tree import FloatArray

Curves = Mapping[int, Sequence[CapCurve]]
"""By GPU, of each of its tenants whose work is known."""


def curves_of_gpus(
    profiles: Sequence[GpuProfile], position: Mapping[str, int], pods: Sequence[PodSpec]
) -> Curves:
    """Each kind of work is priced once a GPU type.

    Args:
        profiles: Of each GPU, (n_gpus,).
        position: Of each GPU's UUID in that order.
        pods: Work on GPUs.
    """
    priced: dict[tuple[int, str, str], CapCurve | None] = {}
    found: dict[int, list[CapCurve]] = {}
    for pod in pods:
        if pod.work is None:
            continue
        for i in sorted({position[uuid] for uuid in pod.gpu_uuids if uuid in position}):
            key = (id(profiles[i]), pod.namespace, pod.work.name)
            if key not in priced:
                priced[key] = pod.work.curve(profiles[i])
            curve = priced[key]
            if curve is not None:
                found.setdefault(i, []).append(curve)
    return found


def speeds_at(curves: Curves, limit_watts: FloatArray) -> FloatArray:
    """Speed over that at the default limit, of the tenant that loses most; NaN if unknown.

    Args:
        limit_watts: As read back, NaN if unknown, (n_gpus,).
    """
    kept = np.full(len(limit_watts), np.nan)
    members: dict[int, tuple[CapCurve, list[int]]] = {}
    for gpu, mine in curves.items():
        for curve in mine:
            members.setdefault(id(curve), (curve, []))[1].append(gpu)
    for curve, gpus in members.values():
        at = np.interp(limit_watts[gpus], curve.cap_watts, curve.speed)
        kept[gpus] = np.fmin(kept[gpus], at)
    return kept
