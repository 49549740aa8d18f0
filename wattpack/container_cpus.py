"""How many CPUs this process may use: of the machine, of its affinity, of its container."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["available_cpus"]

_CGROUP = Path("/sys/fs/cgroup")


def available_cpus(cgroup: Path = _CGROUP) -> int:
    """At least 1. A container with a limit of 2 CPUs on a node of 96 has 2.

    Args:
        cgroup: Where the container's control group is mounted, version 1 or 2.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return allowed if quota is None else max(1, min(allowed, math.floor(quota)))


def _quota(cgroup: Path) -> float | None:
    """CPUs that the group may use on average; None for no limit, and for what cannot be read."""
    try:
        if (both := cgroup / "cpu.max").exists():
            quota, period = both.read_text(encoding="ascii").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((cgroup / "cpu" / n).read_text(encoding="ascii") for n in names)
        found = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return found if 0 < found < math.inf else None
