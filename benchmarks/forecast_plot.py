"""The pictures of docs/forecasting.md: ``python -m benchmarks.forecast_plot`` (matplotlib)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.forecast_quality import DAY, FILES, HORIZON, load
from forecasting.forecast_choice import forecast, level_index
from forecasting.rehearsal import replay
from forecasting.series_source import History, SeriesId

mpl.use("Agg")
from matplotlib import pyplot as plt

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
TITLES = {
    "clients": "busiest client of a small model",
    "totals": "all clients of a large model",
    "clusters": "largest virtual cluster, GPUs in use",
}


def plot_fans(file: Path, cut: int = 11 * DAY + 60) -> None:
    """One series of each kind: the day before, four forecasts made in turn, and what came."""
    figure, axes = plt.subplots(3, 1, figsize=(10, 9))
    for axis, name in zip(axes, FILES, strict=True):
        row = load(name)[:1]
        names = [SeriesId(name)]
        chosen = replay(
            History(names, row[:, :cut]), horizon=HORIZON, levels=(0.5, 0.95, 0.99)
        ).methods
        hours = (np.arange(row.shape[1]) - cut) / 6
        end = cut + 4 * HORIZON
        axis.plot(hours[cut - DAY : end], row[0, cut - DAY : end], "k", lw=0.8, label="observed")
        for at in range(cut, end, HORIZON):
            made = forecast(
                History(names, row[:, at - 10 * DAY : at]),
                horizon=HORIZON,
                levels=LEVELS,
                prefer={names[0]: chosen[0]},
            )
            x, paths, last = hours[at : at + HORIZON], made.quantiles[0], at > cut
            for i, shade in ((0, 0.15), (1, 0.2), (2, 0.3)):
                label = None if last else f"{LEVELS[i]:.0%} to {LEVELS[-1 - i]:.0%}"
                axis.fill_between(
                    x,
                    paths[:, i],
                    paths[:, -1 - i],
                    color="#00798c",
                    alpha=shade,
                    lw=0,
                    label=label,
                )
            axis.plot(x, paths[:, 3], c="#00798c", lw=1.2, label=None if last else "median")
            peak = made.peaks[0, level_index(LEVELS, 0.99)]
            axis.hlines(peak, x[0], x[-1], colors="#d1495b", label=None if last else "p99 of peak")
        axis.set_title(f"{TITLES[name]} ({chosen[0]})", fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(top=1.3 * axes[0].get_ylim()[1])
    axes[0].legend(fontsize=8, ncols=6, loc="upper left")
    axes[-1].set_xlabel("hours since the first forecast; a new one every six hours")
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


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
