"""What boards' units did, out of a Prometheus that scrapes dcgm-exporter's profiling fields.

    DCGM_FI_PROF_* by UUID ──> thread, every 15 s ──> newest shares ──read()──> WorkloadWatch

For clusters that run dcgm-exporter already, and for boards whose agent may not read NVML's GPM. A
board counts while all four fields are of the last ``max_age_seconds``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np

from controller.app.told_once import ToldOnce
from controller.seen_work import UNITS
from controller.tick_values import Topology
from forecasting.prometheus.query import QueryApi, named_once
from wattpack.clock import Clock
from wattpack.errors import WattpackError
from wattpack.periodic import PeriodicThread
from wattpack.power.domain_tree import FloatArray
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["DcgmUnits", "NoUnits", "UnitsSource"]

log = logging.getLogger(__name__)

PERIOD_NS: Final = 15 * NS_PER_SECOND
SUBJECT: Final = "profiling fields of dcgm-exporter"

FIELDS: Final = dict(
    zip(
        UNITS,
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "DCGM_FI_PROF_SM_ACTIVE",
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            "DCGM_FI_PROF_DRAM_ACTIVE",
        ),
        strict=True,
    )
)


class UnitsSource(Protocol):
    """What boards' units did, by somebody else than their own agent."""

    def units(self, topology: Topology) -> FloatArray:
        """Shares in the order of ``UNITS``, NaN where nobody tells, (4, n_gpus); never waits."""
        ...


class NoUnits:
    """Nobody tells."""

    def units(self, topology: Topology) -> FloatArray:
        """All unknown."""
        return np.full((len(UNITS), topology.n_gpus), np.nan)


class DcgmUnits(PeriodicThread, UnitsSource):
    """The newest shares of every board that dcgm-exporter names.

    Args:
        api: Prometheus, path ``query``.
        clock: Measures ages.
        max_age_seconds: Of a field; older ones count as missing.
    """

    def __init__(self, api: QueryApi, clock: Clock, max_age_seconds: float) -> None:
        super().__init__(clock, "dcgm fields", PERIOD_NS)
        self._api, self._max_age_seconds = api, max_age_seconds
        self._shares: Mapping[str, tuple[float, ...]] = {}
        self._taken_ns: Mapping[str, int] = {}
        self._told = ToldOnce(log, "no %s: %s", "%s read again")

    def units(self, topology: Topology) -> FloatArray:
        """Shares of boards whose fields are young enough."""
        now_ns, shares, taken = self._clock.monotonic_ns(), self._shares, self._taken_ns
        oldest_ns = now_ns - seconds_to_ns(self._max_age_seconds)
        unknown = (np.nan,) * len(UNITS)
        return np.array(
            [
                shares[uuid] if taken.get(uuid, oldest_ns) > oldest_ns else unknown
                for uuid in topology.gpu_uuids
            ]
        ).T.reshape(len(UNITS), topology.n_gpus)

    def stop(self, patience_seconds: float = 5.0) -> None:
        """End the thread; an open question is waited for."""
        super().stop(patience_seconds)
        self._api.close()

    def run_once(self) -> None:
        """Ask for all fields; without an answer the last ones age."""
        try:
            self._ask()
        except WattpackError as error:
            self._told.tell(SUBJECT, str(error))
        else:
            self._told.tell(SUBJECT, "" if self._shares else "no board has all four fields")

    def _ask(self) -> None:
        now_ns, now_seconds = self._clock.monotonic_ns(), self._clock.wall_time_ns() / NS_PER_SECOND
        values = [self._by_board(field, now_seconds) for field in FIELDS.values()]
        # The answer's own stamp is the time of the question; the samples' have to be asked for.
        stamps = [self._by_board(f"timestamp({field})", now_seconds) for field in FIELDS.values()]
        boards = set.intersection(*(set(found) for found in (*values, *stamps)))
        shares, taken = {}, {}
        for uuid in boards:
            mine = tuple(found[uuid] for found in values)
            age_seconds = now_seconds - min(found[uuid] for found in stamps)
            late = not -self._max_age_seconds <= age_seconds <= self._max_age_seconds
            if late or not all(0.0 <= share <= 1.0 for share in mine):
                continue
            shares[uuid] = mine
            taken[uuid] = now_ns - max(0, seconds_to_ns(age_seconds))
        self._shares, self._taken_ns = shares, taken

    def _by_board(self, query: str, at_seconds: float) -> dict[str, float]:
        """The series of whole boards; one that several series name (MIG instances) is left out."""
        return named_once(self._api, query, at_seconds, _whole_board)


def _whole_board(labels: Mapping[str, str]) -> str:
    """UUID of a series, empty for one of no whole board."""
    return "" if labels.get("GPU_I_ID") else labels.get("UUID", "")
