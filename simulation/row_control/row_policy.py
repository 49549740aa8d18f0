"""What controls a row: the port, and the policies that need no controller.

A policy learns what one of its kind could know, when it could know it, and orders what its actuator
can do. ``wattpack_policy`` has the product's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from simulation.row_control.messages import NO_ORDERS, BoardWrites, Orders, Reports
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.errors import InputError

__all__ = ["Answer", "Doubted", "Known", "RowPolicy", "StaticCaps", "Uncapped", "Watchful"]


@dataclass(frozen=True, slots=True)
class Known:
    """What every policy is told at a tick.

    Attributes:
        now_ns: Controller's clock.
        meter_watts: Newest delivered reading of each domain, NaN before the first, (n_domains,).
        meter_time_ns: When it was taken, as its stamp says, -1 before the first, (n_domains,).
        may_raise: The API server answers: caps may be raised.
        feed_share: Newest delivered share of the busiest feed, NaN before the first, (n_domains,);
            empty where no reserve is used.
        feed_time_ns: When it was taken, (n_domains,).
        server_watts: Newest that each server's BMC said of all of it, AC, NaN before the first,
            (n_nodes,); empty where none is asked.
        server_time_ns: When that was scraped, -1 before the first, (n_nodes,).
    """

    now_ns: int
    meter_watts: Floats
    meter_time_ns: Integers
    may_raise: bool = True
    feed_share: Floats = field(default_factory=lambda: np.zeros(0))
    feed_time_ns: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    server_watts: Floats = field(default_factory=lambda: np.zeros(0))
    server_time_ns: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a policy makes of reports that arrive.

    Attributes:
        taken: So many of them were taken in; fewer than there are when a tick is due at once.
        orders: Answers that go out without a tick.
    """

    taken: int
    orders: Orders = NO_ORDERS


class RowPolicy(Protocol):
    """A power policy."""

    @property
    def uses_leases(self) -> bool:
        """Whether agents and actuators carry its orders; else they go to the boards."""
        ...

    @property
    def brakes(self) -> int:
        """How often it braked so far."""
        ...

    def initial_watts(self) -> Floats:
        """Limits in force when the run begins, (n_gpus,)."""
        ...

    def arrived(self, reports: Reports) -> Answer:
        """Take in reports in the order in which they arrived."""
        ...

    def tick(self, known: Known) -> Orders:
        """Decide."""
        ...


@dataclass(frozen=True, slots=True)
class Doubted:
    """What a policy does not believe, and what it takes the load for.

    Attributes:
        boards: They do not keep their caps and count at their most, (n_gpus,).
        readings: They are not of this moment, (n_gpus,).
        draw_watts: Estimated AC draw, (n_domains,).
        heat: Estimated breaker heat, 1 = trip, (n_domains,).
    """

    boards: Bools
    readings: Bools
    draw_watts: Floats
    heat: Floats


@runtime_checkable
class Watchful(Protocol):
    """A policy that says whom it does not believe."""

    def doubted(self) -> Doubted | None:
        """At its last tick, None before the first."""
        ...


class StaticCaps:
    """Limits that never change.

    Args:
        limit_watts: (n_gpus,).
    """

    uses_leases = False
    brakes = 0

    def __init__(self, limit_watts: Floats) -> None:
        limits = np.asarray(limit_watts, dtype=np.float64)
        if limits.ndim != 1 or not (np.isfinite(limits) & (limits > 0.0)).all():
            raise InputError("limit_watts", "one power limit > 0 W a board", limit_watts)
        self._limit_watts = limits

    def initial_watts(self) -> Floats:
        """The limits, (n_gpus,)."""
        return self._limit_watts

    def arrived(self, reports: Reports) -> Answer:
        """Nothing is made of reports."""
        return Answer(len(reports))

    def tick(self, known: Known) -> Orders:
        """Nothing is ever ordered."""
        del known
        return NO_ORDERS


class Uncapped(StaticCaps):
    """Every board at its default limit.

    Args:
        default_limit_watts: (n_gpus,).
    """


def standing_writes(limit_watts: Floats) -> BoardWrites:
    """Limits for every board at once, without locks."""
    return BoardWrites(limit_watts, np.zeros(len(limit_watts), dtype=np.int64), 0.0)
