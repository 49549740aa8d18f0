"""The picture of steps in docs/capacity.md: ``python -m benchmarks.step_power_plot``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.step_power import RUNS, Judged, of_runs

mpl.use("Agg")
from matplotlib import pyplot as plt

STACKS = {32: ("8B", "#00798c"), 40: ("14B", "#d1495b"), 80: ("70B, one of 8 parts", "#edae49")}
CONTEXTS = {512: "o", 2048: "s", 8192: "^"}


def plot_steps(file: Path) -> None:
    """Decode draw by batch, measured and predicted, and time of all steps, for both GPUs."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 8))
    for column, (gpu, judged) in enumerate(of_runs(RUNS).items()):
        _plot_draw(axes[0, column], judged)
        _plot_time(axes[1, column], judged)
        axes[0, column].set_title(f"{gpu.upper()}: decode draw by batch")
        axes[1, column].set_title(f"{gpu.upper()}: time of a step under its limit")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, ncol=5, loc="lower center", title="stack, context")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(file, dpi=90)
    plt.close(figure)


def _plot_draw(axis: Any, judged: Judged) -> None:  # noqa: ANN401
    decode = [part for part in judged if part[1].phase == "decode"]
    for layers, (name, colour) in STACKS.items():
        for context, marker in CONTEXTS.items():
            mine = sorted(
                (step.batch, row.power.mean_watts, made.mean_watts)
                for row, step, made in decode
                if row.power and (step.layers, step.kv_tokens) == (layers, context)
            )
            if not mine:
                continue
            batches, measured, predicted = np.array(mine).T
            axis.plot(batches, measured, marker, c=colour, ms=5, label=f"{name}, {context}")
            axis.plot(batches, predicted, "-", c=colour, lw=0.8)
    axis.axhline(judged[0][0].identity.power_limit_watts, c="k", lw=0.6, ls=":")
    axis.set_xscale("log", base=2)
    axis.set_xlabel("batch (marks: measured; lines: predicted from kernel rows)")
    axis.set_ylabel("mean draw, W")
    axis.grid(alpha=0.3)


def _plot_time(axis: Any, judged: Judged) -> None:  # noqa: ANN401
    for phase, marker in (("decode", "."), ("prefill", "x")):
        pairs = np.array([
            (row.power.sustained_seconds, made.seconds / row.power.sustained_seconds)
            for row, step, made in judged if row.power and step.phase == phase
        ])  # fmt: skip
        axis.plot(1e3 * pairs[:, 0], pairs[:, 1], marker, label=phase)
    axis.axhline(1, c="k", lw=0.6)
    axis.set_xscale("log")
    axis.set_xlabel("measured, ms")
    axis.set_ylabel("predicted / measured")
    axis.legend()
    axis.grid(alpha=0.3)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/capacity-steps.png"))
    plot_steps(parser.parse_args().out)


if __name__ == "__main__":
    main()
