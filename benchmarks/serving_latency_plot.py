"""Predicted over measured latencies of whole servers (``benchmarks.serving_latency_plot``).

Writes docs/images/serving-latency.png after the whole leave-one-model-out; needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np

from benchmarks.runner import Options
from benchmarks.serving_latency import Judged, leave_one_model_out
from capacity.serving.reference_runs import scored_runs

PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "serving-latency.png"
MODELS: Final = {"llama-3.1-70b": "C0", "qwen3-32b": "C1", "llama-3.1-8b": "C2"}
MARKS: Final = {"trtllm": "o", "vllm": "^"}


def main() -> None:
    """Predict every run from other models' runs, and draw."""
    draw(leave_one_model_out(scored_runs(), 3, Options())[0])


def draw(judged: Sequence[Judged]) -> None:
    """One panel for each latency: predicted over measured, by model and engine."""
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(1, 2, figsize=(13, 4.5), sharey=True)
    for axis, name, unit in zip(axes, ("tpot", "ttft"), (1e3, 1.0), strict=True):
        for (model, colour), (engine, mark) in (
            (m, e) for m in MODELS.items() for e in MARKS.items()
        ):
            mine = [
                one for one in judged if (one.run.language_model, one.run.engine) == (model, engine)
            ]
            if not mine:
                continue
            measured = np.array([getattr(one.run, f"{name}_seconds") for one in mine])
            made = np.array([getattr(one, f"{name}_seconds") for one in mine])
            axis.scatter(
                unit * measured, made / measured, s=9, alpha=0.5, color=colour, marker=mark,
                label=f"{model}, {engine}",
            )  # fmt: skip
        axis.axhline(1, color="black", linewidth=0.5)
        axis.axhspan(0.88, 1.12, color="black", alpha=0.06)
        axis.set(xscale="log", yscale="log", ylim=(0.2, 5))
        axis.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
        axis.yaxis.set_minor_locator(ticker.NullLocator())
    axes[0].set(xlabel="measured time per output token (ms)", ylabel="predicted over measured")
    axes[1].set(xlabel="measured time to first token (s)")
    axes[0].legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=80)


if __name__ == "__main__":
    main()
