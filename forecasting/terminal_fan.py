"""A fan chart of text: braille for what was, shades for what may come.

Two dots across and four down make a braille character (Unicode 6.0, block 2800), so that a day of
ten-minute bins fits into half a terminal.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.fan import Fan, readable
from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.printable import printable

Characters = NDArray[np.str_]

LEAST_WIDTH: Final = 40
LEAST_HEIGHT: Final = 6
_LABEL: Final = 9
_PAST_SHARE: Final = 0.6

#: Bit of each dot of a braille character, by column and by row from the top.
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))

_NOTHING: Final = 1e-9
_ROUND: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)

#: Shade of what lies between two quantiles, by how far their middle is from the median.
_SHADES: Final = ((0.2, "▓"), (0.43, "▒"), (0.5, "░"))


def terminal_fan(fan: Fan, width: int = 80, height: int = 16) -> list[str]:
    """The chart as lines of at most ``width`` characters.

    Args:
        fan: What to draw.
        width: Characters across, at least 40.
        height: Lines of the plot itself, at least 6; axis and legend come below.

    Raises:
        InputError: for a chart too small to read.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        raise InputError("size", f"at least {LEAST_WIDTH} x {LEAST_HEIGHT}", (width, height))
    room = width - _LABEL - 2
    past_columns = round(room * _PAST_SHARE) if len(fan.past) else 0
    top = _rounded_up(fan.highest())
    grid = np.full((height, room), " ", dtype="<U1")
    if past_columns:
        grid[:, :past_columns] = _line(fan.past, past_columns, height, top)
    grid[:, past_columns:] = _shades(fan, room - past_columns, height, top)
    rows = [f"{_label(row, height, top):>{_LABEL}} ┤{''.join(grid[row])}" for row in range(height)]
    return [printable(fan.title)[:width], *rows, *_axis(fan, past_columns, room), _legend(fan)]


def _shades(fan: Fan, columns: int, height: int, top: float) -> Characters:
    """Quantiles as shades, the median and the promised peak as lines, shape (height, columns)."""
    steps = np.minimum(np.arange(columns) * len(fan.quantiles) // columns, len(fan.quantiles) - 1)
    edges = fan.quantiles[steps]
    shades = [_shade((low + high) / 2) for low, high in pairwise(fan.levels)]
    values = top * (height - np.arange(height) - 0.5) / height
    bands = (edges[None, :, :] <= values[:, None, None]).sum(axis=2)
    drawn: Characters = np.array([" ", *shades, " "], dtype="<U1")[bands]
    drawn[_row(np.full(columns, fan.peak_p99), height, top), np.arange(columns)] = "╌"
    drawn[_row(fan.middle()[steps], height, top), np.arange(columns)] = "━"
    return drawn


def _shade(level: float) -> str:
    return next(shade for far, shade in _SHADES if abs(level - 0.5) <= far)


def _line(values: Floats, columns: int, height: int, top: float) -> Characters:
    """A line of braille, its gaps left open, shape (height, columns)."""
    cells = np.zeros((height, columns), dtype=np.int64)
    places = np.linspace(0, len(values) - 1, 2 * columns).round().astype(np.intp)
    before: int | None = None
    for x, place in enumerate(places):
        value = values[place]
        if not np.isfinite(value):
            before = None
            continue
        dot = int(_row(np.array([value]), 4 * height, top)[0])
        # Joined to the dot before, so that a steep rise is a line and no cloud.
        other = dot if before is None else before
        for y in range(min(dot, other), max(dot, other) + 1):
            cells[y // 4, x // 2] |= _DOTS[x % 2][y % 4]
        before = dot
    drawn: Characters = np.where(cells == 0, ord(" "), 0x2800 + cells).astype(np.uint32).view("<U1")
    return drawn


def _row(values: Floats, height: int, top: float) -> NDArray[np.intp]:
    """The row that shows each value, 0 at the top."""
    rows = np.floor((1 - np.nan_to_num(values) / top) * height).astype(np.intp)
    return np.clip(rows, 0, height - 1)


def _axis(fan: Fan, past_columns: int, room: int) -> list[str]:
    """The time axis with its ends and the present."""
    rule = ["─"] * room
    rule[past_columns] = "┬"
    ahead = f"+{len(fan.quantiles) * fan.step_seconds / 3600:.3g} h"
    before = f"-{len(fan.past) * fan.step_seconds / 3600:.3g} h" if past_columns else ""
    words = f"{before:<{past_columns}}now"
    indent = " " * (_LABEL + 2)
    return [
        f"{'0':>{_LABEL}} ┼{''.join(rule)}",
        f"{indent}{words}{ahead:>{room - len(words)}}",
    ]


def _legend(fan: Fan) -> str:
    named = ", ".join(f"p{level * 100:g}" for level in fan.levels)
    peak = f"╌ window's peak, p99 {readable(fan.peak_p99)}"
    return f"{' ' * (_LABEL + 2)}━ step's p50  ░▒▓ steps' {named}  {peak}"


def _label(row: int, height: int, top: float) -> str:
    return readable(top * (height - row) / height, 4) if row % 4 == 0 else ""


def _rounded_up(value: float) -> float:
    """A round number at or above the value, with some air; 1 for nothing at all."""
    if not value > _NOTHING:
        return 1.0
    unit = float(10.0 ** np.floor(np.log10(value)))
    return next((m * unit for m in _ROUND if m * unit >= value), 10 * unit)
