"""Open runs of one server: how many requests they need, when they come, whether limits are kept.

Too few tell nothing of a size that is rare, or of a server that is still filling when the last one
comes; too many cost the reader's time. A run that can no longer keep its limits ends there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from capacity.serving.deployment import Deployment
from capacity.serving.request_mix import ANY_SECONDS, LatencyLimits, RequestMix
from capacity.serving.served_requests import OpenLoop, Request, ServerRun, Size

ARRIVAL_SEED: Final = 8

LOOKED_AT: Final = 400
"""Requests of an open run: 95 % of them within a limit is known to about 1 %."""

PROMPT_ITERATIONS: Final = 8_000
"""Of an open run: prompts of hundreds of thousands of tokens are looked at fewer times."""

WARM_UP: Final = 0.15
"""Of an open run's requests that are not counted, at least: the server starts empty."""

SHORT_STAYS: Final = 3
LONG_STAYS: Final = 10
"""Stays of a request for which an open run is judged after one that only fills the server: where
outputs are long, 400 have all come before the first ones end, and every rate seems to keep the
limits. Short runs tell roughly where the limits are, long ones what a rate has to stand."""

LONG_LOOKS: Final = 12
"""Times ``LOOKED_AT`` in a long run: bursts outlast 400 requests, by whose luck the attainment at
one rate differs by 0.05 to 0.1 between seeds."""

PARTS: Final = 3
"""Of a long run, each of which has to keep the limits: luck in one does not make up for another."""

GROWTH: Final = 1.25
"""Mean time of requests in a run's last quarter over that in its second: beyond, a queue grows."""

FEWEST_LOOKED_AT: Final = 60
MOST_LOOKED_AT: Final = 4_000
"""Of an open run of several sizes: the rarest size of ``LEAST_SHARE`` is met 40 times."""


def looked_at(deployment: Deployment, mix: RequestMix, times: int = 1) -> int:
    """Requests of an open run, so many that each size is met often enough to be judged.

    Args:
        times: As many looks, as far as long prompts allow.
    """
    iterations = _prefill_iterations(deployment, mix)
    count = max(FEWEST_LOOKED_AT, min(times * LOOKED_AT, PROMPT_ITERATIONS // iterations))
    if len(mix.parts) == 1:
        return count
    return max(count, min(MOST_LOOKED_AT, math.ceil(times * FEWEST_LOOKED_AT / min(mix.shares))))


def arrivals(count: int, requests_per_second: float) -> list[float]:
    """A Poisson process given its count: the same one at every rate, the last at its mean time."""
    gaps = np.random.default_rng(ARRIVAL_SEED).exponential(1.0, count)
    times: list[float] = (np.cumsum(gaps) / (gaps.mean() * requests_per_second)).tolist()
    return times


def grows(seconds: list[float]) -> bool:
    """Whether requests, in the order in which they came, take longer and longer."""
    quarter = len(seconds) // 4
    early, late = seconds[quarter : 2 * quarter], seconds[-quarter:]
    return bool(quarter and np.mean(late) > GROWTH * np.mean(early))


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An open run to be played.

    Attributes:
        at_once: Requests on the server, those that wait included, when each just keeps its limits.
        skipped: Of the requests that come, the first ones, which are not judged.
        judged: Those that come next.
        parts: Of those judged, each of which has to keep the limits.
    """

    deployment: Deployment
    mix: RequestMix
    requests_per_second: float
    limits: LatencyLimits | None
    at_once: int
    skipped: int
    judged: int
    parts: int

    @classmethod
    def of(
        cls,
        deployment: Deployment,
        mix: RequestMix,
        requests_per_second: float,
        limits: LatencyLimits | None,
        *,
        is_long: bool = True,
    ) -> Self:
        """Of as many requests as come in the time of some stays of one that keeps its limits."""
        places = _places(deployment, mix)
        stay = sum(share * sum(times) for share, times in _stays(mix, limits))
        at_once = math.ceil(min(requests_per_second * stay, places))
        least = looked_at(deployment, mix, LONG_LOOKS if is_long else 1)
        skipped = max(int(WARM_UP * looked_at(deployment, mix)), at_once)
        judged = max(least, (LONG_STAYS if is_long else SHORT_STAYS) * at_once)
        parts = PARTS if is_long else 1
        return cls(deployment, mix, requests_per_second, limits, at_once, skipped, judged, parts)

    @property
    def count(self) -> int:
        """Of all requests that come."""
        return self.skipped + self.judged

    def play(self) -> ServerRun:
        """From an empty server until the last request has ended."""
        times = arrivals(self.count, self.requests_per_second)
        return self.deployment.serve(OpenLoop(times, self.mix.sizes(self.count)))

    def lasts(self) -> bool:
        """Whether a server that is already at its limits keeps them at this rate.

        From there a queue that shrinks goes on to shrink; an empty server takes thousands of
        requests to fill where rates are close to what it can serve at all. As many more requests
        come as are there at once, so that none of those judged has the server to itself.
        """
        simulation = self.deployment.simulation()
        first = self._there_already()
        for size in first:
            simulation.offer(0.0, size)
        count = self.count + self.at_once
        times = arrivals(count, self.requests_per_second)
        for time, size in zip(times, self.mix.sizes(count), strict=True):
            simulation.offer(time, size)
        judge = _Judge(self, len(first), count)
        seen = 0
        while simulation.busy and not judge.is_done:
            simulation.step()
            judge.take(simulation.done[seen:])
            seen = len(simulation.done)
        return judge.keeps

    def _there_already(self) -> list[Size]:
        """Requests of a server at its limits: some at every token of their output, some wait."""
        rate, places = self.requests_per_second, _places(self.deployment, self.mix)
        parts = list(zip(self.mix.parts, _stays(self.mix, self.limits), strict=True))
        whole = rate * sum(share * decodes for _, (share, (_, decodes)) in parts)
        fits = min(1.0, places / whole) if whole else 1.0
        sizes = []
        for part, (share, (_, decodes)) in parts:
            bucket = part.bucket
            number = round(fits * rate * share * decodes)
            for k in range(number):
                made = int((k + 0.5) / number * (bucket.output_tokens - 1))
                known = bucket.prompt_tokens + made
                sizes.append(Size(known, bucket.output_tokens - made, known - 1))
        waits = rate * sum(share * waits for _, (share, (waits, _)) in parts)
        return sizes + list(self.mix.sizes(int(min(waits, places))))


class _Judge:
    """Requests of a run, as they end."""

    def __init__(self, run: OpenRun, before: int, count: int) -> None:
        self._limits = run.mix.limits(run.limits)
        self._which = run.mix.which(count).tolist()
        self._first = before + run.skipped
        self._end = self._first + run.judged
        self._before = before
        mine = self._which[run.skipped : run.count]
        self._each = math.ceil(run.judged / run.parts)
        self._spare = [
            [math.inf if own is None else (1 - own.attainment) * part.count(k)
             for k, own in enumerate(self._limits)]
            for part in (mine[at : at + self._each] for at in range(0, run.judged, self._each))
        ]  # fmt: skip
        self._stays = np.zeros(run.judged)
        self._left = run.judged
        self._broken = False
        seconds = run.judged / run.requests_per_second
        self._unseen = any(own and own.ttft_seconds > seconds for own in self._limits)

    @property
    def is_done(self) -> bool:
        """Whether nothing that comes changes the verdict."""
        return not self._left or self._broken

    @property
    def keeps(self) -> bool:
        """Whether enough of every size kept their limits, and go on to where waits have none."""
        return not (self._broken or (self._unseen and grows(self._stays.tolist())))

    def take(self, ended: Sequence[Request]) -> None:
        """These have just ended."""
        for one in ended:
            if not self._first <= one.number < self._end:
                continue
            self._left -= 1
            place = one.number - self._first
            self._stays[place] = one.last - one.sent
            size = self._which[one.number - self._before]
            own = self._limits[size]
            if own and (one.ttft > own.ttft_seconds or one.tpot > own.tpot_seconds):
                spare = self._spare[place // self._each]
                spare[size] -= 1
                self._broken = self._broken or spare[size] < -1e-9


def _places(deployment: Deployment, mix: RequestMix) -> int:
    """Requests that a server may work on at once."""
    users = deployment.users(math.ceil(mix.mean_tokens))
    return max(1, min(deployment.batching.largest_batch, users))


def _stays(
    mix: RequestMix, limits: LatencyLimits | None
) -> list[tuple[float, tuple[float, float]]]:
    """Share of each size, and how long its requests may wait for their first token and decode.

    A wait without a limit does not count: whoever waits holds no place on the server.
    """
    made = []
    for part, share, own in zip(mix.parts, mix.shares, mix.limits(limits), strict=True):
        own = own or LatencyLimits(ANY_SECONDS, ANY_SECONDS)
        waits = own.ttft_seconds if own.ttft_seconds < ANY_SECONDS else 0.0
        made.append((share, (waits, own.tpot_seconds * (part.bucket.output_tokens - 1))))
    return made


def _prefill_iterations(deployment: Deployment, mix: RequestMix) -> int:
    """Iterations of the longest prompt."""
    return max(
        int(part.bucket.prompt_tokens * (1 - part.bucket.reused))
        // deployment.batching.token_budget
        + 1
        for part in mix.parts
    )
