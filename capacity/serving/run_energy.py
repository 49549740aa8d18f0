"""What a run drew, second by second, and which of its requests the joules belong to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.serving.deployment import Deployment
from capacity.serving.served_requests import ServerRun

Floats = npt.NDArray[np.float64]

WINDOW_SECONDS: Final = 1.0
"""Of means of which the 99th percentile is told: what a breaker's thermal part can see."""


def board_watts(deployment: Deployment, run: ServerRun) -> tuple[Floats, Floats]:
    """One-second means of one board's draw, and how many seconds each stands for, shape (n,) both.

    Seconds within one stride are alike and stand together: n grows with the strides and not with
    the time. The regulator keeps means of a second at the limit; between iterations the board waits
    with its clock up.
    """
    log = run.log
    busy = np.array(log.counts) * np.array(log.seconds)
    ends = np.array(log.ends)
    free = np.array(log.joules) / np.array(log.free_seconds)
    edges = np.concatenate([[0.0], np.stack([ends - busy, ends], axis=1).ravel()])
    gap = deployment.prices.gap_watts
    watts = np.stack([np.full(len(free), gap), free], axis=1).ravel()
    energy = np.concatenate([[0.0], np.cumsum(np.maximum(0.0, np.diff(edges)) * watts)])
    count = max(1, int(float(edges[-1]) / WINDOW_SECONDS))
    window = float(edges[-1]) / count
    cut = np.floor(edges / window)
    marks = np.unique(np.clip(np.concatenate([cut, cut + 1, [0.0, count]]), 0, count))
    spans = np.diff(marks)
    means = np.diff(np.interp(marks * window, edges, energy)) / (spans * window)
    held = deployment.regulator.held_share * deployment.limit
    return np.minimum(means, held), spans


def quantile_of_windows(values: Floats, counts: Floats, share: float) -> float:
    """``np.quantile`` of each value as often as it counts."""
    order = np.argsort(values)
    last = np.cumsum(counts[order]) - 1
    place = share * last[-1]
    low, high = values[order][np.searchsorted(last, [np.floor(place), np.ceil(place)])].tolist()
    return float(low + (high - low) * (place - np.floor(place)))


def drawn_joules(deployment: Deployment, run: ServerRun) -> float:
    """On all boards of the server, until its last request ended."""
    watts, spans = board_watts(deployment, run)
    mean = float(watts @ spans) / float(spans.sum())
    return deployment.tensor_parallel * mean * run.seconds


def fleet_joules(servers: Iterable[tuple[Deployment, ServerRun | None]], seconds: float) -> float:
    """On all boards of all servers up to a common end; a server without work (None) waits.

    Args:
        seconds: When the last of them ended.
    """
    total = 0.0
    for deployment, run in servers:
        waits = deployment.tensor_parallel * deployment.prices.gap_watts
        if run is None or not run.log.ends:
            total += waits * seconds
        else:
            total += drawn_joules(deployment, run) + waits * max(0.0, seconds - run.seconds)
    return total


def request_joules(deployment: Deployment, run: ServerRun) -> Floats:
    """Joules of each request on all boards of the server, shape (n_requests,), all that was drawn.

    An iteration's decodes share what it would draw without prompts, equally; what prompts add is
    shared by the tokens that were computed. The wait between requests, and what a limit takes away,
    are shared in proportion: the sum is the server's energy.
    """
    log, clock = run.log, deployment.clock()
    decodes = np.array(log.decodes, dtype=np.float64)
    free, prompted = np.array(log.joules), np.array(log.tokens) > 0
    alone = np.where(decodes > 0, free, 0.0)
    for index in np.flatnonzero(prompted & (decodes > 0)).tolist():
        cost = clock.decode(log.decodes[index], log.contexts[index])
        alone[index] = min(cost[1], free[index])
    added = float((free - alone) @ np.array(log.counts))
    each = np.array(log.counts) * alone / np.maximum(1.0, decodes)
    sums = np.concatenate([[0.0], np.cumsum(each)])
    strides = np.array([one.strides for one in run.requests])
    computed = np.array([max(1, one.prompt - one.cached) for one in run.requests], dtype=np.float64)
    weights = sums[strides[:, 2]] - sums[strides[:, 1]] + added * computed / computed.sum()
    return np.asarray(drawn_joules(deployment, run) * weights / weights.sum())
