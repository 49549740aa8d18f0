"""The recorded load steps of one H200: mean draw of each 100 ms, and when its work changed.

``capacity/reference/boards/h200_power_steps.csv.gz`` has a row about every 9 ms. The board's energy
counter moves every 100 ms on the dot, so its differences are exact means; the row in which it is
seen to move is up to 25 ms late.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from capacity.fitting.reference_files import number, read_csv
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]
Work = Literal["product", "copy", "idle"]

RECORDING: Final = Path(__file__).parents[1] / "reference" / "boards" / "h200_power_steps.csv.gz"
COLUMNS: Final = ("t_s", "phase", "instant_w", "energy_mj")
LIMIT_WATTS: Final = 700.0
TICK_SECONDS: Final = 0.1
TICK_PHASE_SECONDS: Final = -0.0104
"""Of the counter's ticks against whole tenths of the recording's clock: the earliest seen."""

LABEL_DELAY_SECONDS: Final = 0.008
"""From the first row with a label to the board's draw; a test finds it again from the starts just
before a tick's end. Waits carry none, since the host then waited for the board to finish."""

CALIBRATED: Final = ("gemm1", "gemm3", "gemm5", "gemm_after_copy0", "gemm_after_copy2")
HELD_OUT: Final = ("gemm2", "gemm4", "gemm_after_copy1", "gemm_after_copy3")
"""Every other step of plain products after idling and after copies. ``gemm0`` is in neither: its
draw begins some 70 ms after its label, with the loading of the library. The training-like part and
the fast swings are for judging as a whole."""


@dataclass(frozen=True, slots=True)
class BoardSteps:
    """The recording.

    Attributes:
        ends: Of each 100 ms, seconds, shape (n,).
        draws: Mean watts in it, shape (n,).
        phases: What the host had last said at its middle, shape (n,).
        changes: When the board's work changed, and into what.
        instants: Time and instantaneous reading of every row, shape (2, n_rows).
    """

    ends: Floats
    draws: Floats
    phases: npt.NDArray[np.str_]
    changes: tuple[tuple[float, Work], ...]
    instants: Floats

    def shares(self, work: Work, begin: float, ticks: int, tick_seconds: float) -> Floats:
        """Share of each tick from ``begin`` on in which that work ran, shape (ticks,)."""
        edges = begin + tick_seconds * np.arange(ticks + 1)
        done = np.zeros(ticks + 1)
        until = [*(at for at, _ in self.changes[1:]), np.inf]
        for (at, kind), end in zip(self.changes, until, strict=True):
            if kind == work:
                done += np.clip(edges, at, end) - at
        return np.asarray(np.diff(done) / tick_seconds)

    def steady(self) -> npt.NDArray[np.bool_]:
        """Whether a tick and the one before have no change of work in them, shape (n,)."""
        at = np.array([at for at, _ in self.changes[1:]])[:, np.newaxis]
        near = (at > self.ends - 2 * TICK_SECONDS - 0.01) & (at < self.ends + 0.01)
        return np.asarray(~near.any(axis=0))


def read_steps(file: Path = RECORDING) -> BoardSteps:
    """The recording, checked.

    Raises:
        InputError: if the file cannot be read, or the energy counter missed a tick.
    """
    rows = read_csv(file, COLUMNS)
    seconds = np.array([number(row, "t_s", str(file)) for row in rows])
    phases = np.array([row["phase"] for row in rows])
    joules = np.array([number(row, "energy_mj", str(file)) for row in rows]) / 1e3
    instants = np.array([number(row, "instant_w", str(file)) for row in rows])
    moved = np.flatnonzero(np.diff(joules)) + 1
    ticks = np.round((seconds[moved] - TICK_PHASE_SECONDS) / TICK_SECONDS - 0.17).astype(int)
    if (np.diff(ticks) != 1).any():
        raise InputError("energy_mj", "one change every 100 ms", int(np.diff(ticks).max()))
    ends = ticks[1:] * TICK_SECONDS + TICK_PHASE_SECONDS
    middles = np.searchsorted(seconds, ends - TICK_SECONDS / 2)
    return BoardSteps(
        ends, np.diff(joules[moved]) / TICK_SECONDS, phases[middles],
        _changes(seconds, phases), np.array([seconds, instants]),
    )  # fmt: skip


def _changes(seconds: Floats, phases: npt.NDArray[np.str_]) -> tuple[tuple[float, Work], ...]:
    works = [_work(phase) for phase in phases.tolist()]
    made: list[tuple[float, Work]] = [(0.0, works[0])]
    for i in range(1, len(works)):
        if works[i] == works[i - 1]:
            continue
        waited = phases[i].endswith("wait")
        made.append((float(seconds[i]) + (0.0 if waited else LABEL_DELAY_SECONDS), works[i]))
    return tuple(made)


def _work(phase: str) -> Work:
    if phase.startswith("gemm") or phase.endswith("compute"):
        return "product"
    return "copy" if phase.startswith("copy") else "idle"
