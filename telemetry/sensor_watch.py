"""Whether a board's power readings are of this moment (I7): against themselves and its counter.

readings ──> five identical ones ────────────┐
counter ───> confirms so steady a draw? ─────┴──> frozen
        └──> more energy than readings show ────> hidden

The controller judges the same from reports, but what it calls the counter is carried forward from
power between the counter's own readings (they cost 5 ms each). Only the node sees the counter
itself, so only the node can contradict a frozen sensor by it. Pure; one watch a board.
"""

from __future__ import annotations

from gpu.device import GpuReading
from wattpack.power.energy_trust import STALE_AFTER_SAME, agrees_with_counter, hides_energy
from wattpack.units import NS_PER_SECOND

CONFIRM_NS = NS_PER_SECOND
"""The shortest span of the counter that says something about power: it steps every 0.1 s."""

PATIENCE_NS = 5 * NS_PER_SECOND
"""So long may a counter take to confirm a steady reading; the adapter reads it once a second."""

BALANCE_NS = 20 * NS_PER_SECOND
"""Long enough that the lag of a 1 s average is small against what is compared."""

_LAG_SECONDS = 1.0


class SensorWatch:
    """Follows one board's readings."""

    __slots__ = (
        "_balance",
        "_began_ns",
        "_confirmed",
        "_counted",
        "_hides",
        "_highest",
        "_joules",
        "_last",
        "_lowest",
        "_same",
    )

    def __init__(self) -> None:
        self._last: GpuReading | None = None
        self._same = 0
        self._began_ns = 0
        self._counted: tuple[int, float] | None = None
        self._confirmed: bool | None = None
        self._balance: tuple[int, float] | None = None
        self._joules = 0.0
        self._lowest = self._highest = 0.0
        self._hides = False

    def look(self, reading: GpuReading) -> str:
        """Why one more reading is not believed; empty if it is."""
        last, self._last = self._last, reading
        if last is not None:
            seconds = (reading.monotonic_ns - last.monotonic_ns) / NS_PER_SECOND
            self._joules += reading.draw_watts * max(0.0, seconds)
        if (
            last is None
            or reading.draw_watts != last.draw_watts
            or reading.instant_draw_watts != last.instant_draw_watts
        ):
            self._same, self._began_ns = 1, reading.monotonic_ns
            self._counted = self._confirmed = None
            self._lowest = min(self._lowest, reading.draw_watts)
            self._highest = max(self._highest, reading.draw_watts)
        elif last.monotonic_ns != reading.monotonic_ns:
            self._same += 1
        if reading.counter_joules is not None:
            self._count(reading.monotonic_ns, reading.counter_joules, reading.draw_watts)
        return self._verdict(reading)

    def _count(self, now_ns: int, joules: float, draw_watts: float) -> None:
        """Take in one reading of the counter itself."""
        if self._counted is None or joules < self._counted[1]:
            self._counted = (now_ns, joules)
        elif now_ns - self._counted[0] >= CONFIRM_NS:
            mean_watts = _mean(self._counted, now_ns, joules)
            self._confirmed = agrees_with_counter(draw_watts, mean_watts)
        if self._balance is None or joules < self._balance[1]:
            self._begin_balance(now_ns, joules, draw_watts)
        elif now_ns - self._balance[0] >= BALANCE_NS:
            seconds = (now_ns - self._balance[0]) / NS_PER_SECOND
            lag_watts = (self._highest - self._lowest) * _LAG_SECONDS / seconds
            shown_watts = self._joules / seconds + lag_watts
            self._hides = hides_energy(shown_watts, _mean(self._balance, now_ns, joules))
            self._begin_balance(now_ns, joules, draw_watts)

    def _begin_balance(self, now_ns: int, joules: float, draw_watts: float) -> None:
        self._balance, self._joules = (now_ns, joules), 0.0
        self._lowest = self._highest = draw_watts

    def _verdict(self, reading: GpuReading) -> str:
        if self._same >= STALE_AFTER_SAME and self._confirmed is not True:
            waited_ns = reading.monotonic_ns - self._began_ns
            if self._confirmed is False or waited_ns >= PATIENCE_NS:
                return f"{self._same} identical readings that no energy counter confirms"
        return "more energy than its power readings show" if self._hides else ""


def _mean(since: tuple[int, float], now_ns: int, joules: float) -> float:
    return (joules - since[1]) * NS_PER_SECOND / (now_ns - since[0])
