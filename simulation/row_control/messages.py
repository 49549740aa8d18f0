"""What agents and a controller say to each other, one row a node, and what a policy orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np

from simulation.row_control.drawn_ahead import DrawnAhead
from simulation.row_control.work import Bools, Floats, Integers

__all__ = ["BoardWrites", "LeaseBatches", "Network", "Orders", "Reports", "joined"]


class _Rows:
    """Columns of one length."""

    __slots__ = ()
    __match_args__: tuple[str, ...]

    def rows(self, which: Bools | Integers | slice) -> Self:
        """Some of them, in order."""
        if isinstance(which, np.ndarray) and which.dtype == np.bool_:
            if which.all():
                return self
            # Eight to fourteen columns are picked: positions are found once.
            which = which.nonzero()[0]
        columns = [getattr(self, name) for name in type(self).__match_args__]
        if isinstance(which, slice):
            return type(self)(*[column[which] for column in columns])
        # A third of the time of an index in brackets.
        return type(self)(*[column.take(which, axis=0) for column in columns])


@dataclass(frozen=True, slots=True)
class Reports(_Rows):
    """Reports of nodes, k of them with g boards each.

    Attributes:
        node: Which, (k,).
        arrival_ns: On the controller's clock, (k,).
        nonce: What an answer has to echo, (k,).
        boot: Changes with each boot, (k,).
        clock_ns: The node's own clock when it was made, (k,).
        epoch: Highest that the actuator accepted, (k,).
        draw_watts: 1 s means as sensed, (k, g).
        energy_joules: Since the driver was loaded, (k, g).
        limit_watts: As read back, (k, g).
        guaranteed_watts: What expiry falls to, (k, g).
        confirmed_sequence: Last command that a read-back agreed with, (k, g).
        controlled: The actuator vouches for the board, (k, g).
        leased: A lease runs, (k, g).
        highest_watts: Highest readings since then, NaN where they are not believed, (k, g).
        highest_since_ns: The report that was heard last, on the node's own clock, (k,).
    """

    node: Integers
    arrival_ns: Integers
    nonce: Integers
    boot: Integers
    clock_ns: Integers
    epoch: Integers
    draw_watts: Floats
    energy_joules: Floats
    limit_watts: Floats
    guaranteed_watts: Floats
    confirmed_sequence: Integers
    controlled: Bools
    leased: Bools
    highest_watts: Floats
    highest_since_ns: Integers

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True)
class LeaseBatches(_Rows):
    """A controller's batches, one a node; k of them.

    Attributes:
        node: Which, (k,).
        epoch: Of the sender's term, (k,).
        sequence: Of the tick, (k,).
        nonce: Of the report that it answers, (k,).
        ttl_ms: Lease length, (k,).
        cap_watts: (k, g).
        lock_max_mhz: 0 for none, (k, g).
        guaranteed_watts: 0 leaves it, (k, g).
    """

    node: Integers
    epoch: Integers
    sequence: Integers
    nonce: Integers
    ttl_ms: Integers
    cap_watts: Floats
    lock_max_mhz: Integers
    guaranteed_watts: Floats

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True)
class BoardWrites:
    """Words to boards without lease or agent, as over a BMC; they stand until the next.

    Attributes:
        limit_watts: NaN leaves it, (n_gpus,).
        lock_mhz: 0 unlocks, -1 leaves it, (n_gpus,).
        delay_seconds: Until they act.
    """

    limit_watts: Floats
    lock_mhz: Integers
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Orders:
    """What a policy wants done."""

    batches: LeaseBatches | None = None
    writes: BoardWrites | None = None


NO_ORDERS = Orders()

T = TypeVar("T", Reports, LeaseBatches)


def joined(parts: list[T]) -> T:
    """All rows of some messages of one kind."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].__match_args__
    return type(parts[0])(*[np.concatenate([getattr(p, name) for p in parts]) for name in names])


class Network:
    """Delays each message by its own time and loses some.

    Args:
        delay_seconds: Lowest and highest one-way delay.
        loss: Chance of each message.
        generator: Of both.

    Attributes:
        low_seconds: Lowest delay.
        span_seconds: From the lowest to the highest.
        loss: Chance of each message.
        draws: Random numbers of both.
    """

    def __init__(
        self, delay_seconds: tuple[float, float], loss: float, generator: np.random.Generator
    ) -> None:
        self.low_seconds, high_seconds = delay_seconds
        self.span_seconds = high_seconds - self.low_seconds
        self.loss, self.draws = loss, DrawnAhead(generator)

    def arrivals_ns(self, sent_ns: Integers) -> Integers:
        """When messages that are not lost arrive, (k,)."""
        delay = self.low_seconds + self.span_seconds * self.draws.random(len(sent_ns))
        return np.asarray(sent_ns + (delay * 1e9).astype(np.int64))

    def arrive(self, more_loss: Floats) -> Bools:
        """Which messages get through, (k,).

        Args:
            more_loss: Chance of loss by a fault, besides the network's own, (k,).
        """
        if self.loss == 0.0 and not more_loss.any():
            return np.ones(len(more_loss), dtype=np.bool_)
        chance = np.maximum(self.loss, more_loss)
        return np.asarray(self.draws.random(len(more_loss)) >= chance)
