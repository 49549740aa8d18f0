"""An energy counter that is cheap to read often.

Reading the counter costs the driver 2.5 to 6.4 ms of CPU time on an H200, power at most 0.25 ms
(measured, ``tests/telemetry/fixtures/h200``): eight boards at 5 Hz would take a quarter of a core.
So the counter is read seldom and carried forward with the board's own 1 s average in between. Over
the recorded load steps the two agree within 0.4 %; after a step the carried value lags half a
second.
"""

from __future__ import annotations

from wattpack.units import NS_PER_SECOND

COUNTER_PERIOD_NS = 30 * NS_PER_SECOND
"""0.02 % of a core a board at 6.1 ms a read. What drifted by then moves a 3 s mean by at most
4 % (0.4 % of 30 s over 3 s), within the 10 % that I7 allows."""

SUSPECT_PERIOD_NS = NS_PER_SECOND
"""While a board draws more than its limit allows, I7 needs the counter itself."""

SUSPECT_RATIO = 1.05
"""The steady overshoot that I1 counts with; I7 distrusts a board at 1.10."""


class EnergyEstimate:
    """Joules since driver load: the counter where it was just read, carried forward otherwise.

    It never falls, except when the counter itself restarts with the driver.
    """

    def __init__(self) -> None:
        self._joules: float | None = None
        self._at_ns = 0
        self._counter_joules = 0.0
        self._counter_ns: int | None = None

    def counter_due(
        self, now_ns: int, draw_watts: float, limit_watts: float | None, *, doubtful: bool = False
    ) -> bool:
        """Whether the counter should be read in this round.

        Args:
            now_ns: Of the round.
            draw_watts: The power reading of the round.
            limit_watts: The enforced limit, None while unknown.
            doubtful: The power readings stand still and need the counter's word.
        """
        if self._counter_ns is None:
            return True
        suspect = limit_watts is not None and draw_watts > SUSPECT_RATIO * limit_watts
        suspect |= doubtful
        period_ns = SUSPECT_PERIOD_NS if suspect else COUNTER_PERIOD_NS
        return now_ns - self._counter_ns >= period_ns

    def carry(self, now_ns: int, draw_watts: float) -> float | None:
        """The estimate after a round without a counter reading; None before the first one."""
        if self._joules is not None:
            self._joules += draw_watts * max(0, now_ns - self._at_ns) / NS_PER_SECOND
            self._at_ns = now_ns
        return self._joules

    def anchor(self, now_ns: int, draw_watts: float, counter_joules: float) -> float:
        """The estimate after a round with a counter reading."""
        carried = self.carry(now_ns, draw_watts)
        restarted = counter_joules < self._counter_joules
        self._joules = (
            counter_joules if carried is None or restarted else max(carried, counter_joules)
        )
        self._at_ns = now_ns
        self._counter_joules = counter_joules
        self._counter_ns = now_ns
        return self._joules
