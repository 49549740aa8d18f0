"""How a board holds its power to a limit: the port of the board bank, and its plainest adapter.

The twin brings the regulation that was measured on real boards (``simulation/capping_boards``);
what runs without the capacity model sheds with a lag.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gpu.simulated.board_spec import Floats

SETTLE_SECONDS = 0.5
"""Time for 95 % of a limit's effect. Measured once, on an H200 at its 700 W limit: instantaneous
power was above 1.05 x limit until 0.42 s after a load began (tests/telemetry/fixtures/h200/
rise.json). That a *changed* limit settles alike is assumed: no setting was touched there."""

LONGEST_TICK_SECONDS = 0.1
"""A bank divides longer steps: boards answer within tenths of a second."""


class Regulation(Protocol):
    """The boards of one bank, with what each remembers."""

    def hold(
        self, wanted_watts: Floats, limit_watts: Floats, least_watts: Floats, seconds: float
    ) -> Floats:
        """Mean draw over the next tick, (n,).

        Args:
            wanted_watts: What the work draws at the present clock without a limit, (n,).
            limit_watts: Acting limit in true watts, infinite for a board that holds none, (n,).
            least_watts: To which work that wants more can be brought down, (n,).
            seconds: Length of the tick, at most ``LONGEST_TICK_SECONDS``.
        """
        ...


class FirstOrderLag:
    """Boards that shed what lies above their limit with a first-order lag.

    Args:
        settle_seconds: Until 95 % of a limit's effect has come.
    """

    def __init__(self, settle_seconds: float = SETTLE_SECONDS) -> None:
        # 95 % of a first-order response has come after three time constants.
        self._tau_seconds = settle_seconds / 3.0
        self._shed_watts: Floats | float = 0.0

    def hold(
        self, wanted_watts: Floats, limit_watts: Floats, least_watts: Floats, seconds: float
    ) -> Floats:
        """Mean draw over the next tick, integrated exactly, (n,)."""
        target = np.maximum(0.0, wanted_watts - np.maximum(limit_watts, least_watts))
        decay = np.exp(-seconds / self._tau_seconds)
        gap = self._shed_watts - target
        mean_shed = target + gap * self._tau_seconds / seconds * (1.0 - decay)
        self._shed_watts = target + gap * decay
        return np.asarray(np.maximum(wanted_watts - mean_shed, 0.0), dtype=np.float64)
