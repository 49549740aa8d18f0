"""Keeps ``wattpack.io/uncontrolled`` on servers that nobody vouches for; only the leader writes.

tick ──outcome──┐
                ├──> wanted_taint ──> JSON Patch that tests the node's version ──> API, Event
nodes, domains ─┘

Like status it has a thread of its own: the tick waits for no API. It shares the write budget.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controller.app.desired_state import ObjectStore
from controller.app.running_topology import DesiredTopology
from controller.app.tick_loop import TickOutcome
from controller.uncontrolled_taint import Word, has_taint, taint_patch, unheld_gpus, wanted_taint
from wattpack.clock import Clock
from wattpack.errors import InputError, TransientError
from wattpack.gpu_resources import gpu_kind
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import (
    NODES,
    ConflictError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
)
from wattpack.kube.write_budget import TokenBucket
from wattpack.periodic import PeriodicThread
from wattpack.power.power_grid import PowerGrid
from wattpack.quantities import parse_quantity
from wattpack.units import NS_PER_SECOND, seconds_to_ns

log = logging.getLogger(__name__)
LOOK_NS = 2 * NS_PER_SECOND
#: After an answer that retrying cannot change, such as a role without ``patch`` on nodes.
REFUSED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Member:
    """A server as the newest tick saw it."""

    enforcing: bool
    unheld: int
    gpus: int
    silent: bool


class TaintThread(PeriodicThread):
    """Takes the newest outcome every two seconds and moves taints.

    Args:
        store: Nodes as the informer has them.
        desired: Accepted domains.
        bucket: The write budget of the process.
        instance: Of Events.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        store: ObjectStore,
        desired: DesiredTopology,
        bucket: TokenBucket,
        instance: str,
    ) -> None:
        super().__init__(clock, "taints", LOOK_NS)
        self._api, self._store, self._desired = api, store, desired
        self._bucket = bucket
        self._events = EventRecorder(api, clock, "wattpack.io/controller", instance)
        self._lock = threading.Lock()
        self._outcome: TickOutcome | None = None
        self._began_ns: int | None = None
        self._held_ns: dict[str, int] = {}
        #: The node that was refused last: the next look begins behind it.
        self._refused = ""
        self._not_before_ns = clock.monotonic_ns()

    def take(self, outcome: TickOutcome) -> None:
        """Called by the tick; never blocks for long."""
        with self._lock:
            self._outcome = outcome

    def stop(self, patience_seconds: float = 5.0) -> None:
        """End the thread and tell how often each Event was repeated."""
        super().stop(patience_seconds)
        self._events.close()

    def run_once(self) -> None:
        """Judge every server by the newest outcome and write what differs, as the budget allows."""
        with self._lock:
            outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        now_ns = self._clock.monotonic_ns()
        if self._began_ns is None:
            self._began_ns = now_ns
        members = _members(outcome)
        # A standby remembers too, so that a new leader knows who was held.
        self._held_ns.update(
            (name, now_ns) for name, member in members.items() if not member.unheld
        )
        if outcome.seen.leading and now_ns >= self._not_before_ns:
            self._move(members, now_ns)
        self._events.flush()

    def _move(self, members: Mapping[str, Member], now_ns: int) -> None:
        with self._store.lock:
            nodes = dict(self._store.objects.nodes)
        grid = self._desired.grid
        self._held_ns = {name: at for name, at in self._held_ns.items() if name in nodes}
        for name in sorted(nodes, key=lambda name: (name <= self._refused, name)):
            node = nodes[name]
            member = members.get(name)
            word = self._word(name, node, member, grid, now_ns)
            operations = taint_patch(node, wanted=wanted_taint(word))
            if not operations:
                continue
            if not self._bucket.take(now_ns):
                return
            if not self._write(name, node, operations, member, tainted=not word.tainted):
                return

    def _word(
        self,
        name: str,
        node: JsonObject,
        member: Member | None,
        grid: PowerGrid,
        now_ns: int,
    ) -> Word:
        held_ns = self._held_ns.get(name)
        tainted = has_taint((node.get("spec") or {}).get("taints") or ())
        if member is None:
            # No agent of it was ever heard: a member by its labels, if it has GPUs at all. One that
            # registered with the taint may not offer them yet.
            is_ours = (tainted or _gpus(node) > 0) and _enforced(name, node, grid)
        else:
            is_ours = member.enforcing
        return Word(
            enforcing=is_ours,
            held=member is not None and not member.unheld,
            tainted=tainted,
            unheld_ns=0 if held_ns is None else now_ns - held_ns,
            was_held=held_ns is not None,
            listening_ns=0 if self._began_ns is None else now_ns - self._began_ns,
        )

    def _write(
        self,
        name: str,
        node: JsonObject,
        operations: list[JsonObject],
        member: Member | None,
        *,
        tainted: bool,
    ) -> bool:
        """Patch and report one node; whether to go on with the next."""
        try:
            self._api.patch_json(NODES, name, operations)
        except (ConflictError, NotFoundError) as error:
            log.debug("node %s moved on before its taint did: %s", name, error)
            return True
        except KubeError as error:
            if isinstance(error, TransientError):
                seconds = error.retry_after_seconds or 1.0
            else:
                # Others may be allowed: an admission webhook judges each node by itself.
                seconds, self._refused = REFUSED_SECONDS, name
            self._not_before_ns = self._clock.monotonic_ns() + seconds_to_ns(seconds)
            log.warning("taint of node %s waits %.1f s: %s", name, seconds, error)
            return False
        note = _note(member, tainted=tainted)
        log.info("node %s %s: %s", name, "tainted" if tainted else "untainted", note)
        self._events.emit(
            {**node, "apiVersion": NODES.api_version, "kind": NODES.kind},
            EventReason.NODE_UNCONTROLLED if tainted else EventReason.NODE_CONTROLLED,
            note,
            action="Taint" if tainted else "Untaint",
            warning=tainted,
        )
        return True


def _members(outcome: TickOutcome) -> dict[str, Member]:
    """Every server that an agent reported for, by name."""
    topology, silent = outcome.topology, outcome.decisions.silent_nodes
    unheld = unheld_gpus(topology, outcome.seen, silent)
    gpus = np.bincount(topology.node_of_gpu, minlength=topology.n_nodes)
    enforcing = topology.tree.enforce[topology.domain_of_node]
    rows = zip(enforcing.tolist(), unheld.tolist(), gpus.tolist(), silent.tolist(), strict=True)
    return {name: Member(*row) for name, row in zip(topology.node_names, rows, strict=True)}


def _gpus(node: JsonObject) -> int:
    """GPUs that device plugins offer, parts too; 0 for a node without one."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    found = 0
    for name, text in capacity.items():
        if gpu_kind(name) is not None:
            with contextlib.suppress(InputError):
                found += parse_quantity(name, text)
    return found


def _enforced(name: str, node: JsonObject, grid: PowerGrid) -> bool:
    """Whether caps are written in the domain that feeds the node."""
    domain = grid.feeding(name, node["metadata"].get("labels") or {}).domain
    return bool(domain and grid.tree.enforce[grid.index(domain)])


def _note(member: Member | None, *, tainted: bool) -> str:
    if not tainted:
        return (
            "every guaranteed cap was read back"
            if member is not None and member.enforcing
            else "no enforcing power domain has this node"
        )
    if member is None:
        return "no agent has reported for this node: its GPUs count at their default limits"
    if member.silent:
        return "the agent is silent: its GPUs count at their default limits"
    return (
        f"the guaranteed caps of {member.unheld} of {member.gpus} GPUs were not read back: "
        "they count at their default limits"
    )
