"""The actuator's judgement, without any I/O: who may hold a GPU above its guaranteed cap, how long.

Keeps I3 (a cap above the guaranteed one exists only under a lease that runs from this process's
own clock reading; nothing raises a limit on silence, start, stop or error) and I4 (epochs only
rise, and so do within one the reports that are answered). The table holds what each GPU *shall*
have and what it was last *seen* to have; every event (command, expiry, start, stop, foreign change)
changes the one or the other and ``LeaseTable`` answers with the writes that lead from seen to
shall, tightening ones first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace

from actuator.epoch_fence import EpochFence, ImplausibleEpoch
from actuator.lease_entry import (
    DeviceBounds,
    HeldDevice,
    Memory,
    Outcome,
    Write,
    plan_writes,
    watts_match,
)
from actuator.lease_messages import (
    ActuatorStatus,
    DeviceCommand,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
    Operation,
)
from wattpack.errors import InputError
from wattpack.units import NS_PER_MS, NS_PER_SECOND, require_number

NONCE_LIFE_NS = 2 * NS_PER_SECOND
"""A command must answer a report at most this old (I4)."""

MAX_TTL_MS = 10_000
"""Longest lease, whatever the controller asks for; the default lease is 3.5 s (I3)."""

_NONCES_KEPT = 4096
"""More than all peers together can ask for within a nonce's life at the socket's rate limits: who
asks often cannot push out the nonce that the leader is about to answer."""


class LeaseTable:
    """What every GPU of one node shall have, and until when.

    Args:
        guaranteed_watts: By uuid, as configured; commands may change it within the board's range.
        bounds: By uuid, what the board accepts.
        boot_id: Of the running kernel; leases of another boot are void.
        new_nonce: Gives unpredictable integers from 1 to 2^64 - 1.
        max_ttl_ms: Longest lease that is accepted, at most ``MAX_TTL_MS``.

    Attributes:
        released: An operator gave the boards their default limits back: nothing is held until the
            actuator's pod starts again.
    """

    def __init__(
        self,
        guaranteed_watts: Mapping[str, float],
        bounds: Mapping[str, DeviceBounds],
        boot_id: str,
        new_nonce: Callable[[], int],
        max_ttl_ms: int = MAX_TTL_MS,
    ) -> None:
        self.boot_id = boot_id
        self._fence = EpochFence()
        self._implausible_epochs = 0
        self.released = False
        self._new_nonce = new_nonce
        self._max_ttl_ms = min(max_ttl_ms, MAX_TTL_MS)
        self._nonces: OrderedDict[int, int] = OrderedDict()
        self._configured = dict(guaranteed_watts)
        self._held: dict[str, HeldDevice] = {}
        for uuid, watts in guaranteed_watts.items():
            _check_guaranteed(f"guaranteed_watts.{uuid}", watts, bounds[uuid])
            self._held[uuid] = HeldDevice(bounds[uuid], watts, watts)

    @property
    def highest_epoch(self) -> int:
        """Highest epoch accepted, 0 before the first."""
        return self._fence.epoch

    @property
    def highest_sequence(self) -> int:
        """Sequence of the newest command of that epoch."""
        return self._fence.sequence

    @property
    def uuids(self) -> tuple[str, ...]:
        """The GPUs under control."""
        return tuple(self._held)

    def held(self, uuid: str) -> HeldDevice:
        """What one GPU shall have and was seen to have."""
        return self._held[uuid]

    def status(self, now_ns: int) -> ActuatorStatus:
        """The present state; the fresh nonce in it opens a 2 s window for one answer."""
        nonce = self._new_nonce()
        self._nonces[nonce] = now_ns
        self._forget_old_nonces(now_ns)
        return ActuatorStatus(
            self.boot_id,
            nonce,
            now_ns,
            self.highest_epoch,
            self.highest_sequence,
            {uuid: self._device_status(uuid, held, now_ns) for uuid, held in self._held.items()},
            self._implausible_epochs,
        )

    def _forget_old_nonces(self, now_ns: int) -> None:
        while self._nonces:
            oldest_ns = next(iter(self._nonces.values()))
            if now_ns - oldest_ns <= NONCE_LIFE_NS and len(self._nonces) <= _NONCES_KEPT:
                return
            self._nonces.popitem(last=False)

    def _device_status(self, uuid: str, held: HeldDevice, now_ns: int) -> DeviceStatus:
        remaining_ns = max(0, (held.lease_deadline_ns or 0) - now_ns)
        return DeviceStatus(
            uuid=uuid,
            limit_watts=held.limit_watts,
            enforced_limit_watts=held.enforced_limit_watts,
            guaranteed_watts=held.guaranteed_watts,
            lock_max_mhz=held.seen_lock_mhz,
            lease_active=remaining_ns > 0,
            lease_remaining_ms=remaining_ns // NS_PER_MS,
            confirmed_sequence=held.confirmed_sequence,
            failed_writes=held.failed_writes,
            tampered=held.tampered,
            state=DeviceState.UNCONTROLLED if self.released else held.state,
        )

    def start(self, limit_watts: Mapping[str, float | None]) -> dict[str, tuple[Write, ...]]:
        """Take over the boards as they are found: lower to what may be held, raise nothing.

        Args:
            limit_watts: The present power limits by uuid; None where it could not be read.
        """
        for uuid, watts in limit_watts.items():
            held = self._held[uuid]
            leased = held.lease_deadline_ns is not None
            allowed = held.cap_watts if leased or self.released else held.guaranteed_watts
            cap = allowed if watts is None else min(watts, allowed)
            self._held[uuid] = replace(held, cap_watts=cap, limit_watts=watts)
        return self.writes_due()

    def apply(self, command: LeaseCommand, now_ns: int) -> dict[str, tuple[Write, ...]]:
        """Make an acceptable command the state to hold.

        Returns:
            The writes by uuid, for exactly the GPUs named in the command; possibly empty each.

        Raises:
            InputError: naming the field; then nothing has changed.
        """
        issued_ns = self._answered_ns(command, now_ns)
        fence = self._fence_after(command, issued_ns, now_ns)
        deadline_ns = self._judge(command, issued_ns, now_ns)
        changed = {
            device.uuid: self._commanded(device, command.sequence, deadline_ns)
            for device in command.devices
        }
        self._held.update(changed)
        self._fence = fence
        return {uuid: plan_writes(held) for uuid, held in changed.items()}

    def _answered_ns(self, command: LeaseCommand, now_ns: int) -> int:
        """When the status was given that the command answers."""
        issued_ns = self._nonces.get(command.nonce)
        if issued_ns is None or now_ns - issued_ns > NONCE_LIFE_NS:
            raise InputError("nonce", "the nonce of a status at most 2 s old", command.nonce)
        return issued_ns

    def _fence_after(self, command: LeaseCommand, issued_ns: int, now_ns: int) -> EpochFence:
        try:
            return self._fence.after(command.epoch, command.sequence, issued_ns, now_ns)
        except ImplausibleEpoch:
            self._implausible_epochs += 1
            raise

    def _judge(self, command: LeaseCommand, issued_ns: int, now_ns: int) -> int:
        """The deadline of an acceptable command on this process's clock."""
        if self.released:
            raise InputError("state", "a node that no operator has released", "released")
        if not 0 < command.ttl_ms <= self._max_ttl_ms:
            raise InputError("ttl_ms", f"> 0 <= {self._max_ttl_ms} ms", command.ttl_ms)
        deadline_ns = issued_ns + command.ttl_ms * NS_PER_MS
        if deadline_ns <= now_ns:
            raise InputError("ttl_ms", "a lease that has not run out on arrival", command.ttl_ms)
        for index, device in enumerate(command.devices):
            self._judge_device(f"devices[{index}]", device)
        return deadline_ns

    def _judge_device(self, path: str, device: DeviceCommand) -> None:
        held = self._held.get(device.uuid)
        if held is None:
            raise InputError(f"{path}.uuid", "a GPU of this node", device.uuid)
        bounds = held.bounds
        if device.cap_watts is not None:
            require_number(
                f"{path}.cap_watts",
                device.cap_watts,
                minimum=bounds.min_watts,
                maximum=bounds.max_watts,
                unit="W",
            )
        if device.lock_max_mhz is not None and device.lock_max_mhz > bounds.max_clock_mhz:
            expected = f"an integer <= {bounds.max_clock_mhz} MHz"
            raise InputError(f"{path}.lock_max_mhz", expected, device.lock_max_mhz)
        if device.guaranteed_watts is not None:
            _check_guaranteed(f"{path}.guaranteed_watts", device.guaranteed_watts, bounds)

    def _commanded(self, device: DeviceCommand, sequence: int, deadline_ns: int) -> HeldDevice:
        """The GPU's entry after its part of an acceptable command."""
        held = self._held[device.uuid]
        guaranteed = device.guaranteed_watts or held.guaranteed_watts
        leased = device.operation is not Operation.RESET
        return held.holding(
            device.cap_watts or guaranteed,
            device.lock_max_mhz,
            deadline_ns if leased else None,
            guaranteed,
            sequence,
        )

    def expire(self, now_ns: int) -> dict[str, tuple[Write, ...]]:
        """End the leases that have run out: each such GPU falls to its guaranteed cap.

        A cap below the guaranteed one and a clock lock stay: silence raises nothing (I3).
        """
        ended: dict[str, tuple[Write, ...]] = {}
        for uuid, held in self._held.items():
            if held.lease_deadline_ns is not None and held.lease_deadline_ns <= now_ns:
                ended[uuid] = self._end_lease(uuid)
        return ended

    def release(self) -> dict[str, tuple[Write, ...]]:
        """End every lease at once; the actuator stops. What was released stays as it is."""
        if self.released:
            return {}
        return {uuid: self._end_lease(uuid) for uuid in self._held}

    def restore_defaults(self) -> dict[str, tuple[Write, ...]]:
        """Give every board its default limit and free clock; leases end and none is accepted."""
        self.released = True
        for uuid, held in self._held.items():
            self._held[uuid] = held.holding(held.bounds.default_watts, None, None)
        return self.writes_due()

    def _end_lease(self, uuid: str) -> tuple[Write, ...]:
        self._held[uuid] = self._held[uuid].without_lease()
        return plan_writes(self._held[uuid])

    def next_deadline_ns(self) -> int | None:
        """When the next lease runs out, None without leases."""
        deadlines = [h.lease_deadline_ns for h in self._held.values() if h.lease_deadline_ns]
        return min(deadlines, default=None)

    def observe(self, uuid: str, outcome: Outcome) -> tuple[Write, ...]:
        """Take in a read-back and answer with the writes that are still due."""
        held = self._held[uuid]
        if held.agrees_with(outcome):
            return ()
        self._held[uuid] = held.seeing(outcome)
        return plan_writes(self._held[uuid])

    def writes_due(self) -> dict[str, tuple[Write, ...]]:
        """Every write that leads from what was seen to what shall be."""
        return {uuid: plan_writes(held) for uuid, held in self._held.items()}

    def memory(self) -> Memory:
        """What must outlive this process."""
        return Memory(
            self.boot_id,
            self.highest_epoch,
            self.highest_sequence,
            {uuid: held.remembered(self._configured[uuid]) for uuid, held in self._held.items()},
            self._fence.room,
            self._fence.refilled_ns,
            self.released,
        )

    def recall(self, memory: Memory, now_ns: int) -> None:
        """Continue where an earlier process stopped; never beyond what it was allowed.

        Epoch and sequence count whatever the boot; leases and changed guaranteed caps only
        within the same boot, and the latter only while the configuration is the same.
        """
        same_boot = memory.boot_id == self.boot_id
        self._fence = memory.fence().recalled(now_ns, same_boot=same_boot)
        if not same_boot:
            return
        self.released = memory.released
        for uuid, past in memory.devices.items():
            held = self._held.get(uuid)
            if held is None:
                continue
            if watts_match(past.configured_watts, self._configured[uuid]):
                bounds = held.bounds
                watts = min(max(past.guaranteed_watts, bounds.min_watts), bounds.default_watts)
                held = replace(held, guaranteed_watts=watts, cap_watts=watts)
            held = replace(held, lock_max_mhz=past.lock_max_mhz)
            deadline_ns = past.lease_deadline_ns
            if deadline_ns is not None and now_ns < deadline_ns <= self._latest_ns(now_ns):
                cap = min(past.cap_watts, held.bounds.max_watts)
                held = replace(held, cap_watts=cap, lease_deadline_ns=deadline_ns)
            if self.released:
                held = replace(held, cap_watts=held.bounds.default_watts, lock_max_mhz=None)
            self._held[uuid] = held

    def _latest_ns(self, now_ns: int) -> int:
        """No honest lease ends later than this."""
        return now_ns + self._max_ttl_ms * NS_PER_MS

    def undo(self, before: Mapping[str, HeldDevice], fence: EpochFence) -> None:
        """Take back a change whose state could not be persisted; nothing was released before it."""
        self._held, self._fence, self.released = dict(before), fence, False

    def fence(self) -> EpochFence:
        """The newest pair, for ``undo``."""
        return self._fence

    def entries(self) -> dict[str, HeldDevice]:
        """A copy of all entries, for ``undo``."""
        return dict(self._held)


def _check_guaranteed(field: str, watts: float, bounds: DeviceBounds) -> None:
    """A guaranteed cap lies between the board's minimum and its default limit."""
    require_number(field, watts, minimum=bounds.min_watts, maximum=bounds.default_watts, unit="W")
