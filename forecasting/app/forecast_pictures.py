"""Pictures of forecasts, drawn with matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from forecasting.fan import Fan
from wattpack.errors import InputError, PermanentError
from wattpack.printable import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK: Final = "#16212c"
DRAW: Final = "#0b5cad"
FAN: Final = "#4c6f96"
FAN_SHADES: Final = ("#dbe3ec", "#bccbdb", "#9db2c9")
PEAK: Final = "#a34a06"
MISS: Final = "#b3261e"
"""The console's colours of light pages."""

_DPI: Final = 110
_TITLE: Final = 52
"""Characters of a name beside a time above half a picture."""


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure that no window belongs to.

    Raises:
        InputError: where the library is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "png", "matplotlib, for pictures: pip install 'wattpack[plot]'", "nothing of it"
        ) from error
    return Figure(figsize=(width_inches, height_inches), dpi=_DPI, layout="constrained")


def save(figure: Figure, file: Path) -> None:
    """The figure as PNG, the same bytes for the same figure.

    Raises:
        PermanentError: where it cannot be written.
    """
    try:
        figure.savefig(file, format="png", metadata={"Software": None})
    except OSError as error:
        raise PermanentError(f"the picture is not in {file}: {error}") from error


def draw_fans(file: Path, fans: Sequence[Fan], columns: int = 2) -> None:
    """All fans in one picture, each with its own scale.

    Raises:
        InputError: where matplotlib is not installed.
        PermanentError: where the file cannot be written.
    """
    columns = min(columns, len(fans))
    rows = -(-len(fans) // columns)
    figure = new_figure(6.4 * columns, 2.9 * rows + 0.4)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axis, fan in zip(axes, fans, strict=False):
        draw_fan(axis, fan)
    for axis in axes[len(fans) :]:
        axis.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, file)


def draw_fan(axis: Axes, fan: Fan) -> None:
    """One window with what came before it, in hours from its start."""
    from matplotlib.ticker import MultipleLocator

    hours = fan.step_seconds / 3600
    ahead = (np.arange(len(fan.quantiles)) + 0.5) * hours
    before = (np.arange(len(fan.past)) - len(fan.past) + 0.5) * hours
    axis.plot(before, fan.past, color=DRAW, linewidth=1.3, label="observed")
    above = [i for i in range(len(fan.levels) - 1, 0, -1) if fan.levels[i] > 0.5]
    for depth, high in enumerate(above):
        low = _partner(fan.levels, high)
        words = f"p{fan.levels[low] * 100:g} to p{fan.levels[high] * 100:g}"
        edges = fan.quantiles[:, low], fan.quantiles[:, high]
        shade = FAN_SHADES[min(depth, len(FAN_SHADES) - 1)]
        axis.fill_between(ahead, *edges, color=shade, linewidth=0, label=words)
    axis.plot(ahead, fan.middle(), color=FAN, linewidth=1.5, label="p50 of each step")
    axis.hlines(
        fan.peak_p99, 0, len(fan.quantiles) * hours, colors=PEAK, linestyles="dashed",
        linewidth=1.3, label="p99 of the window's peak",
    )  # fmt: skip
    if fan.realised is not None:
        axis.plot(ahead, fan.realised, color=INK, linewidth=1.3, label="what came")
    axis.axvline(0, color="#52606c", linewidth=0.8)
    axis.set_ylim(bottom=0)
    axis.set_xlim(before[0] if len(before) else 0, len(fan.quantiles) * hours)
    began = datetime.fromtimestamp(fan.start_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    # A dollar is no formula, and a long expression leaves room for the picture.
    title = f"{shortened(fan.title, _TITLE)}, {began}"
    axis.set_title(title, fontsize=9, loc="left", color=INK, parse_math=False)
    axis.xaxis.set_major_locator(MultipleLocator(6.0 if len(before) else hours * 6))
    axis.set_xlabel("hours from then", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(color="#d5dde4", linewidth=0.6)


def _partner(levels: Sequence[float], high: int) -> int:
    """The level that lies as far below the median, or what is nearest to the median."""
    below = [i for i in range(high) if abs(levels[i] + levels[high] - 1) < 1e-6]
    return below[0] if below else min(range(high), key=lambda i: abs(levels[i] - 0.5))
