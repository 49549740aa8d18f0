"""Where rates come from: a port, and the adapter that holds what somebody measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from capacity.mix.mix_problem import Phase, ReplicaShape, ServiceRate

__all__ = ["FirstOf", "GivenRates", "ThroughputTable", "with_rates"]


class ThroughputTable(Protocol):
    """Knows how much of a bucket one replica serves within the bucket's latency limits."""

    def rate(self, bucket: str, phase: Phase, shape: ReplicaShape) -> ServiceRate | None:
        """The rate of one phase of the bucket on the shape; None: cannot be served there."""
        ...


@dataclass(frozen=True, slots=True)
class GivenRates:
    """Rates by shape, bucket and phase, as somebody measured them."""

    rates: Mapping[tuple[str, str, Phase], ServiceRate]

    def rate(self, bucket: str, phase: Phase, shape: ReplicaShape) -> ServiceRate | None:
        """What was measured, None for what was not."""
        return self.rates.get((shape.name, bucket, phase))


def with_rates(
    table: ThroughputTable, shapes: Iterable[ReplicaShape], buckets: Iterable[str]
) -> tuple[ReplicaShape, ...]:
    """The shapes with the table's rates for these buckets."""
    names = tuple(buckets)
    return tuple(
        replace(
            shape,
            rates={
                (name, phase): rate
                for name in names
                for phase in Phase
                if (rate := table.rate(name, phase, shape)) is not None
            },
        )
        for shape in shapes
    )


@dataclass(frozen=True, slots=True)
class FirstOf:
    """Tables in the order in which they are believed."""

    tables: tuple[ThroughputTable, ...]

    def rate(self, bucket: str, phase: Phase, shape: ReplicaShape) -> ServiceRate | None:
        """The first table's rate that knows one."""
        found = (table.rate(bucket, phase, shape) for table in self.tables)
        return next((rate for rate in found if rate is not None), None)
