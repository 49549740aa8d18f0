"""Limits as they act: what was lowered acts late, what was raised acts at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu.simulated.board_spec import Bools, Floats
from wattpack.units import NS_PER_SECOND


class WriteDelays(NamedTuple):
    """How late a write acts.

    Attributes:
        cap_seconds: A lowered limit, (n,) or one for all; a raised one acts at once.
        lock_seconds: A clock lock, set or removed.
    """

    cap_seconds: Floats | float = 0.0
    lock_seconds: float = 0.0


NO_DELAYS = WriteDelays()


class LateLimits:
    """The acting limit of every board: the highest that was written within its delay.

    Attributes:
        watts: As they act, (n,).
        seen_watts: As they were written when that was last noted, (n,).

    Args:
        limit_watts: As written and long in force, (n,).
        delay_seconds: Until a lowered limit acts, (n,).
    """

    def __init__(self, limit_watts: Floats, delay_seconds: Floats) -> None:
        self.watts = limit_watts.copy()
        self._delay_ns = np.rint(delay_seconds * NS_PER_SECOND).astype(np.int64)
        self.seen_watts = limit_watts.copy()
        # Lowered limits that do not act yet, in the order in which they were written.
        self._board = np.zeros(0, dtype=np.int64)
        self._at_ns = np.zeros(0, dtype=np.int64)
        self._lower_watts = np.zeros(0)

    def take_in(self, limit_watts: Floats, now_ns: int) -> None:
        """Note what was written since the last call, at ``now_ns``."""
        changed: Bools = limit_watts != self.seen_watts
        if not changed.any():
            return
        self.seen_watts = limit_watts.copy()
        # What came to be raised again before it acted never acts any lower.
        self._lower_watts = np.maximum(self._lower_watts, limit_watts[self._board])
        lowered = np.flatnonzero(changed & (limit_watts < self.watts))
        self._board = np.concatenate([self._board, lowered])
        self._at_ns = np.concatenate([self._at_ns, now_ns + self._delay_ns[lowered]])
        self._lower_watts = np.concatenate([self._lower_watts, limit_watts[lowered]])
        self.watts = np.maximum(self.watts, limit_watts)

    @property
    def pending(self) -> bool:
        """Whether any lowered limit does not act yet."""
        return len(self._board) > 0

    def come_due(self, now_ns: int) -> bool:
        """Let act what was to act by ``now_ns``; whether anything changed."""
        if not self.pending:
            return False
        due = self._at_ns <= now_ns
        if not due.any():
            return False
        # A board's entries are in order of time: the last one stays.
        self.watts[self._board[due]] = self._lower_watts[due]
        left = ~due
        self._board, self._at_ns = self._board[left], self._at_ns[left]
        self._lower_watts = self._lower_watts[left]
        return True
