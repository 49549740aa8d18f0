"""What /proc says of a process; a process that ended meanwhile is simply not there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from telemetry.attribution.attribute import ProcessHome
from telemetry.attribution.cgroup import parse_cgroup

_MAX_BYTES = 64 * 1024


def process_homes(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, ProcessHome]:
    """Container and command name of each pid that still runs.

    Args:
        pids: As NVML lists them: in the host's pid namespace.
        proc: The host's /proc; the agent's pod has ``hostPID`` or a read-only mount of it.
    """
    homes: dict[int, ProcessHome] = {}
    for pid in pids:
        try:
            with (proc / str(pid) / "cgroup").open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_BYTES)
            command = (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        homes[pid] = ProcessHome(parse_cgroup(text), command.strip())
    return homes
