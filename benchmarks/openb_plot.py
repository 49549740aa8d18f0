"""Allocation over arrivals in docs/placement-benchmarks.md: ``python -m benchmarks.openb_plot``.

Writes docs/images/openb.png from two seeds of the default trace; takes half a minute and reads what
``--resume`` holds; needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks._openb_runs import MARKS, PERCENT, Case, KeptRows, Row, case_row
from benchmarks._openb_trace import SEEDS
from benchmarks.openb import PUBLISHED, WHOLE_TRACE, bounds, published

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {
    "random": "#8d99ae",
    "best_fit": "#edae49",
    "fgd": "#00798c",
    "ours_online": "#d1495b",
    "ours_moves": "#f77f00",
    "ours_batch": "#6a4c93",
}
NAMES = {
    "random": "random",
    "best_fit": "best fit",
    "fgd": "FGD",
    "ours_online": "planner, one by one",
    "ours_moves": "planner, with moves",
    "ours_batch": "planner, all at once",
}
FROM_PERCENT = 80


def plot_allocation(file: Path, rows: dict[str, list[Row]]) -> None:
    """Means over seeds; published means dashed, the bound dotted.

    Args:
        file: To write.
        rows: Of each policy, on ``WHOLE_TRACE``.
    """
    figure, axis = plt.subplots(figsize=(10, 6))
    axis.plot(PERCENT, PERCENT, c="black", lw=0.7, label="everything that came")
    for arm, mine in rows.items():
        if mine[0]["curve"] is None:
            marks = [np.mean([row["at"][str(mark)] for row in mine]) for mark in MARKS]
            axis.plot(MARKS, marks, "o", c=COLOURS[arm], label=NAMES[arm])
            continue
        curve = np.array([row["curve"] for row in mine], dtype=float).mean(axis=0)
        axis.plot(PERCENT, curve, c=COLOURS[arm], label=NAMES[arm])
        if arm in PUBLISHED:
            theirs = published()[arm, WHOLE_TRACE]
            axis.plot(PERCENT, [theirs[p] for p in PERCENT], c=COLOURS[arm], ls="--", lw=1.0)
    axis.plot([], [], c="grey", ls="--", lw=1.0, label="published")
    bound = [bounds()[WHOLE_TRACE, mark] for mark in MARKS]
    axis.plot(MARKS, bound, "kv", label="no schedule exceeds (another sample)")
    axis.set(
        xlabel="GPUs asked for so far, % of the cluster",
        ylabel="GPUs allocated, %",
        xlim=(FROM_PERCENT, PERCENT[-1] + 1),
        ylim=(FROM_PERCENT, 101),
        title=f"openb, {WHOLE_TRACE} trace",
    )
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/openb.png"))
    parser.add_argument("--resume", type=Path, help="folder of finished runs")
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    kept = KeptRows(asked.resume)
    rows: dict[str, list[Row]] = {arm: [] for arm in NAMES}
    for arm, mine in rows.items():
        for seed in SEEDS[: asked.seeds]:
            case = Case(arm, WHOLE_TRACE, seed)
            row = kept.of(case) or case_row(case)
            kept.keep(case, row)
            mine.append(row)
    plot_allocation(asked.out, rows)


if __name__ == "__main__":
    main()
