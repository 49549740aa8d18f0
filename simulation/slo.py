"""What the work got and what it cost: tokens, latency, slowdown, energy.

Slowdown is judged against an uncapped run of the same seed with the same placements. Requests:
quantile of latency over the same quantile of the uncapped run; requests that are still under way
count with their age. Jobs: seconds run over seconds of work done, in windows of ten seconds (an
uncapped job's is 1 by construction).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulation.serving_queues import StepResult

Floats = NDArray[np.float64]

LEAD_OUT_SECONDS = 30.0
"""Requests of a run's last seconds are left out: they had no time to finish."""


@dataclass(slots=True)
class Ledger:
    """Running sums of one run.

    Attributes:
        energy_joules: AC energy of the row.
        begin_seconds: Requests that arrived before are not judged.
        tokens: Prompt and output tokens of finished requests, by service.
        requests: Finished requests, by service.
        gpu_seconds: Work done by jobs, by kind, at full speed.
        series: One row a second: time, then watts of each domain, then GPU watts.
    """

    n_services: int
    begin_seconds: float = 0.0
    energy_joules: float = 0.0
    gpu_joules: float = 0.0
    tokens: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    series: list[tuple[float, ...]] = field(default_factory=list)
    gpu_seconds: dict[str, float] = field(default_factory=dict)
    _latency: list[list[Floats]] = field(default_factory=list)
    _arrived: list[list[Floats]] = field(default_factory=list)
    _first_token: list[list[Floats]] = field(default_factory=list)
    _per_token: list[list[Floats]] = field(default_factory=list)
    _jobs: dict[str, list[Floats]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = [0.0] * self.n_services
        self.requests = [0] * self.n_services
        self._latency = [[] for _ in range(self.n_services)]
        self._arrived = [[] for _ in range(self.n_services)]
        self._first_token = [[] for _ in range(self.n_services)]
        self._per_token = [[] for _ in range(self.n_services)]

    def served(self, result: StepResult) -> None:
        """Add the requests that finished in a step."""
        for service in np.unique(result.service):
            mine = result.service == service
            self.tokens[service] += float(result.tokens[mine].sum())
            self.requests[service] += int(mine.sum())
            self._latency[service].append(result.latency_seconds[mine])
            first, output = result.first_token_seconds[mine], result.output_tokens[mine]
            self._first_token[service].append(first)
            # Of an answer of one token there is no time between tokens.
            gaps = np.where(output > 1.0, output - 1.0, np.nan)
            self._per_token[service].append((result.latency_seconds[mine] - first) / gaps)
            self._arrived[service].append(result.arrived_seconds[mine])

    def worked(self, kind: str, gpu_seconds: float) -> None:
        """Add work of jobs."""
        self.gpu_seconds[kind] = self.gpu_seconds.get(kind, 0.0) + gpu_seconds

    def job_windows(self, name: str, slowdown: Floats) -> None:
        """Add slowdowns of jobs of one class."""
        if len(slowdown):
            self._jobs.setdefault(name, []).append(slowdown)

    def job_slowdowns(self) -> dict[str, Floats]:
        """All windows by class."""
        return {name: np.concatenate(parts) for name, parts in sorted(self._jobs.items())}

    def latencies(self, service: int, arrived_before_seconds: float) -> Floats:
        """Latencies of finished requests that arrived before a time."""
        if not self._latency[service]:
            return np.zeros(0)
        latency = np.concatenate(self._latency[service])
        arrived = np.concatenate(self._arrived[service])
        judged = (arrived >= self.begin_seconds) & (arrived < arrived_before_seconds)
        return np.asarray(latency[judged], dtype=np.float64)

    def first_tokens(self, service: int) -> Floats:
        """Seconds to the first token of finished requests."""
        parts = self._first_token[service]
        return np.concatenate(parts) if parts else np.zeros(0)

    def tokens_apart(self, service: int, arrived_before_seconds: float) -> tuple[Floats, Floats]:
        """Seconds to the first token, and per token after it, of what ``latencies`` judges.

        Answers of one token are left out of the second.
        """
        if not self._arrived[service]:
            return np.zeros(0), np.zeros(0)
        arrived = np.concatenate(self._arrived[service])
        judged = (arrived >= self.begin_seconds) & (arrived < arrived_before_seconds)
        first = np.concatenate(self._first_token[service])[judged]
        gaps = np.concatenate(self._per_token[service])[judged]
        return first, gaps[~np.isnan(gaps)]


def quantile_ratio(capped: Floats, uncapped: Floats, level: float) -> float | None:
    """Quantile of one sample over the same quantile of another; None if either is empty."""
    if not len(capped) or not len(uncapped):
        return None
    return float(np.quantile(capped, level) / max(float(np.quantile(uncapped, level)), 1e-9))
