"""The question: requests by size, what one replica serves and draws, what is for sale, what limits.

A replica is ``gpus`` boards of one type under one cap. Watts are AC watts of the whole replica with
its share of the server. Loads are linear: a replica that spends half of its time on one bucket
serves half of that bucket's full rate, so buckets are divisible among replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = [
    "Bucket",
    "Goal",
    "MixLimits",
    "MixPrices",
    "MixProblem",
    "Offer",
    "Phase",
    "PowerLimit",
    "ReplicaShape",
    "ServiceRate",
    "Tier",
]


def _number(
    at: str,
    name: str,
    value: float,
    minimum: float = 0.0,
    maximum: float = 1e15,
    exclusive_minimum: float | None = None,
) -> None:
    require_number(
        f"{at}.{name}",
        value,
        minimum=minimum,
        maximum=maximum,
        exclusive_minimum=exclusive_minimum,
    )


def _unique(kind: str, names: list[str]) -> None:
    for name in names:
        if not name or names.count(name) > 1:
            raise InputError(kind, "names that are there once", name)


def _known(at: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name and name not in names:
        raise InputError(at, f"one of {', '.join(sorted(names)) or 'none'}", name)


class Tier(StrEnum):
    """How sure a bucket's service must be: hard ones plan with the lower rates."""

    HARD = "hard"
    BEST_EFFORT = "bestEffort"


class Phase(StrEnum):
    """What a replica does for a request: all of it, or one half with the KV cache handed over."""

    WHOLE = "whole"
    PREFILL = "prefill"
    DECODE = "decode"


class Goal(StrEnum):
    """Least cost for all of the demand, the largest common share of it, or few boards not owned.

    The last needs a limit on dollars per hour; among mixes with equally few the cheapest wins.
    """

    LEAST_COST = "leastCost"
    MOST_REQUESTS = "mostRequests"
    LEAST_NEW_GPUS = "leastNewGpus"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Requests of one size and service level.

    Attributes:
        name: Unique.
        requests_per_second: To be served, all of them.
        tier: Which rate counts.
        minimum_replicas: One replica carries at most 1 / this share of the bucket, so that the loss
            of one costs no more.
        largest_spot_share: Share that may run on offers that can be taken away, 0 to 1.
        kv_bytes_per_request: Handed over between prefill and decode replicas, bytes.
        longest_transfer_seconds: For one request's hand-over at either end's link; None = any.
    """

    name: str
    requests_per_second: float
    tier: Tier = Tier.HARD
    minimum_replicas: int = 1
    largest_spot_share: float = 0.0
    kv_bytes_per_request: float = 0.0
    longest_transfer_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no demand."""
        at = f"buckets.{self.name}"
        _number(at, "requestsPerSecond", self.requests_per_second, exclusive_minimum=0)
        _number(at, "minimumReplicas", self.minimum_replicas, minimum=1, maximum=1000)
        _number(at, "largestSpotShare", self.largest_spot_share, maximum=1)
        _number(at, "kvBytesPerRequest", self.kv_bytes_per_request)
        if self.longest_transfer_seconds is not None:
            _number(at, "longestTransferSeconds", self.longest_transfer_seconds)


@dataclass(frozen=True, slots=True)
class ServiceRate:
    """What one replica does with one phase of one bucket when it does nothing else.

    Attributes:
        requests_per_second: Mean, within the bucket's latency limits.
        lower_requests_per_second: Lower end of the 90 % interval, at most the mean; 0 if nothing is
            sure, so that no hard tier is served.
        busy_watts: Mean draw while doing it.
    """

    requests_per_second: float
    lower_requests_per_second: float
    busy_watts: float

    def __post_init__(self) -> None:
        """Refuse rates that are none."""
        require_number("requestsPerSecond", self.requests_per_second, exclusive_minimum=0)
        require_number(
            "lowerRequestsPerSecond",
            self.lower_requests_per_second,
            minimum=0,
            maximum=self.requests_per_second,
        )
        require_number("busyWatts", self.busy_watts, minimum=0)

    def counted(self, tier: Tier) -> float:
        """Requests a second that a plan may count on."""
        return self.lower_requests_per_second if tier is Tier.HARD else self.requests_per_second


@dataclass(frozen=True, slots=True)
class ReplicaShape:
    """One way to run a replica.

    Attributes:
        name: Unique, for people: ``H200@600``.
        gpu_model: GPU type.
        cap_watts: Power cap of each board.
        gpus: Boards of one replica (its tensor-parallel group).
        idle_watts: Draw of a replica that waits.
        p99_watts: 99th percentile of its draw; what a breaker has to carry.
        link_bytes_per_second: What it can hand over or take; None: it does not split phases.
        rates: By bucket name and phase; what is missing cannot be served.
        start_seconds: From asking for a replica until it works, on average.
    """

    name: str
    gpu_model: str
    cap_watts: float
    gpus: int
    idle_watts: float
    p99_watts: float
    rates: Mapping[tuple[str, Phase], ServiceRate]
    link_bytes_per_second: float | None = None
    start_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse powers that contradict each other."""
        at = f"shapes.{self.name}"
        _number(at, "capWatts", self.cap_watts, exclusive_minimum=0)
        _number(at, "gpus", self.gpus, minimum=1, maximum=4096)
        _number(at, "idleWatts", self.idle_watts)
        _number(at, "p99Watts", self.p99_watts, minimum=self.idle_watts)
        _number(at, "startSeconds", self.start_seconds)
        if self.link_bytes_per_second is not None:
            _number(at, "linkBytesPerSecond", self.link_bytes_per_second, exclusive_minimum=0)
        for (bucket, phase), rate in self.rates.items():
            field_name = f"rates.{bucket}.{phase}.busyWatts"
            _number(at, field_name, rate.busy_watts, minimum=self.idle_watts)


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of one type, price and place.

    Attributes:
        name: Unique.
        gpu_model: GPU type.
        gpus: In stock.
        dollars_per_gpu_hour: Rent or depreciation; 0 for what is owned and written off.
        domain: The power domain that feeds them, or empty.
        is_spot: Whether the provider may take them away.
        embodied_grams_per_gpu_hour: CO2e of making the board, per hour of its life that is used.
        running_replicas: What runs now, by shape name; a change of cap alone is no start.
        is_owned: Whether the boards are there anyway and none has to be made or bought.
    """

    name: str
    gpu_model: str
    gpus: int
    dollars_per_gpu_hour: float
    domain: str = ""
    is_spot: bool = False
    embodied_grams_per_gpu_hour: float = 0.0
    running_replicas: Mapping[str, int] = field(default_factory=dict)
    is_owned: bool = False

    def __post_init__(self) -> None:
        """Refuse stock and prices that are none."""
        at = f"offers.{self.name}"
        _number(at, "gpus", self.gpus, maximum=1e6)
        _number(at, "dollarsPerGpuHour", self.dollars_per_gpu_hour)
        _number(at, "embodiedGramsPerGpuHour", self.embodied_grams_per_gpu_hour)
        for shape, count in self.running_replicas.items():
            _number(at, f"runningReplicas.{shape}", count)


@dataclass(frozen=True, slots=True)
class PowerLimit:
    """What one power domain carries: p99 sums for its breaker, means for its budget.

    Attributes:
        name: Unique.
        parent: The domain above, or empty.
        breaker_watts: For the sum of the replicas' 99th percentiles; None: not limited here.
        budget_watts: For the expected draw; None: not limited here.
    """

    name: str
    parent: str = ""
    breaker_watts: float | None = None
    budget_watts: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that are none."""
        for key, value in (
            ("breakerWatts", self.breaker_watts),
            ("budgetWatts", self.budget_watts),
        ):
            if value is not None:
                _number(f"domains.{self.name}", key, value)


@dataclass(frozen=True, slots=True)
class MixPrices:
    """What is paid beside the GPUs.

    Attributes:
        dollars_per_kwh: Energy, AC.
        grams_per_kwh: CO2e of that energy.
        dollars_per_tonne: Price put on CO2e, of energy and boards alike.
        dollars_per_start: One start of a replica: model load and warm-up, or a move; None: what
            its boards cost until it works (``MixProblem.start_dollars``).
        horizon_hours: How long the plan is to stand; starts are spread over it.
    """

    dollars_per_kwh: float = 0.0
    grams_per_kwh: float = 0.0
    dollars_per_tonne: float = 0.0
    dollars_per_start: float | None = None
    horizon_hours: float = 1.0

    def __post_init__(self) -> None:
        """Refuse prices that are none."""
        _number("prices", "dollarsPerKwh", self.dollars_per_kwh)
        _number("prices", "gramsPerKwh", self.grams_per_kwh)
        _number("prices", "dollarsPerTonne", self.dollars_per_tonne)
        if self.dollars_per_start is not None:
            _number("prices", "dollarsPerStart", self.dollars_per_start)
        _number("prices", "horizonHours", self.horizon_hours, exclusive_minimum=0)


@dataclass(frozen=True, slots=True)
class MixLimits:
    """Bounds on the whole plan; None: unbounded."""

    dollars_per_hour: float | None = None
    grams_per_hour: float | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that are none."""
        for key, value in (
            ("dollarsPerHour", self.dollars_per_hour),
            ("gramsPerHour", self.grams_per_hour),
        ):
            if value is not None:
                _number("limits", key, value)


@dataclass(frozen=True, slots=True)
class MixProblem:
    """The whole question; names are checked against each other."""

    buckets: tuple[Bucket, ...]
    shapes: tuple[ReplicaShape, ...]
    offers: tuple[Offer, ...]
    domains: tuple[PowerLimit, ...] = ()
    prices: MixPrices = MixPrices()
    limits: MixLimits = MixLimits()
    goal: Goal = Goal.LEAST_COST

    def __post_init__(self) -> None:
        """Refuse names that are there twice or lead nowhere, and splits without a hand-over."""
        for kind in ("buckets", "shapes", "offers", "domains"):
            _unique(kind, [item.name for item in getattr(self, kind)])
        if not self.buckets:
            raise InputError("buckets", "at least one", 0)
        domains = {domain.name: domain.parent for domain in self.domains}
        for domain in self.domains:
            _known(f"domains.{domain.name}.parent", domain.parent, domains)
            self.above(domain.name)
        shapes = {shape.name: shape for shape in self.shapes}
        for offer in self.offers:
            _known(f"offers.{offer.name}.domain", offer.domain, domains)
            for name in offer.running_replicas:
                _known(f"offers.{offer.name}.runningReplicas", name, shapes)
                if shapes[name].gpu_model != offer.gpu_model:
                    wanted = f"shapes of {offer.gpu_model}"
                    raise InputError(f"offers.{offer.name}.runningReplicas", wanted, name)
        for shape in self.shapes:
            self._require_hand_over(shape)
        if self.goal is Goal.LEAST_NEW_GPUS and not self.limits.dollars_per_hour:
            raise InputError("limits.dollarsPerHour", "a bound above 0 for leastNewGpus", None)

    def start_dollars(self, offer: Offer, gpus: int) -> float:
        """What one start on so many boards of the offer costs: a price, or idle boards' rent.

        Starts are counted by width; of shapes that start in different times the slowest counts.
        """
        if self.prices.dollars_per_start is not None:
            return self.prices.dollars_per_start
        slowest = max(
            shape.start_seconds
            for shape in self.shapes
            if (shape.gpu_model, shape.gpus) == (offer.gpu_model, gpus)
        )
        return slowest / 3600 * gpus * offer.dollars_per_gpu_hour

    def above(self, domain: str) -> tuple[str, ...]:
        """The domain and all above it.

        Raises:
            InputError: if they form a circle.
        """
        parents = {limit.name: limit.parent for limit in self.domains}
        path: list[str] = []
        while domain:
            if domain in path:
                raise InputError(f"domains.{domain}.parent", "no circle", " > ".join(path))
            path.append(domain)
            domain = parents[domain]
        return tuple(path)

    def _require_hand_over(self, shape: ReplicaShape) -> None:
        buckets = {bucket.name: bucket for bucket in self.buckets}
        for name, phase in shape.rates:
            at = f"shapes.{shape.name}.rates.{name}"
            _known(at, name, buckets)
            if phase is Phase.WHOLE:
                continue
            if shape.link_bytes_per_second is None:
                raise InputError(f"shapes.{shape.name}.linkBytesPerSecond", "a rate to split", None)
            if buckets[name].kv_bytes_per_request <= 0:
                raise InputError(f"buckets.{name}.kvBytesPerRequest", "bytes above 0 to split", 0)
