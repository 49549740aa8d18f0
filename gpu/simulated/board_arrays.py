"""Many simulated GPU boards as arrays, with the behaviour that real boards show.

A power limit works late and not exactly: the board sheds what lies above the limit with a
first-order lag, holds a little more than asked, holds worse below its knee, and cannot go below
what the silicon needs. Limits and locks vanish on reboot and driver reload. Sensors average over
the trailing second and carry a per-board gain; the energy counter is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpu.device import GpuInvalidArgument
from gpu.simulated.board_spec import (
    BELOW_KNEE_OVERSHOOT,
    CLOCK_POWER_EXPONENT,
    SENSOR_GAIN_SPREAD,
    SENSOR_WINDOW_NS,
    SETTLE_SECONDS,
    TYPICAL_OVERSHOOT,
    WORST_OVERSHOOT,
    WORST_SHARE,
    BoardSpec,
    Bools,
    Floats,
    PowerAtClock,
    power_at_clock,
)
from gpu.simulated.simulated_device import SimulatedDevice, SimulatedDriver
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, NodeName

__all__ = [
    "SETTLE_SECONDS",
    "BoardBank",
    "BoardSpec",
    "Bools",
    "Floats",
    "PowerAtClock",
    "power_at_clock",
]


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
        seed: Of the per-board sensor gains and overshoots.
        start_ns: The time of the first state.
        clock_model: Watts at a locked clock.
        regulates_by_sensor: True lets a board hold its *sensed* power to the limit, so that the
            gain error moves the true draw too, as on real boards; False keeps the draw within
            limit x overshoot.
    """

    def __init__(
        self,
        specs: Sequence[BoardSpec],
        *,
        seed: int | np.random.Generator = 0,
        start_ns: int = 0,
        clock_model: PowerAtClock = power_at_clock,
        regulates_by_sensor: bool = False,
    ) -> None:
        self.specs = tuple(specs)
        self.index_of = {spec.uuid: i for i, spec in enumerate(self.specs)}
        if len(self.index_of) != len(self.specs):
            raise InputError("specs", "unique uuids", [spec.uuid for spec in self.specs][:5])
        self._clock_model = clock_model
        self._regulates_by_sensor = regulates_by_sensor
        self._take_constants()
        self._draw_spread(np.random.default_rng(seed))
        self._start_state(start_ns)

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
        # 95 % of a first-order response has come after three time constants.
        self._tau_seconds = np.maximum(column("settle_seconds") / 3.0, 1e-9)

    def _draw_spread(self, generator: np.random.Generator) -> None:
        n = len(self.specs)
        self.sensor_gain = 1.0 + generator.uniform(-SENSOR_GAIN_SPREAD, SENSOR_GAIN_SPREAD, n)
        typical = generator.uniform(0.0, TYPICAL_OVERSHOOT, n)
        worst = generator.uniform(TYPICAL_OVERSHOOT, WORST_OVERSHOOT, n)
        self._overshoot = np.where(generator.random(n) < WORST_SHARE, worst, typical)

    def _start_state(self, start_ns: int) -> None:
        n = len(self.specs)
        self.now_ns = start_ns
        self.limit_watts = self.default_limit_watts.copy()
        self.lock_max_mhz = np.zeros(n)  # 0 = no lock
        self.drawn_watts = self.idle_watts.copy()
        self.demand_watts = self.idle_watts.copy()
        self.shed_watts = np.zeros(n)
        self.energy_joules = np.zeros(n)  # since start of the bank, never reset
        self._energy_at_load = np.zeros(n)
        self._window: deque[tuple[int, Floats]] = deque([(start_ns, self.energy_joules.copy())])
        self._boots = {spec.node: 1 for spec in self.specs}
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
        if demand.shape != (len(self),) or not np.isfinite(demand).all() or (demand < 0).any():
            raise InputError("demand_watts", f"({len(self)},) finite watts >= 0", demand_watts)
        if now_ns <= self.now_ns:
            raise InputError("now_ns", f"a time after {self.now_ns}", now_ns)
        seconds = (now_ns - self.now_ns) / NS_PER_SECOND
        self.demand_watts = np.where(self.lost, self.idle_watts, demand)
        wanted = self._at_clock(np.maximum(self.demand_watts, self.idle_watts))
        target = np.maximum(0.0, wanted - self.held_limit_watts())
        target[self.ignores_cap] = 0.0
        decay = np.exp(-seconds / self._tau_seconds)
        gap = self.shed_watts - target
        mean_shed = target + gap * self._tau_seconds / seconds * (1.0 - decay)
        self.shed_watts = target + gap * decay
        mean_watts = np.clip(wanted - mean_shed, self.idle_watts, None)
        self.drawn_watts = np.clip(wanted - self.shed_watts, self.idle_watts, None)
        self.energy_joules = self.energy_joules + mean_watts * seconds
        self.now_ns = now_ns
        self._sensed.clear()
        self._rows = None
        self._remember()
        return mean_watts

    def _at_clock(self, demand_watts: Floats) -> Floats:
        locked = self.lock_max_mhz > 0
        if not locked.any():
            return demand_watts
        clock = np.where(locked, self.lock_max_mhz, self.max_clock_mhz)
        watts = self._clock_model(clock, self.max_clock_mhz, demand_watts, self.idle_watts)
        return np.where(locked, np.minimum(watts, demand_watts), demand_watts)

    def held_limit_watts(self) -> Floats:
        """What the boards really settle at under full load, (n,)."""
        room = np.maximum(self.knee_watts - self.min_limit_watts, 1e-9)
        depth = np.clip((self.knee_watts - self.limit_watts) / room, 0.0, 1.0)
        overshoot = self._overshoot + depth * (BELOW_KNEE_OVERSHOOT - self._overshoot)
        held = self.limit_watts * (1.0 + overshoot)
        if self._regulates_by_sensor:
            held = held / self.sensor_gain
        return np.asarray(np.maximum(held, self.hold_watts), dtype=np.float64)

    def _remember(self) -> None:
        self._window.append((self.now_ns, self.energy_joules))
        # One entry older than the window stays: the average interpolates from it.
        while len(self._window) > 2 and self._window[1][0] <= self.now_ns - SENSOR_WINDOW_NS:
            self._window.popleft()

    # -- sensors ---------------------------------------------------------------------------------

    def sensed_draw_watts(self) -> Floats:
        """Sensed mean over the trailing second, (n,)."""
        if "average" not in self._sensed:
            self._sensed["average"] = self._average_draw_watts()
        return self._sensed["average"]

    def _average_draw_watts(self) -> Floats:
        begin_ns = max(self.now_ns - SENSOR_WINDOW_NS, self._window[0][0])
        if begin_ns >= self.now_ns:
            return self.drawn_watts * self.sensor_gain
        (t0, e0), (t1, e1) = self._window[0], self._window[1]
        share = min(1.0, max(0.0, (begin_ns - t0) / (t1 - t0)))
        begin_joules = e0 + share * (e1 - e0)
        seconds = (self.now_ns - begin_ns) / NS_PER_SECOND
        return (self.energy_joules - begin_joules) / seconds * self.sensor_gain

    def sensed_instant_draw_watts(self) -> Floats:
        """Sensed power at the end of the last step, (n,)."""
        return self.drawn_watts * self.sensor_gain

    def counter_joules(self) -> Floats:
        """Energy counters since each board's driver was loaded, (n,)."""
        return self.energy_joules - self._energy_at_load

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
        top = np.where(self.lock_max_mhz > 0, self.lock_max_mhz, self.max_clock_mhz)
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
        self._energy_at_load = np.where(boards, self.energy_joules, self._energy_at_load)
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
