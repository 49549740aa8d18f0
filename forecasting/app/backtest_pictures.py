"""A backtest's pictures, drawn with matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from forecasting.app.forecast_pictures import DRAW, FAN_SHADES, INK, MISS, new_figure, save
from forecasting.backtest.backtest_verdicts import Reliability, Verdict, is_missed
from forecasting.backtest.window import Window
from forecasting.binomial import share_bounds
from wattpack.printable import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TIMELINE_SERIES: Final = 40
"""Lines of the timeline: the most missed series come first."""

_MARKS: Final = (
    ("kept", "s", FAN_SHADES[1], 9.0),
    ("above its p99", "X", MISS, 42.0),
    ("not judged", "_", "#52606c", 9.0),
)
_MUTED: Final = "#52606c"
_GRID: Final = "#d5dde4"


def draw_reliability(file: Path, verdict: Verdict) -> None:
    """Observed against stated level: the whole, and the levels that promises are made at."""
    figure = new_figure(10.4, 4.9)
    whole, tail = figure.subplots(1, 2)
    for axis, (low, high) in ((whole, (0.0, 1.0)), (tail, (0.88, 1.0))):
        told = [one for one in verdict.reliability if low <= one.level]
        _reliability(axis, told, verdict.windows, low, high)
    whole.set_title("peaks of windows: share at or below", fontsize=9, loc="left", color=INK)
    tail.set_title("the same from 0.88 on", fontsize=9, loc="left", color=INK)
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    save(figure, file)


def _reliability(
    axis: Axes, told: Sequence[Reliability], windows: int, low: float, high: float
) -> None:
    grid = np.linspace(low, high, 101)
    bands = np.array([_luck(level, windows) for level in grid])
    axis.fill_between(
        grid, bands[:, 0], bands[:, 1], color=FAN_SHADES[0], linewidth=0,
        label=f"luck alone, 95 % ({windows} windows)",
    )  # fmt: skip
    axis.plot([low, high], [low, high], color=_MUTED, linewidth=1, label="as stated")
    levels = np.array([one.level for one in told])
    shares = np.array([one.observed for one in told])
    around = np.abs(np.array([[one.low, one.high] for one in told]).reshape(-1, 2).T - shares)
    axis.errorbar(
        levels, shares, yerr=around, color=DRAW, marker="o", markersize=4, linewidth=1.3,
        capsize=2, label="peaks, with 95 % bounds",
    )  # fmt: skip
    axis.plot(
        levels, [one.steps for one in told], color=MISS, marker="x", markersize=5,
        linestyle="none", label="single steps",
    )  # fmt: skip
    axis.set_xlim(low, high)
    least = min([low, *(one.low for one in told), *(one.steps for one in told)])
    axis.set_ylim(max(0.0, least - 0.02 * (high - low)), high + 0.02 * (high - low))
    axis.set_xlabel("stated level", fontsize=8)
    axis.set_ylabel("observed share", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(color=_GRID, linewidth=0.6)


def _luck(level: float, windows: int) -> tuple[float, float]:
    """Shares within which a true level is seen 19 times in 20, by the exact interval around it."""
    return share_bounds(round(level * windows), windows)


def _outcome(window: Window) -> str:
    """A word of ``_MARKS``."""
    if not window.counts:
        return "not judged"
    return "above its p99" if is_missed(window) else "kept"


def draw_timeline(file: Path, by_series: Mapping[str, Sequence[Window]]) -> None:
    """Each window of each series: kept, missed, or not to be judged; the misses in time."""
    names = list(by_series)[:TIMELINE_SERIES]
    figure = new_figure(10.4, 1.6 + 0.19 * len(names))
    axis = figure.subplots()
    for words, marker, colour, size in _MARKS:
        points = [
            (datetime.fromtimestamp(window.origin_seconds, UTC), row)
            for row, name in enumerate(names)
            for window in by_series[name]
            if _outcome(window) == words
        ]
        if points:
            times, rows = zip(*points, strict=True)
            axis.scatter(times, rows, s=size, marker=marker, color=colour, label=words, linewidth=1)
    shown = [shortened(name, 32) for name in names]
    axis.set_yticks(range(len(names)), shown, fontsize=7, parse_math=False)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", color=_GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for spine in ("top", "right", "left"):
        axis.spines[spine].set_visible(False)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(figure, file)
