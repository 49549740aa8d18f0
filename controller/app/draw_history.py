"""Keeps the draw of every domain where the forecaster reads it (embedded installations)."""

from __future__ import annotations

import logging

import numpy as np

from controller.app.live_view_builder import gpus_by_domain
from controller.app.tick_loop import TickOutcome
from controller.cap_reason import CapReason
from controller.day_maximum import HOUR_NS, HOURS
from forecasting.series_source import SeriesId
from forecasting.sqlite.history_store import DEFAULT_RETENTION, HistoryStore
from wattpack.errors import WattpackError
from wattpack.sqlite_retention import TICK_BUSY_SECONDS, Retention
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
SERIES = "domain_draw_watts/"
HELD_SERIES = "domain_held_share/"
"""Share of a domain's GPUs that caps hold below their request: what they draw is no demand."""

_NOT_HELD = (
    CapReason.NOT_CAPPED,
    CapReason.UNCONTROLLED,
    CapReason.UNTRUSTED,
    CapReason.DRY_RUN,
)
# Ten samples a ten-minute bin would do; twenty keep the maximum honest.
PERIOD_NS = 30 * NS_PER_SECOND


class DrawHistory:
    """Appends every half minute; on a cluster Prometheus does this and the file name is empty.

    Only what was measured is kept: a forecast learnt from assumed draws would expect them again.

    Args:
        file: The history; empty keeps none.
        retention: How much of it is kept.
    """

    def __init__(self, file: str, retention: Retention = DEFAULT_RETENTION) -> None:
        self._store = HistoryStore(file, TICK_BUSY_SECONDS, retention=retention) if file else None
        self._taken_ns = -PERIOD_NS
        self.failures = 0
        self.size_bytes = 0

    def take(self, outcome: TickOutcome) -> None:
        """Keep the outcome if a sample is due, and let go of what is too old or too much."""
        # A clock that is set back must not end the history until it is where it was.
        passed_ns = outcome.wall_time_ns - self._taken_ns
        if self._store is None or 0 <= passed_ns < PERIOD_NS:
            return
        self._taken_ns = outcome.wall_time_ns
        at_seconds = outcome.wall_time_ns / NS_PER_SECOND
        rows = [
            (at_seconds, f"{SERIES}{name}", watts) for name, watts in outcome.measured_watts.items()
        ]
        held = _held_shares(outcome)
        rows += [(at_seconds, f"{HELD_SERIES}{n}", held[n]) for n in outcome.measured_watts]
        try:
            self._store.append(rows)
            self._store.compact(at_seconds)
            self.size_bytes = self._store.size_bytes()
        except WattpackError as error:
            self.failures += 1
            log.error("draw not kept: %s", error)

    def hourly_maxima(self, wall_time_ns: int) -> dict[str, dict[int, float]]:
        """Highest draw by domain and hour (since 1970) of the last day, as it was recorded."""
        if self._store is None:
            return {}
        hour = wall_time_ns // HOUR_NS
        try:
            names = [SeriesId(n) for n in self._store.names() if n.startswith(SERIES)]
            found = self._store.fetch_statistic(
                names, (hour - HOURS) * 3600, hour * 3600, 3600, "maximum"
            )
        except WattpackError as error:
            log.warning("no earlier draws: %s", error)
            return {}
        return {
            name.removeprefix(SERIES): {
                hour - HOURS + i: watts for i, watts in enumerate(row.tolist()) if watts == watts
            }
            for name, row in zip(names, found, strict=True)
        }

    def close(self) -> None:
        """Close the file."""
        if self._store is not None:
            self._store.close()


def _held_shares(outcome: TickOutcome) -> dict[str, float]:
    """Of each domain's GPUs, 0 for a domain without any."""
    topology = outcome.topology
    held = ~np.isin(outcome.decisions.reason, _NOT_HELD)
    direct = np.bincount(
        topology.domain_of_gpu, weights=held.astype(np.float64), minlength=topology.n_domains
    ).astype(np.float64)
    shares = topology.tree.sum_up(direct) / np.maximum(gpus_by_domain(topology), 1)
    return dict(zip(topology.tree.names, shares.tolist(), strict=True))
