"""BMCs of a small row in virtual time: what its servers draw as a whole, late."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks._lease_kind import HOST_WATTS
from controller.host_draws import READINGS_MAX_AGE_SECONDS, ServerReadings
from wattpack.units import NS_PER_SECOND, seconds_to_ns

if TYPE_CHECKING:
    from benchmarks._lease_row import Row

#: POLCA's row is told as late (arXiv 2308.12908, Table 1); assumed of BMCs.
PERIOD_NS = DELAY_NS = 2 * NS_PER_SECOND
SPREAD_WATTS: Final = 10.0


class Bmcs:
    """One a server; a scrape's stamp says nothing of how old its moment was.

    Args:
        row: Of the servers.
        seed: Of what they draw beside their boards, around ``HOST_WATTS``.
    """

    def __init__(self, row: Row, seed: int) -> None:
        self._row, self._rng = row, random.Random(f"{seed}/bmcs")
        tree = row.topology.tree
        self._efficiency = tree.supply_efficiency[row.topology.domain_of_node]
        self._on_the_way: deque[np.ndarray] = deque(maxlen=1 + DELAY_NS // PERIOD_NS)
        self._scraped_ns = -1
        self._measure()

    def _measure(self) -> None:
        row, n = self._row, self._row.topology.n_nodes
        boards = [board.draw_watts() for board in row.boards]
        spread = [self._rng.uniform(-SPREAD_WATTS, SPREAD_WATTS) for _ in range(n)]
        beside = HOST_WATTS + np.array(spread)
        watts = np.bincount(row.topology.node_of_gpu, boards, n) + beside
        self._on_the_way.append(watts / self._efficiency)
        if len(self._on_the_way) == self._on_the_way.maxlen:
            self._scraped_ns = row.now_ns
        row.after(PERIOD_NS, self._measure)

    def read(self, now_ns: int) -> ServerReadings:
        """The newest of each server, on a replica's clock that says ``now_ns``."""
        n = self._row.topology.n_nodes
        max_age_ns = seconds_to_ns(READINGS_MAX_AGE_SECONDS)
        if self._scraped_ns < 0:
            return ServerReadings(np.full(n, np.nan), np.full(n, -1, np.int64), max_age_ns)
        stamp_ns = now_ns - (self._row.now_ns - self._scraped_ns)
        return ServerReadings(self._on_the_way[0], np.full(n, stamp_ns, np.int64), max_age_ns)
