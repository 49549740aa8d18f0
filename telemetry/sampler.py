"""The latest state and short history of every device of a node.

reader ──Outcome──► Sampler.sample(now_ns) ──► DeviceSample a device ──► report, exporter, guard
                     ring of (time, watts, energy) a device
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpu.device import GpuError, GpuIdentity, GpuProcess, GpuReading, GpuStale, PowerLimits
from gpu.device_reader import DeviceReader, Extra, Outcome
from telemetry.sensor_watch import SensorWatch
from wattpack.errors import InputError
from wattpack.power.board_ceilings import HIGHEST_BOARD_JOULES, HIGHEST_BOARD_WATTS
from wattpack.power.energy_trust import ENERGY_WINDOW_NS, energy_mean_watts
from wattpack.units import NS_PER_SECOND, GpuUuid

LIMITS_PERIOD_NS = NS_PER_SECOND
"""Limits are read back every second (I10)."""

PROCESSES_PERIOD_NS = 5 * NS_PER_SECOND
"""Pods live for seconds to days, and listing processes is NVML's most expensive call."""

RISE_WINDOW_NS = 2 * NS_PER_SECOND
"""The in-band reaction time for which bands count a rise."""


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """What is known of one device.

    Attributes:
        reading: The last good reading, however old; None if there never was one.
        limits: The last limits read back.
        max_clock_mhz: The highest SM clock that can be locked.
        processes: The last list of processes with a context on the device.
        error: Why there is no fresh reading; None while readings are fresh.
        energy_mean_watts: Counter difference over the last 3 s; None without a counter. At most
            1 s old.
        max_rise_watts: Largest rise of power within 2 s that ended in the last 10 s.
        xid_counts: XID events since start, by code.
    """

    identity: GpuIdentity
    reading: GpuReading | None = None
    limits: PowerLimits | None = None
    max_clock_mhz: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    error: GpuError | None = None
    energy_mean_watts: float | None = None
    max_rise_watts: float = 0.0
    xid_counts: dict[int, int] = field(default_factory=dict)

    @property
    def fresh(self) -> bool:
        """True if the last round gave a reading."""
        return self.error is None and self.reading is not None

    def draw_watts(self) -> float | None:
        """The board's 1 s average, if there ever was a reading."""
        return None if self.reading is None else self.reading.draw_watts


Point = tuple[int, float, float | None]
"""(monotonic_ns, watts, energy_joules)"""


def _nonsense(reading: GpuReading) -> str:
    """What of a reading no board can give, empty for nothing: a sensor's all-ones, say.

    Controllers refuse the whole report of a node that says so.
    """
    for watts in (reading.draw_watts, reading.instant_draw_watts):
        if watts is not None and not 0.0 <= watts <= HIGHEST_BOARD_WATTS:
            return f"{watts:g} W is no board's power"
    joules = reading.energy_joules
    if joules is not None and not 0.0 <= joules <= HIGHEST_BOARD_JOULES:
        return f"{joules:g} J is no board's energy"
    return ""


def _can_be(limits: PowerLimits | None) -> bool:
    """Whether they were read and a board may have them."""
    if limits is None:
        return False
    return (
        max(limits.max_watts, limits.limit_watts, limits.enforced_limit_watts)
        <= HIGHEST_BOARD_WATTS
    )


def _energy_mean(ring: Sequence[Point]) -> float | None:
    return energy_mean_watts((at_ns, joules) for at_ns, _, joules in reversed(ring))


class RiseTracker:
    """The largest increase of power within a window, over the rises of the last horizon.

    Args:
        window_ns: How far apart the two ends of a rise may lie.
        horizon_ns: How long a rise is remembered.
    """

    def __init__(self, window_ns: int, horizon_ns: int) -> None:
        self._window_ns = window_ns
        self._horizon_ns = horizon_ns
        self._lows: deque[tuple[int, float]] = deque()  # candidates for the minimum, rising
        self._rises: deque[tuple[int, float]] = deque()  # candidates for the maximum, falling

    def add(self, at_ns: int, watts: float) -> float:
        """The largest rise after one more point; constant time on average."""
        lows, rises = self._lows, self._rises
        while lows and (lows[0][0] < at_ns - self._window_ns):
            lows.popleft()
        while lows and lows[-1][1] >= watts:
            lows.pop()
        lows.append((at_ns, watts))
        rise = watts - lows[0][1]
        while rises and rises[0][0] < at_ns - self._horizon_ns:
            rises.popleft()
        while rises and rises[-1][1] <= rise:
            rises.pop()
        rises.append((at_ns, rise))
        return rises[0][1]


class Sampler:
    """Samples all devices of one node into rings.

    Args:
        reader: Reads the devices.
        ring_ns: How much history to keep, at least the energy window.
        limits_period_ns: How often to read the limits back.
    """

    def __init__(
        self,
        reader: DeviceReader,
        *,
        ring_ns: int = 10 * NS_PER_SECOND,
        limits_period_ns: int = LIMITS_PERIOD_NS,
    ) -> None:
        if ring_ns < ENERGY_WINDOW_NS:
            raise InputError("ring_ns", f">= {ENERGY_WINDOW_NS}", ring_ns)
        self._reader = reader
        self._ring_ns = ring_ns
        self._limits_period_ns = limits_period_ns
        self._limits_ns: int | None = None
        self._processes_ns: int | None = None
        self._samples = [DeviceSample(device.identity) for device in reader.devices]
        self._rings: list[deque[Point]] = [deque() for _ in self._samples]
        self._watches = [SensorWatch() for _ in self._samples]
        self._rises = [RiseTracker(RISE_WINDOW_NS, ring_ns) for _ in self._samples]
        self.rounds = 0

    def sample(self, now_ns: int) -> tuple[DeviceSample, ...]:
        """Every device after one round of reading."""
        limits_due = self._limits_ns is None or now_ns - self._limits_ns >= self._limits_period_ns
        processes_due = (
            self._processes_ns is None or now_ns - self._processes_ns >= PROCESSES_PERIOD_NS
        )
        self._limits_ns = now_ns if limits_due else self._limits_ns
        self._processes_ns = now_ns if processes_due else self._processes_ns
        extra = Extra(limits_due, processes_due)
        outcomes = self._reader.read_all(now_ns, extra)
        for i, outcome in enumerate(outcomes):
            self._samples[i] = self._update(i, outcome, derive=limits_due)
        self.rounds += 1
        return self.samples()

    def samples(self) -> tuple[DeviceSample, ...]:
        """Every device after the last round, in order of the reader's devices."""
        return tuple(self._samples)

    def history(self, uuid: GpuUuid) -> tuple[Point, ...]:
        """The ring of one device, oldest first."""
        for sample, ring in zip(self._samples, self._rings, strict=True):
            if sample.identity.uuid == uuid:
                return tuple(ring)
        raise InputError("uuid", "a device of this node", uuid)

    def missing_share(self) -> float:
        """Share of devices without a fresh reading, 0 to 1; 1 before the first round."""
        missing = sum(not sample.fresh for sample in self._samples)
        return missing / len(self._samples) if self._samples else 0.0

    def _update(self, i: int, outcome: Outcome, *, derive: bool) -> DeviceSample:
        """The device after one outcome; the energy mean is derived once a second, to save CPU."""
        sample = self._samples[i]
        if outcome.reading is None:
            return replace(sample, error=outcome.error)
        reading = outcome.reading
        if nonsense := _nonsense(reading):
            return replace(sample, error=GpuStale(f"{sample.identity.uuid}: {nonsense}"))
        doubt = self._watches[i].look(reading)
        ring = self._rings[i]
        ring.append((reading.monotonic_ns, reading.draw_watts, reading.energy_joules))
        while ring[0][0] < reading.monotonic_ns - self._ring_ns:
            ring.popleft()
        counts = sample.xid_counts
        if reading.xid_events:
            counts = dict(counts)
            for xid in reading.xid_events:
                counts[xid] = counts.get(xid, 0) + 1
        # Written out: ``replace`` costs three times as much, for every device and every round.
        return DeviceSample(
            identity=sample.identity,
            reading=reading,
            limits=outcome.limits if _can_be(outcome.limits) else sample.limits,
            max_clock_mhz=outcome.max_clock_mhz or sample.max_clock_mhz,
            processes=sample.processes if outcome.processes is None else outcome.processes,
            error=GpuStale(f"{sample.identity.uuid}: {doubt}") if doubt else None,
            energy_mean_watts=_energy_mean(ring) if derive else sample.energy_mean_watts,
            max_rise_watts=self._rises[i].add(reading.monotonic_ns, reading.draw_watts),
            xid_counts=counts,
        )
