"""A board's settings through the node's actuator, held by leases that end by themselves."""

from __future__ import annotations

from typing import Final

from actuator import (
    ActuatorPort,
    ActuatorStatus,
    DeviceCommand,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
    Operation,
)
from capacity.bench.board_settings import BoardSetting, SettingsRefused

LEASE_MS: Final = 10_000
"""The longest that the actuator grants. A killed run leaves the board to it after this: at the
guaranteed limit or, since an ending lease never raises one, at the lower cap last held."""


class ActuatorSettings:
    """One board, as long as nobody else holds a lease on it.

    Args:
        uuid: The board.
    """

    def __init__(self, actuator: ActuatorPort, uuid: str) -> None:
        self._actuator = actuator
        self._uuid = uuid
        self._last: tuple[int, int] | None = None

    def hold(self, setting: BoardSetting) -> None:
        """One lease more, of ten seconds.

        Raises:
            SettingsRefused: a controller holds the board, or the actuator refuses.
            ActuatorError: nobody answers.
        """
        if not setting:
            self.restore()
            return
        locks = setting.lock_max_mhz is not None
        operation = Operation.LOCK_CLOCKS if locks else Operation.SET_POWER_LIMIT
        command = DeviceCommand(self._uuid, operation, setting.cap_watts, setting.lock_max_mhz)
        self._apply(command)

    def restore(self) -> None:
        """The actuator's guaranteed limit, no lock, no lease; nothing if nothing is held by us."""
        if self._last is not None and self._last == _order(self._actuator.status()):
            self._apply(DeviceCommand(self._uuid, Operation.RESET))
        self._last = None

    def _apply(self, command: DeviceCommand) -> None:
        status = self._actuator.status()
        if self._own(status).lease_active and self._last is None:
            raise SettingsRefused(f"a controller holds {self._uuid}: end its lease first")
        if self._last not in (None, _order(status)):
            raise SettingsRefused("another one commands this node's actuator now")
        order = (max(1, status.highest_epoch), status.highest_sequence + 1)
        result = self._actuator.apply(
            LeaseCommand(*order, nonce=status.nonce, ttl_ms=LEASE_MS, devices=(command,))
        )
        if not result.accepted:
            raise SettingsRefused(f"{result.field}: expected {result.expected}, got {result.got}")
        self._last = order
        outcome = result.devices.get(self._uuid, "unconfirmed")
        if outcome != "confirmed":
            raise SettingsRefused(f"{self._uuid}: {outcome}")

    def _own(self, status: ActuatorStatus) -> DeviceStatus:
        device = status.devices.get(self._uuid)
        if device is None or device.state is not DeviceState.OK:
            raise SettingsRefused(f"the actuator cannot vouch for {self._uuid}")
        return device


def _order(status: ActuatorStatus) -> tuple[int, int]:
    return status.highest_epoch, status.highest_sequence
