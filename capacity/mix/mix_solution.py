"""The answer: replicas, who serves what, what it costs, and how far from the best it can be."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.mix.mix_problem import Phase

__all__ = ["MixCosts", "MixSolution", "ReplicaCount", "ServedShare"]


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """Replicas of one shape on one offer."""

    offer: str
    shape: str
    replicas: int


@dataclass(frozen=True, slots=True)
class ServedShare:
    """Which share of a bucket's phase these replicas take, 0 to 1."""

    bucket: str
    phase: Phase
    offer: str
    shape: str
    share: float


@dataclass(frozen=True, slots=True)
class MixCosts:
    """Dollars per hour by cause; ``start`` is spread over the horizon."""

    rent: float
    energy: float
    carbon: float
    start: float

    @property
    def total(self) -> float:
        """Dollars per hour."""
        return self.rent + self.energy + self.carbon + self.start


@dataclass(frozen=True, slots=True)
class MixSolution:
    """A mix, its figures, and the proof.

    Attributes:
        replicas: Without zero counts.
        served: Without zero shares.
        served_fraction: Of every bucket's demand; 1 unless the goal was to serve the most.
        costs: Dollars per hour.
        mean_watts: Expected draw; the plan's kWh per hour are a thousandth of it.
        p99_watts: Sum of the replicas' 99th percentiles.
        operational_grams_per_hour: CO2e of the energy.
        embodied_grams_per_hour: CO2e of the boards, over their lives.
        bound: Of the objective: no mix is cheaper (or serves more) than this.
        gap: Distance of this mix from the bound, as a share of the objective; 0 is proved best.
    """

    replicas: tuple[ReplicaCount, ...]
    served: tuple[ServedShare, ...]
    served_fraction: float
    costs: MixCosts
    mean_watts: float
    p99_watts: float
    operational_grams_per_hour: float
    embodied_grams_per_hour: float
    bound: float
    gap: float
