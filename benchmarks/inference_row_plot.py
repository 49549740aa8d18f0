"""The inference row in docs/inference-row.md: ``python -m benchmarks.inference_row_plot``.

Writes docs/images/inference-row.png, with ``--lengths azure`` docs/images/inference-row-azure.png,
the row that the preset asks; takes two minutes; needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np

from benchmarks.inference_row import BUSY_HOURS, DAYS, FITTED_SEED, WHOLE_DAY, days_of
from simulation.inference_row.request_lengths import LengthsName
from simulation.inference_row.row_calibration import PUBLISHED, frozen_calibration
from simulation.inference_row.uncapped_row import READING_SECONDS, Floats

mpl.use("Agg")
from matplotlib import pyplot as plt

FILES: Final[dict[LengthsName, Path]] = {
    "published": Path("docs/images/inference-row.png"),
    "azure": Path("docs/images/inference-row-azure.png"),
}
PLOTTED_DAYS = 14
BLUE, RED = "#00798c", "#d1495b"


def plot_row(file: Path, whole: Floats) -> None:
    """Two weeks, the busy hours of the highest day, and how often the row rises by how much.

    Args:
        file: To write.
        whole: Readings of ``DAYS``, whole.
    """
    first, last = (round(hour * 3600 / READING_SECONDS) for hour in BUSY_HOURS)
    busy = whole[:, first:last]
    figure, axes = plt.subplots(3, 1, figsize=(11, 10))
    bins = whole[:PLOTTED_DAYS].reshape(-1, round(600 / READING_SECONDS))
    days = DAYS[0] + np.arange(len(bins)) * 600 / 86_400
    axes[0].fill_between(days, bins.min(axis=1), bins.max(axis=1), color=BLUE, alpha=0.3, lw=0)
    axes[0].plot(days, bins.mean(axis=1), c=BLUE, lw=0.7, label="10 min: mean, range of 2 s")
    axes[0].set(xlabel="days since Monday, midnight", ylabel="power over rating")
    day = int(np.argmax(busy.max(axis=1)))
    hours = BUSY_HOURS[0] + np.arange(busy.shape[1]) * READING_SECONDS / 3600
    axes[1].plot(hours, busy[day], c=BLUE, lw=0.3)
    axes[1].set(xlabel=f"hours of day {DAYS[day]}, the highest", ylabel="power over rating")
    for axis in axes[:2]:
        axis.axhline(PUBLISHED.peak, c=RED, ls="--", label="published peak of six weeks")
    for seconds, mark, colour in ((2, PUBLISHED.rise_2_seconds, BLUE),
                                  (40, PUBLISHED.rise_40_seconds, RED)):  # fmt: skip
        for readings, style, when in ((busy, "-", "busy hours"), (whole, ":", "whole days")):
            rises = np.sort(_rises(readings, round(seconds / READING_SECONDS)).ravel())
            above = 1.0 - np.arange(len(rises)) / len(rises)
            axes[2].semilogy(rises, above, style, c=colour, label=f"within {seconds} s, {when}")
        axes[2].axvline(mark, c=colour, ls="--", label=f"published worst, {seconds} s")
    axes[2].set(xlabel="rise, share of rating", ylabel="share of readings above", xlim=(0, 0.18))
    axes[0].legend(loc="lower left", fontsize=8)
    axes[2].legend(fontsize=8, loc="upper right")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _rises(readings: Floats, longest: int) -> Floats:
    """Largest rise from each reading within so many readings, (days, readings - longest)."""
    n = readings.shape[1] - longest
    rises = [readings[:, lag : lag + n] - readings[:, :n] for lag in range(1, longest + 1)]
    return np.asarray(np.max(rises, axis=0), dtype=np.float64)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", choices=tuple(FILES), default="published")
    parser.add_argument("--out", type=Path, help="in place of docs/images/…")
    given = parser.parse_args()
    arrivals = frozen_calibration(given.lengths).arrivals(seed=FITTED_SEED)
    plot_row(given.out or FILES[given.lengths], days_of(arrivals, DAYS, WHOLE_DAY))


if __name__ == "__main__":
    main()
