"""One question to a Prometheus query API: a deadline, a size limit, typed errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx

from wattpack.clock import Clock, SystemClock
from wattpack.errors import DeadlineExceededError, InputError, PermanentError, TransientError
from wattpack.http_address import http_address
from wattpack.units import require_number, seconds_to_ns

MAX_ANSWER_BYTES: Final = 16 << 20
LAST_STAMP: Final = 1e12
"""Far beyond every clock, and exact as a float."""

_PLAIN: Final = {"Accept-Encoding": "identity"}
_BUSY: Final = (429, 500, 502, 503, 504)


class BadAnswerError(PermanentError):
    """The server answered something that is no Prometheus answer; look at its address."""


class TooManySamplesError(InputError):
    """The server would have to hold more samples than it may: ask for less at once."""


class QueryApi:
    """``/api/v1/…`` of one server.

    Args:
        base_url: For example ``http://prometheus:9090``.
        path: ``query`` or ``query_range``.
        deadline_seconds: For one query, connection included.
        client: Replaces the ordinary HTTP client (tests, own TLS settings).
        clock: Measures the deadline.
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        deadline_seconds: float = 10.0,
        client: httpx.Client | None = None,
        clock: Clock | None = None,
    ) -> None:
        try:
            http_address(base_url)
        except ValueError as error:
            raise InputError("prometheus_url", str(error), base_url) from error
        self.url = f"{base_url.rstrip('/')}/api/v1/{path}"
        self._deadline_seconds = deadline_seconds
        self._clock = clock or SystemClock()
        self._client = client or httpx.Client(timeout=deadline_seconds)

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def ask(self, parameters: dict[str, str], query: str) -> Any:  # noqa: ANN401 - JSON
        """The JSON body of a successful answer.

        Raises:
            TransientError: the server is busy, away or slow.
            InputError: the server does not understand the query.
            BadAnswerError: this is no Prometheus.
        """
        sent = {**parameters, "timeout": f"{self._deadline_seconds:g}s"}
        try:
            with self._client.stream("POST", self.url, data=sent, headers=_PLAIN) as response:
                status = response.status_code
                if status in _BUSY:
                    raise TransientError(f"{self.url}: HTTP {status}")
                text = self._body(response)
        except httpx.TimeoutException as error:
            raise self._late() from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TransientError(f"{self.url}: {_short(error)}") from error
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadAnswerError(f"{self.url}: HTTP {status}, no JSON") from error
        if not isinstance(body, dict) or body.get("status") not in ("success", "error"):
            raise BadAnswerError(f"{self.url}: HTTP {status}, no Prometheus answer")
        if body["status"] == "error":
            kind = body.get("errorType")
            reason = f"{_short(kind)}: {_short(body.get('error'))}"
            if kind in ("timeout", "canceled", "unavailable", "internal"):
                raise TransientError(f"{self.url}: {reason}")
            too_many = "too many samples" in reason or "exceeded maximum resolution" in reason
            kind_of = TooManySamplesError if too_many else InputError
            raise kind_of("series", f"a PromQL expression ({reason})", query, self.url)
        return body

    def _body(self, response: httpx.Response) -> bytes:
        """All bytes of an answer: not compressed, within the deadline and the size limit.

        A server that sends a byte now and then passes every read's time-out, and a small
        compressed answer may hold any number of bytes.
        """
        until_ns = self._clock.monotonic_ns() + seconds_to_ns(self._deadline_seconds)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise BadAnswerError(f"{self.url}: a compressed answer, which was not asked for")
        chunks, size = [], 0
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise BadAnswerError(f"{self.url}: an answer over {MAX_ANSWER_BYTES} bytes")
            if self._clock.monotonic_ns() > until_ns:
                raise self._late()
            chunks.append(chunk)
        return b"".join(chunks)

    def _late(self) -> DeadlineExceededError:
        return DeadlineExceededError(f"{self.url}: no answer in {self._deadline_seconds:g} s")


def _short(value: object) -> str:
    """A server's word in an error of ours."""
    return str(value)[:300] if isinstance(value, (str, Exception)) else type(value).__name__


def doubts(body: Mapping[str, Any], field: str = "warnings") -> tuple[str, ...]:
    """What the server itself says against its answer; empty for a whole one.

    Args:
        body: An answer of ``QueryApi.ask``.
        field: ``warnings`` (a store did not answer: data may be missing) or ``infos`` (PromQL
            doubts the expression). Servers with an ``isPartial`` mark of their own are heard too.
    """
    told = body.get(field) or []
    texts = told if isinstance(told, list) else [told]
    partial = ["isPartial"] if field == "warnings" and body.get("isPartial") is True else []
    return tuple(_short(text) for text in [*texts[:5], *partial])


def vector_of(body: object, query: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of each series of an instant query's answer.

    Raises:
        BadAnswerError: for anything but a vector of numbers.
    """
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict) or data.get("resultType") != "vector":
        raise BadAnswerError(f"{query}: expected a vector")
    result = data.get("result")
    if not isinstance(result, list):
        raise BadAnswerError(f"{query}: expected a result")
    return [_series(one, query) for one in result]


def named_once(
    api: QueryApi, query: str, at_seconds: float, name_of: Callable[[Mapping[str, str]], str]
) -> dict[str, float]:
    """An instant query's values by a name out of their labels; who has two or no name is left out.

    Raises:
        WattpackError: no answer, or none that is a vector of numbers.
    """
    body = api.ask({"query": query, "time": f"{at_seconds:.3f}"}, query)
    rows = [(name_of(labels), value) for labels, value in vector_of(body, query)]
    counts = Counter(name for name, _ in rows)
    return {name: value for name, value in rows if name and counts[name] == 1}


def _series(one: object, query: str) -> tuple[dict[str, str], float]:
    labels = one.get("metric") if isinstance(one, dict) else None
    pair = one.get("value") if isinstance(one, dict) else None
    if not (isinstance(labels, dict) and isinstance(pair, list) and len(pair) == 2):
        raise BadAnswerError(f"{query}: not a series")
    if not isinstance(pair[1], str):
        raise BadAnswerError(f"{query}: not a [time, text] pair")
    return {str(name): str(text) for name, text in labels.items()}, number(pair[1], query)


LONGEST_NUMBER: Final = 64
_SAMPLE: Final = r"(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf|NaN)"
_NUMBER: Final = re.compile(_SAMPLE, re.ASCII)
SAMPLES: Final = re.compile(rf"{_SAMPLE}(?:\n{_SAMPLE})*", re.ASCII)
"""Many samples, a line each."""


def number(text: str, query: str) -> float:
    """A sample value; Prometheus writes NaN, +Inf and -Inf as text.

    Raises:
        BadAnswerError: for any other text, also what Python would read as a number (``1_000``).
    """
    if len(text) > LONGEST_NUMBER or _NUMBER.fullmatch(text) is None:
        raise BadAnswerError(f"{query[:200]}: not a number: {text[:50]!r}")
    return float(text)


def stamp(value: object, query: str) -> float:
    """A sample's time, Unix seconds.

    Raises:
        BadAnswerError: for anything but a number of seconds that a clock can show; JSON carries
            NaN, 1e400 and integers that no float holds.
    """
    try:
        return require_number("time", value, minimum=-LAST_STAMP, maximum=LAST_STAMP)
    except InputError as error:
        raise BadAnswerError(f"{query[:200]}: not a time: {error.got}") from error
