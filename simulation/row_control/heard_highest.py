"""What agents remember of a gap: the highest reading of each board since a report that was heard.

An answer that echoes a report's nonce says that the report was heard. Until the next one comes the
highest reading counts from that report on, so that the first report after a silence tells of all
of it. A reading that stood still for five looks while the board's counter disagrees makes the whole
silence untold.
"""

from __future__ import annotations

import numpy as np

from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND

SAME_LOOKS = 5
DISAGREES_SHARE, DISAGREES_WATTS = 0.10, 10.0


class HighestReadings:
    """Of all boards of a row.

    Args:
        shape: Nodes and boards of each.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        n = shape[0]
        #: Since the report that was heard last, and since the newest report.
        self._heard, self._newest = np.zeros(shape), np.zeros(shape)
        self._heard_ns: Integers = np.zeros(n, dtype=np.int64)
        self._newest_ns: Integers = np.zeros(n, dtype=np.int64)
        self._nonce: Integers = np.full(n, -1, dtype=np.int64)
        self._joules, self._joules_ns = np.full(shape, np.nan), np.zeros(n, dtype=np.int64)
        self._last, self._same = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
        self._answers: list[tuple[Integers, Integers, Integers]] = []

    def look(self, shown_watts: Floats) -> None:
        """Take what the sensors show now, (n_nodes, g)."""
        np.maximum(self._newest, shown_watts, out=self._newest)
        self._same = np.where(shown_watts == self._last, self._same + 1, 1)
        self._last = shown_watts.copy()

    def answered(self, nodes: Integers, nonces: Integers, arrival_ns: Integers) -> None:
        """Answers that will arrive at these times, (k,) each."""
        self._answers.append((nodes, nonces, arrival_ns))

    def told(
        self, nodes: Integers, at_ns: Integers, watts: Floats, joules: Floats
    ) -> tuple[Floats, Integers]:
        """Highest readings of these nodes and since when, for reports that are made now.

        Args:
            nodes: That report, (k,).
            at_ns: When, (k,).
            watts: Their readings in them, (k, g).
            joules: Their counters, (k, g).
        """
        self._take_answers(int(at_ns.max()))
        seconds = (at_ns - self._joules_ns[nodes])[:, None] / NS_PER_SECOND
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (joules - self._joules[nodes]) / seconds
            agrees = np.abs(mean - watts) <= DISAGREES_SHARE * watts + DISAGREES_WATTS
        stands = (self._same[nodes] >= SAME_LOOKS) & ~agrees
        newest = np.where(stands, np.nan, np.maximum(self._newest[nodes], watts))
        highest = np.maximum(self._heard[nodes], newest)
        since_ns = self._heard_ns[nodes]
        self._heard[nodes], self._newest[nodes] = highest, np.where(stands, np.nan, watts)
        self._newest_ns[nodes] = self._joules_ns[nodes] = at_ns
        self._joules[nodes] = joules
        return highest, since_ns

    def reported(self, nodes: Integers, nonces: Integers) -> None:
        """The nonces of the reports just made, (k,)."""
        self._nonce[nodes] = nonces

    def began_anew(self, nodes: Bools | Integers, now_ns: Integers | int) -> None:
        """An agent that starts knows nothing of before."""
        self._heard[nodes] = self._newest[nodes] = 0.0
        self._heard_ns[nodes] = self._newest_ns[nodes] = now_ns

    def _take_answers(self, until_ns: int) -> None:
        waiting = []
        for nodes, nonces, arrival_ns in self._answers:
            here = arrival_ns <= until_ns
            mine = nodes[here & (nonces == self._nonce[nodes])]
            self._heard[mine], self._heard_ns[mine] = self._newest[mine], self._newest_ns[mine]
            if not here.all():
                waiting.append((nodes[~here], nonces[~here], arrival_ns[~here]))
        self._answers = waiting
