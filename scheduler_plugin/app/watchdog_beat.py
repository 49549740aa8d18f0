"""The watchdog's sign of life: a file with the monotonic time of its last look, asked by a probe.

The watchdog has no port, and a watchdog that hangs is missed only when the planner dies, too. The
monotonic clock is one for all processes of a node; after a restart of the node it starts anew, and
a time from before then lies in the future: no sign of life.
"""

from __future__ import annotations

from pathlib import Path

from wattpack.units import NS_PER_SECOND

__all__ = ["HANGS_AFTER_NS", "beat", "is_beating"]

#: A look at a large cluster whose API server is slow takes this long, with every retry (assumed).
HANGS_AFTER_NS = 120 * NS_PER_SECOND


def beat(file: Path, now_ns: int) -> None:
    """The file holds this time, whole at every moment."""
    fresh = file.with_suffix(".new")
    fresh.write_text(str(now_ns), encoding="ascii")
    fresh.replace(file)


def is_beating(file: Path, now_ns: int) -> bool:
    """Whether the last look is not older than ``HANGS_AFTER_NS``."""
    try:
        looked_ns = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return 0 <= now_ns - looked_ns <= HANGS_AFTER_NS
