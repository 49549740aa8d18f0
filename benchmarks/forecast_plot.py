"""The picture of docs/forecasting.md: ``python -m benchmarks.forecast_plot`` (matplotlib)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np

from benchmarks.forecast_run import LEVELS, Published, published
from benchmarks.forecast_sets import DAY, HORIZON, ForecastSet, clients, totals

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

FIRST_ORIGIN: Final = 11 * DAY + 60
FORECASTS: Final = 4
SHOWN: Final = (
    (clients, "m-small/c5", "busiest client of a small model, requests a second"),
    (totals, "m-large", "all clients of a large model, requests a second"),
    (clients, "helios/vc6YE", "largest virtual cluster, GPUs in use"),
)
BANDS: Final = ((0.01, 0.99, 0.15), (0.05, 0.95, 0.2), (0.2, 0.8, 0.3))


def plot_fans(file: Path) -> None:
    """Three series: the day before, four forecasts that the process published in turn, the truth.

    The whole set is forecast, as its calibration is of the whole set.
    """
    origins = tuple(FIRST_ORIGIN + HORIZON * i for i in range(FORECASTS))
    found = {make: replace(make(), origins=origins) for make in (clients, totals)}
    runs = {make: published(given) for make, given in found.items()}
    figure, axes = plt.subplots(len(SHOWN), 1, figsize=(10, 9))
    for axis, (make, name, title) in zip(axes, SHOWN, strict=True):
        _plot(axis, found[make], runs[make], found[make].series.index(name))
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(top=1.3 * axes[0].get_ylim()[1])
    axes[0].legend(fontsize=8, ncols=6, loc="upper left")
    axes[-1].set_xlabel("hours since the first forecast; a new one every six hours")
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _plot(axis: Axes, given: ForecastSet, run: Published, row: int) -> None:
    begin, end = FIRST_ORIGIN - DAY, FIRST_ORIGIN + FORECASTS * HORIZON
    hours = (np.arange(begin, end) - FIRST_ORIGIN) / 6
    axis.plot(hours, given.values[row, begin:end], "k", lw=0.8, label="observed")
    for number, origin in enumerate(given.origins):
        x = hours[origin - begin : origin - begin + HORIZON]
        steps, last = run.quantiles[number, row], number > 0
        for low, high, shade in BANDS:
            axis.fill_between(
                x, steps[:, LEVELS.index(low)], steps[:, LEVELS.index(high)], lw=0,
                color="#00798c", alpha=shade, label=None if last else f"{low:.0%} to {high:.0%}",
            )  # fmt: skip
        median = steps[:, LEVELS.index(0.5)]
        axis.plot(x, median, c="#00798c", lw=1.2, label=None if last else "median")
        peak = run.peak(0.99)[number, row]
        axis.hlines(peak, x[0], x[-1], colors="#d1495b", label="" if last else "p99 of peak")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast_plot", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    plot_fans(args.out / "forecasting-fans.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
