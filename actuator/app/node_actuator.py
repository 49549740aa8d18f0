"""The actuator of one node: the lease table joined to boards, state file and audit log.

It does nothing on its own account: ``status`` and ``apply`` are called for a peer, ``tick`` by
whoever owns the loop, at the times that ``next_wake_ns`` gives.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from actuator.app.board_writes import DEADLINE_NS, Hands
from actuator.app.persisted_state import StateNotSaved, StateStore
from actuator.audit_log import AuditSink, SparseAudit
from actuator.epoch_fence import ImplausibleEpoch
from actuator.lease_entry import HeldDevice, Outcome, Write
from actuator.lease_messages import ActuatorStatus, ApplyResult, DeviceState, LeaseCommand
from actuator.lease_table import LeaseTable
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

READ_BACK_PERIOD_NS = NS_PER_SECOND
"""Limits are read back and, where they differ, rewritten once a second (I10)."""

Plans = Mapping[str, tuple[Write, ...]]


class Actuator:
    """Holds the boards of one node to what its lease table says.

    Args:
        table: The judgement; nobody else changes it.
        hands: How writes reach the boards.
        store: Where epoch and leases outlive this process.
        clock: The receiver's own clock, from which leases run.
        audit: Takes one entry a decision.
    """

    def __init__(
        self, table: LeaseTable, hands: Hands, store: StateStore, clock: Clock, audit: AuditSink
    ) -> None:
        self._table = table
        self._hands = hands
        self._store = store
        self._clock = clock
        self._audit = audit
        self._sparse = SparseAudit(audit, clock)
        self._next_read_ns = clock.monotonic_ns()
        self._lock = threading.Lock()

    @property
    def blind(self) -> bool:
        """True while no board answers: the driver has gone and must be opened again."""
        return all(
            self._table.held(uuid).state is DeviceState.UNREADABLE for uuid in self._table.uuids
        )

    def start(self) -> None:
        """Recall what is left of leases and lower the boards to what may be held; raise nothing."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            memory, problem = self._store.load()
            if memory is not None:
                self._table.recall(memory, now_ns)
            seen = self._hands.carry_out(dict.fromkeys(self._table.uuids, ()))
            plans = self._table.start({uuid: seen[uuid].limit_watts for uuid in seen})
            self._save_if_possible()
            before = self._table.entries()
            outcomes = self._carry_out(plans)
            self._note("start", before, outcomes, state_file=problem or "ok")
            self._next_read_ns = now_ns + READ_BACK_PERIOD_NS

    def status(self) -> ActuatorStatus:
        """The present state with a fresh nonce; no board is touched."""
        with self._lock:
            return self._table.status(self._clock.monotonic_ns())

    def apply(self, command: LeaseCommand, peer_uid: int | None = None) -> ApplyResult:
        """Judge a command; if it is accepted, persist it, carry it out and read it back."""
        with self._lock:
            self._end_leases()
            before = self._table.entries()
            fence = self._table.fence()
            try:
                plans = self._table.apply(command, self._clock.monotonic_ns())
                try:
                    self._store.save(self._table.memory())
                except StateNotSaved as error:
                    self._table.undo(before, fence)
                    raise InputError("state", "a writable state file", str(error)) from error
            except InputError as error:
                return self._refuse(command, error, peer_uid)
            outcomes = self._carry_out(plans)
            changed = any(plans.values())
            self._note("apply" if changed else "renew", before, outcomes, command, peer_uid)
            return ApplyResult(True, devices={u: self._result(u, o) for u, o in outcomes.items()})

    def _refuse(
        self, command: LeaseCommand, error: InputError, peer_uid: int | None
    ) -> ApplyResult:
        event = "implausible" if isinstance(error, ImplausibleEpoch) else "refuse"
        self._sparse(
            event,
            {
                "event": event,
                "epoch": command.epoch,
                "sequence": command.sequence,
                "peer_uid": peer_uid,
                "field": error.field,
                "expected": error.expected,
                "got": error.got,
            },
        )
        return ApplyResult(False, error.field, error.expected, error.got)

    def restore_defaults(self, peer_uid: int) -> ApplyResult:
        """Give every board its default limit back, and hold none until the next start.

        The only raise without a lease: an operator's explicit word, persisted before any board is
        touched, so that neither the end of this process nor its parent takes it back.
        """
        with self._lock:
            if not self._table.released:
                before, fence = self._table.entries(), self._table.fence()
                self._table.restore_defaults()
                try:
                    self._store.save(self._table.memory())
                except StateNotSaved as error:
                    self._table.undo(before, fence)
                    return ApplyResult(False, "state", "a writable state file", str(error))
            before = self._table.entries()
            due = dict.fromkeys(before, ()) | self._table.writes_due()
            outcomes = self._carry_out(due)
            self._note("restore_defaults", before, outcomes, peer_uid=peer_uid)
            return ApplyResult(True, devices={u: self._result(u, o) for u, o in outcomes.items()})

    def tick(self) -> None:
        """End leases that have run out; once a second read back and rewrite what differs."""
        with self._lock:
            self._end_leases()
            now_ns = self._clock.monotonic_ns()
            if now_ns < self._due_ns(now_ns):
                return
            late_periods = (now_ns - self._next_read_ns) // READ_BACK_PERIOD_NS
            self._next_read_ns += (late_periods + 1) * READ_BACK_PERIOD_NS
            before = self._table.entries()
            due: dict[str, tuple[Write, ...]] = {}
            for uuid, outcome in self._hands.carry_out(dict.fromkeys(before, ())).items():
                writes = self._table.observe(uuid, outcome)
                if writes:
                    due[uuid] = writes
            if due:
                self._note("reassert", before, self._carry_out(due))

    def _end_leases(self) -> None:
        before = self._table.entries()
        plans = self._table.expire(self._clock.monotonic_ns())
        if plans:
            self._save_if_possible()
            self._note("expire", before, self._carry_out(plans))

    def release(self) -> None:
        """End every lease now: what a stopping actuator leaves behind are guaranteed caps."""
        with self._lock:
            before = self._table.entries()
            plans = self._table.release()
            self._save_if_possible()
            self._note("stop", before, self._carry_out(plans))

    def next_wake_ns(self) -> int:
        """When ``tick`` has something to do next."""
        with self._lock:
            due_ns = self._due_ns(self._clock.monotonic_ns())
            return min(due_ns, self._table.next_deadline_ns() or due_ns)

    def _due_ns(self, now_ns: int) -> int:
        """When limits are read back next: not where a hung board could hold up the end of a lease.

        A round takes up to the boards' deadline; one that began just before a lease ends would have
        its other boards written that much later. What ends a lease reads the boards back itself.
        """
        deadline_ns = self._table.next_deadline_ns()
        begin_ns = max(now_ns, self._next_read_ns)
        late = begin_ns - self._next_read_ns >= DEADLINE_NS
        if deadline_ns is None or late or deadline_ns - begin_ns >= DEADLINE_NS:
            return self._next_read_ns
        return max(self._next_read_ns, deadline_ns)

    def _carry_out(self, plans: Plans) -> dict[str, Outcome]:
        outcomes = self._hands.carry_out(plans)
        for uuid, outcome in outcomes.items():
            self._table.observe(uuid, outcome)
        return outcomes

    def _save_if_possible(self) -> None:
        """A lease that has ended need not be persisted to be void: its deadline has passed."""
        try:
            self._store.save(self._table.memory())
        except StateNotSaved as error:
            self._audit({"event": "state_not_saved", "error": str(error)})

    def _result(self, uuid: str, outcome: Outcome) -> str:
        if outcome.error:
            return outcome.error
        return "confirmed" if self._table.held(uuid).confirmed else "unconfirmed"

    def _note(
        self,
        event: str,
        before: Mapping[str, HeldDevice],
        outcomes: Mapping[str, Outcome],
        command: LeaseCommand | None = None,
        peer_uid: int | None = None,
        **more: str,
    ) -> None:
        """One audit entry: each GPU's limit before and after, in watts, and the result."""
        devices = [
            {
                "uuid": uuid,
                "before_watts": before[uuid].limit_watts,
                "after_watts": outcome.limit_watts,
                "cap_watts": self._table.held(uuid).cap_watts,
                "lock_max_mhz": self._table.held(uuid).lock_max_mhz,
                "guaranteed_watts": self._table.held(uuid).guaranteed_watts,
                "result": self._result(uuid, outcome),
            }
            for uuid, outcome in outcomes.items()
        ]
        entry: dict[str, object] = {"event": event, **more, "devices": devices}
        if command is not None:
            entry |= {"epoch": command.epoch, "sequence": command.sequence}
        if command is not None or peer_uid is not None:
            entry["peer_uid"] = peer_uid
        self._audit(entry)
