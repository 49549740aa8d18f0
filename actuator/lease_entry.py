"""One GPU's entry in the lease table: what it shall have, what it was seen to have, what is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from actuator.epoch_fence import EpochFence
from actuator.lease_messages import DeviceState
from wattpack.fencing import EPOCH_ROOM
from wattpack.units import require_number

TOLERANCE_WATTS = 1.0
"""Boards take limits in steps of 1 W or finer; a smaller difference is rounding."""

_FAILURES_UNTIL_UNCONTROLLED = 3


def watts_match(left: float, right: float) -> bool:
    """Whether two limits are the same to the board."""
    return abs(left - right) <= TOLERANCE_WATTS


class WriteKind(StrEnum):
    """The driver's three calls that change a board."""

    POWER_LIMIT = "power_limit"
    LOCK_CLOCKS = "lock_clocks"
    RESET_CLOCKS = "reset_clocks"


@dataclass(frozen=True, slots=True)
class Write:
    """One driver call; ``cap_watts`` or ``max_mhz`` as its kind needs."""

    kind: WriteKind
    cap_watts: float | None = None
    max_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a device's writes and of the read-back after them.

    Attributes:
        limit_watts: The limit read back, None if the device did not answer.
        enforced_limit_watts: The enforced limit read back.
        done: The writes that the driver took, in order.
        error: Why a write or the read-back failed, empty otherwise.
        failed: The write that the driver refused or did not finish; later ones were not tried.
    """

    limit_watts: float | None = None
    enforced_limit_watts: float | None = None
    done: tuple[Write, ...] = ()
    error: str = ""
    failed: Write | None = None


@dataclass(frozen=True, slots=True)
class DeviceBounds:
    """What a board accepts."""

    min_watts: float
    max_watts: float
    default_watts: float
    max_clock_mhz: int

    def __post_init__(self) -> None:
        require_number("min_watts", self.min_watts, exclusive_minimum=0.0, unit="W")
        require_number("max_watts", self.max_watts, minimum=self.min_watts, unit="W")
        require_number(
            "default_watts",
            self.default_watts,
            minimum=self.min_watts,
            maximum=self.max_watts,
            unit="W",
        )


@dataclass(frozen=True, slots=True)
class RememberedDevice:
    """The part of an entry that outlives the process."""

    configured_watts: float
    guaranteed_watts: float
    cap_watts: float
    lock_max_mhz: int | None
    lease_deadline_ns: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """What outlives the process; deadlines are readings of this boot's clock."""

    boot_id: str
    highest_epoch: int
    highest_sequence: int
    devices: Mapping[str, RememberedDevice]
    epoch_room: int = EPOCH_ROOM
    epoch_room_ns: int = 0
    released: bool = False

    def fence(self) -> EpochFence:
        """The newest accepted pair and its room."""
        return EpochFence(
            self.highest_epoch, self.highest_sequence, self.epoch_room, self.epoch_room_ns
        )


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """What one GPU shall have (first group) and was seen to have (second group).

    Attributes:
        cap_watts: Above ``guaranteed_watts`` only while ``lease_deadline_ns`` lies ahead.
        sequence: Of the command that set this.
        limit_watts: None while the board does not answer.
        seen_lock_mhz: The lock that the driver last took; NVML cannot read it back.
        confirmed: The read-back has agreed since ``cap_watts`` was last changed.
    """

    bounds: DeviceBounds
    guaranteed_watts: float
    cap_watts: float
    lock_max_mhz: int | None = None
    lease_deadline_ns: int | None = None
    sequence: int = 0

    limit_watts: float | None = None
    enforced_limit_watts: float | None = None
    seen_lock_mhz: int | None = None
    confirmed: bool = False
    ever_confirmed: bool = False
    confirmed_sequence: int = 0
    failed_writes: int = 0
    failures_in_row: int = 0
    tampered: int = 0

    @property
    def state(self) -> DeviceState:
        """How far the actuator can vouch for the GPU."""
        if self.limit_watts is None:
            return DeviceState.UNREADABLE
        too_high = self.limit_watts > self.cap_watts + TOLERANCE_WATTS
        if not self.ever_confirmed:
            return DeviceState.UNCONTROLLED
        if too_high and self.failures_in_row >= _FAILURES_UNTIL_UNCONTROLLED:
            return DeviceState.UNCONTROLLED
        return DeviceState.OK

    def holding(
        self,
        cap_watts: float,
        lock_max_mhz: int | None,
        lease_deadline_ns: int | None,
        guaranteed_watts: float | None = None,
        sequence: int | None = None,
    ) -> HeldDevice:
        """The entry with another state to hold, unconfirmed unless it is the same."""
        same = watts_match(cap_watts, self.cap_watts) and lock_max_mhz == self.lock_max_mhz
        # Written out: ``replace`` costs three times as much, for every GPU and every command.
        return HeldDevice(
            self.bounds,
            guaranteed_watts or self.guaranteed_watts,
            cap_watts,
            lock_max_mhz,
            lease_deadline_ns,
            self.sequence if sequence is None else sequence,
            self.limit_watts,
            self.enforced_limit_watts,
            self.seen_lock_mhz,
            self.confirmed and same,
            self.ever_confirmed,
            self.confirmed_sequence,
            self.failed_writes,
            self.failures_in_row,
            self.tampered,
        )

    def without_lease(self) -> HeldDevice:
        """The entry after its lease: at most the guaranteed cap, and nothing raised by silence."""
        caps = [self.cap_watts, self.guaranteed_watts]
        if self.limit_watts is not None:
            caps.append(self.limit_watts)
        return self.holding(min(caps), self.seen_lock_mhz, None)

    def agrees_with(self, outcome: Outcome) -> bool:
        """Whether a read-back without writes brings nothing new."""
        return (
            self.confirmed
            and not outcome.error
            and not outcome.done
            and outcome.limit_watts == self.limit_watts
            and outcome.enforced_limit_watts == self.enforced_limit_watts
            and self.confirmed_sequence == self.sequence
        )

    def seeing(self, outcome: Outcome) -> HeldDevice:
        """The entry after writes and a read-back; a write without effect counts as failed."""
        lock = self.seen_lock_mhz
        failures = int(outcome.failed is not None)
        limit_watts = outcome.limit_watts
        for write in outcome.done:
            if write.kind is not WriteKind.POWER_LIMIT:
                lock = write.max_mhz
            elif limit_watts is not None and write.cap_watts is not None:
                failures += not watts_match(limit_watts, write.cap_watts)
        cap_watts, lock, confirmed, tampered = self._judged(limit_watts, lock)
        agrees = (
            limit_watts is not None
            and watts_match(limit_watts, cap_watts)
            and lock == self.lock_max_mhz
        )
        # Written out like ``holding``: this runs for every GPU and every command.
        return HeldDevice(
            self.bounds,
            self.guaranteed_watts,
            cap_watts,
            self.lock_max_mhz,
            self.lease_deadline_ns,
            self.sequence,
            limit_watts,
            outcome.enforced_limit_watts,
            lock,
            confirmed or agrees,
            self.ever_confirmed or agrees,
            self.sequence if agrees else self.confirmed_sequence,
            self.failed_writes + failures,
            0 if agrees else self.failures_in_row + failures,
            tampered,
        )

    def _judged(
        self, limit_watts: float | None, lock: int | None
    ) -> tuple[float, int | None, bool, int]:
        """Undo a limit that somebody raised; keep one that somebody lowered without a lease.

        Returns:
            The cap to hold, the lock that is believed, whether confirmed, and ``tampered``.
        """
        cap_watts, confirmed, tampered = self.cap_watts, self.confirmed, self.tampered
        if limit_watts is None or watts_match(limit_watts, cap_watts):
            return cap_watts, lock, confirmed, tampered
        if limit_watts > cap_watts:
            # A driver reload also drops the clock lock, which cannot be read back.
            lock = None if confirmed else lock
        elif self.lease_deadline_ns is None and (confirmed or self.limit_watts is None):
            cap_watts = limit_watts
        return cap_watts, lock, False, tampered + confirmed

    def remembered(self, configured_watts: float) -> RememberedDevice:
        """The part that outlives the process; without a lease only a lock that was taken."""
        lock = self.lock_max_mhz if self.lease_deadline_ns else self.seen_lock_mhz
        return RememberedDevice(
            configured_watts, self.guaranteed_watts, self.cap_watts, lock, self.lease_deadline_ns
        )


def plan_writes(held: HeldDevice) -> tuple[Write, ...]:
    """The writes from seen to shall, tightening ones first.

    A change of actuator thus sets the new one before it releases the old one: whoever carries
    the writes out stops at the first that fails.
    """
    tighten: list[Write] = []
    loosen: list[Write] = []
    if held.lock_max_mhz != held.seen_lock_mhz:
        if held.lock_max_mhz is None:
            loosen.append(Write(WriteKind.RESET_CLOCKS))
        else:
            lowers = held.seen_lock_mhz is None or held.lock_max_mhz < held.seen_lock_mhz
            write = Write(WriteKind.LOCK_CLOCKS, max_mhz=held.lock_max_mhz)
            (tighten if lowers else loosen).append(write)
    if held.limit_watts is None or not watts_match(held.limit_watts, held.cap_watts):
        lowers = held.limit_watts is None or held.cap_watts < held.limit_watts
        write = Write(WriteKind.POWER_LIMIT, cap_watts=held.cap_watts)
        (tighten if lowers else loosen).append(write)
    return (*tighten, *loosen)
