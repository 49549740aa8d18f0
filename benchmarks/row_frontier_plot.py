"""The frontier in docs/inference-row-frontier.md: ``python -m benchmarks.row_frontier_plot``.

Draws what ``row_frontier`` has found, from a kept result or the file of its ``--json``: the largest
count of each arm of each variant, under POLCA's limits and with first tokens and the time between
tokens held to them as well; beside each what the policy guarantees there and how long the row was
above its rating. Writes docs/images/row-frontier.png; needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks import row_frontier
from benchmarks._frontier_cells import ARMS, STATIC
from benchmarks._row_slos import COUNTED
from benchmarks.row_frontier import RATED, VARIANTS
from benchmarks.runner import RESULTS

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLOURS = {"whole": "#00798c", "every": "#d1495b"}
SAID = {"whole": "whole requests (POLCA's)", "every": "and first tokens, time between tokens"}
LINES = {1.3: "POLCA, published", 1.4: "line"}
COLUMNS = {"guaranteed": 1.11, "floor": 1.18, "above 1.00": 1.28}
"""What is told of each count, and where: right edges over the width of the axes."""


def found(figures: Mapping[str, Any]) -> list[tuple[str, str, dict[str, int]]]:
    """Variant, arm and the count of each set of limits that was searched, in order."""
    rows = []
    for variant in VARIANTS:
        for arm in ARMS:
            counts = {
                slos: int(figures[f"{variant}_{arm}_{slos}_servers"])
                for slos in COUNTED
                if f"{variant}_{arm}_{slos}_servers" in figures
            }
            if counts:
                rows.append((variant, arm, counts))
    return rows


def borne(figures: Mapping[str, Any], key: str) -> tuple[str, str, str]:
    """Guaranteed caps, floors and seconds above the rating at a count, in the order of ``COLUMNS``.

    A policy without leases guarantees no cap: its boards keep their default limits.
    """
    if f"{key}_floor_watts" not in figures:
        return "I1", "I1", "I1"
    floor, guaranteed = figures[f"{key}_floor_watts"], figures[f"{key}_guaranteed_watts"]
    caps = (f"{guaranteed:.0f} W", f"{floor:.0f} W") if floor > 0.0 else ("none", "none")
    return (*caps, f"{figures[f'{key}_above_seconds']:.0f} s")


def plot_frontier(file: Path, figures: Mapping[str, Any]) -> None:
    """A bar for each count over the 40 servers that the breaker is rated for.

    Args:
        file: To write.
        figures: Of a run of ``row_frontier``.
    """
    rows = found(figures)
    inches = 1.9 + 0.42 * len(rows)
    figure, axis = plt.subplots(figsize=(12.5, inches))
    # Room for the words behind the longest bar; a count may lie below the rating.
    over = [100.0 * (count / RATED - 1.0) for *_, counts in rows for count in counts.values()]
    for place, (variant, arm, counts) in enumerate(rows):
        for slos, shift in (("whole", -0.2), ("every", 0.2)):
            if slos not in counts:
                continue
            more = 100.0 * (counts[slos] / RATED - 1.0)
            colour = "#8d99ae" if arm == STATIC else COLOURS[slos]
            key = f"{variant}_{arm}_{slos}"
            kept = figures[f"{key}_found_kept_share"], figures[f"{key}_next_kept_share"]
            axis.barh(place + shift, more, 0.36, color=colour)
            text = f" {counts[slos]} servers; kept by {kept[0]:.0%}, one more by {kept[1]:.0%}"
            axis.text(max(more, 0.0), place + shift, text, va="center", fontsize=8)
            for right, told in zip(COLUMNS.values(), borne(figures, key), strict=True):
                _beside(axis, right, place + shift, told)
    axis.set_yticks(range(len(rows)), [f"{variant}: {arm}" for variant, arm, _ in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.3, -1.1)
    for name, right in COLUMNS.items():
        _beside(axis, right, -0.62, name)
    for ratio, name in LINES.items():
        axis.axvline(100.0 * (ratio - 1.0), c="#555555", ls="--", lw=0.8)
        axis.text(
            100.0 * (ratio - 1.0), -0.62, name, fontsize=8, ha="right" if ratio < 1.4 else "left"
        )
    for slos, colour in COLOURS.items():
        axis.barh([0], [0], color=colour, label=SAID[slos])
    axis.barh([0], [0], color="#8d99ae", label="static: highest reading at the rating")
    axis.set(
        xlabel=f"servers over the {RATED} that the breaker is rated for, %",
        xlim=(min(0.0, *over), max(85.0, 1.7 * max(over))),
    )
    axis.legend(
        fontsize=8,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0 + 0.1 / inches),
        ncol=3,
        frameon=False,
    )
    axis.grid(alpha=0.3, axis="x")
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _beside(axis: Axes, right: float, place: float, text: str) -> None:
    """Words at the height of a bar, to the right of the axes."""
    axis.text(
        right,
        place,
        text,
        transform=axis.get_yaxis_transform(),
        ha="right",
        va="center",
        fontsize=8,
    )


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path, default=RESULTS / f"{row_frontier.NAME}.json")
    parser.add_argument("--out", type=Path, default=Path("docs/images/row-frontier.png"))
    given = parser.parse_args()
    plot_frontier(given.out, json.loads(given.result.read_text(encoding="utf-8"))["figures"])


if __name__ == "__main__":
    main()
