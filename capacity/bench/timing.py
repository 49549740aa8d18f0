"""How one loaded kernel is timed, and its power read: the rules, with time injected."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from capacity.bench.measurement_row import Latency, PowerWindow
from capacity.bench.ports import LoadedKernel, PendingLaunch
from gpu.board_meter import BoardMeter, BoardSample
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND, seconds_to_ns

POWER_CAP_REASON: Final = 0x4
"""nvmlClocksEventReasonSwPowerCap: the board lowers its clock to hold its limit."""

NORMAL_95: Final = 1.96

QUEUED_CHUNKS: Final = 4
"""Chunks queued ahead: longer than one look at the board, or it would see gaps."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """When enough bursts were timed.

    Attributes:
        noise: Half of the 95 % interval of the mean, as a share of it. nvbench stops at 0.5 %
            spread of the samples; ours asks for the mean, since single bursts are short.
        burst_seconds: Aimed length of one burst: the events around it cost a few microseconds.
        max_seconds: Stop and flag after this much device time.
    """

    noise: float = 0.01
    min_samples: int = 10
    burst_seconds: float = 0.002
    max_seconds: float = 0.4

    def satisfied(self, seconds: Sequence[float]) -> bool:
        """Whether the mean is known well enough."""
        if len(seconds) < self.min_samples:
            return False
        half_width = NORMAL_95 * np.std(seconds, ddof=1) / np.sqrt(len(seconds))
        return bool(half_width <= self.noise * np.mean(seconds))


@dataclass(frozen=True, slots=True)
class ArrivalRule:
    """Runs that come one by one, as requests do: each meets an idle board.

    Times are the host's, from the launch to the end: what a server would wait.
    """

    per_second: float = 100.0
    samples: int = 200
    noise: float = 0.1


@dataclass(frozen=True, slots=True)
class PowerRule:
    """How long a board is read.

    A board that is held at its limit regulates once a second: above it for 0.9 s after a step,
    below for 0.3 s, then in a beat of 1 s (``h200_power_steps``). So a throttled window starts
    later and covers two beats; one that the limit does not touch settles within half a second.
    After a throttled window the board rests, or the next burst is timed at the lowered clock.
    """

    settle_seconds: float = 0.6
    window_seconds: float = 1.5
    throttled_settle_seconds: float = 1.3
    throttled_window_seconds: float = 2.0
    chunk_seconds: float = 0.03
    sample_seconds: float = 0.02
    rest_seconds: float = 0.4
    agreement: float = 0.03


@dataclass(frozen=True, slots=True)
class BoardWatch:
    """What the board told while the kernel ran."""

    power: PowerWindow
    samples: tuple[BoardSample, ...]
    agrees: bool


def time_bursts(kernel: LoadedKernel, rule: StopRule) -> tuple[Latency, bool]:
    """The time of one run, and whether it settled within the rule's noise."""
    first = kernel.launch(1).seconds()
    count = max(1, round(rule.burst_seconds / max(first, 1e-7)))
    runs = count * kernel.runs_per_launch
    samples: list[float] = []
    spent = 0.0
    while not rule.satisfied(samples) and (
        spent < rule.max_seconds or len(samples) < rule.min_samples
    ):
        seconds = kernel.launch(count).seconds()
        spent += seconds
        samples.append(seconds / runs)
    return _latency(samples, runs), rule.satisfied(samples)


def time_arrivals(
    kernel: LoadedKernel, rule: ArrivalRule, clock: Clock, seed: int
) -> tuple[Latency, bool]:
    """The time of one run that comes after an exponential gap, and whether its mean is known."""
    gaps = np.random.default_rng(seed).exponential(1 / rule.per_second, rule.samples)
    samples: list[float] = []
    due_ns = clock.monotonic_ns()
    for gap in gaps:
        due_ns += seconds_to_ns(gap)
        clock.wait_until(due_ns)
        start_ns = clock.monotonic_ns()
        kernel.launch(1).seconds()
        samples.append((clock.monotonic_ns() - start_ns) / NS_PER_SECOND / kernel.runs_per_launch)
    settled = StopRule(noise=rule.noise).satisfied(samples)
    return _latency(samples, kernel.runs_per_launch), settled


def watch_idle(
    meter: BoardMeter, clock: Clock, settle_seconds: float, window_seconds: float, rule: PowerRule
) -> BoardWatch:
    """Read the board while nothing runs."""
    start_ns = clock.monotonic_ns() + seconds_to_ns(settle_seconds)
    clock.wait_until(start_ns)
    samples = []
    while (now_ns := clock.monotonic_ns()) < start_ns + seconds_to_ns(window_seconds):
        samples.append(meter.sample(now_ns))
        clock.wait_until(now_ns + seconds_to_ns(rule.sample_seconds))
    power = _power_window(samples, window_seconds)
    agrees = abs(power.sampled_watts / power.mean_watts - 1) <= rule.agreement
    return BoardWatch(power, tuple(samples), agrees)


def watch_board(
    kernel: LoadedKernel, meter: BoardMeter, clock: Clock, rule: PowerRule
) -> BoardWatch:
    """Run the kernel without a gap and read the board meanwhile."""
    feed = _Feed(kernel, rule.chunk_seconds)
    start_ns = clock.monotonic_ns()
    settle_ns = start_ns + seconds_to_ns(rule.settle_seconds)
    end_ns = settle_ns + seconds_to_ns(rule.window_seconds)
    samples: list[BoardSample] = []
    throttled = False
    while (now_ns := clock.monotonic_ns()) < end_ns:
        feed.turn()
        clock.wait_until(now_ns + seconds_to_ns(rule.sample_seconds))
        sample = meter.sample(clock.monotonic_ns())
        if not throttled and sample.throttle_reasons & POWER_CAP_REASON:
            throttled = True
            settle_ns = max(now_ns, start_ns + seconds_to_ns(rule.throttled_settle_seconds))
            end_ns = settle_ns + seconds_to_ns(rule.throttled_window_seconds)
            samples.clear()
            feed.restart()
        if sample.monotonic_ns < settle_ns:
            feed.restart()
            continue
        samples.append(sample)
    feed.drain()
    if throttled:
        clock.wait_until(clock.monotonic_ns() + seconds_to_ns(rule.rest_seconds))
    power = _power_window(samples, feed.seconds_per_run)
    agrees = abs(power.sampled_watts / power.mean_watts - 1) <= rule.agreement
    return BoardWatch(power, tuple(samples), agrees)


class _Feed:
    """Keeps launches queued ahead, and knows the time of one run of those that ended."""

    def __init__(self, kernel: LoadedKernel, chunk_seconds: float) -> None:
        self._kernel = kernel
        one = kernel.launch(1).seconds()
        self._count = max(1, round(chunk_seconds / max(one, 1e-7)))
        self._pending: deque[PendingLaunch] = deque()
        self._seconds = 0.0
        self._runs = 0

    def turn(self) -> None:
        """Take what has ended; never fewer than three chunks are queued."""
        while self._pending and self._pending[0].done():
            self._end_oldest()
        while len(self._pending) < QUEUED_CHUNKS:
            self._pending.append(self._kernel.launch(self._count))

    def restart(self) -> None:
        """Count from here."""
        self._seconds, self._runs = 0.0, 0

    def drain(self) -> None:
        """Wait for everything; the last chunks count, too."""
        while self._pending:
            self._end_oldest()

    @property
    def seconds_per_run(self) -> float:
        """Mean over the chunks since the last restart."""
        return self._seconds / self._runs

    def _end_oldest(self) -> None:
        self._seconds += self._pending.popleft().seconds()
        self._runs += self._count * self._kernel.runs_per_launch


def _latency(samples: Sequence[float], runs: int) -> Latency:
    """Quantiles of bursts of so many runs each."""
    low, middle, high = np.quantile(samples, (0.1, 0.5, 0.9))
    spread = float(np.std(samples, ddof=1) / np.mean(samples))
    return Latency(float(middle), float(low), float(high), spread, len(samples) * runs)


def _power_window(samples: Sequence[BoardSample], sustained_seconds: float) -> PowerWindow:
    """Mean from the energy counter between two of its own steps; quantiles from the samples."""
    draws = [s.instant_draw_watts for s in samples if s.instant_draw_watts is not None]
    instant = _updates(draws)
    edges = [
        b for a, b in pairwise(samples)
        if a.energy_joules is not None and b.energy_joules != a.energy_joules
    ]  # fmt: skip
    sampled = float(np.mean(draws))
    if len(edges) >= 2 and edges[0].energy_joules is not None and edges[-1].energy_joules:
        joules = edges[-1].energy_joules - edges[0].energy_joules
        window = (edges[-1].monotonic_ns - edges[0].monotonic_ns) / NS_PER_SECOND
    else:  # no counter: the samples are all there is
        window = (samples[-1].monotonic_ns - samples[0].monotonic_ns) / NS_PER_SECOND
        joules = sampled * window
    return PowerWindow(
        mean_watts=joules / window,
        sampled_watts=sampled,
        p99_watts=float(np.quantile(instant, 0.99)),
        energy_joules=joules,
        window_seconds=window,
        sustained_seconds=sustained_seconds,
        instant_watts=tuple(instant),
    )


def _updates(values: Sequence[float]) -> list[float]:
    """The values without immediate repeats: a sensor read faster than it updates repeats."""
    return [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
