"""``--window`` of ``wattpack forecast``: peaks of windows shorter than the whole, at stated risks.

Each is forecast as a DemandForecast with that horizon and these levels would be, beside the whole
window in the same round. So it has a record and a calibration of windows of its own length: what is
learned of six hours says nothing of two.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from forecasting.app.forecast_tables import figure, held, made_by, plain_table
from forecasting.forecast_status import has_figures, status_of
from forecasting.peak_quantiles import STATUS_LEVELS
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import BIN_SECONDS, window_steps
from forecasting.targets import Target
from wattpack.errors import InputError
from wattpack.printable import printable
from wattpack.units import require_number

MOST_WINDOWS: Final = 8
"""Of one command: each is gone through the history on its own."""

_OF_THE_WHOLE: Final = ("p50", "p95", "p99", "quantiles", "running")
"""What a status says of its own window and is told here by level, or not at all."""


@dataclass(frozen=True, slots=True)
class PeakWindow:
    """What is asked of each series beside its whole window.

    Attributes:
        steps: From the end of the data on.
        levels: Of its peak, rising.
    """

    steps: int
    levels: tuple[float, ...]

    def of(self, target: Target) -> Target:
        """What a forecaster is asked for it; the target itself where that is the same."""
        asked = replace(
            target, name=f"{self.steps} steps of {target.name}", horizon=self.steps,
            asked_levels=self.levels, tokens=None, n_paths=0,
        )  # fmt: skip
        return target if asked.group == target.group else asked


@dataclass(frozen=True, slots=True)
class WindowPeaks:
    """The peak of one window of one series.

    Attributes:
        steps: Of the window.
        levels: As they were asked.
        peaks: At these levels; empty without figures.
        status: Of its forecast.
    """

    steps: int
    levels: tuple[float, ...]
    peaks: tuple[float, ...]
    status: dict[str, Any]

    @property
    def hours(self) -> float:
        """Length of the window."""
        return self.steps * BIN_SECONDS / 3600

    @property
    def is_calibrated(self) -> bool:
        """Whether enough windows of this length are over to correct its peaks."""
        return bool(self.peaks) and not {"uncalibrated", "no-history"} & set(self.status["flags"])

    def to_json(self) -> dict[str, Any]:
        """Peaks by level, and what stands behind them."""
        peaks = [
            {"level": level, "value": value}
            for level, value in zip(self.levels, self.peaks, strict=bool(self.peaks))
        ]
        behind = {k: v for k, v in self.status.items() if k not in _OF_THE_WHOLE}
        told = {"hours": round(self.hours, 4), "calibrated": self.is_calibrated, "peaks": peaks}
        return told | behind


def add_window_flags(parser: argparse.ArgumentParser) -> None:
    """``--window`` and ``--window-levels``."""
    parser.add_argument(
        "--window", action="append", default=[], type=float, metavar="HOURS", dest="windows",
        help="also the peak of the next HOURS, at most --hours, calibrated by windows of that "
        "length (may be given again)",
    )  # fmt: skip
    parser.add_argument(
        "--window-levels", metavar="LEVELS",
        help="with --window: of its peak, rising, 0.01 to 0.999, with commas: 0.97 is exceeded in "
        f"3 %% of such windows ({','.join(f'{level:g}' for level in STATUS_LEVELS)})",
    )  # fmt: skip


def windows_of(
    hours: Sequence[float], levels: tuple[float, ...] | None, most_steps: int
) -> tuple[PeakWindow, ...]:
    """What the flags ask for, each length once.

    Args:
        hours: Of each window.
        levels: Of their peaks; None for those that every status has.
        most_steps: Of the whole window.

    Raises:
        InputError: levels without a window, one below a step or beyond the whole, too many.
    """
    if levels is not None and not hours:
        raise InputError("window-levels", "--window beside it", levels)
    if len(hours) > MOST_WINDOWS:
        raise InputError("window", f"at most {MOST_WINDOWS} windows", len(hours))
    least, most = BIN_SECONDS / 3600, most_steps * BIN_SECONDS / 3600
    for one in hours:
        require_number("window", one, minimum=least, maximum=most)
    steps = dict.fromkeys(window_steps(one * 3600, BIN_SECONDS) for one in hours)
    return tuple(PeakWindow(count, levels or STATUS_LEVELS) for count in steps)


def peaks_of(
    window: PeakWindow, answer: TargetForecast, whole: TargetForecast, now_seconds: float
) -> WindowPeaks:
    """The peaks of a window, none above the peak of the whole at this level or the next higher one.

    Both keep their level by a record of their own, and a part is no higher than the whole.

    Args:
        window: What was asked.
        answer: To it.
        whole: To what it is a part of.
        now_seconds: Unix time.
    """
    status = status_of(answer, now_seconds)
    if not has_figures(answer):
        return WindowPeaks(window.steps, window.levels, (), status)
    known, above = answer.target.levels, whole.target.levels
    found = []
    for level in window.levels:
        bounds = [float(whole.peaks[i]) for i, other in enumerate(above) if other >= level]
        own = float(answer.peaks[known.index(level)])
        found.append(float(f"{min([own, *bounds]):.6g}"))
    return WindowPeaks(window.steps, window.levels, tuple(found), status)


def windows_table(told: Sequence[tuple[str, WindowPeaks]]) -> Table:
    """One line a series and window."""
    table = plain_table("highest 10-minute mean of shorter windows, from now on")
    table.add_column("series", overflow="fold", min_width=7)
    table.add_column("next", justify="right", no_wrap=True)
    for level in told[0][1].levels:
        table.add_column(f"p{level * 100:g}", justify="right", no_wrap=True)
    table.add_column("calibrated by", no_wrap=True)
    table.add_column("p99 held", min_width=9, overflow="fold")
    table.add_column("by", min_width=5, overflow="fold")
    table.add_column("flags", min_width=5, overflow="fold")
    for series, one in told:
        figures = one.peaks or (None,) * len(one.levels)
        table.add_row(
            Text(printable(series)), f"{one.hours:.3g} h", *map(figure, figures), _corrected(one),
            held(one.status), made_by(one.status), ", ".join(one.status.get("flags", ())),
        )  # fmt: skip
    return table


def _corrected(one: WindowPeaks) -> str:
    """What the correction rests on."""
    if not one.is_calibrated:
        return "nothing yet"
    behind = one.status["calibration"]
    return f"{behind['liveWindows'] + behind['rehearsedWindows']} windows"
