"""Time, draw and what binds, phase by phase, of a catalogue entry on a GPU type.

kernels ── times, draws ──> busy seconds, watts ─┐
traffic ── host roofline ─> seconds by path ─────┼─> phase: seconds, what binds, mean watts
wait, deadline ──────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from capacity.catalogue.clock_response import Floats, clock_stretch, is_compute_bound
from capacity.catalogue.host_roofline import HostRoofline
from capacity.catalogue.priced_gpu import PricedGpu
from capacity.catalogue.workload_kernels import KernelWork, PhaseWork, phase_work
from capacity.catalogue.workload_schema import Bound, Workload, WorkPhase
from capacity.kernels import Kernel
from capacity.model.clock_map import ClockMap, clock_map
from capacity.model.regulator import memory_shares
from wattpack.units import require_number

REGULATION_SECONDS = 1.0
"""A board regulates over about a second: shorter cycles are held as a whole (h200_power_steps)."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the GPU is held.

    Attributes:
        clock_share: Of the clock that the work sustains.
        limit_watts: The type's default limit if None.
    """

    clock_share: float = 1.0
    limit_watts: float | None = None
    host: HostRoofline = field(default_factory=HostRoofline)

    def __post_init__(self) -> None:
        require_number("clock_share", self.clock_share, exclusive_minimum=0, maximum=1)
        if self.limit_watts is not None:
            require_number("limit_watts", self.limit_watts, exclusive_minimum=0)


@dataclass(frozen=True, slots=True)
class PhasePrice:
    """One phase as it runs.

    Attributes:
        busy_seconds: Of them the GPU computes.
        host_seconds: By path outside the GPU, hidden or not.
        uncapped_watts: Mean draw if no limit held the board; under a clock lock that of the lock.
        mean_watts: As the limit holds the board. Of a cycle shorter than ``REGULATION_SECONDS``
            the mean over the cycle is held, and one phase may be above.
    """

    name: str
    seconds: float
    busy_seconds: float
    host_seconds: dict[str, float]
    binds: Bound
    uncapped_watts: float
    mean_watts: float


@dataclass(frozen=True, slots=True)
class CyclePrice:
    """All phases, once."""

    phases: tuple[PhasePrice, ...]

    @property
    def seconds(self) -> float:
        """Of one cycle."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def mean_watts(self) -> float:
        """Over one cycle."""
        joules = sum(phase.seconds * phase.mean_watts for phase in self.phases)
        return joules / self.seconds


@dataclass(frozen=True, slots=True)
class _Part:
    """One repeat of a phase on the GPU alone.

    Attributes:
        times: All runs of each kernel, shape (n_kernels,); ``watts`` its own draw without a limit.
        sensitivity: Of each to the depth of throttling.
        sequence_seconds: Of dependent operations.
    """

    phase: WorkPhase
    work: PhaseWork
    times: Floats
    watts: Floats
    sensitivity: Floats
    sequence_seconds: float
    gpu: PricedGpu

    def at_depth(self, depth: float) -> _Part:
        """Throttled."""
        stretched = self.times * (1 + depth * self.sensitivity)
        sequence = self.sequence_seconds * (1 + depth)
        return replace(self, times=stretched, sequence_seconds=sequence)

    def at_clock(self, clock_share: float) -> _Part:
        """At a share of the clock that it sustains."""
        stretch = clock_stretch(self._kernels, clock_share, self.gpu.roofs)
        sequence = self.sequence_seconds / clock_share
        return replace(self, times=self.times * stretch, sequence_seconds=sequence)

    @property
    def seconds(self) -> float:
        """Launches counted in."""
        device = self._device_seconds
        if not self.work.kernels:
            return device
        launches = max(1, round(sum(part.count for part in self.work.kernels)))
        return self.gpu.launches.step_seconds(device, launches, self.phase.launch_mode)

    @property
    def busy_watts(self) -> float:
        """Mean draw over ``seconds``."""
        if not self.work.kernels:
            return self.gpu.gap_watts
        above = float(self.times @ (self.watts - self.gpu.gap_watts))
        return self.gpu.gap_watts + above / self.seconds

    @property
    def binds(self) -> Bound:
        """What binds on the GPU."""
        device = self._device_seconds
        if self.sequence_seconds > 0.5 * device:
            return "latency"
        if self.phase.launch_mode == "eager" and self.seconds > device * (1 + 1e-9):
            return "launch"
        weights = np.array([part.count / part.speed for part in self.work.kernels])
        bound = is_compute_bound(self._kernels, weights, self.gpu.roofs)
        return "compute" if bound else "bandwidth"

    @property
    def _kernels(self) -> list[Kernel]:
        return [part.kernel for part in self.work.kernels]

    @property
    def _device_seconds(self) -> float:
        busy = _side_by_side(self.work.kernels, self.times) if self.work.kernels else 0.0
        return busy + self.sequence_seconds


def price_cycle(
    workload: Workload, gpu: PricedGpu, conditions: Conditions | None = None
) -> CyclePrice:
    """The entry's cycle on the GPU type.

    Raises:
        InputError: an unknown language model, or sizes that no kernel can have.
    """
    held = Conditions() if conditions is None else conditions
    limit = gpu.limit_watts if held.limit_watts is None else held.limit_watts
    parts = [_part(workload, phase, gpu) for phase in workload.phases]
    free = CyclePrice(tuple(_price(workload, part, gpu, held.host) for part in parts))
    whole = free.seconds < REGULATION_SECONDS
    parts = [
        part.at_depth(float(gpu.regulator.depth(
            free.mean_watts if whole else price.mean_watts, limit
        )))
        for part, price in zip(parts, free.phases, strict=True)
    ]  # fmt: skip
    slowed = CyclePrice(tuple(_price(workload, part, gpu, held.host) for part in parts))
    sustained = _held(slowed, free, gpu.regulator.held_share * limit)
    if held.clock_share == 1:
        return sustained
    locked = [_price(workload, part.at_clock(held.clock_share), gpu, held.host) for part in parts]
    draws = clock_map(gpu.name)
    watts = [
        _locked_watts(price, full, held.clock_share, draws, gpu)
        for price, full in zip(locked, sustained.phases, strict=True)
    ]
    return CyclePrice(tuple(
        replace(price, uncapped_watts=w, mean_watts=w)
        for price, w in zip(locked, watts, strict=True)
    ))  # fmt: skip


def _locked_watts(
    locked: PhasePrice, full: PhasePrice, clock_share: float, draws: ClockMap, gpu: PricedGpu
) -> float:
    """The busy part draws what the lock leaves, the rest what it always does."""
    if not full.busy_seconds:
        return full.mean_watts
    busy_share = full.busy_seconds / full.seconds
    busy = gpu.gap_watts + (full.mean_watts - gpu.gap_watts) / busy_share
    lower = float(draws.draw_watts(clock_share, busy))
    return gpu.gap_watts + (lower - gpu.gap_watts) * locked.busy_seconds / locked.seconds


def _held(cycle: CyclePrice, free: CyclePrice, most_watts: float) -> CyclePrice:
    """Draws that the limit allows: of the whole cycle where it is short, else of each phase."""
    watts = [phase.mean_watts for phase in free.phases]
    if free.seconds < REGULATION_SECONDS:
        joules = sum(w * phase.seconds for w, phase in zip(watts, cycle.phases, strict=True))
        ratio = min(1.0, most_watts * cycle.seconds / joules)
        watts = [w * ratio for w in watts]
    return CyclePrice(tuple(
        replace(phase, mean_watts=min(w, max(most_watts, w * (free.seconds < REGULATION_SECONDS))))
        for phase, w in zip(cycle.phases, watts, strict=True)
    ))  # fmt: skip


def _part(workload: Workload, phase: WorkPhase, gpu: PricedGpu) -> _Part:
    work = phase_work(workload, phase, gpu.roofs)
    clock_hz = gpu.roofs.max_clock_mhz * 1e6
    sequence = work.sequence_cycles / clock_hz
    if not work.kernels:
        none = np.zeros(0)
        return _Part(phase, work, none, none, none, sequence, gpu)
    kernels = [part.kernel for part in work.kernels]
    counts = np.array([part.count for part in work.kernels])
    speeds = np.array([part.speed for part in work.kernels])
    single = gpu.times.seconds(kernels) / speeds
    full = gpu.draws.uncapped_watts(kernels)
    watts = gpu.gap_watts + (full - gpu.gap_watts) * np.minimum(speeds, 1.0)
    sensitivity = gpu.regulator.clock_sensitivity(memory_shares(kernels, single, gpu.roofs))
    return _Part(phase, work, single * counts, watts, sensitivity, sequence, gpu)


def _side_by_side(works: Sequence[KernelWork], times: Floats) -> float:
    """Kernels on shares of the multiprocessors run beside each other, all others in turn."""
    shares = np.array([work.share for work in works])
    if (shares == 1).all():
        return float(times.sum())
    groups: set[float] = set(shares.tolist())
    return max(float(times[shares == share].sum()) / share for share in groups)


def _price(workload: Workload, part: _Part, gpu: PricedGpu, host: HostRoofline) -> PhasePrice:
    phase = part.phase
    device = part.seconds * phase.repeats
    link = phase.traffic.link_bytes + part.work.link_bytes
    traffic = phase.traffic.model_copy(update={"link_bytes": link})
    paths = {
        path: seconds * phase.repeats
        for path, seconds in host.seconds(traffic, workload.cpu_cores).items()
    }
    outside = max(paths.values())
    together = max(device, outside) + (1 - phase.overlap) * min(device, outside)
    seconds = max(together + phase.wait_seconds, phase.deadline_seconds or 0.0)
    watts = gpu.gap_watts + (part.busy_watts - gpu.gap_watts) * device / seconds
    binds = _binding(part, device, paths, seconds - together)
    return PhasePrice(phase.name, seconds, device, paths, binds, watts, watts)


def _binding(part: _Part, device: float, paths: dict[str, float], idle: float) -> Bound:
    path, outside = max(paths.items(), key=lambda item: item[1])
    if idle > max(device, outside):
        return "deadline"
    if outside > device:
        return path  # type: ignore[return-value]
    return part.binds
