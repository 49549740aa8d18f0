"""Batches on their way to a row's actuators, and what these do as time goes on."""

from __future__ import annotations

from simulation.row_control.actuators import RowActuators
from simulation.row_control.messages import LeaseBatches
from simulation.row_control.work import Floats, Integers


class ActuatorPost:
    """Carries batches to actuators and lets these act.

    Args:
        actuators: All of them.
    """

    def __init__(self, actuators: RowActuators) -> None:
        self._actuators = actuators
        self._batches: list[tuple[Integers, LeaseBatches]] = []

    def send(self, batches: LeaseBatches, arrival_ns: Integers) -> None:
        """Put batches on the way.

        Args:
            batches: At least one, to nodes.
            arrival_ns: When each arrives, (k,).
        """
        self._batches.append((arrival_ns, batches))

    def serve(self, until_ns: Integers, fails: Floats) -> None:
        """Leases end, batches arrive, writes are through: by each node's own time.

        Args:
            until_ns: By node, (n_nodes,).
            fails: Chance that a write changes nothing, (n_nodes, g).
        """
        self._actuators.write(until_ns, fails)
        self._deliver(until_ns)
        self._actuators.expire(until_ns)
        self._actuators.write(until_ns, fails)

    def read_back(self, until_ns: int) -> None:
        """Look what drivers hold, where that is due."""
        self._actuators.read_back(until_ns)

    def _deliver(self, until_ns: Integers) -> None:
        """Hand every batch that arrives by then to its actuator, in order of sending."""
        waiting = []
        for arrival, batches in self._batches:
            here = arrival <= until_ns.take(batches.node)
            if here.all():
                self._actuators.apply(batches, batches.node, arrival)
                continue
            if here.any():
                some = batches.rows(here)
                self._actuators.apply(some, some.node, arrival[here])
                arrival, batches = arrival[~here], batches.rows(~here)
            waiting.append((arrival, batches))
        self._batches = waiting
