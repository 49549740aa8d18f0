"""Bin means through ``/api/v1/query_range``, with a deadline and typed errors.

Each series is a PromQL expression that has to give at most one time series. The mean of the bin
[t, t + step) is asked for as ``avg_over_time((expression)[step:step/10])`` at t + step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import httpx
import numpy as np

from forecasting.prometheus.query import BadAnswerError, QueryApi, number, stamp
from forecasting.series_source import BIN_SECONDS, Floats, SeriesId, bin_count
from wattpack.clock import Clock
from wattpack.errors import InputError

MAX_POINTS: Final = 11_000
"""Prometheus refuses longer ranges."""


class PrometheusSource:
    """A ``SeriesSource`` over HTTP.

    Args:
        base_url: For example ``http://prometheus:9090``.
        deadline_seconds: For one query, connection included.
        client: Replaces the ordinary HTTP client (tests, own TLS settings).
        clock: Measures the deadline.
    """

    def __init__(
        self,
        base_url: str,
        deadline_seconds: float = 10.0,
        client: httpx.Client | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._api = QueryApi(base_url, "query_range", deadline_seconds, client, clock)

    def close(self) -> None:
        """Drop the connections."""
        self._api.close()

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means; see ``SeriesSource``."""
        count = bin_count(start_seconds, end_seconds, step_seconds)
        if count > MAX_POINTS:
            raise InputError("endSeconds", f"at most {MAX_POINTS} bins", count)
        return np.array(
            [self._one(query, start_seconds, end_seconds, step_seconds) for query in series]
        ).reshape(len(series), count)

    def _one(self, query: str, start: int, end: int, step: int) -> Floats:
        """One expression."""
        fine = max(1, step // 10)
        parameters = {
            "query": f"avg_over_time(({query})[{step}s:{fine}s])",
            "start": str(start + step),
            "end": str(end),
            "step": str(step),
        }
        result = _result(self._api.ask(parameters, query), query)
        count = (end - start) // step
        row = np.full(count, np.nan)
        if len(result) > 1:
            raise InputError("series", "an expression that gives one series", query, self._api.url)
        for seconds, text in _points(result[0], query) if result else ():
            place = round((seconds - start) / step) - 1
            value = number(text, query)
            if 0 <= place < count and math.isfinite(value):
                row[place] = value
        return row


def _result(body: Any, query: str) -> list[Any]:  # noqa: ANN401 - JSON
    """The matrix of an answer."""
    data = body.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise BadAnswerError(f"{query[:200]}: expected a matrix")
    result = data.get("result")
    if not isinstance(result, list):
        raise BadAnswerError(f"{query[:200]}: expected a list of series")
    return result


def _points(series: Any, query: str) -> list[tuple[float, str]]:  # noqa: ANN401 - JSON
    """Time stamps and value texts of one series."""
    values = series.get("values") if isinstance(series, dict) else None
    if not isinstance(values, list):
        raise BadAnswerError(f"{query[:200]}: a series without values")
    points = []
    for point in values:
        if not isinstance(point, list) or len(point) != 2 or not isinstance(point[1], str):
            raise BadAnswerError(f"{query[:200]}: not a [time, text] pair among the values")
        points.append((stamp(point[0], query), point[1]))
    return points
