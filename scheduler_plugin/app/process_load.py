"""Whether a process works, waits for the CPU, or stands still: what ``/proc`` says of it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_seconds", "wants_cpu"]

_PROC = Path("/proc")


def cpu_seconds(pid: int, proc: Path = _PROC) -> float:
    """CPU of all its threads so far; 0 for a process that is not there.

    Args:
        pid: Of the process.
        proc: Where procfs is.
    """
    fields = _stat(proc / str(pid))
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def wants_cpu(pid: int, proc: Path = _PROC) -> bool:
    """Whether one of its threads runs, or would if it were let: also while its group is throttled.

    Args:
        pid: Of the process.
        proc: Where procfs is.
    """
    try:
        threads = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return False
    return any(_stat(thread)[:1] == ["R"] for thread in threads)


def _stat(folder: Path) -> list[str]:
    """Fields from the state on (``man 5 proc``), which the command's name comes before."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
