"""The recorded server beside the twin's: ``python -m benchmarks.serving_twin_plot``.

Writes docs/images/serving-twin.png, h200-board.png and h100-board.png; takes two minutes; needs
matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np

from benchmarks._served_runs import (
    PRODUCT_RECORDINGS,
    RECORDINGS,
    Recording,
    ServedRun,
    recordings,
    short_name,
)
from benchmarks._twin_server import TWIN_STEP_SECONDS
from benchmarks.board_check import decodes, products
from benchmarks.serving_twin import RISES_SECONDS, largest_rise, step_means, twin

mpl.use("Agg")
from matplotlib import pyplot as plt

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
BLUE, RED, GREY = "#00798c", "#d1495b", "#8d99ae"
BOARDS = (BLUE, RED, "#edae49", "#6a4c93", "#43aa8b")
"""Colours of recordings, in order of their numbers."""

SHOWN: Final = (
    "h200_conversation_1_3_recording_1", "h100_conversation_1_3_recording_1",
    "h200_code_1_5_recording_1", "h100_code_1_5_recording_1",
)  # fmt: skip
MARKS: Final = {"H200-SXM": "o", "H100-SXM": "^"}


def plot_serving(file: Path, found: list[Recording]) -> None:
    """Seconds of two runs on either type, then the largest rises of all."""
    figure = plt.figure(figsize=(11, 12))
    grid = figure.add_gridspec(5, 2, height_ratios=(1, 1, 1, 1, 1.8))
    rises: dict[int, list[tuple[float, float, tuple[str, str]]]] = {s: [] for s in RISES_SECONDS}
    for recording in found:
        for served in recording.runs:
            measured = recording.power.means(served.begin_seconds, served.seconds, 1.0)
            simulated = step_means(twin(recording.gpu, served, TWIN_STEP_SECONDS), 1.0)
            for span, kept in rises.items():
                both = (largest_rise(measured, span), largest_rise(simulated, span))
                kept.append((*both, (served.trace, recording.gpu)))
            if served.name in SHOWN:
                row = SHOWN.index(served.name)
                _seconds(figure.add_subplot(grid[row, :]), served, measured, simulated)
    for column, (span, points) in enumerate(rises.items()):
        axis = figure.add_subplot(grid[4, column])
        for kind in sorted({point[2] for point in points}):
            trace, gpu = kind
            chosen = np.array([point[:2] for point in points if point[2] == kind])
            axis.scatter(chosen[:, 0], chosen[:, 1], c=BLUE if trace == "conversation" else RED,
                         marker=MARKS[gpu], label=f"{trace}, {gpu}", zorder=3)  # fmt: skip
        most = 1.05 * max(max(point[:2]) for point in points)
        axis.plot([0, most], [0, most], c=GREY, ls="--")
        axis.set(xlabel=f"largest rise within {span} s, measured, W", ylabel="simulated, W")
        axis.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    plt.close(figure)


def _seconds(axis: Any, served: ServedRun, measured: Any, simulated: Any) -> None:  # noqa: ANN401
    axis.plot(np.arange(len(measured)) + 0.5, measured, c=BLUE, label="measured")
    axis.plot(np.arange(len(simulated)) + 0.5, simulated, c=RED, lw=1, label="simulated (twin)")
    axis.set(title=served.name.replace("_", " "), ylabel="W, means of 1 s", ylim=(80, 780))
    axis.legend(loc="lower right", ncols=2)


def plot_board(file: Path, gpu: str) -> None:
    """Products and decodes of a type: measured against the plant's."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5))
    for number in PRODUCT_RECORDINGS[gpu]:
        _, drawn, told, _ = products(gpu, number)
        left.scatter(drawn, told, c=BOARDS[number - 1], s=18, zorder=3, label=f"recording {number}")
    ends = np.array([250.0, 720.0])
    left.plot(ends, ends, c=GREY, ls="--")
    left.fill_between(ends, 0.9 * ends, 1.1 * ends, color=GREY, alpha=0.2, label="±10 %")
    left.set(title=f"70 matrix products, {gpu}", xlabel="measured, W", ylabel="plant, W")
    left.legend()
    for recording, colour in zip(recordings(gpu), BOARDS, strict=False):
        batch, watts, plant, _ = decodes(recording)
        right.semilogx(batch, watts, "o-", base=2, c=colour, label=f"recording {recording.number}")
    right.semilogx(batch, plant, "k--", base=2, label="plant")
    right.set(title="decode, Llama-3.1-8B's shape, 1,024 tokens of context", xlabel="batch",
              ylabel="W")  # fmt: skip
    right.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    plt.close(figure)


def main() -> None:
    """Both plots."""
    for gpu in RECORDINGS:
        plot_board(IMAGES / f"{short_name(gpu)}-board.png", gpu)
    found = [recording for gpu in RECORDINGS for recording in recordings(gpu)]
    plot_serving(IMAGES / "serving-twin.png", found)


if __name__ == "__main__":
    main()
