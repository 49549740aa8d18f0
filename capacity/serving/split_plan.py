"""Whether prefill and decode should run on servers of their own, on which, and down to which link.

The same number of servers is planned twice: whole requests on each (*together*), and separate pools
for each phase (*split*), over every pair of server kinds (GPU type and limit). Which split is tried
is told by what single servers of each phase serve; what is reported is simulated with its queues
and its link. A split is off where it serves no more than the servers do together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from capacity.serving.deployment import Deployment
from capacity.serving.open_runs import WARM_UP, arrivals, looked_at
from capacity.serving.phase_pools import Handover, PhasePools, Pool, PoolsRun
from capacity.serving.request_mix import (
    ANY_SECONDS,
    LatencyLimits,
    MixPart,
    RequestBucket,
    RequestMix,
)
from capacity.serving.run_energy import fleet_joules
from capacity.serving.served_requests import ServerRun
from capacity.serving.service_level import latency_summary, max_rate, require_room
from wattpack.api.capacity_question import MOST_TOKENS
from wattpack.errors import InputError
from wattpack.units import require_number

PROMPT_CHUNKS: Final = (2048, 1024, 512)
"""Tokens of an iteration that whole requests are served with beside the engine's default: small
chunks keep decodes from stalling (Sarathi-Serve, arXiv 2403.02310), and are what a split has to
beat."""

REQUESTS_A_SERVER: Final = 150
MOST_SERVERS: Final = 64

TRIED_PAIRS: Final = 3
"""Pairs of kinds that are simulated, those with the best estimates."""

RATE_STEPS: Final = 7
STRIDE: Final = 1.3
"""From an estimated rate upwards, until one does not keep the limits: pools queue better than
single servers, by how much nobody knows before."""

LINK_STEPS: Final = 8
SLOWEST_LINK: Final = 1e-4
"""Of the link, below which no split is looked for."""


@dataclass(frozen=True, slots=True)
class SplitQuestion:
    """What there is and what is asked.

    Attributes:
        kinds: Servers that may be chosen: types and limits.
        servers: In all.
        link_bytes_per_second: Of one GPU's network port, over which caches are handed on.
        budget_watts: Bound on the sum of all boards' limits; None: none.

    Raises:
        InputError: fewer than two servers, no kind, a request that fits no cache, a budget that no
            kind keeps.
    """

    kinds: tuple[Deployment, ...]
    servers: int
    requests: RequestMix
    limits: LatencyLimits
    link_bytes_per_second: float
    budget_watts: float | None = None

    def __post_init__(self) -> None:
        require_number("servers", self.servers, minimum=2, maximum=MOST_SERVERS)
        require_number("link_bytes_per_second", self.link_bytes_per_second, exclusive_minimum=0)
        if not self.kinds:
            raise InputError("kinds", "at least one kind of server", 0)
        if all(part.bucket.output_tokens == 1 for part in self.requests.parts):
            raise InputError("output_tokens", "at least 2: one token has no decode phase", 1)
        for kind in self.kinds:
            require_room(kind, self.requests)
        if self.budget_watts is not None:
            require_number("budget_watts", self.budget_watts, exclusive_minimum=0)
            least = self.servers * min(map(limit_watts, self.kinds))
            if least > self.budget_watts:
                fits = f"at least {least:.0f} W, what {self.servers} servers are limited to"
                raise InputError("budget_watts", fits, self.budget_watts)

    def affords(self, watts: float) -> bool:
        """Whether limits of so many watts in all may be set."""
        return self.budget_watts is None or watts <= self.budget_watts * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Servers and their phases; ``decode`` is None where each serves whole requests."""

    first: Deployment
    servers: int
    decode: Deployment | None = None
    decode_servers: int = 0

    @property
    def limit_watts(self) -> float:
        """Sum of all boards' limits."""
        watts = self.servers * limit_watts(self.first)
        return watts + (self.decode_servers * limit_watts(self.decode) if self.decode else 0.0)

    def pools(self, link_bytes_per_second: float) -> Pool | PhasePools:
        """To be simulated."""
        own = Pool(self.first, self.servers, self.first.queue_estimate)
        if self.decode is None:
            return own
        gpus, model = self.first.tensor_parallel, self.first.model
        each = gpus * model.kv_bytes_per_token(self.first.cache_format, gpus)
        decode = Pool(self.decode, self.decode_servers, self.decode.queue_estimate)
        return PhasePools(own, decode, Handover(gpus * link_bytes_per_second, each))


@dataclass(frozen=True, slots=True)
class PlannedRate:
    """The largest rate of a plan that keeps the limits; watts and joules are of all boards.

    Attributes:
        ttft_seconds, tpot_seconds: Mean, median, 95th and 99th percentile; the way over the link
            counts as generation.
    """

    plan: ServerPlan
    requests_per_second: float
    tokens_per_second: float
    mean_watts: float
    joules_per_token: float
    ttft_seconds: tuple[float, float, float, float]
    tpot_seconds: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """Both ways, best first.

    Attributes:
        together, split: Empty where no rate keeps the limits.
        gain: Rate of the best split over that of the best servers together; infinite where only
            split servers keep the limits, 0 where they do not.
        least_link_bytes_per_second: Of one GPU's port, below which the best split serves less than
            the servers do together; None where it does so at the full link.
    """

    together: tuple[PlannedRate, ...]
    split: tuple[PlannedRate, ...]
    gain: float
    least_link_bytes_per_second: float | None


def limit_watts(kind: Deployment) -> float:
    """Of all boards of a server."""
    return kind.tensor_parallel * kind.limit


def plan_split(
    question: SplitQuestion, progress: Callable[[int, int], None] = lambda done, total: None
) -> SplitAnswer:
    """Both ways with their largest rates, and from which link on the split pays.

    Args:
        progress: Told how many plans are simulated, and of how many.
    """
    whole = [
        (ServerPlan(kind, question.servers), question.servers * rate)
        for kind, rate in _by_estimate(question, question.requests, question.limits, PROMPT_CHUNKS)
        if question.affords(question.servers * limit_watts(kind))
    ]
    ways = [*whole, *_split_plans(question)]
    together: list[PlannedRate] = []
    split: list[PlannedRate] = []
    for done, (plan, rate) in enumerate(ways):
        progress(done, len(ways))
        made = _largest(question, plan, rate)
        if made:
            (together if plan.decode is None else split).append(made)
    together.sort(key=_merit, reverse=True)
    split.sort(key=_merit, reverse=True)
    if not split:
        return SplitAnswer(tuple(together), (), 0.0, None)
    least = together[0].requests_per_second if together else 0.0
    gain = split[0].requests_per_second / least if least else math.inf
    link = _least_link(question, split[0].plan, least) if gain > 1 else None
    return SplitAnswer(tuple(together), tuple(split), gain, link)


def _merit(made: PlannedRate) -> tuple[float, float]:
    return made.requests_per_second, -made.joules_per_token


def _split_plans(question: SplitQuestion) -> list[tuple[ServerPlan, float]]:
    """Those worth a simulation with their estimated rates: best pairs, and around the best."""
    prefill = _by_estimate(question, *_phase(question, is_prefill=True))
    decode = _by_estimate(question, *_phase(question, is_prefill=False))
    found: list[list[tuple[ServerPlan, float]]] = []
    for (first, fills), (second, decodes) in product(prefill, decode):
        ways = []
        for count in range(1, question.servers):
            plan = ServerPlan(first, count, second, question.servers - count)
            if question.affords(plan.limit_watts):
                ways.append((plan, min(count * fills, plan.decode_servers * decodes)))
        if ways:
            found.append(sorted(ways, key=lambda way: -way[1]))
    found.sort(key=lambda ways: -ways[0][1])
    chosen = [ways[0] for ways in found[:TRIED_PAIRS]]
    return chosen + (found[0][1:3] if found else [])


def _phase(question: SplitQuestion, *, is_prefill: bool) -> tuple[RequestMix, LatencyLimits]:
    """The requests of one phase, and what counts there."""
    parts = []
    for part, own in zip(
        question.requests.parts, question.requests.limits(question.limits), strict=True
    ):
        bucket = part.bucket
        assert own is not None
        if is_prefill:
            only = replace(bucket, output_tokens=1)
            kept = replace(own, tpot_seconds=ANY_SECONDS)
        elif bucket.output_tokens > 1:
            prompt = min(bucket.prompt_tokens + 1, MOST_TOKENS)
            only = RequestBucket(prompt, bucket.output_tokens - 1, bucket.spread, 0.999)
            kept = replace(own, ttft_seconds=ANY_SECONDS)
        else:
            continue
        parts.append(MixPart(only, part.weight, kept))
    return RequestMix(tuple(parts)), question.limits


def _by_estimate(
    question: SplitQuestion,
    mix: RequestMix,
    limits: LatencyLimits,
    chunks: Sequence[int] = (),
) -> list[tuple[Deployment, float]]:
    """Kinds with the rate of a single server, those that serve at all.

    Args:
        chunks: Budgets of an iteration that are tried beside the engine's own; the best is kept.
    """
    found = []
    for kind in question.kinds:
        ways = [kind, *(_with_chunk(kind, chunk) for chunk in chunks)]
        rates = [(way, max_rate(way, mix, limits)) for way in ways]
        served = [(way, rate.requests_per_second) for way, rate in rates if rate]
        found += [max(served, key=lambda one: one[1])] if served else []
    return found


def _with_chunk(kind: Deployment, tokens: int) -> Deployment:
    return replace(kind, rules=replace(kind.batching, token_budget=tokens, chunked=True))


def _largest(question: SplitQuestion, plan: ServerPlan, estimate: float) -> PlannedRate | None:
    low, high = 0.0, math.inf
    best: tuple[float, PoolsRun] | None = None
    rate = estimate
    for _ in range(RATE_STEPS):
        run, keeps = _played(question, plan, rate, question.link_bytes_per_second)
        if keeps:
            low, best = rate, (rate, run)
        else:
            high = rate
        rate = (low + high) / 2 if math.isfinite(high) else STRIDE * rate
    return None if best is None else _planned(plan, *best)


def _played(
    question: SplitQuestion, plan: ServerPlan, rate: float, link: float
) -> tuple[PoolsRun, bool]:
    mix = question.requests
    count = max(looked_at(plan.first, mix), REQUESTS_A_SERVER * question.servers)
    run = plan.pools(link).serve(arrivals(count, rate), mix.sizes(count))
    return run, mix.keep(run.requests, question.limits, int(WARM_UP * count))


def _planned(plan: ServerPlan, rate: float, run: PoolsRun) -> PlannedRate:
    counted = run.requests[int(WARM_UP * len(run.requests)) :]
    seconds = max(one.last for one in run.requests)
    tokens = sum(one.output for one in run.requests)
    joules = fleet_joules(_fleet(plan, run), seconds)
    return PlannedRate(
        plan,
        rate,
        rate * tokens / len(run.requests),
        joules / seconds,
        joules / tokens,
        latency_summary([one.ttft for one in counted]),
        latency_summary([one.tpot for one in counted if one.output > 1]),
    )


def _fleet(plan: ServerPlan, run: PoolsRun) -> Iterator[tuple[Deployment, ServerRun | None]]:
    """Every server, those without work too."""
    idle = Counter({plan.first: plan.servers})
    if plan.decode is not None:
        idle[plan.decode] += plan.decode_servers
    for server, own in run.runs:
        assert isinstance(server, Deployment)
        idle[server] -= 1
        yield server, own
    yield from ((kind, None) for kind in idle.elements())


def _least_link(question: SplitQuestion, plan: ServerPlan, rate: float) -> float:
    """The slowest link at which the split still serves so much."""
    low, high = SLOWEST_LINK * question.link_bytes_per_second, question.link_bytes_per_second
    for _ in range(LINK_STEPS):
        link = math.sqrt(low * high)
        _, keeps = _played(question, plan, rate, link)
        low, high = (low, link) if keeps else (link, high)
    return high


def server_kinds(
    deployments: Sequence[Deployment], limits: Sequence[float] | None
) -> tuple[Deployment, ...]:
    """Each deployment at each of the limits that its boards take.

    Raises:
        InputError: a limit that none takes, or a type that takes none.
    """
    if not limits:
        return tuple(deployments)
    kinds: list[Deployment] = []
    taken: set[float] = set()
    for one in deployments:
        low, high = one.settable_watts
        mine = [watts for watts in limits if low <= watts <= high]
        if not mine:
            wanted = f"one from {low:.0f} to {high:.0f} W for {one.prices.roofs.model}"
            raise InputError("limit_watts", wanted, list(limits))
        taken |= set(mine)
        kinds += [replace(one, limit_watts=watts) for watts in mine]
    for watts in limits:
        if watts not in taken:
            raise InputError("limit_watts", "one that some type's boards take", watts)
    return tuple(kinds)
