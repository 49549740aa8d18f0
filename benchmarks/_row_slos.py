"""What a policy costs the requests of the inference row, from the times of several runs.

Limits are POLCA's (``published_limits``), which counts whole requests; ``every`` holds first tokens
and the time between tokens to the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.latency_accounts import QUANTILES, RequestTimes
from simulation.inference_row.published_limits import KINDS, PEAK_HOURS, SIX_WEEKS, broken
from simulation.inference_row.request_classes import HIGH, LOW, POLCA_CLASSES

__all__ = ["COUNTED", "KINDS", "PEAK_HOURS", "SIX_WEEKS", "broken", "losses", "quantiles"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
