"""What each further watt buys on each GPU: steps of marginal value, for all GPUs alike.

The speed of work over its draw, made concave, is a chain of segments whose slopes fall. Serving
segments in the order of their slopes, whoever they belong to, is the linear program's optimum
under one limit; ``controller.allocation`` fills step by step inside each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from capacity.gpu_profile import GpuProfile
from capacity.work_mix import cap_curve, mix_of_classes
from controller.work_curves import HeldWork, Works
from wattpack.power.domain_tree import BoolArray, FloatArray

__all__ = ["value_steps"]

STEPS: Final = 8
"""Levels of value between the most and the least that a watt buys; `benchmarks value_per_watt`
prints what is lost to the optimum."""

_LEAST_SLOPE: Final = 1e-6
_NO_WATTS: Final = 1e-6

Chain = tuple[FloatArray, FloatArray]
"""Caps at the ends of the segments, and what a watt of each buys (falling), (n_segments,) each."""


def value_steps(profiles: Sequence[GpuProfile], works: Works, locked: BoolArray) -> FloatArray:
    """Caps up to which a watt buys at least each step's share of a GPU's work, (STEPS, n_gpus).

    A GPU whose work is unknown counts as bound by its clock: the class that loses most.

    Args:
        profiles: Of each GPU, (n_gpus,).
        works: On GPUs all of whose tenants are known.
        locked: GPUs whose work a lock slows less than a limit, (n_gpus,).
    """
    chains: dict[tuple[int, ...], Chain] = {}
    kinds: list[tuple[int, ...]] = []
    for i, profile in enumerate(profiles):
        tenants = works.get(i, ())
        kind = (id(profile), int(locked[i]), *(id(work) for work in tenants))
        kinds.append(kind)
        if kind not in chains:
            mine = [chain_of_work(work, lock=bool(locked[i])) for work in tenants]
            chains[kind] = _dearest(mine or _unknown(profile), profile)
    slopes = np.concatenate([slope for _, slope in chains.values()] or [np.zeros(0)])
    slopes = slopes[np.isfinite(slopes) & (slopes > _LEAST_SLOPE)]
    if slopes.size == 0 or len(chains) < 2:
        return np.zeros((0, len(profiles)))
    levels = np.geomspace(slopes.max(), slopes.min(), STEPS)
    ends = {kind: _ends(chain, levels) for kind, chain in chains.items()}
    return np.array([ends[kind] for kind in kinds]).T


def chain_of_work(work: HeldWork, *, lock: bool) -> Chain:
    """Of one kind of work, under limits and, where it is locked, under the better of both."""
    caps, draws, speeds = work.curve.cap_watts, work.curve.draw_watts, work.curve.speed
    if lock:
        locked, locked_speeds = work.locked
        reached = locked >= caps[0]
        caps = np.append(caps, locked[reached])
        draws = np.append(draws, locked[reached])
        speeds = np.append(speeds, locked_speeds[reached])
    return concave(caps, draws, speeds)


def concave(caps: FloatArray, draws: FloatArray, speeds: FloatArray) -> Chain:
    """The upper concave hull of speed over draw, by its segments."""
    hull: list[int] = []
    for i in np.lexsort((-speeds, draws)).tolist():
        if hull and (draws[i] - draws[hull[-1]] <= _NO_WATTS or speeds[i] <= speeds[hull[-1]]):
            continue
        while len(hull) > 1 and _slope(draws, speeds, hull[-2], hull[-1]) <= _slope(
            draws, speeds, hull[-1], i
        ):
            hull.pop()
        hull.append(i)
    slopes = [_slope(draws, speeds, a, b) for a, b in pairwise(hull)]
    return np.append(caps[hull[0]], caps[hull[1:]]), np.append(np.inf, slopes)


def _slope(draws: FloatArray, speeds: FloatArray, a: int, b: int) -> float:
    return float((speeds[b] - speeds[a]) / (draws[b] - draws[a]))


def _unknown(profile: GpuProfile) -> list[Chain]:
    curves = [cap_curve(profile, mix_of_classes({name: 1.0})) for name in profile.kernel_classes]
    known = [curve for curve in curves if curve is not None]
    return [concave(curve.cap_watts, curve.draw_watts, curve.speed) for curve in known]


def _dearest(chains: Sequence[Chain], profile: GpuProfile) -> Chain:
    """Of several kinds of work the one that a lower cap costs most; without one no watt counts."""
    if not chains:
        return np.array([profile.default_limit_watts]), np.array([np.inf])
    return max(chains, key=lambda chain: _lost(chain, profile.knee_watts))


def _lost(chain: Chain, cap_watts: float) -> float:
    caps, slopes = chain
    spans = np.diff(caps, prepend=caps[0])
    above = np.clip(caps - cap_watts, 0.0, spans)
    return float(above[1:] @ slopes[1:])


def _ends(chain: Chain, levels: FloatArray) -> FloatArray:
    """The cap at the end of the last segment that is worth each level, (n_levels,)."""
    caps, slopes = chain
    last = np.searchsorted(-slopes, -(levels * (1.0 - 1e-9)), side="right") - 1
    return np.asarray(caps[last])
