"""Up to which batch a small stack waits for the host that launches its kernels.

Source of the idea: Vellaisamy et al., "Characterizing and Optimizing LLM Inference Workloads on
CPU-GPU Coupled Architectures" (2025): total kernel launch and queueing time (TKLQT) stays flat
while the host is the limit and rises once the GPU is. Eager over graph time tells the same without
a profiler: a graph has no launches to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import DecoderStep

HOST_BOUND_RATIO: Final = 1.1
"""Eager over graph time above which the host counts."""


def transition_batch(rows: Iterable[MeasurementRow]) -> float | None:
    """The batch at which eager steps take 1.1 times their graph's time, between measured ones.

    Returns:
        The smallest measured batch if no batch is launch-bound, infinity if all are, None without
        rows of section ``transition``.
    """
    times = _times(rows)
    batches = sorted(times["eager"].keys() & times["graph"].keys())
    if not batches:
        return None
    excess = np.array([
        np.log(times["eager"][b] / times["graph"][b] / HOST_BOUND_RATIO) for b in batches
    ])  # fmt: skip
    bound = np.flatnonzero(excess > 0)
    if not len(bound):
        return float(batches[0])
    last = int(bound[-1])
    if last == len(batches) - 1:
        return float("inf")
    ends = np.log(batches[last : last + 2])
    share = excess[last] / (excess[last] - excess[last + 1])
    return float(np.exp(ends[0] + share * (ends[1] - ends[0])))


def eager_launch_seconds(rows: Iterable[MeasurementRow]) -> float | None:
    """What the host takes to launch one kernel of a decoder step, where the step waits for it.

    More than an empty kernel's launch (``LaunchCosts.eager_seconds``): arguments are prepared and
    outputs allocated in between.

    Returns:
        Median over the launch-bound batches; None where none is.
    """
    kept = list(rows)
    times = _times(kept)
    launches = [
        sum(count for _, count in row.kernel.kernel_mix())
        for row in kept
        if row.section == "transition" and isinstance(row.kernel, DecoderStep)
    ]
    bound = [
        seconds
        for batch, seconds in times["eager"].items()
        if seconds > HOST_BOUND_RATIO * times["graph"].get(batch, np.inf)
    ]
    # Every step of the section is of one stack: all have as many kernels.
    return float(np.median(bound)) / launches[0] if bound else None


def _times(rows: Iterable[MeasurementRow]) -> dict[str, dict[int, float]]:
    """Seconds of each batch by launch mode."""
    times: dict[str, dict[int, float]] = {"eager": {}, "graph": {}}
    for row in rows:
        if row.section == "transition" and isinstance(row.kernel, DecoderStep):
            times[row.launch_mode][row.kernel.batch] = row.latency.median_seconds
    return times
