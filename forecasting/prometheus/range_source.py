"""Bin means through ``/api/v1/query_range``, with a deadline and typed errors.

Each series is a PromQL expression that has to give at most one time series; recipes for
dcgm-exporter are written out (``dcgm_recipes``). The mean of the bin [t, t + step) is asked for as
``avg_over_time((expression)[step:step/10])`` at t + step, in pages that a server answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import httpx
import numpy as np

from forecasting.prometheus.dcgm_recipes import expanded
from forecasting.prometheus.query import (
    LONGEST_NUMBER,
    SAMPLES,
    BadAnswerError,
    QueryApi,
    TooManySamplesError,
    doubts,
    number,
    stamp,
)
from forecasting.series_source import BIN_SECONDS, Floats, SeriesId, bin_count
from wattpack.clock import Clock
from wattpack.errors import InputError, TransientError

PAGE_BINS: Final = 5000
"""Bins of one question. Prometheus refuses over 11,000 points; half leaves room for others."""

LEAST_PAGE_BINS: Final = 6
"""An hour. A server that cannot sum over that cannot serve the expression at all."""

PartialAnswers = Literal["refuse", "flag"]
"""What becomes of an answer with warnings."""


class PrometheusSource:
    """A ``SeriesSource`` over HTTP.

    Args:
        base_url: For example ``http://prometheus:9090``.
        deadline_seconds: For one query, connection included.
        client: Replaces the ordinary HTTP client (tests, own TLS settings).
        clock: Measures the deadline.
        partial_answers: ``refuse`` keeps the last forecast, which ages; ``flag`` takes what there
            is and tells it as the flag ``partial``.
    """

    def __init__(
        self,
        base_url: str,
        deadline_seconds: float = 10.0,
        client: httpx.Client | None = None,
        clock: Clock | None = None,
        partial_answers: PartialAnswers = "refuse",
    ) -> None:
        self._api = QueryApi(base_url, "query_range", deadline_seconds, client, clock)
        self._partial_answers = partial_answers
        self._flags: dict[SeriesId, tuple[str, ...]] = {}

    def close(self) -> None:
        """Drop the connections."""
        self._api.close()

    def flags(self, series: SeriesId) -> tuple[str, ...]:
        """What the newest answer was short of; see ``TellsFlags``."""
        return self._flags.get(series, ())

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means; see ``SeriesSource``."""
        count = bin_count(start_seconds, end_seconds, step_seconds)
        rows = np.full((len(series), count), np.nan)
        for name, row in zip(series, rows, strict=True):
            self._flags.pop(name, None)
            query = expanded(name)
            told = self._pages(query, start_seconds, step_seconds, row)
            if told:
                self._flags[name] = tuple(sorted(told))
        return rows

    def _pages(self, query: str, start: int, step: int, row: Floats) -> set[str]:
        """All bins of one expression, written into the row; returns flags.

        A sum over thousands of boards is more than some servers hold for ten days; then pages
        become smaller.
        """
        told: set[str] = set()
        first, size = 0, PAGE_BINS
        while first < len(row):
            page = row[first : first + size]
            try:
                told |= self._page(query, start + first * step, step, page)
            except TooManySamplesError:
                if size <= LEAST_PAGE_BINS:
                    raise
                size = max(LEAST_PAGE_BINS, min(size, len(row)) // 4)
            else:
                first += size
        return told

    def _page(self, query: str, start: int, step: int, row: Floats) -> set[str]:
        """Some bins of one expression, written into the row; returns flags."""
        fine = max(1, step // 10)
        parameters = {
            "query": f"avg_over_time(({query})[{step}s:{fine}s])",
            "start": str(start + step),
            "end": str(start + step * len(row)),
            "step": str(step),
        }
        body = self._api.ask(parameters, query)
        told = self._doubted(body, query)
        result = _result(body, query)
        if len(result) > 1:
            raise InputError("series", "an expression that gives one series", query, self._api.url)
        if result:
            seconds, values = _points(result[0], query)
            place = np.rint((seconds - start) / step) - 1
            usable = (place >= 0) & (place < len(row)) & ~np.isinf(values)
            row[place[usable].astype(np.intp)] = values[usable]
            if np.isinf(values).any():
                told.add("not-finite")
        return told

    def _doubted(self, body: dict[str, Any], query: str) -> set[str]:
        """Flags of an answer that its own server doubts.

        Raises:
            InputError: PromQL warns of the expression, and such answers are refused.
            TransientError: a store behind the server did not answer, and they are refused.
        """
        # That a counter's name has no _total is how dcgm-exporter names them.
        infos = [text for text in doubts(body, "infos") if "DCGM_FI_" not in text]
        told = {"query-info"} if infos else set()
        warnings = doubts(body)
        if not warnings:
            return told
        if self._partial_answers == "refuse":
            why = "; ".join(warnings)
            if all(text.startswith("PromQL") for text in warnings):
                raise InputError(
                    "series", f"an expression without warnings ({why})", query, self._api.url
                )
            raise TransientError(f"{self._api.url}: a partial answer: {why}")
        return told | {"partial"}


def _result(body: Any, query: str) -> list[Any]:  # noqa: ANN401 - JSON
    """The matrix of an answer."""
    data = body.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        raise BadAnswerError(f"{query[:200]}: expected a matrix")
    result = data.get("result")
    if not isinstance(result, list):
        raise BadAnswerError(f"{query[:200]}: expected a list of series")
    return result


def _points(series: Any, query: str) -> tuple[Floats, Floats]:  # noqa: ANN401 - JSON
    """Time stamps, ascending, and values of one series, shape (n,) each."""
    points = series.get("values") if isinstance(series, dict) else None
    if not isinstance(points, list):
        raise BadAnswerError(f"{query[:200]}: a series without values")
    if not all(isinstance(p, list) and len(p) == 2 and isinstance(p[1], str) for p in points):
        raise BadAnswerError(f"{query[:200]}: not a [time, text] pair among the values")
    seconds = np.array([stamp(point[0], query) for point in points])
    # A server writes them in order; what does not may have mixed two series.
    if np.any(np.diff(seconds) <= 0):
        raise BadAnswerError(f"{query[:200]}: time stamps out of order or twice")
    return seconds, sample_values([point[1] for point in points], query)


def sample_values(texts: list[str], query: str) -> Floats:
    """Sample values, shape (n,): checked together, since ten days are 1,440 of them."""
    longest = max(map(len, texts), default=0)
    if longest <= LONGEST_NUMBER and SAMPLES.fullmatch("\n".join(texts)):
        try:
            return np.array([float(text) for text in texts])
        except ValueError:
            pass  # a line break within a text
    return np.array([number(text, query) for text in texts])
