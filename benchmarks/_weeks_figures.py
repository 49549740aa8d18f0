"""Figures of six weeks' shards, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.runner import Target
from simulation.inference_row.request_classes import HIGH, LOW
from simulation.inference_row.request_time_counts import dense, quantile_seconds

SHARD_HOURS: Final = 2
SHARDS: Final = 42 * 24 // SHARD_HOURS
KINDS: Final = ("whole", "first", "token")
PRIORITIES: Final = {"low": LOW, "high": HIGH}
QUANTILES: Final = (50, 99)


def _slos(policy: str, kinds: Sequence[str]) -> dict[str, Target]:
    limits = {"high_p50": 0.01, "high_p99": 0.05, "low_p50": 0.05, "low_p99": 0.50}
    made = {
        f"{policy}_{name.split('_')[0]}_{kind}_{name.split('_')[1]}": Target(at_most=limit)
        for kind in kinds
        for name, limit in limits.items()
    }
    peak = {"high": 0.01, "low": 0.25}
    made |= {
        f"{policy}_peak_{name}_{kind}_p50": Target(at_most=limit)
        for kind in kinds
        for name, limit in peak.items()
    }
    return made


TARGETS: Final = {
    "polca_brakes": Target(at_most=0),
    **_slos("polca", ("whole",)),
    "wattpack_brakes": Target(at_most=0),
    "wattpack_trips": Target(at_most=0),
    **_slos("wattpack", KINDS),
}
WORK_TARGETS: Final = {
    "wattpack_work_low_over_polca": Target(at_least=1.0),
    "wattpack_work_high_over_polca": Target(at_least=1.0),
}
"""Where both run on the same row."""


def summary(policy: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Over the shards: sums of events, the worst of loads, quantiles of all requests."""
    shards = sum(row.get("shards", 1) for row in rows)
    made: dict[str, float] = {"shards": shards}
    for name in ("brakes", "trips", "above_seconds", "cap_changes", "invariant_violations"):
        made[name] = sum(row[name] for row in rows)
    for name in ("peak_ratio", "max_heat"):
        made[name] = max(row[name] for row in rows)
    for name in ("mean_ratio", "hot_hours"):
        made[name] = sum(row[name] for row in rows) / shards
    made["cpu_hours_of_all"] = cpu_hours_of_all(rows)
    work, free = (np.sum([row[name] for row in rows], axis=0) for name in ("work", "free_work"))
    made |= {f"work_{name}": float((work / free)[which]) for name, which in PRIORITIES.items()}
    for key in rows[0]["times"]:
        mine, plain = (
            np.sum([dense(row[name][key]) for row in rows], axis=0)
            for name in ("times", "free_times")
        )
        if not plain.any():
            continue
        for quantile in QUANTILES:
            free_seconds = quantile_seconds(plain, quantile)
            made[f"{key}_p{quantile}"] = quantile_seconds(mine, quantile) / free_seconds - 1.0
    compared = [row for row in rows if "calm_mean_error" in row]
    for name in compared[0] if compared else ():
        if name.startswith("calm_"):
            made[name] = max((row[name] for row in compared), key=abs)
    return {f"{policy}_{name}": value for name, value in made.items()}


def cpu_hours_of_all(rows: Sequence[Mapping[str, Any]]) -> float:
    """What one arm of six weeks takes, at the mean of its shards that are finished."""
    shards = sum(int(row.get("shards", 1)) for row in rows)
    seconds = float(sum(row["cpu_seconds"] for row in rows))
    return seconds / float(shards) * SHARDS / 3600.0
