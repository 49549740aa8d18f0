"""Addresses of HTTP servers as people write them in settings."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["http_address"]

_EXPECTED = "an http:// or https:// address with a host, for example http://prometheus:9090"


def http_address(text: str) -> str:
    """The same text: a scheme, a host, and perhaps a port and a path that others are added to.

    Raises:
        ValueError: saying what was expected.
    """
    if " " in text or not text.isprintable():
        raise ValueError(_EXPECTED)
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # an unclosed bracket, a port that is no number or too high
        raise ValueError(_EXPECTED) from error
    # Paths are added at the end: behind a query or a fragment they would be part of it.
    if not is_one or parts.query or parts.fragment:
        raise ValueError(_EXPECTED)
    return text
