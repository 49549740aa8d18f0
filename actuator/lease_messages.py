"""What crosses the actuator's socket, as values.

A command is one batch: it is judged as a whole and applied as a whole or not at all. Values here
are well formed by construction; whether a command may be applied (ranges of the board, epoch,
nonce, time to live) is decided by ``actuator.lease_table``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wattpack.errors import InputError
from wattpack.gpu_resources import MAX_BOARDS
from wattpack.units import require_number

MAX_UINT64 = 2**64 - 1


class Operation(StrEnum):
    """What may be asked of one GPU; there is nothing else."""

    SET_POWER_LIMIT = "set_power_limit"
    LOCK_CLOCKS = "lock_clocks"
    RESET = "reset"


class DeviceState(StrEnum):
    """How far the actuator can vouch for a GPU."""

    OK = "ok"
    UNREADABLE = "unreadable"
    UNCONTROLLED = "uncontrolled"


@dataclass(frozen=True, slots=True)
class DeviceCommand:
    """The state that one GPU shall have while the lease lasts.

    Attributes:
        uuid: The GPU.
        operation: ``set_power_limit`` ends with this cap and no clock lock; ``lock_clocks`` with
            the lock and a power limit of ``cap_watts``, or the guaranteed cap without one;
            ``reset`` with the guaranteed cap, no lock and no lease.
        cap_watts: Power limit; required by ``set_power_limit``, refused by ``reset``.
        lock_max_mhz: Upper end of the clock range; required by ``lock_clocks``, otherwise refused.
        guaranteed_watts: The new guaranteed cap, None to leave it as it is.
    """

    uuid: str
    operation: Operation
    cap_watts: float | None = None
    lock_max_mhz: int | None = None
    guaranteed_watts: float | None = None

    def __post_init__(self) -> None:
        if not self.uuid or len(self.uuid) > 128:
            raise InputError("uuid", "1 to 128 characters", self.uuid)
        locks = self.operation is Operation.LOCK_CLOCKS
        if locks != (self.lock_max_mhz is not None):
            expected = "a clock in MHz" if locks else f"null for {self.operation}"
            raise InputError("lock_max_mhz", expected, self.lock_max_mhz)
        if self.lock_max_mhz is not None:
            require_integer("lock_max_mhz", self.lock_max_mhz, minimum=1, unit="MHz")
        if self.operation is Operation.SET_POWER_LIMIT and self.cap_watts is None:
            raise InputError("cap_watts", "a power limit in W", None)
        if self.operation is Operation.RESET and self.cap_watts is not None:
            raise InputError("cap_watts", "null for reset", self.cap_watts)
        for name in ("cap_watts", "guaranteed_watts"):
            value = getattr(self, name)
            if value is not None:
                require_number(name, value, exclusive_minimum=0.0, unit="W")


@dataclass(frozen=True, slots=True)
class LeaseCommand:
    """One batch of a controller; it answers the status that carried its nonce.

    Attributes:
        epoch: Fencing epoch of the leader.
        sequence: Rises within an epoch.
        nonce: Of a status at most 2 s old; the lease runs from the moment of that status.
        ttl_ms: How long the caps may be held, counted from there.
        devices: At most one command a GPU.
    """

    epoch: int
    sequence: int
    nonce: int
    ttl_ms: int
    devices: tuple[DeviceCommand, ...]

    def __post_init__(self) -> None:
        for name in ("epoch", "sequence", "nonce"):
            require_integer(name, getattr(self, name), minimum=1, maximum=MAX_UINT64)
        require_integer("ttl_ms", self.ttl_ms, minimum=1, maximum=3_600_000, unit="ms")
        if not 1 <= len(self.devices) <= MAX_BOARDS:
            raise InputError("devices", f"1 to {MAX_BOARDS} commands", len(self.devices))
        seen: set[str] = set()
        for index, device in enumerate(self.devices):
            if device.uuid in seen:
                raise InputError(
                    f"devices[{index}].uuid", "one command a GPU in a batch", device.uuid
                )
            seen.add(device.uuid)


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """What the actuator knows of one GPU; None where it was never read.

    Attributes:
        limit_watts: Power limit as last read back.
        enforced_limit_watts: Limit that the board enforces, all limiters counted.
        guaranteed_watts: What expiry falls to.
        lock_max_mhz: Upper end of the clock lock that was written and not refused.
        confirmed_sequence: Last command whose effect was read back.
        failed_writes: Writes since start that failed or had no effect.
        tampered: Times since start that somebody else's limit was found and undone.
    """

    uuid: str
    limit_watts: float | None
    enforced_limit_watts: float | None
    guaranteed_watts: float
    lock_max_mhz: int | None
    lease_active: bool
    lease_remaining_ms: int
    confirmed_sequence: int
    failed_writes: int
    tampered: int
    state: DeviceState


@dataclass(frozen=True, slots=True)
class ActuatorStatus:
    """One report; its nonce opens the window in which a command may answer it.

    Attributes:
        implausible_epochs: Commands since start whose epoch or sequence nobody can have reached.
    """

    boot_id: str
    nonce: int
    clock_ns: int
    highest_epoch: int
    highest_sequence: int
    devices: Mapping[str, DeviceStatus]
    implausible_epochs: int = 0


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """Whether a command became the state to hold, and what came of it on each GPU.

    Attributes:
        accepted: False means that nothing at all was changed.
        field: The refused field of the command, empty when accepted.
        expected: What would have been accepted.
        got: What was given.
        devices: By uuid: ``confirmed``, ``unconfirmed`` (the read-back differs) or the error.
    """

    accepted: bool
    field: str = ""
    expected: str = ""
    got: str = ""
    devices: Mapping[str, str] = dataclasses.field(default_factory=dict)


class ActuatorPort(Protocol):
    """The two calls that a node agent makes; over the socket or in one process."""

    def status(self) -> ActuatorStatus:
        """The present state with a fresh nonce."""
        ...

    def apply(self, command: LeaseCommand) -> ApplyResult:
        """Judge and carry out one command."""
        ...


def require_integer(
    name: str,
    value: object,
    *,
    minimum: int = 0,
    maximum: int = MAX_UINT64,
    unit: str = "",
    source: str = "",
) -> int:
    """The value as an integer within the bounds; booleans and floats are refused.

    Raises:
        InputError: naming the field.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        expected = f"an integer >= {minimum} <= {maximum} {unit}".strip()
        raise InputError(name, expected, value, source)
    return value
