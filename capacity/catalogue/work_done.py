"""What a cycle gives to users: tokens, requests, and how long a gang waits for its slowest member.

    cycle ── decode steps x sequences x tokens_per_step ──> tokens ── output_tokens ──> model calls
    model calls ── fan_out at once, offload_to_client never sent ──> user requests
    cycle ── step_time_spread ──> 95th percentile, and the slowest of members that wait for it

Everything is of one replica on ``gpus`` boards, which all draw what the cycle says of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from capacity.catalogue.startup_time import Z95
from capacity.catalogue.workload_model import CyclePrice
from capacity.catalogue.workload_schema import DecoderPart, Workload

Floats = npt.NDArray[np.float64]

__all__ = ["WorkDone", "slowest_of", "work_done"]

_GRID: Final = np.linspace(-8.0, 8.0, 4001)
"""Standard normal quantiles over which the slowest member's time is summed; beyond lies 1e-15."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Of one replica, without pauses; None where the entry says nothing of it.

    Attributes:
        tokens_per_second: That sequences get, guesses that are not accepted left out.
        joules_per_token: Of all boards of the replica.
        seconds_per_token: Of one sequence.
        requests_per_second: Of users, those that they compute themselves counted in.
        joules_per_request: Of users, on the cluster.
        answer_seconds: Of one model call's output.
        p95_seconds: Of a cycle that lasts as its spread says.
        gang_seconds: Mean of the slowest of ``max_gpus`` boards: a synchronous step takes this.
    """

    tokens_per_second: float | None
    joules_per_token: float | None
    seconds_per_token: float | None
    requests_per_second: float | None
    joules_per_request: float | None
    answer_seconds: float | None
    p95_seconds: float
    gang_seconds: float


def work_done(workload: Workload, cycle: CyclePrice) -> WorkDone:
    """What the entry's parameters make of its cycle."""
    told, seconds = workload.parameters, cycle.seconds
    joules = cycle.mean_watts * seconds * workload.gpus
    tokens, sequences = _tokens(workload), _sequences(workload)
    each = seconds * sequences / tokens if tokens else None
    calls = _calls(workload, tokens, sequences)
    # A user's request is that many calls; what clients compute themselves costs no call.
    users = calls / told.fan_out / (1 - told.offload_to_client) if calls else None
    spread = told.step_time_spread
    return WorkDone(
        tokens_per_second=tokens / seconds if tokens else None,
        joules_per_token=joules / tokens if tokens else None,
        seconds_per_token=each,
        requests_per_second=users / seconds if users else None,
        joules_per_request=joules / users if users else None,
        answer_seconds=told.output_tokens * each if told.output_tokens and each else None,
        p95_seconds=seconds * _log_normal(spread, np.array(Z95)).item(),
        gang_seconds=seconds * slowest_of(workload.malleability.max_gpus, spread),
    )


def slowest_of(members: int, spread: float) -> float:
    """Mean of the longest of so many independent times of mean 1, log-normal with this spread."""
    if members == 1 or spread == 0:
        return 1.0
    reached = ndtr(_GRID) ** members
    middle = (_GRID[1:] + _GRID[:-1]) / 2
    return float(np.diff(reached) @ _log_normal(spread, middle))


def _log_normal(spread: float, normal: Floats) -> Floats:
    """Values of mean 1 at these standard normal quantiles."""
    variance = np.log1p(spread**2)
    return np.asarray(np.exp(np.sqrt(variance) * normal - variance / 2))


def _decodes(workload: Workload) -> list[tuple[int, DecoderPart]]:
    """Steps that yield tokens, with how often each runs in a cycle."""
    return [
        (phase.repeats * part.count, part)
        for phase in workload.phases
        for part in phase.kernels
        if isinstance(part, DecoderPart) and part.phase == "decode" and not part.is_draft
    ]


def _tokens(workload: Workload) -> float:
    """Of all sequences in a cycle."""
    steps = sum(times * part.batch for times, part in _decodes(workload))
    return steps * workload.parameters.tokens_per_step


def _sequences(workload: Workload) -> int:
    """At once, at most."""
    return max((part.batch for _, part in _decodes(workload)), default=0)


def _calls(workload: Workload, tokens: float, sequences: int) -> float | None:
    """Model calls of a cycle: by their length, else all sequences of a cycle that is a request."""
    if workload.parameters.output_tokens:
        return tokens / workload.parameters.output_tokens or None
    return sequences or None if workload.slo.kind == "end-to-end" else None
