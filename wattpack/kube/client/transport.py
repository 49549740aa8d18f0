"""One HTTP exchange with a deadline; JSON in, JSON out, the port's errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from wattpack.kube.client.failures import failure
from wattpack.kube.port import InvalidError, JsonObject, UnavailableError
from wattpack.kube.user_agent import user_agent

# Slightly more than a multiple of 3 s, the time after which TCP sends a lost packet again.
CONNECT_SECONDS = 3.05
READ_SECONDS = 10.0


class Transport:
    """Sends requests to one API server.

    Args:
        rest: The kubernetes client's ``RESTClientObject``: connections, TLS, proxies.
        host: Base URL.
        authorization: Gives the present Authorization header, or None.
        read_seconds: Longest silence of the server within an ordinary answer.
    """

    def __init__(
        self,
        rest: Any,  # noqa: ANN401
        host: str,
        authorization: Callable[[], str | None],
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._rest = rest
        self._host = host.rstrip("/")
        self._authorization = authorization
        self._read_seconds = read_seconds

    def exchange(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, str] | None = None,
        body: object = None,
        *,
        content_type: str = "application/json",
        read_seconds: float | None = None,
    ) -> JsonObject:
        """The JSON object that the server answers.

        Raises:
            KubeError: for every other outcome.
        """
        seconds = self._read_seconds if read_seconds is None else read_seconds
        with self._response(method, path, query, body, content_type, seconds) as response:
            data = response.read()
        return parse(data)

    @contextmanager
    def stream(
        self, path: tuple[str, ...], query: Mapping[str, str], read_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        """The lines of a long answer; silence of ``read_seconds`` is a broken connection."""
        with self._response("GET", path, query, None, "", read_seconds) as response:
            yield _lines(response.response)

    @contextmanager
    def _response(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, str] | None,
        body: object,
        content_type: str,
        read_seconds: float,
    ) -> Iterator[Any]:
        import urllib3
        from kubernetes.client.exceptions import ApiException

        url = f"{self._host}/{'/'.join(quote(part, safe='') for part in path)}"
        if query:
            url = f"{url}?{urlencode(query)}"
        response = None
        try:
            response = self._rest.request(
                method,
                url,
                headers=self._headers(content_type),
                body=body,
                _request_timeout=(CONNECT_SECONDS, read_seconds),
            )
            if not 200 <= response.status < 300:
                raise failure(response.status, response.read(), response.headers)
            yield response
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise UnavailableError(f"{method} {url}: {_cause(error)}") from error
        except TypeError as error:
            raise InvalidError(f"the body cannot be said in JSON: {error}") from error
        finally:
            if response is not None:
                # Unread data (a watch that was left early) makes the connection useless.
                if response.data is None:
                    response.response.close()
                response.response.release_conn()

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": user_agent()}
        if content_type:
            headers["Content-Type"] = content_type
        authorization = self._authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers


def parse(data: bytes) -> JsonObject:
    """The JSON object.

    Raises:
        UnavailableError: for truncated or foreign answers, such as a proxy's HTML page.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnavailableError(f"the answer is not JSON: {data[:200]!r}") from error
    if not isinstance(body, dict):
        raise UnavailableError(f"the answer is not an object: {data[:200]!r}")
    return body


def _lines(response: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Complete lines; a rest without line end is a broken answer and is parsed as one."""
    rest = b""
    for chunk in response.stream(65536, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield rest


def _cause(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return f"{type(error).__name__}: {reason or error}"
