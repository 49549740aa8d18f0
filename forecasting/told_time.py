"""Times that a status tells, whoever wrote it."""

from __future__ import annotations

from wattpack.times import parse_rfc3339


def told_seconds(text: object) -> float | None:
    """Unix time of an RFC 3339 text; None for anything else."""
    try:
        return parse_rfc3339(text if isinstance(text, str) else "").timestamp()
    except (ValueError, OverflowError):
        return None
