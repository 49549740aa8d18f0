"""Figures of "Priority Matters" rows, by arm and node count, and the published ones beside them."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks._priority_instances import COMBINATIONS, Combination
from benchmarks._priority_judge import Outcome

__all__ = ["DATA", "against_published", "arm_figures", "published", "table_rows"]

Row = Mapping[str, Any]
DATA: Final = Path(__file__).parent / "data" / "priority_matters"
NODE_COUNTS: Final = (4, 8, 16, 32)
#: What the issue of this benchmark calls good enough without a proof.
NEAR_PODS, NEAR_SHARE = 1, 0.01
_GOOD: Final = (
    Outcome.NO_CALL,
    Outcome.DEFAULT_OPTIMAL,
    Outcome.BETTER,
    Outcome.BETTER_AND_OPTIMAL,
)
_PROVED: Final = (Outcome.NO_CALL, Outcome.DEFAULT_OPTIMAL, Outcome.BETTER_AND_OPTIMAL)


def combination_of(row: Row) -> Combination:
    """Of a row, by its number."""
    return COMBINATIONS[int(row["number"]) % len(COMBINATIONS)]


def arm_figures(
    arm: str, rows: Sequence[Row], limit_seconds: float, *, counts_cpu: bool = False
) -> dict[str, float | int]:
    """Of one arm's rows, at least one."""
    figures: dict[str, float | int] = {"instances": len(rows)}
    figures |= {f"{kind}_share": _share(rows, (kind,)) for kind in Outcome}
    figures["better_or_proved_share"] = _share(rows, _GOOD)
    figures["proved_share"] = _share(rows, _PROVED)
    figures["near_or_proved_share"] = sum(map(_near, rows)) / len(rows)
    for nodes in NODE_COUNTS:
        some = [row for row in rows if combination_of(row).nodes == nodes]
        if some:
            figures[f"better_or_proved_share_at_{nodes}_nodes"] = _share(some, _GOOD)
            figures[f"worse_share_at_{nodes}_nodes"] = _share(some, (Outcome.WORSE,))
    figures |= _moves(rows) | _times(rows, limit_seconds, counts_cpu)
    return {f"{arm}_{name}": value for name, value in figures.items()}


def _share(rows: Sequence[Row], kinds: Iterable[str]) -> float:
    return sum(row["outcome"] in set(kinds) for row in rows) / len(rows)


def _near(row: Row) -> bool:
    """Proved, or next to the bound."""
    if row["outcome"] in _PROVED:
        return True
    if row["outcome"] == Outcome.FAILURE or row["gap_pods"] is None:
        return False
    return bool(row["gap_pods"] <= NEAR_PODS or row["gap_share"] <= NEAR_SHARE)


def _moves(rows: Sequence[Row]) -> dict[str, float | int]:
    running = np.array([sum(row["default"]) for row in rows])
    moved = np.array([row["moved"] for row in rows]) / running
    evicted = np.array([row["evicted"] for row in rows]) / running
    return {
        "moved_share_p50": float(np.median(moved)),
        "moved_share_p95": float(np.quantile(moved, 0.95)),
        "evicted_share_p50": float(np.median(evicted)),
        "evicted_share_p95": float(np.quantile(evicted, 0.95)),
    }


def _times(rows: Sequence[Row], limit_seconds: float, counts_cpu: bool) -> dict[str, float | int]:
    called = [row for row in rows if row["seconds"] is not None]
    if not called:
        return {}
    wall = np.array([row["seconds"] for row in called])
    cpu = np.array([row["cpu_seconds"] for row in called])
    over = np.maximum(0.0, (cpu if counts_cpu else wall) - limit_seconds)
    return {
        "seconds_p50": float(np.median(wall)),
        "cpu_seconds_p50": float(np.median(cpu)),
        "solves_over_the_limit_share": float((over > 0).mean()),
        "seconds_over_the_limit_p50": float(np.median(over)),
        "seconds_over_the_limit_p95": float(np.quantile(over, 0.95)),
        "seconds_over_the_limit_max": float(over.max()),
    }


# -- beside the published ones ---------------------------------------------------------------------

_PUBLISHED_CLASSES: Final = (
    "failures",
    "no_calls",
    "default_optimal",
    "better",
    "better_and_optimal",
)


def published(timeout_seconds: int) -> dict[Combination, dict[str, float]]:
    """Percent of each class by cell, at one of the published time limits (1, 10 and 20 s)."""
    with (DATA / "outcomes.csv").open(encoding="utf-8", newline="") as file:
        return {
            Combination(
                int(row["nodes"]),
                int(row["pods_per_node"]),
                int(row["priorities"]),
                int(row["usage_pct"]) / 100,
            ): {kind: float(row[f"{kind}_pct"]) for kind in _PUBLISHED_CLASSES}
            for row in csv.DictReader(file)
            if int(row["timeout_s"]) == timeout_seconds
        }


def against_published(rows: Sequence[Row], timeout_seconds: int) -> float:
    """Share that is better or proved less theirs, the mean over the cells that the rows are of."""
    theirs = published(timeout_seconds)
    differences = [
        _share(ours, _GOOD) - (1 - theirs[cell]["failures"] / 100)
        for cell, ours in _by_cell(rows).items()
    ]
    return float(np.mean(differences))


def _by_cell(rows: Sequence[Row]) -> dict[Combination, list[Row]]:
    cells: dict[Combination, list[Row]] = defaultdict(list)
    for row in rows:
        cells[combination_of(row)].append(row)
    return cells


def table_rows(rows: Sequence[Row], timeout_seconds: int) -> list[dict[str, float | int]]:
    """A line a cell: percent of each class, ours and the published at that limit."""
    theirs = published(timeout_seconds)
    lines: list[dict[str, float | int]] = []
    for cell, ours in sorted(_by_cell(rows).items(), key=lambda item: COMBINATIONS.index(item[0])):
        counted = Counter(row["outcome"] for row in ours)
        lines.append(
            {
                "nodes": cell.nodes,
                "pods_per_node": cell.pods_per_node,
                "priorities": cell.priorities,
                "usage_pct": round(100 * cell.usage),
                "instances": len(ours),
                **{f"{kind}_pct": 100 * counted[kind] / len(ours) for kind in Outcome},
                **{f"published_{kind}_pct": theirs[cell][kind] for kind in _PUBLISHED_CLASSES},
            }
        )
    return lines
