"""What the known work on each GPU does under a limit and under a clock lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from capacity.gpu_profile import GpuProfile
from capacity.work_mix import CapCurve, cap_curve
from controller.lock_law import LOWEST_CLOCK_SHARE
from controller.membership import PodSpec
from controller.seen_work import SeenWork
from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray

FREE_LOSS: Final = 0.01
"""Of the speed: a lock that costs no more is no sacrifice (the goal of decode under locks)."""

WORTH_SHARE: Final = 0.9
"""A lock is worth having from a tenth of the clock that costs nothing. At one draw a lock and a
limit leave about the same clock, so work that waits for it is held by the limit: limits were
measured, locks nearly nowhere."""

_SHARES: Final = np.linspace(LOWEST_CLOCK_SHARE, 1.0, 25)
_BINDS_WATTS: Final = 1.0

_HALF_BOUND: Final = 1 / 1.5
"""Speed at half the clock of work that waits for it half of its time."""


class ClockLaw(Protocol):
    """What a lock does to some work; ``ClockResponse`` and ``SeenWork`` are such."""

    @property
    def standing_share(self) -> float:
        """Of the mean draw at the full clock, that no clock lowers."""
        ...

    def speed(self, gpu: str, clock_share: FloatArray, /) -> FloatArray:
        """Relative to the full clock, shape of ``clock_share``."""
        ...

    def draw_watts(self, gpu: str, clock_share: FloatArray, open_watts: float, /) -> FloatArray:
        """Mean draw of work that draws ``open_watts`` at the full clock."""
        ...


@dataclass(frozen=True)
class HeldWork:
    """One kind of work on one GPU type.

    Attributes:
        gpu: Model name of the type.
        knee_watts: Of the type: limits are lower for emergencies only.
        curve: Under limits.
        clock: Under locks; None where nobody knows, which counts as bound by the clock.
    """

    gpu: str
    knee_watts: float
    curve: CapCurve
    clock: ClockLaw | None

    @property
    def open_watts(self) -> float:
        """Mean draw at the default limit and the full clock."""
        return float(self.curve.draw_watts[-1])

    @cached_property
    def free_share(self) -> float:
        """Lowest clock over the highest that costs at most ``FREE_LOSS``; 1 where nobody knows."""
        if self.clock is None:
            return 1.0
        speeds = self.clock.speed(self.gpu, _SHARES)
        return float(_SHARES[np.flatnonzero(speeds >= 1.0 - FREE_LOSS)[0]])

    @cached_property
    def locked(self) -> tuple[FloatArray, FloatArray]:
        """Draw and speed at ``_SHARES`` of the highest clock, rising; empty where unknown."""
        if self.clock is None:
            return np.zeros(0), np.zeros(0)
        draws = self.clock.draw_watts(self.gpu, _SHARES, self.open_watts)
        return draws, self.clock.speed(self.gpu, _SHARES)

    @cached_property
    def lock_is_better(self) -> bool:
        """Whether a lock sheds the same watts at less loss than a limit does.

        Judged where a limit above the knee binds; work that draws less than that only a lock
        reaches, and it is better where it costs nothing.
        """
        if self.free_share > WORTH_SHARE:
            return False
        draws, speeds = self.locked
        binds = self.curve.draw_watts < self.open_watts - _BINDS_WATTS
        binds &= (self.curve.cap_watts >= self.knee_watts) & (self.curve.draw_watts >= draws[0])
        if not some(binds):
            return True
        locked = np.interp(self.curve.draw_watts[binds], draws, speeds)
        return bool(locked.mean() > self.curve.speed[binds].mean() + FREE_LOSS)


Works = Mapping[int, Sequence[HeldWork]]
"""By GPU, of each of its tenants; a GPU with a tenant whose work is unknown is left out."""

Seen = Mapping[int, SeenWork]
"""By GPU, what its units tell of its work."""

Curves = Mapping[int, Sequence[CapCurve]]
"""By GPU, of each of its tenants whose work is known."""


def works_of_gpus(
    profiles: Sequence[GpuProfile],
    position: Mapping[str, int],
    pods: Sequence[PodSpec],
    seen: Seen | None = None,
) -> tuple[Works, Curves]:
    """Each kind of work is priced once a GPU type; what units tell counts before what names do.

    Args:
        profiles: Of each GPU, (n_gpus,).
        position: Of each GPU's UUID in that order.
        pods: Work on GPUs.
        seen: What the units of boards tell.
    """
    priced: dict[tuple[int, str, str], HeldWork | None] = {}
    found: dict[int, list[HeldWork]] = {}
    unknown: set[int] = set()
    for pod in pods:
        for i in sorted({position[uuid] for uuid in pod.gpu_uuids if uuid in position}):
            held = None if pod.work is None else _priced(priced, pod, profiles[i])
            if held is None:
                unknown.add(i)
            else:
                found.setdefault(i, []).append(held)
    named = {i: works for i, works in found.items() if i not in unknown}
    works = named | _measured(profiles, named, seen or {})
    curves = {i: [held.curve for held in mine] for i, mine in (found | works).items()}
    return works, curves


def _measured(
    profiles: Sequence[GpuProfile], named: Works, seen: Seen
) -> dict[int, list[HeldWork]]:
    """Works of boards whose units were seen."""
    priced: dict[tuple[int, SeenWork], HeldWork | None] = {}
    relocked: dict[tuple[int, SeenWork], HeldWork] = {}
    found = {}
    for i, work in seen.items():
        key = (id(profiles[i]), work)
        if i in named:
            found[i] = [_as_seen(held, work, relocked) for held in named[i]]
            continue
        if key not in priced:
            priced[key] = _as_units_tell(profiles[i], work)
        held = priced[key]
        if held is not None:
            found[i] = [held]
    return found


def _as_units_tell(profile: GpuProfile, work: SeenWork) -> HeldWork | None:
    """Work without a name; None on a type that lacks a kernel class of it."""
    curve = cap_curve(profile, work.mix())
    return None if curve is None else HeldWork(profile.model, profile.knee_watts, curve, work)


def _as_seen(
    held: HeldWork, work: SeenWork, relocked: dict[tuple[int, SeenWork], HeldWork]
) -> HeldWork:
    """Named work with its own law of clocks if that is of the kind that was seen, else as seen.

    A board that mostly waits tells too little of what it does then.
    """
    if held.clock is not None:
        halved = float(held.clock.speed(held.gpu, np.array([0.5]))[0])
        if work.kind == "waits" or (halved < _HALF_BOUND) == work.waits_for_clock:
            return held
    return relocked.setdefault((id(held), work), replace(held, clock=work))


def _priced(
    priced: dict[tuple[int, str, str], HeldWork | None], pod: PodSpec, profile: GpuProfile
) -> HeldWork | None:
    assert pod.work is not None
    key = (id(profile), pod.namespace, pod.work.name)
    if key not in priced:
        curve = pod.work.curve(profile)
        clock = pod.work.clock(profile.model)
        priced[key] = (
            None if curve is None else HeldWork(profile.model, profile.knee_watts, curve, clock)
        )
    return priced[key]


def curves_of_gpus(
    profiles: Sequence[GpuProfile],
    position: Mapping[str, int],
    pods: Sequence[PodSpec],
    seen: Seen | None = None,
) -> Curves:
    """The second part of ``works_of_gpus``."""
    return works_of_gpus(profiles, position, pods, seen)[1]


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
