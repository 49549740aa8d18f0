"""Two planners over an API with slow writes, and a judge who sees what reaches the server.

The judge shares nothing with the planners: it knows pods' requests and nodes' GPUs from how it
made them, and counts pins, plans and the Lease's holder as they arrive.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wattpack.clock import Clock
from wattpack.kube.port import KubeApi, KubeError, UnavailableError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

GPUS_PER_NODE = 8
#: How long a client waits for an answer, and how much later a stuck write reaches the store.
TIMEOUT_SECONDS = 10.0
STUCK_SECONDS = 25.0


@dataclass(slots=True)
class Judge:
    """What reached the server."""

    gpus_by_pod: dict[str, int]
    late: list[tuple[str, str, str]] = field(default_factory=list)
    late_outside_plans: int = 0
    begun_late: int = 0
    over_gpus: int = 0
    pins: dict[str, str] = field(default_factory=dict)
    repinned: set[str] = field(default_factory=set)
    plans: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    last_late_seconds: float = 0.0
    stuck_arrived: int = 0
    # Patches of one replica arrive beside each other.
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def planned(self, replica: str, body: dict[str, Any]) -> None:
        """A PlacementPlan was stored."""
        written = self.plans.setdefault(replica, set())
        for promise in body["spec"].get("promises", []):
            written.add((promise["name"], promise["node"]))

    def pinned(self, replica: str, pod: str, node: str, holder: str, since_seconds: float) -> None:
        """A pod was pinned in the store while ``holder`` had the Lease for that long."""
        with self._turn:
            if self.pins.get(pod, node) != node:
                self.repinned.add(pod)
            self.pins[pod] = node
            used: Counter[str] = Counter()
            for name, place in self.pins.items():
                if place:
                    used[place] += self.gpus_by_pod[name]
            self.over_gpus = max(self.over_gpus, max(used.values(), default=0) - GPUS_PER_NODE)
            if holder not in ("", replica):
                self.late.append((replica, pod, node))
                self.last_late_seconds = max(self.last_late_seconds, since_seconds)
                self.late_outside_plans += (pod, node) not in self.plans.get(replica, set())

    def promised_twice(self) -> int:
        """Pods that stand in written plans with more than one node."""
        places: dict[str, set[str]] = {}
        for written in self.plans.values():
            for pod, node in written:
                if pod:
                    places.setdefault(pod, set()).add(node)
        return sum(len(nodes) > 1 for nodes in places.values())


class Wire:
    """The server as both replicas reach it, and who holds the Lease there.

    Args:
        api: The server.
        clock: Time of the experiment.
        judge: Told of everything that is stored.
    """

    def __init__(self, api: KubeApi, clock: Clock, judge: Judge) -> None:
        self.api, self.clock, self.judge = api, clock, judge
        self.holder, self.held_since_ns = "", 0
        self.deliveries: list[tuple[int, Callable[[], object]]] = []

    def deliver(self) -> None:
        """Store the stuck writes that are due; their senders have long given up."""
        due = [entry for entry in self.deliveries if entry[0] <= self.clock.monotonic_ns()]
        for entry in due:
            self.deliveries.remove(entry)
            self.judge.stuck_arrived += 1
            try:
                entry[1]()
            except KubeError:
                continue  # The pod had changed: what the patch tests for does its duty.

    def lease_stored(self, holder: str) -> None:
        """Somebody wrote the Lease."""
        if holder != self.holder:
            self.holder, self.held_since_ns = holder, self.clock.monotonic_ns()


class SlowApi:
    """The API as one replica meets it: each write takes its time, and sometimes the path breaks.

    Args:
        wire: The server.
        replica: Whose calls these are.
        write_seconds: What each write takes before it is stored.
        scale: Of the time-outs, for short runs.
    """

    def __init__(self, wire: Wire, replica: str, write_seconds: float, scale: float = 1.0) -> None:
        self._wire, self._replica = wire, replica
        self._write_seconds, self._scale = write_seconds, scale
        self._wake = wire.clock.new_wake()
        self._is_over = False
        self.lease_is_cut = False
        self.next_is_stuck = False

    def break_off(self) -> None:
        """The server goes: calls under way and later ones fail at once; from any thread."""
        self._is_over = True
        self._wake.set()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._wire.api, name)

    def _wait(self, seconds: float) -> None:
        clock = self._wire.clock
        if not self._is_over:
            clock.wait_until(clock.monotonic_ns() + seconds_to_ns(seconds), self._wake)
        if self._is_over:
            raise UnavailableError("the experiment is over")

    def get(self, resource: Any, *rest: Any) -> Any:  # noqa: ANN401
        """Reads are quick; the Lease's path may be broken."""
        if resource.kind == "Lease" and self.lease_is_cut:
            self._wait(TIMEOUT_SECONDS * self._scale)
            raise UnavailableError("no answer")
        return self._wire.api.get(resource, *rest)

    def create(self, resource: Any, body: Any, *rest: Any) -> Any:  # noqa: ANN401
        """Stored after the write's time."""
        self._wait(self._write_seconds)
        stored = self._wire.api.create(resource, body, *rest)
        if resource.kind == "PlacementPlan":
            self._wire.judge.planned(self._replica, stored)
        if resource.kind == "Lease":
            self._wire.lease_stored(self._replica)
        return stored

    def replace(self, resource: Any, body: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
        """Stored after the write's time; the Lease's path may be broken."""
        if resource.kind == "Lease" and self.lease_is_cut:
            self._wait(TIMEOUT_SECONDS * self._scale)
            raise UnavailableError("no answer")
        self._wait(self._write_seconds)
        stored = self._wire.api.replace(resource, body, *rest, **more)
        if resource.kind == "Lease":
            self._wire.lease_stored(stored["spec"].get("holderIdentity") or "")
        return stored

    def patch_json(self, resource: Any, name: str, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
        """Stored after the write's time, or, if it is stuck, long after its sender gave up."""
        if resource.kind != "Pod" or more.get("dry_run"):
            self._wait(self._write_seconds)
            return self._wire.api.patch_json(resource, name, *rest, **more)
        self._wire.judge.begun_late += self._wire.holder not in ("", self._replica)

        def store() -> Any:  # noqa: ANN401
            stored = self._wire.api.patch_json(resource, name, *rest, **more)
            held_ns = self._wire.clock.monotonic_ns() - self._wire.held_since_ns
            self._wire.judge.pinned(
                self._replica, name, _pin(stored), self._wire.holder, held_ns / NS_PER_SECOND
            )
            return stored

        if self.next_is_stuck:
            self.next_is_stuck = False
            due_ns = self._wire.clock.monotonic_ns() + seconds_to_ns(STUCK_SECONDS * self._scale)
            self._wire.deliveries.append((due_ns, store))
            self._wait(TIMEOUT_SECONDS * self._scale)
            raise UnavailableError("no answer")
        self._wait(self._write_seconds)
        return store()


def _pin(pod: dict[str, Any]) -> str:
    """The node that a required pin names; empty for a pod that was only let go."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for rule in term.get("matchFields") or ():
            return str(rule["values"][0])
    return ""
