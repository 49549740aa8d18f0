"""One reading of a controller's live view over HTTP: bounded, without proxies and redirects.

view = LiveClient(clock, token_file).read("http://controller-0:8081/v1/live")
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Final

from pydantic import ValidationError

from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.live_view import LiveView
from wattpack.named_problems import named_problem
from wattpack.units import NS_PER_SECOND

__all__ = ["READ_ERRORS", "LiveClient", "cause_of", "parse_view"]

#: Ten thousand GPUs take 2 MiB.
MAX_VIEW_BYTES = 64 * 1024 * 1024
REQUEST_SECONDS: Final = 3.0
#: For a whole answer, however slowly it drips.
ANSWER_SECONDS: Final = 10.0
_CHUNK_BYTES: Final = 1 << 16

#: What a reading may end with.
READ_ERRORS: Final = (OSError, http.client.HTTPException, InputError, ValueError)


class LiveClient:
    """Reads ``/v1/live``. Thread-safe.

    Args:
        token_file: Our own bearer token, read anew for each request; None for none.
    """

    def __init__(self, clock: Clock, token_file: Path | None = None) -> None:
        self._clock, self._token_file = clock, token_file
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def read(self, url: str) -> LiveView:
        """What the controller says now.

        Raises:
            READ_ERRORS: no answer, a refused or endless one, or none of this release.
        """
        return parse_view(self._fetch(url))

    def _fetch(self, url: str) -> bytes:
        request = urllib.request.Request(url)
        if self._token_file is not None:
            token = self._token_file.read_text(encoding="ascii").strip()
            request.add_header("Authorization", f"Bearer {token}")
        deadline_ns = self._clock.monotonic_ns() + round(ANSWER_SECONDS * NS_PER_SECOND)
        chunks, size = [], 0
        with self._opener.open(request, timeout=REQUEST_SECONDS) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_VIEW_BYTES:
                    raise InputError("live", f"at most {MAX_VIEW_BYTES} bytes", "more")
                if self._clock.monotonic_ns() > deadline_ns:
                    raise InputError("live", f"a whole answer within {ANSWER_SECONDS:g} s", "less")
            declared = answer.headers.get("Content-Length")
        if declared is not None and int(declared) != size:
            raise InputError("live", f"{declared} bytes, as declared", size)
        return b"".join(chunks)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A controller redirects nobody; whoever does must not get our token."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """None: the redirection becomes an ``HTTPError``."""
        return


def parse_view(body: bytes) -> LiveView:
    """The view of an answer.

    Raises:
        InputError: naming the first field that this release does not understand.
    """
    try:
        return LiveView.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        named = named_problem(first)
        expected = f"a live view of this release ({named.expected})"
        raise InputError(named.field or "live", expected) from error


def cause_of(error: Exception) -> str:
    """Why a reading failed, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error)[:200]
