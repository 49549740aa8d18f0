"""What clients ask of a server and what they expect: request sizes, their mix, latency limits.

A mix is one stream of requests of several sizes (``RequestBucket``), drawn in fixed shares; each
size may have limits of its own. Draws come from fixed seeds: the same mix has the same requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from capacity.serving.served_requests import Request, Size
from wattpack.api.capacity_question import MOST_TOKENS
from wattpack.errors import InputError
from wattpack.units import require_number

SEED: Final = 7

USUAL_SPREAD: Final = 0.2
"""Lengths between 80 and 100 % of the stated ones, where nothing is known of them: as in
InferenceMAX's runs (``reference_runs``)."""

ANY_SECONDS: Final = 1e9
"""A latency limit that nothing exceeds."""

MOST_PARTS: Final = 40
"""Sizes of one mix."""

LEAST_SHARE: Final = 0.01
"""Of one size in a mix: rarer ones would not be met in a simulated run."""


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

    @property
    def tokens(self) -> int:
        """Of a whole request, whose keys and values are kept together at its end."""
        return self.prompt_tokens + self.output_tokens

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
class MixPart:
    """One size of a mix.

    Attributes:
        weight: Over the sum of all parts' weights: its share of the requests.
        limits: Its own; the question's if None.
    """

    bucket: RequestBucket
    weight: float = 1.0
    limits: LatencyLimits | None = None

    def __post_init__(self) -> None:
        require_number("requests.weight", self.weight, exclusive_minimum=0, maximum=1e9)


@dataclass(frozen=True, slots=True)
class RequestMix:
    """Requests of several sizes in one stream.

    Raises:
        InputError: no size, too many, or one that is rarer than ``LEAST_SHARE``.
    """

    parts: tuple[MixPart, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MOST_PARTS:
            raise InputError("requests", f"1 to {MOST_PARTS} sizes", len(self.parts))
        least = min(self.shares)
        if least < LEAST_SHARE:
            raise InputError("requests.weight", f"shares of at least {LEAST_SHARE:.0%}", least)

    @classmethod
    def of(cls, requests: RequestBucket | Self) -> RequestMix:
        """A bucket as a mix of one."""
        return requests if isinstance(requests, RequestMix) else cls((MixPart(requests),))

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the requests, adding up to 1."""
        whole = sum(part.weight for part in self.parts)
        return tuple(part.weight / whole for part in self.parts)

    @property
    def mean_tokens(self) -> float:
        """Of a whole request."""
        parts = zip(self.shares, self.parts, strict=True)
        return sum(share * part.bucket.tokens for share, part in parts)

    @property
    def largest_tokens(self) -> int:
        """Of the largest whole request."""
        return max(part.bucket.tokens for part in self.parts)

    @property
    def is_alike(self) -> bool:
        """Whether all requests are of one length."""
        return len(self.parts) == 1 and not self.parts[0].bucket.spread

    def which(self, count: int) -> npt.NDArray[np.int64]:
        """Index of each of ``count`` requests' part, shape (count,)."""
        if len(self.parts) == 1:
            return np.zeros(count, dtype=np.int64)
        draw = np.random.default_rng(SEED + 2)
        return np.asarray(draw.choice(len(self.parts), count, p=self.shares), dtype=np.int64)

    def sizes(self, count: int) -> tuple[Size, ...]:
        """``count`` requests in the order in which they are sent."""
        which = self.which(count).tolist()
        drawn = [iter(part.bucket.sizes(which.count(k))) for k, part in enumerate(self.parts)]
        return tuple(next(drawn[k]) for k in which)

    def limits(self, common: LatencyLimits | None) -> tuple[LatencyLimits | None, ...]:
        """Of each part."""
        return tuple(part.limits or common for part in self.parts)

    def keep(
        self, requests: Sequence[Request], common: LatencyLimits | None, skipped: int = 0
    ) -> bool:
        """Whether enough requests of every size are within their limits.

        Args:
            requests: All of them, as they were sent; the first ``skipped`` do not count.
        """
        which = self.which(len(requests))[skipped:]
        counted = requests[skipped:]
        for index, own in enumerate(self.limits(common)):
            mine = [one for one, k in zip(counted, which, strict=True) if k == index]
            if own and mine and own.good(mine).mean() < own.attainment:
                return False
        return True
