"""The elector as the tick sees it."""

from __future__ import annotations

import logging

from controller.app.fleet import Leadership
from wattpack.errors import InputError
from wattpack.kube.election import LeaderElector

log = logging.getLogger(__name__)


class ElectedLeadership:
    """Asks the elector at every tick, because leading can end at any moment.

    Args:
        elector: Of this replica.
        raise_within_seconds: A leader that has not renewed for longer never raises (I4).
    """

    def __init__(self, elector: LeaderElector, raise_within_seconds: float) -> None:
        self._elector, self._raise_within_seconds = elector, raise_within_seconds

    def leadership(self) -> Leadership:
        """The present term."""
        epoch = self._elector.epoch()
        return Leadership(
            epoch=epoch,
            leading=epoch > 0,
            may_raise=self._elector.renewed_within(self._raise_within_seconds),
        )

    def raise_epoch_above(self, epoch: int) -> None:
        """Have the Lease moved beyond an epoch that an actuator has seen; never waits."""
        try:
            self._elector.ask_epoch_above(epoch)
        except InputError as error:
            log.error("an agent reports an impossible epoch: %s", error)
