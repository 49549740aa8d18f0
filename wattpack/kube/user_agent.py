"""How a process calls itself in the API server's audit log and metrics: one name a process."""

from __future__ import annotations

import sys

from wattpack import __version__

__all__ = ["identify", "user_agent"]

_process = ["cli"]


def identify(verb: str) -> None:
    """From now on this process is ``wattpack VERB``; the command line says so once."""
    _process[0] = verb


def user_agent() -> str:
    """For example ``wattpack-controller/0.1.0 (linux)``."""
    return f"wattpack-{_process[0]}/{__version__} ({sys.platform})"
