"""The physical constants of the twin: calibrated once, frozen, and hashed into every result.

They live in ``simulation/data/plant.json`` beside their sources. A scenario may override single
constants; its results then carry another hash and ``plant_frozen`` is false.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from wattpack.documents import parse_json
from wattpack.errors import InputError
from wattpack.settings import Settings, validate

Positive = Annotated[float, Field(gt=0, le=1e9)]
NonNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
CurvePoints = tuple[tuple[float, float], ...]


class PlantConstants(Settings):
    """Constants of one server, its sensors and the work on it; DC watts unless the name says AC."""

    supply_efficiency: Annotated[
        float, Field(gt=0.5, le=1, description="DC over AC watts of a server's power supplies")
    ]
    host_base_watts: Annotated[
        Positive, Field(description="Server without GPUs at idle, fans at their lowest, DC watts")
    ]
    host_watts_per_gpu_watt: Annotated[
        Share, Field(description="Watts of regulators, CPUs and NICs that each GPU watt brings")
    ]
    fan_range_watts: Annotated[
        NonNegative, Field(description="Fans at full speed above fans at lowest, DC watts")
    ]
    fan_full_gpu_watts: Annotated[
        Positive, Field(description="GPU watts of a server at which its fans reach full speed")
    ]
    fan_exponent: Annotated[
        float, Field(ge=1, le=4, description="Fan watts over heat to this power (fan law: 3)")
    ]
    fan_lag_seconds: Annotated[
        Positive, Field(description="Time constant with which fans follow the heat, seconds")
    ]
    host_burst_watts: Annotated[
        NonNegative, Field(description="CPU and NIC work beyond what GPU work brings, at worst")
    ]
    host_noise_ratio: Annotated[
        Share, Field(description="Standard deviation of host watts around what they follow")
    ]
    host_noise_lag_seconds: Annotated[
        Positive, Field(description="Time over which that noise forgets, seconds")
    ]
    host_base_spread_ratio: Annotated[
        Share, Field(description="Largest deviation of a server's base from host_base_watts")
    ]
    fan_range_spread_ratio: Annotated[
        Share, Field(description="Largest deviation of a server's fans from fan_range_watts")
    ]
    cap_delay_min_seconds: Annotated[
        NonNegative, Field(description="Quickest board: until a lowered limit acts, seconds")
    ]
    cap_delay_max_seconds: Annotated[
        NonNegative, Field(description="Slowest board: until a lowered limit acts, seconds")
    ]
    lock_delay_seconds: Annotated[
        NonNegative, Field(description="Until a clock lock acts, seconds")
    ]
    full_demand_ratio: Annotated[
        float,
        Field(ge=1, le=2, description="What the hottest work wants over a board's default limit"),
    ]
    training_dip_ratio: Annotated[
        Share, Field(description="GPU draw in a training step's exchange over its full draw")
    ]
    training_dip_share: Annotated[
        Share, Field(description="Share of a training step spent in the exchange")
    ]
    training_step_seconds: Annotated[
        Positive, Field(description="Length of a training step at full speed, seconds")
    ]
    decode_clock_knee_ratio: Annotated[
        Share, Field(description="Locked clock over highest clock above which decode keeps speed")
    ]
    row_breaker_points: Annotated[
        CurvePoints,
        Field(min_length=2, description="Row breaker: load over rating, seconds to trip if hot"),
    ]
    rack_breaker_points: Annotated[
        CurvePoints,
        Field(min_length=2, description="Rack breaker: load over rating, seconds to trip if hot"),
    ]
    breaker_tolerance_ratio: Annotated[
        float, Field(ge=0, lt=1, description="Half width of the band around the curve, of the time")
    ]
    breaker_cooling_seconds: Annotated[
        Positive, Field(description="Time constant of a breaker's cooling, seconds")
    ]
    breaker_magnetic_ratio: Annotated[
        Positive, Field(description="Load over rating at which a breaker opens at once")
    ]

    @model_validator(mode="after")
    def _values_are_ordered(self) -> Self:
        for name in ("row_breaker_points", "rack_breaker_points"):
            points = getattr(self, name)
            falls = all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(points))
            if not falls or points[0][0] <= 1.0 or points[-1][1] <= 0.0:
                raise ValueError(f"{name}: load rises from above 1, seconds fall to above 0")
        if self.cap_delay_min_seconds > self.cap_delay_max_seconds:
            raise ValueError("cap_delay_min_seconds exceeds cap_delay_max_seconds")
        return self

    @property
    def worst_host_watts(self) -> float:
        """Most that a server is declared to draw without its GPUs, DC: fans at maximum, a burst."""
        gpu = self.host_watts_per_gpu_watt * self.fan_full_gpu_watts
        return self.host_base_watts + gpu + self.fan_range_watts + self.host_burst_watts

    @property
    def worst_host_watts_at_rest(self) -> float:
        """The same while its GPUs draw nothing: the fans may be at maximum, the burst may come."""
        return self.host_base_watts + self.fan_range_watts + self.host_burst_watts


@lru_cache(maxsize=1)
def frozen_plant() -> PlantConstants:
    """The calibrated constants that come with wattpack.

    Raises:
        InputError: if the file is damaged.
    """
    text = (resources.files("simulation") / "data" / "plant.json").read_text(encoding="utf-8")
    return plant_from_json(text, "plant.json")


def plant_from_json(text: str, source: str = "") -> PlantConstants:
    """Constants out of ``{"constants": {...}, "sources": {...}}``; each one needs a source.

    Raises:
        InputError: naming the constant.
    """
    document = parse_json(text, source)
    if not isinstance(document, dict) or set(document) != {"constants", "sources"}:
        raise InputError("document", "the keys constants and sources", document, source)
    if not isinstance(document["constants"], dict) or not isinstance(document["sources"], dict):
        raise InputError("document", "two mappings", document, source)
    constants = validate(PlantConstants, document["constants"], source)
    for name in PlantConstants.model_fields:
        if not document["sources"].get(name):
            raise InputError(f"sources.{name}", "where the constant comes from", None, source)
    return constants
