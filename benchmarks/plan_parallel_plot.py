"""Megatron-LM's table as published and as predicted, and plans on uneven links.

``python -m benchmarks.plan_parallel_plot`` writes docs/images/training-plans.png from the recorded
result; needs matplotlib.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np

from benchmarks._megatron_table import FITTED, TABLE
from benchmarks.runner import RESULTS

PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "training-plans.png"


def main() -> None:
    """Draw published against predicted seconds of a step, and the errors beside a constant rate."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figures = json.loads((RESULTS / "plan_parallel.json").read_text(encoding="utf-8"))["figures"]
    errors = np.array([figures[f"megatron_{row.billions:g}b_error_percent"] for row in TABLE])
    rate = np.mean([TABLE[row].tflops for row in FITTED])
    naive = 100 * (np.array([row.tflops for row in TABLE]) / rate - 1)
    published = np.array([row.step_seconds for row in TABLE])
    fitted = np.isin(np.arange(len(TABLE)), FITTED)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    made = published * (1 + errors / 100)
    left.plot([3, 120], [3, 120], color="0.7", linewidth=1)
    left.scatter(published[~fitted], made[~fitted], label="held out")
    left.scatter(
        published[fitted], made[fitted], facecolors="none", edgecolors="C0", label="fitted"
    )
    left.set(xscale="log", yscale="log", xlabel="published step, s", ylabel="predicted step, s")
    left.set_title("Megatron-LM's table, 1.7B on 32 to 1T on 3,072 A100")
    left.legend()
    at = np.arange(len(TABLE))
    right.bar(at - 0.2, errors, 0.4, label="predicted")
    right.bar(at + 0.2, naive, 0.4, color="0.75", label="the fitted rows' mean rate")
    right.set_xticks(at, [f"{row.billions:g}" for row in TABLE], rotation=45)
    right.set(xlabel="billion parameters", ylabel="error of the step, %")
    right.axhline(0, color="0.3", linewidth=0.8)
    right.legend()
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
