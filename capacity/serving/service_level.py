"""What a deployment serves within latency limits, and what that costs in watts.

Two questions::

    measure(deployment, bucket, load)       TTFT, TPOT, goodput, joules per token at a given load
    max_rate(deployment, bucket, limits)    the largest Poisson rate within the limits, with watts

Loads are closed (so many clients at once) or open (requests a second). Everything is of one server,
that is of one tensor-parallel group; watts are of all of its boards. Arrivals and lengths come from
fixed seeds: the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.serving.deployment import Deployment
from capacity.serving.served_requests import ClosedLoop, OpenLoop, Request, ServerRun, Size
from wattpack.api.capacity_plan import MOST_TOKENS
from wattpack.errors import InputError
from wattpack.units import require_number

Floats = npt.NDArray[np.float64]

SEED: Final = 7

LOOKED_AT: Final = 400
"""Requests of an open run: 95 % of them within a limit is known to about 1 %."""

WARM_UP: Final = 0.15
"""Of an open run's requests that are not counted: the server starts empty."""

SEARCH_STEPS: Final = 9
"""Halvings of the bracket: the rate is found to a fifth of a per cent of its upper end."""

LEAST_LOAD: Final = 0.02
"""Of a request's own seconds, shares that requests come in: below, hardly two ever meet."""

PROMPT_ITERATIONS: Final = 8_000
"""Of an open run: prompts of hundreds of thousands of tokens are looked at fewer times."""

FEWEST_LOOKED_AT: Final = 60

REST_SECONDS: Final = 5.0
"""After which a board's limit has forgotten what ran."""

WINDOW_SECONDS: Final = 1.0
"""Of means of which the 99th percentile is told: what a breaker's thermal part can see."""


@dataclass(frozen=True, slots=True)
class RequestBucket:
    """Requests of one size class.

    Attributes:
        spread: Lengths are uniform between (1 - spread) and 1 times these.
        reused: Share of the prompt that is found in the prefix cache.
    """

    prompt_tokens: int
    output_tokens: int
    spread: float = 0.0
    reused: float = 0.0

    def __post_init__(self) -> None:
        require_number("prompt_tokens", self.prompt_tokens, minimum=1, maximum=MOST_TOKENS)
        require_number("output_tokens", self.output_tokens, minimum=1, maximum=MOST_TOKENS)
        require_number("spread", self.spread, minimum=0, maximum=0.99)
        require_number("reused", self.reused, minimum=0, maximum=0.999)

    def sizes(self, count: int) -> tuple[Size, ...]:
        """``count`` requests of the bucket."""
        draw = np.random.default_rng(SEED).uniform(1 - self.spread, 1, (count, 2))
        prompts = np.maximum(1, np.round(draw[:, 0] * self.prompt_tokens)).astype(int).tolist()
        outputs = np.maximum(1, np.round(draw[:, 1] * self.output_tokens)).astype(int).tolist()
        return tuple(
            Size(prompt, output, min(prompt - 1, int(prompt * self.reused)))
            for prompt, output in zip(prompts, outputs, strict=True)
        )


@dataclass(frozen=True, slots=True)
class LatencyLimits:
    """What a good request keeps, and how many requests must be good."""

    ttft_seconds: float
    tpot_seconds: float
    attainment: float = 0.95

    def __post_init__(self) -> None:
        require_number("ttft_seconds", self.ttft_seconds, exclusive_minimum=0)
        require_number("tpot_seconds", self.tpot_seconds, exclusive_minimum=0)
        require_number("attainment", self.attainment, exclusive_minimum=0, maximum=1)

    def good(self, requests: Sequence[Request]) -> npt.NDArray[np.bool_]:
        """Which requests kept both, shape (n,)."""
        return np.array([
            one.ttft <= self.ttft_seconds and one.tpot <= self.tpot_seconds for one in requests
        ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServingReport:
    """What a run of one server showed. Watts are of all of its boards.

    Attributes:
        ttft_seconds, tpot_seconds: Mean, median, 95th and 99th percentile.
        goodput: Requests a second within the limits; NaN without limits.
        p99_watts: Of one-second means.
        joules_per_token: Of generated tokens.
    """

    ttft_seconds: tuple[float, float, float, float]
    tpot_seconds: tuple[float, float, float, float]
    requests_per_second: float
    tokens_per_second: float
    goodput: float
    attainment: float
    mean_batch: float
    mean_watts: float
    p99_watts: float
    joules_per_token: float
    preempted: int


@dataclass(frozen=True, slots=True)
class MaxRate:
    """The largest rate that keeps the limits, and the server's draw there."""

    requests_per_second: float
    mean_watts: float
    p99_watts: float
    report: ServingReport


def measure(
    deployment: Deployment,
    bucket: RequestBucket,
    *,
    concurrency: int | None = None,
    requests_per_second: float | None = None,
    limits: LatencyLimits | None = None,
) -> ServingReport:
    """The bucket at one load: so many clients at once, or so many requests a second.

    Raises:
        InputError: both loads or none, or a request that can never fit the cache.
    """
    _require_room(deployment, bucket)
    if (concurrency is None) == (requests_per_second is None):
        raise InputError("concurrency", "this or requests_per_second", concurrency)
    if concurrency is not None:
        require_number("concurrency", concurrency, minimum=1, maximum=4096)
        sizes = bucket.sizes(max(40, 8 * concurrency))
        run = deployment.serve(ClosedLoop(concurrency, sizes))
        return report_of(deployment, run, limits)
    require_number("requests_per_second", requests_per_second, exclusive_minimum=0, maximum=1e6)
    assert requests_per_second is not None
    return _open_report(deployment, bucket, requests_per_second, limits)


def max_rate(
    deployment: Deployment, bucket: RequestBucket, limits: LatencyLimits
) -> MaxRate | None:
    """The largest Poisson rate at which enough requests keep the limits; None if none does.

    A server that has each request to itself keeps most: where that is too few, no rate is tried.

    Raises:
        InputError: a request that can never fit the cache.
    """
    _require_room(deployment, bucket)
    own_seconds = _own_seconds(deployment, bucket)
    alone = _alone(deployment, bucket, limits, own_seconds)
    if alone.attainment < limits.attainment:
        return None
    busiest = min(deployment.batching.largest_batch, max(1, _users(deployment, bucket)))
    full = report_of(
        deployment, deployment.serve(ClosedLoop(busiest, bucket.sizes(3 * busiest))), None
    )
    low, high = 0.0, full.requests_per_second
    best: MaxRate | None = None
    rate = high
    for _ in range(SEARCH_STEPS):
        report = _open_report(deployment, bucket, rate, limits)
        if report.attainment >= limits.attainment:
            low = rate
            best = MaxRate(rate, report.mean_watts, report.p99_watts, report)
        else:
            high = rate
        if low == full.requests_per_second or high < LEAST_LOAD / own_seconds:
            break
        rate = (low + high) / 2
    return best


def report_of(
    deployment: Deployment, run: ServerRun, limits: LatencyLimits | None, skipped: int = 0
) -> ServingReport:
    """Latencies of the requests after the first ``skipped``, draw of the whole run."""
    requests = sorted(run.requests, key=lambda one: one.sent)[skipped:]
    ttft = np.array([one.ttft for one in requests])
    tpot = np.array([one.tpot for one in requests])
    watts, spans = board_watts(deployment, run)
    watts = watts * deployment.tensor_parallel
    mean_watts = float(watts @ spans / spans.sum())
    tokens = sum(one.output for one in run.requests)
    counts, batch = np.array(run.log.counts), np.array(run.log.decodes)
    rate = len(run.requests) / run.seconds
    share = float(limits.good(requests).mean()) if limits else float("nan")
    return ServingReport(
        _summary(ttft),
        _summary(tpot),
        rate,
        tokens / run.seconds,
        rate * share,
        share,
        float(counts @ batch / counts.sum()),
        mean_watts,
        _quantile_of_windows(watts, spans, 0.99),
        mean_watts * run.seconds / tokens,
        run.preempted,
    )


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


def _quantile_of_windows(values: Floats, counts: Floats, share: float) -> float:
    """``np.quantile`` of each value as often as it counts."""
    order = np.argsort(values)
    last = np.cumsum(counts[order]) - 1
    place = share * last[-1]
    low, high = values[order][np.searchsorted(last, [np.floor(place), np.ceil(place)])].tolist()
    return float(low + (high - low) * (place - np.floor(place)))


def _own_seconds(deployment: Deployment, bucket: RequestBucket) -> float:
    """Of one request on an empty server."""
    return deployment.serve(OpenLoop((0.0,), bucket.sizes(1))).seconds


def _alone(
    deployment: Deployment, bucket: RequestBucket, limits: LatencyLimits, own_seconds: float
) -> ServingReport:
    """Of requests that never meet: the next comes when the last is long gone."""
    count = _looked_at(deployment, bucket) if bucket.spread else 1
    apart = (own_seconds / (1 - bucket.spread) + REST_SECONDS) * np.arange(count)
    run = deployment.serve(OpenLoop(apart.tolist(), bucket.sizes(count)))
    return report_of(deployment, run, limits, int(WARM_UP * count))


def _looked_at(deployment: Deployment, bucket: RequestBucket) -> int:
    """Requests of an open run."""
    prompt = bucket.prompt_tokens * (1 - bucket.reused)
    iterations = int(prompt / deployment.batching.token_budget) + 1
    return max(FEWEST_LOOKED_AT, min(LOOKED_AT, PROMPT_ITERATIONS // iterations))


def _open_report(
    deployment: Deployment,
    bucket: RequestBucket,
    requests_per_second: float,
    limits: LatencyLimits | None,
) -> ServingReport:
    count = _looked_at(deployment, bucket)
    gaps = np.random.default_rng(SEED + 1).exponential(1.0, count)
    times = (np.cumsum(gaps) / requests_per_second).tolist()
    run = deployment.serve(OpenLoop(times, bucket.sizes(count)))
    return report_of(deployment, run, limits, int(WARM_UP * count))


def _users(deployment: Deployment, bucket: RequestBucket) -> int:
    return deployment.users(bucket.prompt_tokens + bucket.output_tokens)


def _require_room(deployment: Deployment, bucket: RequestBucket) -> None:
    if _users(deployment, bucket) < 1:
        tokens = bucket.prompt_tokens + bucket.output_tokens
        fits = f"at most {deployment.cache_tokens} tokens a request, which the cache holds"
        raise InputError("prompt_tokens", fits, tokens)


def _summary(values: Floats) -> tuple[float, float, float, float]:
    p50, p95, p99 = np.quantile(values, [0.5, 0.95, 0.99]).tolist()
    return float(values.mean()), p50, p95, p99
