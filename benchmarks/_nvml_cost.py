"""CPU time that NVML takes of an agent: what the agent really asks, at the costs measured once.

    Sampler ──> NvmlDriver ──> counting calls          (the agent's own code, on a virtual clock)
                                   × microseconds a call (field_values_loaded.json, PROVENANCE.md)

Two tables of costs, because the measurement leaves two open. Its mean CPU time of the plain power
call lies above that of the same call with more fields, which can only come from the first calls of
a session; its median wall time has no such outliers, bounds the thread's CPU time in an ordinary
round, and agrees with the 34 us of CPU time that ``round_cost.py`` measured on four boards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from gpu.device_reader import InlineReader
from gpu.nvml import checked_fields as fields
from gpu.nvml import gpm
from gpu.nvml.calls import FIELD_VALUES, GPM_METRICS
from gpu.nvml.nvml_device import PROCESS_LISTS, NvmlDriver
from gpu.nvml.return_codes import NvmlFailure
from telemetry.sampler import Sampler
from wattpack.errors import PermanentError
from wattpack.units import NS_PER_SECOND

Call = tuple[str, tuple[int, ...]]

H200 = Path(__file__).resolve().parents[1] / "tests/telemetry/fixtures/h200"
MEASURED = H200 / "field_values_loaded.json"
GPM_MEASURED = Path(__file__).resolve().parent / "data/h200_served/gpm.json"

POWER_LIMITS = (*fields.POWER, *fields.LIMITS)
WAYS: Mapping[frozenset[int], str] = {
    frozenset(fields.POWER): "power",
    frozenset(POWER_LIMITS): "power, limits",
    frozenset((*POWER_LIMITS, *fields.RARE)): "power, limits, ecc, memory temperature",
}

# A call right after another one of the same board costs 2 to 12 us (PROVENANCE.md), but these two
# cost their milliseconds wherever they stand.
FOLLOWING_SECONDS = 12e-6
DEAR = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerManagementLimit")

NOT_SUPPORTED = 3
SETTLED_SECONDS = 60
COUNTED_SECONDS = 600


class CountedBoard:
    """NVML with one healthy board that offers every field; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Call] = []
        self._moving = count(400_000)
        self._answers: dict[str, Any] = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetUUID": "GPU-counted",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetPowerManagementLimit": 700_000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetTotalEnergyConsumption": 1_000_000,
            "nvmlDeviceGetUtilizationRates": {"gpu": 90, "memory": 40},
            "nvmlDeviceGetMemoryInfo": {"used": 1},
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetCurrentClocksEventReasons": 0,
            "nvmlDeviceGetTemperature": 50,
            "nvmlDeviceGetTotalEccErrors": 0,
            "xidEvents": [],
            GPM_METRICS: [[metric, 0, 50.0] for metric in gpm.METRICS],
            **{name: [] for name in PROCESS_LISTS},
        }
        self._fields = dict.fromkeys(fields.LIMITS, 700_000) | dict.fromkeys(fields.RARE, 0)

    def call(self, name: str, index: int, *args: int) -> Any:  # noqa: ANN401 - the port's
        """The answer of a healthy board; power moves, as that of a board at work does."""
        self.asked.append((name, args))
        if name == FIELD_VALUES:
            return [
                [f, 0, self._fields[f] if f in self._fields else next(self._moving)] for f in args
            ]
        if name not in self._answers:
            raise NvmlFailure(NOT_SUPPORTED, name)
        return self._answers[name]

    def close(self) -> None:
        """Nothing is held."""

    def _field(self, field: int) -> int:
        return self._fields[field] if field in self._fields else next(self._moving)


def rounds(hz: int) -> Iterator[tuple[Call, ...]]:
    """What the agent asks one board in each round of ten minutes, after a minute of start."""
    board = CountedBoard()
    sampler = Sampler(InlineReader(NvmlDriver(board).devices()))
    for k in range(hz * (SETTLED_SECONDS + COUNTED_SECONDS)):
        board.asked.clear()
        sampler.sample(k * NS_PER_SECOND // hz)
        if k >= hz * SETTLED_SECONDS:
            yield tuple(board.asked)


def share_of_a_core(hz: int, *, worst: bool) -> float:
    """CPU seconds a second that NVML takes for one board.

    Args:
        hz: Rounds a second.
        worst: With the mean CPU time of each call as if it stood alone, start of the session
            included; else ordinary rounds.

    Raises:
        PermanentError: if the agent asks for a batch that was never measured.
    """
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    dear = json.loads(GPM_MEASURED.read_text(encoding="utf-8"))["cost_loaded"]
    measured["gpm"] = dear["gpm sample and metrics"]["cpu_us"]
    asked = list(rounds(hz))
    total = sum(_seconds(call, measured, worst=worst) for calls in asked for call in calls)
    return total / (len(asked) / hz)


def _seconds(call: Call, measured: Mapping[str, Any], *, worst: bool) -> float:
    name, args = call
    if name == GPM_METRICS:
        # Of twelve metrics on a loaded board; the agent asks for four.
        return float(measured["gpm"]) * 1e-6
    if name == FIELD_VALUES:
        way = WAYS.get(frozenset(args))
        if way is None:
            raise PermanentError(f"nobody measured a batch of the fields {args}")
        figure = "cpu_us_a_board" if worst else "wall_us_a_board"
        return float(measured["fields"][way][figure]) * 1e-6
    alone = measured["single_calls"].get(name)
    if alone is None or not (worst or name in DEAR):
        return FOLLOWING_SECONDS
    return float(alone["cpu_us_a_board"]) * 1e-6
