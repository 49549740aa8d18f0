"""What a policy may cost the requests of the inference row: limits as data, verdicts from times.

A loss is a quantile of a time over the same quantile of the uncapped row, less 1. Limits of POLCA
(arXiv 2308.12908, read second-hand: p50 and p99 by priority over six weeks, p50 of low priority up
to 25 % in peak hours); it counts whole requests, ``EVERY`` holds first tokens and the time between
tokens to the same limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.latency_accounts import QUANTILES, RequestTimes
from simulation.inference_row.request_classes import HIGH, LOW, POLCA_CLASSES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KINDS: Final = ("whole", "first", "token")
PEAK_HOURS: Final[Mapping[str, float]] = {
    "high_p50": 0.01,
    "high_p99": 0.05,
    "low_p50": 0.25,
    "low_p99": 0.50,
}
SIX_WEEKS: Final[Mapping[str, float]] = {**PEAK_HOURS, "low_p50": 0.05}
COUNTED: Final[Mapping[str, Sequence[str]]] = {"every": KINDS, "whole": ("whole",)}
"""Kinds of times that a set of limits is held against, by the set's name."""


def quantiles(times: Sequence[RequestTimes], of_class: Sequence[Integers]) -> dict[str, float]:
    """Quantiles in seconds of the requests of several runs together, such as ``high_whole_p50``.

    Args:
        times: Of the requests that count, by run.
        of_class: Their positions in the classes.
    """
    priority = np.array([one.priority for one in POLCA_CLASSES])[np.concatenate(of_class)]
    made: dict[str, float] = {}
    for kind in KINDS:
        seconds = np.concatenate([getattr(one, f"{kind}_seconds") for one in times])
        for name, group in (("high", HIGH), ("low", LOW)):
            mine = seconds[(priority == group) & np.isfinite(seconds)]
            for q in QUANTILES:
                value = float(np.percentile(mine, q)) if len(mine) else float("nan")
                made[f"{name}_{kind}_p{q}"] = value
    return made


def losses(mine: Mapping[str, float], plain: Mapping[str, float]) -> dict[str, float]:
    """Of each quantile over the uncapped row's."""
    return {name: mine[name] / plain[name] - 1.0 for name in plain}


def broken(
    loss: Mapping[str, float], kinds: Sequence[str], limits: Mapping[str, float] = PEAK_HOURS
) -> list[str]:
    """Names of the losses that are not within their limits; what is not known is not."""
    names = [(f"{g}_{kind}_{q}", limits[f"{g}_{q}"]) for kind in kinds
             for g, q in (name.split("_") for name in limits)]  # fmt: skip
    return [name for name, limit in names if not loss[name] < limit]
