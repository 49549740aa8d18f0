"""What the API server keeps of a controller that lost its memory: its domains' status.

The product writes the heat of each breaker to ``PowerDomain.status`` at most every ten seconds,
while it leads and the API answers; a controller that begins with nothing takes breakers to be that
hot.
"""

from __future__ import annotations

from typing import Final

from controller.step import State, initial_state
from controller.tick_values import PowerSettings, Topology
from simulation.row_control.messages import Orders
from simulation.row_control.row_policy import Known
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.row_control.work import Floats
from wattpack.units import NS_PER_SECOND

__all__ = ["ToldStatus"]

STATUS_NS: Final = 10 * NS_PER_SECOND
_DIGITS: Final = 3


class ToldStatus:
    """Status of a row's domains, and controllers that write and read it.

    Args:
        topology: Of the row.
        settings: Constants of the power loop.
    """

    def __init__(self, topology: Topology, settings: PowerSettings) -> None:
        self._topology, self._settings = topology, settings
        self._heat: Floats | None = None
        self._written_ns: int | None = None

    def controller(self, epoch: int, state: State | None = None) -> WattpackPolicy:
        """One that writes the status; without a state it begins by reading it."""
        if state is None:
            state = initial_state(self._topology, self._settings, self._heat)
        return _Writing(self, self._topology, self._settings, epoch, state)

    def write(self, heat: Floats, now_ns: int) -> None:
        """Keep a newer heat unless one was written a moment ago."""
        if self._written_ns is None or now_ns - self._written_ns >= STATUS_NS:
            self._heat, self._written_ns = heat.clip(0.0, 1.0).round(_DIGITS), now_ns


class _Writing(WattpackPolicy):
    def __init__(
        self,
        status: ToldStatus,
        topology: Topology,
        settings: PowerSettings,
        epoch: int,
        state: State,
    ) -> None:
        super().__init__(topology, settings, epoch, state)
        self._status = status

    def tick(self, known: Known) -> Orders:
        """One step, and the status if the API server answers."""
        orders = super().tick(known)
        if known.may_raise:
            self._status.write(self.state.heat, known.now_ns)
        return orders
