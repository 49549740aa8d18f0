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

from forecasting.ports import BIN_SECONDS, Floats, SeriesId, bin_count
from wattpack.errors import DeadlineExceededError, InputError, PermanentError, TransientError

MAX_POINTS: Final = 11_000
"""Prometheus refuses longer ranges."""

MAX_ANSWER_BYTES: Final = 16 << 20


class BadAnswerError(PermanentError):
    """The server answered something that is no Prometheus answer; look at its address."""


class PrometheusSource:
    """A ``SeriesSource`` over HTTP.

    Args:
        base_url: For example ``http://prometheus:9090``.
        deadline_seconds: For one query, connection included.
        client: Replaces the ordinary HTTP client (tests, own TLS settings).
    """

    def __init__(
        self, base_url: str, deadline_seconds: float = 10.0, client: httpx.Client | None = None
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise InputError("prometheusUrl", "an http:// or https:// address", base_url)
        self._url = base_url.rstrip("/") + "/api/v1/query_range"
        self._deadline_seconds = deadline_seconds
        self._client = client or httpx.Client(timeout=deadline_seconds)

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

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
            "timeout": f"{self._deadline_seconds:g}s",
        }
        result = _result(self._ask(parameters, query), query)
        count = (end - start) // step
        row = np.full(count, np.nan)
        if len(result) > 1:
            raise InputError("series", "an expression that gives one series", query, self._url)
        for stamp, text in _points(result[0], query) if result else ():
            place = round((stamp - start) / step) - 1
            value = _number(text, query)
            if 0 <= place < count and math.isfinite(value):
                row[place] = value
        return row

    def _ask(self, parameters: dict[str, str], query: str) -> Any:  # noqa: ANN401 - JSON
        """The JSON body of a successful answer."""
        try:
            response = self._client.post(self._url, data=parameters)
        except httpx.TimeoutException as error:
            raise DeadlineExceededError(
                f"{self._url}: no answer in {self._deadline_seconds:g} s"
            ) from error
        except httpx.HTTPError as error:
            raise TransientError(f"{self._url}: {error}") from error
        if response.status_code in (429, 502, 503, 504) or response.status_code == 500:
            raise TransientError(f"{self._url}: HTTP {response.status_code}")
        if len(response.content) > MAX_ANSWER_BYTES:
            raise BadAnswerError(f"{self._url}: an answer of {len(response.content)} bytes")
        try:
            body = response.json()
        except ValueError as error:
            raise BadAnswerError(f"{self._url}: HTTP {response.status_code}, no JSON") from error
        if not isinstance(body, dict) or body.get("status") not in ("success", "error"):
            raise BadAnswerError(f"{self._url}: HTTP {response.status_code}, no Prometheus answer")
        if body["status"] == "error":
            reason = f"{body.get('errorType')}: {body.get('error')}"
            if body.get("errorType") in ("timeout", "canceled", "unavailable", "internal"):
                raise TransientError(f"{self._url}: {reason}")
            raise InputError("series", f"a PromQL expression ({reason})", query, self._url)
        return body


def _result(body: Any, query: str) -> list[Any]:  # noqa: ANN401 - JSON
    """The matrix of an answer."""
    data = body.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise BadAnswerError(f"{query}: expected a matrix, got {str(data)[:200]}")
    result = data.get("result")
    if not isinstance(result, list):
        raise BadAnswerError(f"{query}: expected a list of series, got {str(result)[:200]}")
    return result


def _points(series: Any, query: str) -> list[tuple[float, str]]:  # noqa: ANN401 - JSON
    """Time stamps and value texts of one series."""
    values = series.get("values") if isinstance(series, dict) else None
    if not isinstance(values, list):
        raise BadAnswerError(f"{query}: a series without values: {str(series)[:200]}")
    points = []
    for point in values:
        usable = isinstance(point, list) and len(point) == 2 and isinstance(point[0], (int, float))
        if not usable or not isinstance(point[1], str):
            raise BadAnswerError(f"{query}: not a [time, text] pair: {str(point)[:200]}")
        points.append((float(point[0]), point[1]))
    return points


def _number(text: str, query: str) -> float:
    """A sample value; Prometheus writes NaN, +Inf and -Inf as text."""
    try:
        return float(text)
    except ValueError as error:
        raise BadAnswerError(f"{query}: not a number: {text[:50]!r}") from error
