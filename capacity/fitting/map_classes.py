"""Serving classes read the cap map, training and batch work the shared line: which errs less where.

Both were held against sweeps that they had not seen (``python -m benchmarks cap_throughput``), caps
from half of the limit. On language models served by an RTX PRO 6000, the only server sweep, of a
type in no fit, the map errs by 4.1 % and the line by 9.2 %, on each of its four workloads. On
training with a whole type left out the line does better (A40 7.1, RTX 6000 3.0, V100 4.0, P100 2.3
against 8.1, 3.7, 6.0 and 2.2 %); with a network left out of a known type they tie on V100 and
RTX 6000, and the map is better on the A40 (5.6 against 10.2 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from capacity.fitting.board_power import Draw
from capacity.fitting.curves import (
    BINDING,
    MIN_DRAW_SHARE,
    Floats,
    SweepPoint,
    monotone,
)
from capacity.model.cap_map import CapMap, fit_cap_map

SERVING_CLASSES: Final = ("prefill", "decode")

NO_SWEEP: Final = "no sweep"
"""Name of a type that the map does not know: it gets the mean over types."""

LEAST_SPEED: Final = 0.02
"""As of the shared line, below all caps that a board takes."""

SWEPT_FROM: Final = 0.4
SERVED_FROM: Final = 0.5
"""Lowest cap over the limit, of the sweeps of training and of the server."""


def map_curves(
    cap_map: CapMap, gpu: str | None, draw: Draw, limit: float, fractions: Floats
) -> tuple[Floats, Floats]:
    """Speed and draw at ascending shares of the limit, both rising and relative to no cap.

    Args:
        gpu: Of the sweeps; None for a type that has none, which gets the mean over types.

    Below what was swept both fall in proportion to the cap.
    """
    uncapped = min(draw.p50_watts, limit)
    known = np.maximum(fractions, SWEPT_FROM if gpu else SERVED_FROM)
    caps, below = known * limit, fractions / known
    speed = cap_map.throughput(gpu or NO_SWEEP, caps, uncapped, limit) * below
    drawn = cap_map.draw_watts(gpu or NO_SWEEP, caps, uncapped, limit) / uncapped * below
    return np.clip(monotone(speed), LEAST_SPEED, 1.0), np.clip(monotone(drawn), LEAST_SPEED, 1.0)


def map_error(cap_map: CapMap, points: Sequence[SweepPoint]) -> float:
    """Mean relative error of speed where the cap binds, on the rows that judge the line too."""
    judged = [p for p in points if p.share >= MIN_DRAW_SHARE and p.x < BINDING]
    columns = np.array([(p.limit_watts, p.uncapped_watts, p.max_limit_watts) for p in judged]).T
    measured = np.array([p.throughput for p in judged])
    return float(np.abs(cap_map.throughput(judged[0].gpu, *columns) / measured - 1).mean())


def network_held_out_errors(points: Sequence[SweepPoint]) -> dict[str, float]:
    """By GPU type: the map's error on networks that it saw on no type."""
    errors: dict[str, list[tuple[float, int]]] = {}
    for network in sorted({_network(point) for point in points}):
        cap_map = fit_cap_map([p for p in points if _network(p) != network])
        for gpu in sorted({p.gpu for p in points}):
            held = [p for p in points if p.gpu == gpu and _network(p) == network]
            count = sum(p.share >= MIN_DRAW_SHARE and p.x < BINDING for p in held)
            if count:
                errors.setdefault(gpu, []).append((map_error(cap_map, held), count))
    return {
        gpu: sum(error * count for error, count in told) / sum(count for _, count in told)
        for gpu, told in errors.items()
    }


def swept_note(gpu: str, samples: int, error: float) -> dict[str, Any]:
    """Curve labels of serving on a type whose training was swept."""
    return {
        "curve_provenance": "derived",
        "curve_source": f"zeus_power_limit_sweep.csv.gz: {gpu} training at the same draw, cap map",
        "curve_samples": samples,
        "error_mape": round(error, 4),
        "error_kind": "training: each network predicted from the others, on every GPU type",
    }


def served_note(samples: int, error: float) -> dict[str, Any]:
    """Curve labels of serving on a type that nobody swept."""
    return {
        "curve_provenance": "derived",
        "curve_source": "cap map of the Zeus sweeps of four other GPU types, its mean law",
        "curve_samples": samples,
        "error_mape": round(error, 4),
        "error_kind": "a server of language models on another type that is in no fit",
    }


def _network(point: SweepPoint) -> str:
    """Without its data set, so that a network's other data set teaches nothing."""
    return point.job.split("/")[-1]
