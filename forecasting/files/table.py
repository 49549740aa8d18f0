"""A table of series: a time a row, a series a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forecasting.series_source import BIN_SECONDS, DAY_SECONDS, Floats
from wattpack.errors import InputError

MAX_CELLS: Final = 50_000_000
"""400 MB: ten days of 30,000 series."""

TIME_NAMES: Final = ("t_s", "time", "timestamp", "ts", "ds", "date")


@dataclass(frozen=True, slots=True)
class Table:
    """Samples of several series at common times.

    Attributes:
        seconds: Times, ascending, shape (n_rows,).
        values: By series name, each of shape (n_rows,); NaN for an empty cell.
        refused: Series whose cells are no numbers, with what is wrong.
        flags: What was repaired: ``unordered`` rows were sorted, of ``times-twice`` the mean
            counts, ``clock-change`` rows lay in an hour that came twice.
    """

    seconds: Floats
    values: Mapping[str, Floats]
    refused: Mapping[str, InputError] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All series, readable or not, sorted."""
        return sorted({*self.values, *self.refused})

    @property
    def step_seconds(self) -> float:
        """Usual time between rows; 0 for a single one."""
        gaps = np.diff(self.seconds)
        return float(np.median(gaps[gaps > 0])) if np.any(gaps > 0) else 0.0

    @property
    def held_seconds(self) -> float:
        """How long a row stands: as long as rows usually do.

        Beyond a day it is a reading now and then, and stands for its bin, as a single one does.
        """
        usual = self.step_seconds
        return usual if 0 < usual <= DAY_SECONDS else BIN_SECONDS

    @property
    def until_seconds(self) -> float:
        """End of what the last row stands for."""
        return float(self.seconds[-1]) + self.held_seconds


def time_column(names: Sequence[str]) -> int:
    """Position of the time: the first column that is named like one, else the first."""
    lower = [name.strip().lower() for name in names]
    return next((lower.index(name) for name in TIME_NAMES if name in lower), 0)


def series_names(names: Sequence[str], time_place: int, source: str) -> dict[str, int]:
    """Position of each series' column.

    Raises:
        InputError: for a column without a name or two of one name.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if place == time_place:
            continue
        if not name.strip():
            raise InputError(f"column {place + 1}", "a name", name, source)
        if name.strip() in places:
            raise InputError(f"column {place + 1}", "a name of its own", name, source)
        places[name.strip()] = place
    if not places:
        raise InputError("columns", "a time and at least one series", list(names), source)
    return places


def sorted_rows(seconds: Floats, doubled: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """The order of rows by time, and what that repaired."""
    order = np.argsort(seconds, kind="stable")
    told = {
        "clock-change": doubled > 0,
        "times-twice": len(np.unique(seconds)) < len(seconds),
        "unordered": bool(np.any(np.diff(seconds) < 0)),
    }
    return order, tuple(name for name, holds in told.items() if holds)


def require_room(n_rows: int, n_columns: int, source: str) -> None:
    """Refuse a table that fills memory.

    Raises:
        InputError: above ``MAX_CELLS``.
    """
    if n_rows * n_columns > MAX_CELLS:
        raise InputError("file", f"at most {MAX_CELLS} cells", n_rows * n_columns, source)
