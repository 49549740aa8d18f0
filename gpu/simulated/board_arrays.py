"""Many simulated GPU boards as arrays, with the behaviour that real boards show.

A power limit works late and not exactly. It is read back at once; lowered, it acts after the
board's own delay. The board holds what its *sensor* reads, which is up to 5 % off, so the error
moves the true draw; it holds worse below its knee and cannot go below what the silicon needs. How
it holds is the regulation's (``board_regulation``). Limits and locks vanish on reboot and driver
reload. Sensors average over the trailing second or show samples (``PowerSensor``); they and the
energy counter carry the same gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpu.device import GpuInvalidArgument
from gpu.simulated.board_regulation import LONGEST_TICK_SECONDS, FirstOrderLag, Regulation
from gpu.simulated.board_spec import (
    BELOW_KNEE_EXCESS,
    CLOCK_POWER_EXPONENT,
    SENSOR_GAIN_SPREAD,
    SENSOR_WINDOW_SECONDS,
    WORST_EXCESS,
    WORST_SHARE,
    BoardSpec,
    Bools,
    Floats,
    PowerAtClock,
    power_at_clock,
)
from gpu.simulated.late_limits import NO_DELAYS, LateLimits, WriteDelays
from gpu.simulated.power_samples import PowerSamples
from gpu.simulated.recent_draws import RecentDraws
from gpu.simulated.simulated_device import SimulatedDevice, SimulatedDriver
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, NodeName, seconds_to_ns

__all__ = [
    "BoardBank",
    "BoardSpec",
    "Bools",
    "Floats",
    "PowerAtClock",
    "WriteDelays",
    "power_at_clock",
]

_LONGEST_TICK_NS = seconds_to_ns(LONGEST_TICK_SECONDS)


class _Regulated(NamedTuple):
    """Limits in true watts, and what they were made from, (n,) each."""

    acting_watts: Floats
    gain: Floats
    ignores: Bools
    watts: Floats


class SensedBoard(NamedTuple):
    """One board after a step, in watts and joules; what its sensors add is in the last three."""

    demand_watts: float
    idle_watts: float
    drawn_watts: float
    shed_watts: float
    draw_watts: float
    instant_draw_watts: float
    energy_joules: float


class BoardBank:
    """The physical state of n boards; the same seed and calls give the same bits.

    Args:
        specs: One a board; uuids unique.
        seed: Of the per-board sensor gains and excesses.
        start_ns: The time of the first state.
        clock_model: Watts at a locked clock.
        regulation: How boards hold their limits; made for these boards.
        delays: Of what is written; none leaves all lag to the regulation.
    """

    def __init__(
        self,
        specs: Sequence[BoardSpec],
        *,
        seed: int | np.random.Generator = 0,
        start_ns: int = 0,
        clock_model: PowerAtClock = power_at_clock,
        regulation: Regulation | None = None,
        delays: WriteDelays = NO_DELAYS,
    ) -> None:
        self.specs = tuple(specs)
        self.index_of = {spec.uuid: i for i, spec in enumerate(self.specs)}
        if len(self.index_of) != len(self.specs):
            raise InputError("specs", "unique uuids", [spec.uuid for spec in self.specs][:5])
        self._clock_model = clock_model
        self._regulation = regulation or FirstOrderLag()
        self._lock_delay_ns = seconds_to_ns(delays.lock_seconds)
        self._take_constants()
        self._draw_spread(np.random.default_rng(seed))
        self._start_state(start_ns)
        lowered = np.broadcast_to(np.asarray(delays.cap_seconds, dtype=np.float64), (len(self),))
        self._acting = LateLimits(self.limit_watts, lowered)

    def _take_constants(self) -> None:
        def column(name: str) -> Floats:
            return np.array([getattr(s, name) for s in self.specs], dtype=np.float64)

        self.idle_watts = column("idle_watts")
        self.default_limit_watts = column("default_limit_watts")
        self.min_limit_watts = column("min_limit_watts")
        self.max_limit_watts = column("max_limit_watts")
        self.max_clock_mhz = column("max_clock_mhz")
        self.min_clock_mhz = column("min_clock_mhz")
        knee, hold = column("knee_watts"), column("hold_watts")
        self.knee_watts = np.where(knee > 0, knee, 0.55 * self.default_limit_watts)
        self.hold_watts = np.where(hold > 0, hold, 0.9 * self.min_limit_watts)
        self._knee_room_watts = np.maximum(self.knee_watts - self.min_limit_watts, 1e-9)
        self._samples = PowerSamples(self.specs)

    def _draw_spread(self, generator: np.random.Generator) -> None:
        n = len(self.specs)
        self.sensor_gain = 1.0 + generator.uniform(-SENSOR_GAIN_SPREAD, SENSOR_GAIN_SPREAD, n)
        worst = generator.uniform(0.02, WORST_EXCESS, n)
        self._excess = np.where(generator.random(n) < WORST_SHARE, worst, 0.0)

    def _start_state(self, start_ns: int) -> None:
        n = len(self.specs)
        self._start_ns = self.now_ns = start_ns
        self.limit_watts = self.default_limit_watts.copy()
        self.lock_max_mhz = np.zeros(n)  # 0 = no lock
        self._seen_lock_mhz = np.zeros(n)
        self._acting_lock_mhz = np.zeros(n)
        self._lock_acts_ns = start_ns
        self.drawn_watts = self.idle_watts.copy()  # mean of the last step
        self.demand_watts = self.idle_watts.copy()
        self.shed_watts = np.zeros(n)
        self._instant_watts = self.idle_watts.copy()  # mean of the last tick
        self._history = RecentDraws(self.idle_watts, SENSOR_WINDOW_SECONDS)
        self.counted_joules = np.zeros(n)  # as the sensors read it; no driver reload resets it
        self._counted_at_load = np.zeros(n)
        self._boots = {spec.node: 1 for spec in self.specs}
        self._regulated: _Regulated | None = None
        self._sensed: dict[str, Floats] = {}  # of this step; each device view asks again
        self._rows: list[SensedBoard] | None = None
        self.silent_writes: Bools = np.zeros(n, dtype=np.bool_)
        self.ignores_cap: Bools = np.zeros(n, dtype=np.bool_)
        self.hung: Bools = np.zeros(n, dtype=np.bool_)
        self.lost: Bools = np.zeros(n, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.specs)

    # -- physics ---------------------------------------------------------------------------------

    def advance(self, demand_watts: Floats, now_ns: int) -> Floats:
        """Move to ``now_ns`` under a demand; the mean watts drawn since the last call, (n,).

        Args:
            demand_watts: What the work would draw at full clock and without a limit, (n,).
            now_ns: Later than the last call.

        Raises:
            InputError: for a wrong shape, a value that is not finite or negative, or time that
                does not move on; nothing is changed then.
        """
        demand = np.asarray(demand_watts, dtype=np.float64)
        # NaN is neither at least 0 nor below infinity.
        usable = demand.shape == (len(self),) and 0.0 <= demand.min() <= demand.max() < np.inf
        if not usable:
            raise InputError("demand_watts", f"({len(self)},) finite watts >= 0", demand_watts)
        if now_ns <= self.now_ns:
            raise InputError("now_ns", f"a time after {self.now_ns}", now_ns)
        seconds = (now_ns - self.now_ns) / NS_PER_SECOND
        self.demand_watts = demand.copy()
        if self.lost.any():
            self.demand_watts[self.lost] = self.idle_watts[self.lost]
        before = self._history.joules
        wanted_watts = self._play(np.maximum(self.demand_watts, self.idle_watts), now_ns)
        mean_watts = (self._history.joules - before) / seconds
        self.counted_joules = self.counted_joules + mean_watts * self.sensor_gain * seconds
        self.drawn_watts = mean_watts
        self.shed_watts = np.maximum(wanted_watts - mean_watts, 0.0)
        self._sensed.clear()
        self._rows = None
        return mean_watts

    def _play(self, demand_watts: Floats, to_ns: int) -> Floats:
        """Tick to a time; what the work wanted at the acting clocks on the way, mean, (n,)."""
        begin_ns = self.now_ns
        self._acting.take_in(self.limit_watts, begin_ns)
        self._take_in_locks()
        change_ns = min(max(self._lock_acts_ns, begin_ns), to_ns)
        mean = np.zeros(len(self))
        for end_ns in (change_ns, to_ns):
            if end_ns > self.now_ns:
                wanted = self._at_clock(demand_watts)
                mean += wanted * ((end_ns - self.now_ns) / (to_ns - begin_ns))
                self._tick(wanted, end_ns)
            if self._lock_acts_ns <= end_ns:
                self._acting_lock_mhz = self._seen_lock_mhz
        return mean

    def _take_in_locks(self) -> None:
        if not (self.lock_max_mhz != self._seen_lock_mhz).any():
            return
        self._acting_lock_mhz = self._seen_lock_mhz  # what was on its way acts by now
        self._seen_lock_mhz = self.lock_max_mhz.copy()
        self._lock_acts_ns = self.now_ns + self._lock_delay_ns

    def _tick(self, wanted_watts: Floats, to_ns: int) -> None:
        begin_ns, span_ns = self.now_ns, to_ns - self.now_ns
        count = -(-span_ns // _LONGEST_TICK_NS)
        limit_watts = self._regulated_watts()
        for tick in range(1, count + 1):
            end_ns = begin_ns + span_ns * tick // count
            seconds = (end_ns - self.now_ns) / NS_PER_SECOND
            if self._acting.come_due((self.now_ns + end_ns) // 2):
                limit_watts = self._regulated_watts()
            drawn = self._regulation.hold(wanted_watts, limit_watts, self.hold_watts, seconds)
            drawn = np.maximum(drawn, self.idle_watts)
            self._history.add(drawn, seconds)
            self._instant_watts = drawn
            self.now_ns = end_ns

    def _at_clock(self, demand_watts: Floats) -> Floats:
        locked = self._acting_lock_mhz > 0
        if not locked.any():
            return demand_watts
        clock = np.where(locked, self._acting_lock_mhz, self.max_clock_mhz)
        watts = self._clock_model(clock, self.max_clock_mhz, demand_watts, self.idle_watts)
        return np.where(locked, np.minimum(watts, demand_watts), demand_watts)

    def _regulated_watts(self) -> Floats:
        """The limits that act, in true watts: a board that reads too much holds less, (n,).

        The same array as long as nothing changes, so that regulations see at once that it did not.
        """
        seen = self._regulated
        if seen is not None and not (
            (self._acting.watts != seen.acting_watts).any()
            or (self.sensor_gain != seen.gain).any()
            or (self.ignores_cap != seen.ignores).any()
        ):
            return seen.watts
        acting = self._acting.watts
        depth = np.clip((self.knee_watts - acting) / self._knee_room_watts, 0.0, 1.0)
        excess = self._excess + depth * (BELOW_KNEE_EXCESS - self._excess)
        watts = acting * (1.0 + excess) / self.sensor_gain
        watts[self.ignores_cap] = np.inf
        self._regulated = _Regulated(
            acting.copy(), self.sensor_gain.copy(), self.ignores_cap.copy(), watts
        )
        return watts

    # -- sensors ---------------------------------------------------------------------------------

    def sensed_draw_watts(self) -> Floats:
        """Sensed mean over the trailing second, or the newest sample where there is none, (n,)."""
        if "average" not in self._sensed:
            mean = self._history.mean_watts(SENSOR_WINDOW_SECONDS)
            if self._samples.any_average:
                mean = np.where(self._samples.of_average, self._sample_watts(), mean)
            self._sensed["average"] = mean * self.sensor_gain
        return self._sensed["average"]

    def sensed_instant_draw_watts(self) -> Floats:
        """Sensed power of the latest window at the end of the last step, (n,).

        The last tick, of at most 100 ms, or the newest sample: what a board does in less than a
        tick is in the tick's mean.
        """
        if not self._samples.any_latest:
            return self._instant_watts * self.sensor_gain
        watts = np.where(self._samples.of_latest, self._sample_watts(), self._instant_watts)
        return np.asarray(watts * self.sensor_gain)

    def _sample_watts(self) -> Floats:
        if "sample" not in self._sensed:
            since = (self.now_ns - self._start_ns) / NS_PER_SECOND
            self._sensed["sample"] = self._samples.newest_watts(self._history, since)
        return self._sensed["sample"]

    def counter_joules(self) -> Floats:
        """Energy counters since each board's driver was loaded, with the sensors' gain, (n,)."""
        return self.counted_joules - self._counted_at_load

    @property
    def energy_joules(self) -> Floats:
        """True energy since the bank began, (n,)."""
        return self._history.joules

    def sm_clock_mhz(self) -> Floats:
        """SM clocks that fit the last step's draw, (n,); the inverse of ``power_at_clock``."""
        if "clock" not in self._sensed:
            self._sensed["clock"] = self._sm_clock_mhz()
        return self._sensed["clock"]

    def _sm_clock_mhz(self) -> Floats:
        dynamic = np.maximum(self.demand_watts - self.idle_watts, 1e-9)
        share = np.clip((self.drawn_watts - self.idle_watts) / dynamic, 0.0, 1.0)
        busy = self.demand_watts > self.idle_watts * 1.02
        clock = np.where(
            busy, self.max_clock_mhz * share ** (1.0 / CLOCK_POWER_EXPONENT), self.min_clock_mhz
        )
        lock = self._acting_lock_mhz
        top = np.where(lock > 0, lock, self.max_clock_mhz)
        return np.clip(clock, np.minimum(self.min_clock_mhz, top), top)

    def sensed(self, i: int) -> SensedBoard:
        """What board i's sensors tell at the end of the last step.

        All boards are turned into numbers at once: picking one out of an array costs as much as
        the arithmetic on all of them.
        """
        if self._rows is None:
            columns = (
                self.demand_watts,
                self.idle_watts,
                self.drawn_watts,
                self.shed_watts,
                self.sensed_draw_watts(),
                self.sensed_instant_draw_watts(),
                self.counter_joules(),
            )
            self._rows = [
                SensedBoard(*row) for row in zip(*(c.tolist() for c in columns), strict=True)
            ]
        return self._rows[i]

    # -- writes ----------------------------------------------------------------------------------

    def set_limits(self, limit_watts: Floats, where: Bools | None = None) -> None:
        """Write limits (n,) to the boards selected; silent faults apply.

        Raises:
            GpuInvalidArgument: if any selected value is outside its board's range; nothing is
                written then.
        """
        limits = np.broadcast_to(np.asarray(limit_watts, dtype=np.float64), (len(self),))
        selected = np.ones(len(self), dtype=np.bool_) if where is None else where
        inside = (limits >= self.min_limit_watts) & (limits <= self.max_limit_watts)
        if not inside[selected].all():
            first = int(np.flatnonzero(selected & ~inside)[0])
            raise self._outside(first, limits[first])
        effective = selected & ~self.silent_writes & ~self.hung & ~self.lost
        self.limit_watts[effective] = limits[effective]

    def set_limit(self, i: int, watts: float) -> None:
        """Write one board's limit; silent faults apply.

        Raises:
            GpuInvalidArgument: if the value is outside the board's range.
        """
        if not self.min_limit_watts[i] <= watts <= self.max_limit_watts[i]:
            raise self._outside(i, watts)
        if not (self.silent_writes[i] or self.hung[i] or self.lost[i]):
            self.limit_watts[i] = watts

    def _outside(self, i: int, watts: float) -> GpuInvalidArgument:
        return GpuInvalidArgument(
            f"{self.specs[i].uuid}: {watts} W is outside "
            f"{self.min_limit_watts[i]:g} to {self.max_limit_watts[i]:g} W"
        )

    def set_lock(self, i: int, max_mhz: int) -> None:
        """Lock board i's clock at ``max_mhz``; 0 unlocks.

        Raises:
            GpuInvalidArgument: if the clock is outside the board's range.
        """
        if max_mhz and not self.min_clock_mhz[i] <= max_mhz <= self.max_clock_mhz[i]:
            raise GpuInvalidArgument(f"{self.specs[i].uuid}: {max_mhz} MHz cannot be locked")
        if not self.silent_writes[i]:
            self.lock_max_mhz[i] = max_mhz

    # -- events ----------------------------------------------------------------------------------

    def reload_driver(self, node: NodeName) -> None:
        """Limits return to default, locks vanish and counters restart on one node's boards."""
        boards = np.array([spec.node == node for spec in self.specs], dtype=np.bool_)
        if not boards.any():
            raise InputError("node", "a node with boards", node)
        self.limit_watts[boards] = self.default_limit_watts[boards]
        self.lock_max_mhz[boards] = 0
        self._counted_at_load = np.where(boards, self.counted_joules, self._counted_at_load)
        self._rows = None

    def reboot(self, node: NodeName) -> None:
        """A driver reload with a new boot id; stuck and lost boards come back."""
        self.reload_driver(node)
        self._boots[node] += 1
        boards = np.array([spec.node == node for spec in self.specs], dtype=np.bool_)
        self.hung[boards] = False
        self.lost[boards] = False

    def boot_id(self, node: NodeName) -> str:
        """Changes on every reboot of the node."""
        return f"{node}-boot-{self._boots[node]}"

    # -- views -----------------------------------------------------------------------------------

    def device(self, i: int, *, writable: bool = True) -> SimulatedDevice:
        """Board i behind the device port."""
        return SimulatedDevice(self, i, writable=writable)

    def driver(self, node: NodeName, *, writable: bool = True) -> SimulatedDriver:
        """One node's boards behind the driver port; ``writable=False`` refuses every write."""
        return SimulatedDriver(self, node, writable=writable)
