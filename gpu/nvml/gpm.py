"""What a board's units did, by NVML's GPU performance metrics (GPM, Hopper and later).

Means between two samples of the board's counters. A sample and its metrics cost 3.0 ms of CPU time
on a loaded H200 (``benchmarks/data/h200_served/gpm.json``), so they are asked for rarely: what they
tell is the kind of the work, which lasts.
"""

from __future__ import annotations

import logging
import math
from typing import Any, Final

from gpu.device import GpuLost, GpuTimeout
from gpu.nvml.calls import GPM_METRICS, NvmlCalls
from gpu.nvml.return_codes import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    NvmlFailure,
    typed_error,
)
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)

# nvmlGpmMetricId_t of nvml.h, and the field of a reading.
METRICS: Final = {
    1: "engine_activity",  # NVML_GPM_METRIC_GRAPHICS_UTIL
    2: "sm_activity",  # NVML_GPM_METRIC_SM_UTIL
    5: "tensor_activity",  # NVML_GPM_METRIC_ANY_TENSOR_UTIL
    10: "dram_activity",  # NVML_GPM_METRIC_DRAM_BW_UTIL
}

PERIOD_NS: Final = 60 * NS_PER_SECOND
"""Between two samples. Of 0.1 s and more all windows tell the same; one of 0.02 s gave zeros and
NaN with code 0 (docs/measurements/h200.md)."""

BUSY_UTILISATION: Final = 0.3
"""With kernels for so much of the time no unit's mean is 0."""

_FOR_GOOD: Final = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, 25, 26})


class BoardGpm:
    """The metrics of one board.

    Args:
        calls: Access to NVML.
        index: NVML's device index.
        told: Reasons that were logged; boards of one node share it, so that each is told once.
    """

    def __init__(self, calls: NvmlCalls, index: int, told: set[str]) -> None:
        self._calls, self._index, self._told = calls, index, told
        self._asked_ns: int | None = None
        self._offered = True
        self._shares: dict[str, float] = {}

    def read(self, now_ns: int, utilisation: float | None) -> dict[str, float]:
        """Activities of the last whole period by their fields of a reading; empty if unknown.

        Raises:
            GpuLost, GpuTimeout: the board itself does not answer.
        """
        due = self._asked_ns is None or now_ns - self._asked_ns >= PERIOD_NS
        if self._offered and due:
            self._asked_ns = now_ns
            self._shares = activities(self._ask(), utilisation)
        return self._shares

    def _ask(self) -> Any:  # noqa: ANN401 - JSON-like answers
        try:
            return self._calls.call(GPM_METRICS, self._index, *METRICS)
        except NvmlFailure as failure:
            error = typed_error(failure, f"GPU {self._index}")
            if isinstance(error, (GpuLost, GpuTimeout)):
                raise error from failure
            self._offered = failure.code not in _FOR_GOOD
            self._tell(str(failure.code), str(error))
            return None

    def _tell(self, reason: str, message: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            log.warning("activity of the board's units is not read (NVML GPM): %s", message)


def activities(rows: Any, utilisation: float | None) -> dict[str, float]:  # noqa: ANN401
    """The rows as shares; empty if one of them is missing or cannot be.

    Args:
        rows: ``[[metric, code, percent], ...]``; None before the second sample.
        utilisation: Share of the time with a kernel running, as NVML tells it beside GPM.
    """
    if not rows:
        return {}
    percents = {int(metric): float(value) for metric, code, value in rows if code == 0}
    if percents.keys() != METRICS.keys():
        return {}
    if not all(math.isfinite(value) and 0.0 <= value <= 100.0 for value in percents.values()):
        return {}
    if utilisation is not None and utilisation >= BUSY_UTILISATION and not percents[2]:
        return {}
    return {name: percents[metric] / 100.0 for metric, name in METRICS.items()}
