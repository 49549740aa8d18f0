"""Boards for the actuator's tests: in memory, and in a file that several processes share."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from gpu.device import (
    GpuDevice,
    GpuIdentity,
    GpuLost,
    GpuProcess,
    GpuReading,
    PowerLimits,
)
from wattpack.units import GpuUuid

MIN_WATTS, MAX_WATTS, GUARANTEED_WATTS = 200.0, 700.0, 400.0
MAX_CLOCK_MHZ = 1980
_ONE_WRITER = threading.Lock()
"""The actuator writes all boards at the same time; here they share one file."""


class MemoryBoard:
    """A board whose faults are attributes: ``lost``, ``ignores_limits``, ``hang``."""

    def __init__(self, uuid: str = "GPU-0", limit_watts: float = MAX_WATTS, index: int = 0) -> None:
        self._identity = GpuIdentity(GpuUuid(uuid), "NVIDIA H200", index)
        self.limit_watts = limit_watts
        self.lock_mhz: int | None = None
        self.calls: list[str] = []
        self.lost = False
        self.ignores_limits = False
        self.refuses_locks = False

    @property
    def identity(self) -> GpuIdentity:
        return self._identity

    def read(self, now_ns: int) -> GpuReading:
        return GpuReading(monotonic_ns=now_ns, draw_watts=100.0)

    def limits(self) -> PowerLimits:
        self._check()
        return PowerLimits(MIN_WATTS, MAX_WATTS, MAX_WATTS, self.limit_watts, self.limit_watts)

    def max_clock_mhz(self) -> int:
        self._check()
        return MAX_CLOCK_MHZ

    def processes(self) -> tuple[GpuProcess, ...]:
        return ()

    def set_power_limit(self, watts: float) -> None:
        self._check()
        self.calls.append(f"limit {watts:g}")
        if not self.ignores_limits:
            self.limit_watts = watts

    def lock_clocks(self, max_mhz: int) -> None:
        self._check()
        if self.refuses_locks:
            raise GpuLost("no locks today")
        self.calls.append(f"lock {max_mhz}")
        self.lock_mhz = max_mhz

    def reset_clocks(self) -> None:
        self._check()
        self.calls.append("unlock")
        self.lock_mhz = None

    def _check(self) -> None:
        if self.lost:
            raise GpuLost("fallen off the bus")


class FileBoard(MemoryBoard):
    """A board whose limit lies in a file: the test, the child and the capper see the same one."""

    def __init__(self, path: Path, uuid: str, index: int) -> None:
        self._path = path
        super().__init__(uuid, index=index)

    @property
    def limit_watts(self) -> float:
        return float(read_boards(self._path)[str(self.identity.uuid)])

    @limit_watts.setter
    def limit_watts(self, watts: float) -> None:
        if self._path.exists() and hasattr(self, "calls"):
            write_board(self._path, str(self.identity.uuid), watts)


class Boards:
    """A driver over given boards."""

    def __init__(self, *boards: MemoryBoard) -> None:
        self.boards = boards

    def devices(self) -> tuple[GpuDevice, ...]:
        return tuple(self.boards)

    def close(self) -> None:
        return None


def read_boards(path: Path) -> dict[str, Any]:
    """The limits in the shared file, in watts by uuid."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def write_board(path: Path, uuid: str, watts: float) -> None:
    """Set a limit behind the actuator's back."""
    with _ONE_WRITER:
        limits = read_boards(path) if path.exists() else {}
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(limits | {uuid: watts}))
        beside.replace(path)
