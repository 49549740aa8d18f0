"""What a deployment serves within latency limits, and what that costs in watts.

Two questions::

    measure(deployment, requests, load)       TTFT, TPOT, goodput, joules per token at a given load
    max_rate(deployment, requests, limits)    the largest Poisson rate within the limits, with watts

Requests are of one size (``RequestBucket``) or a mix of sizes (``RequestMix``), which is answered
size by size, too. Loads are closed (so many clients at once) or open (requests a second).
Everything is of one server, that is of one tensor-parallel group; watts are of all of its boards.
Arrivals and lengths come from fixed seeds: the same question has the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from capacity.serving.deployment import Deployment
from capacity.serving.open_runs import WARM_UP, OpenRun, looked_at
from capacity.serving.request_mix import LatencyLimits, RequestBucket, RequestMix
from capacity.serving.run_energy import board_watts, quantile_of_windows, request_joules
from capacity.serving.served_requests import ClosedLoop, OpenLoop, ServerRun
from wattpack.errors import InputError
from wattpack.units import require_number

SEARCH_STEPS: Final = 9
"""Halvings of the bracket: the rate is found to a fifth of a per cent of its upper end."""

RETREATS: Final = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.25, 0.4)
"""Of the rate that short runs keep, what is given up until a long run keeps the limits, too."""

RETURNS: Final = 2
"""Halvings between the first rate that a long run keeps and the last that it does not."""

LEAST_LOAD: Final = 0.02
"""Of a request's own seconds, shares that requests come in: below, hardly two ever meet."""

REST_SECONDS: Final = 5.0
"""After which a board's limit has forgotten what ran."""


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What requests of one size met within the stream.

    Attributes:
        share: Of the stream's requests.
        ttft_seconds, tpot_seconds: Mean, median, 95th and 99th percentile.
        attainment: Share of them within their limits; NaN without limits.
        goodput: Of them, requests a second within their limits; NaN without limits.
        joules_per_token: Of what they were given of the server's energy, a generated token.
        keeps: Whether enough are within their limits.
    """

    bucket: RequestBucket
    share: float
    requests: int
    ttft_seconds: tuple[float, float, float, float]
    tpot_seconds: tuple[float, float, float, float]
    requests_per_second: float
    attainment: float
    goodput: float
    joules_per_token: float
    keeps: bool


@dataclass(frozen=True, slots=True)
class ServingReport:
    """What a run of one server showed. Watts are of all of its boards.

    Attributes:
        ttft_seconds, tpot_seconds: Mean, median, 95th and 99th percentile.
        goodput: Requests a second within the limits; NaN without limits.
        p99_watts: Of one-second means.
        joules_per_token: Of generated tokens.
        buckets: The same by size.
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
    buckets: tuple[BucketReport, ...]

    @property
    def keeps(self) -> bool:
        """Whether enough requests of every size are within their limits."""
        return all(bucket.keeps for bucket in self.buckets)


@dataclass(frozen=True, slots=True)
class MaxRate:
    """The largest rate that keeps the limits, and the server's draw there."""

    requests_per_second: float
    mean_watts: float
    p99_watts: float
    report: ServingReport


def measure(
    deployment: Deployment,
    requests: RequestBucket | RequestMix,
    *,
    concurrency: int | None = None,
    requests_per_second: float | None = None,
    limits: LatencyLimits | None = None,
) -> ServingReport:
    """The requests at one load: so many clients at once, or so many requests a second.

    Raises:
        InputError: both loads or none, or a request that can never fit the cache.
    """
    mix = RequestMix.of(requests)
    require_room(deployment, mix)
    if (concurrency is None) == (requests_per_second is None):
        raise InputError("concurrency", "this or requests_per_second", concurrency)
    if concurrency is not None:
        require_number("concurrency", concurrency, minimum=1, maximum=4096)
        least = max(40, 8 * concurrency)
        count = least if len(mix.parts) == 1 else max(least, looked_at(deployment, mix))
        run = deployment.serve(ClosedLoop(concurrency, mix.sizes(count)))
        return report_of(deployment, run, mix, limits)
    require_number("requests_per_second", requests_per_second, exclusive_minimum=0, maximum=1e6)
    assert requests_per_second is not None
    return _open_report(deployment, mix, requests_per_second, limits)


def max_rate(
    deployment: Deployment,
    requests: RequestBucket | RequestMix,
    limits: LatencyLimits,
    looser: MaxRate | None = None,
) -> MaxRate | None:
    """The largest Poisson rate at which enough requests keep the limits; None if none does.

    Of a mix enough requests of each size have to: many short ones do not make up for a few long
    ones. A server that has each request to itself keeps most: where that is too few, no rate is
    tried.

    Args:
        looser: The answer for looser limits, if it is known: no higher rate is tried.

    Raises:
        InputError: a request that can never fit the cache.
    """
    mix = RequestMix.of(requests)
    require_room(deployment, mix)
    own_seconds = _own_seconds(deployment, mix)
    if not _alone(deployment, mix, limits, own_seconds).keeps:
        return None
    most = _full_rate(deployment, mix) if looser is None else looser.requests_per_second
    rough = _rough_rate(deployment, mix, limits, most, LEAST_LOAD / own_seconds)
    return None if rough is None else _sustained(deployment, mix, limits, rough)


def _rough_rate(
    deployment: Deployment, mix: RequestMix, limits: LatencyLimits, most: float, least: float
) -> float | None:
    """Up to ``most``, by short runs."""
    low, high = 0.0, most
    rate = high
    for _ in range(SEARCH_STEPS):
        if OpenRun.of(deployment, mix, rate, limits, is_long=False).lasts():
            low = rate
        else:
            high = rate
        if low == most or high < least:
            break
        rate = (low + high) / 2
    return low or None


def _sustained(
    deployment: Deployment, mix: RequestMix, limits: LatencyLimits, rough: float
) -> MaxRate | None:
    """The largest rate up to the rough one that a long run keeps."""
    high = 0.0
    for retreat in RETREATS:
        low = (1 - retreat) * rough
        if OpenRun.of(deployment, mix, low, limits).lasts():
            break
        high = low
    else:
        return None
    for _ in range(RETURNS if high else 0):
        rate = (low + high) / 2
        if OpenRun.of(deployment, mix, rate, limits).lasts():
            low = rate
        else:
            high = rate
    report = _open_report(deployment, mix, low, limits)
    return MaxRate(low, report.mean_watts, report.p99_watts, _all_served(report, low))


def lower_rate(
    deployment: Deployment,
    bucket: RequestBucket,
    limits: LatencyLimits,
    mean: MaxRate,
    time_factor: float,
) -> float:
    """What it serves within the limits if everything took so many times as long; 0 if nothing.

    A server that is slower by one factor is the same server on a slower clock: its rate is that of
    limits which are tighter by the factor, divided by it.

    Args:
        mean: The answer of ``max_rate`` for these limits.
    """
    tighter = replace(
        limits,
        ttft_seconds=limits.ttft_seconds / time_factor,
        tpot_seconds=limits.tpot_seconds / time_factor,
    )
    found = max_rate(deployment, bucket, tighter, mean)
    return 0.0 if found is None else found.requests_per_second / time_factor


def report_of(
    deployment: Deployment,
    run: ServerRun,
    requests: RequestBucket | RequestMix,
    limits: LatencyLimits | None,
    skipped: int = 0,
) -> ServingReport:
    """Latencies of the requests after the first ``skipped``, draw of the whole run.

    Args:
        requests: What was sent, in this order.
    """
    mix = RequestMix.of(requests)
    buckets = bucket_reports(deployment, run, mix, limits, skipped)
    counted = [one for one in run.requests if one.number >= skipped]
    watts, spans = board_watts(deployment, run)
    watts = watts * deployment.tensor_parallel
    mean_watts = float(watts @ spans / spans.sum())
    tokens = sum(one.output for one in run.requests)
    counts, batch = np.array(run.log.counts), np.array(run.log.decodes)
    goodput = sum(bucket.goodput for bucket in buckets)
    rate = len(run.requests) / run.seconds
    return ServingReport(
        latency_summary([one.ttft for one in counted]),
        latency_summary([one.tpot for one in counted]),
        rate,
        tokens / run.seconds,
        goodput,
        goodput / rate,
        float(counts @ batch / counts.sum()),
        mean_watts,
        quantile_of_windows(watts, spans, 0.99),
        mean_watts * run.seconds / tokens,
        run.preempted,
        buckets,
    )


def bucket_reports(
    deployment: Deployment,
    run: ServerRun,
    mix: RequestMix,
    limits: LatencyLimits | None,
    skipped: int,
) -> tuple[BucketReport, ...]:
    """By size; a size that the run did not meet is left out."""
    which = mix.which(len(run.requests))
    joules = request_joules(deployment, run)
    made = []
    for index, (part, own) in enumerate(zip(mix.parts, mix.limits(limits), strict=True)):
        places = [k for k, one in enumerate(run.requests) if which[one.number] == index]
        mine = [run.requests[k] for k in places if run.requests[k].number >= skipped]
        if not mine:
            continue
        attainment = float(own.good(mine).mean()) if own else float("nan")
        rate = len(places) / run.seconds
        tokens = sum(run.requests[k].output for k in places)
        made.append(
            BucketReport(
                part.bucket,
                mix.shares[index],
                len(mine),
                latency_summary([one.ttft for one in mine]),
                latency_summary([one.tpot for one in mine]),
                rate,
                attainment,
                rate * attainment,
                float(joules[places].sum()) / tokens,
                own is None or attainment >= own.attainment,
            )
        )
    return tuple(made)


def require_room(deployment: Deployment, mix: RequestMix) -> None:
    """Pass requests that fit the cache one by one.

    Raises:
        InputError: naming the largest that does not.
    """
    if deployment.users(mix.largest_tokens) < 1:
        fits = f"at most {deployment.cache_tokens} tokens a request, which the cache holds"
        raise InputError("prompt_tokens", fits, mix.largest_tokens)


def latency_summary(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean, median, 95th and 99th percentile."""
    p50, p95, p99 = np.quantile(values, [0.5, 0.95, 0.99]).tolist()
    return float(np.mean(values)), p50, p95, p99


def _full_rate(deployment: Deployment, mix: RequestMix) -> float:
    """Of as many clients as fit, that never rest."""
    users = deployment.users(math.ceil(mix.mean_tokens))
    busiest = min(deployment.batching.largest_batch, max(1, users))
    run = deployment.serve(ClosedLoop(busiest, mix.sizes(3 * busiest)))
    return len(run.requests) / run.seconds


def _own_seconds(deployment: Deployment, mix: RequestMix) -> float:
    """Of one request on an empty server, of the size that takes longest."""
    alone = (deployment.serve(OpenLoop((0.0,), part.bucket.sizes(1))) for part in mix.parts)
    return max(run.seconds for run in alone)


def _alone(
    deployment: Deployment, mix: RequestMix, limits: LatencyLimits, own_seconds: float
) -> ServingReport:
    """Of requests that never meet: the next comes when the last is long gone."""
    count = 1 if mix.is_alike else looked_at(deployment, mix)
    spread = max(part.bucket.spread for part in mix.parts)
    apart = (own_seconds / (1 - spread) + REST_SECONDS) * np.arange(count)
    run = deployment.serve(OpenLoop(apart.tolist(), mix.sizes(count)))
    return report_of(deployment, run, mix, limits, int(WARM_UP * count))


def _open_report(
    deployment: Deployment,
    mix: RequestMix,
    requests_per_second: float,
    limits: LatencyLimits | None,
) -> ServingReport:
    wanted = OpenRun.of(deployment, mix, requests_per_second, limits)
    return report_of(deployment, wanted.play(), mix, limits, wanted.skipped)


def _all_served(report: ServingReport, requests_per_second: float) -> ServingReport:
    """Of an open run within its limits: as many are served as come.

    The run's own rates also count the time in which its last requests end and no other comes.
    """
    more = requests_per_second / report.requests_per_second
    buckets = tuple(
        replace(
            one,
            requests_per_second=one.requests_per_second * more,
            goodput=one.goodput * more,
            joules_per_token=one.joules_per_token / more,
        )
        for one in report.buckets
    )
    return replace(
        report,
        requests_per_second=requests_per_second,
        tokens_per_second=report.tokens_per_second * more,
        goodput=report.goodput * more,
        joules_per_token=report.joules_per_token / more,
        buckets=buckets,
    )
