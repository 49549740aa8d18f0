"""One question to a Prometheus query API: a deadline, a size limit, typed errors."""

from __future__ import annotations

from typing import Any, Final

import httpx

from wattpack.errors import DeadlineExceededError, InputError, PermanentError, TransientError

MAX_ANSWER_BYTES: Final = 16 << 20


class BadAnswerError(PermanentError):
    """The server answered something that is no Prometheus answer; look at its address."""


class QueryApi:
    """``/api/v1/…`` of one server.

    Args:
        base_url: For example ``http://prometheus:9090``.
        path: ``query`` or ``query_range``.
        deadline_seconds: For one query, connection included.
        client: Replaces the ordinary HTTP client (tests, own TLS settings).
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        deadline_seconds: float = 10.0,
        client: httpx.Client | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise InputError("prometheusUrl", "an http:// or https:// address", base_url)
        self.url = f"{base_url.rstrip('/')}/api/v1/{path}"
        self._deadline_seconds = deadline_seconds
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
            response = self._client.post(self.url, data=sent)
        except httpx.TimeoutException as error:
            raise DeadlineExceededError(
                f"{self.url}: no answer in {self._deadline_seconds:g} s"
            ) from error
        except httpx.HTTPError as error:
            raise TransientError(f"{self.url}: {error}") from error
        if response.status_code in (429, 502, 503, 504) or response.status_code == 500:
            raise TransientError(f"{self.url}: HTTP {response.status_code}")
        if len(response.content) > MAX_ANSWER_BYTES:
            raise BadAnswerError(f"{self.url}: an answer of {len(response.content)} bytes")
        try:
            body = response.json()
        except ValueError as error:
            raise BadAnswerError(f"{self.url}: HTTP {response.status_code}, no JSON") from error
        if not isinstance(body, dict) or body.get("status") not in ("success", "error"):
            raise BadAnswerError(f"{self.url}: HTTP {response.status_code}, no Prometheus answer")
        if body["status"] == "error":
            reason = f"{body.get('errorType')}: {body.get('error')}"
            if body.get("errorType") in ("timeout", "canceled", "unavailable", "internal"):
                raise TransientError(f"{self.url}: {reason}")
            raise InputError("series", f"a PromQL expression ({reason})", query, self.url)
        return body


def number(text: str, query: str) -> float:
    """A sample value; Prometheus writes NaN, +Inf and -Inf as text."""
    try:
        return float(text)
    except ValueError as error:
        raise BadAnswerError(f"{query}: not a number: {text[:50]!r}") from error
