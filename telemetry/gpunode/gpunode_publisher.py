"""Writes the node's GpuNode: at once when a state changes, otherwise at most every ten minutes.

    agent.state ──> TrustMemory ──> gpunode_status ──> due? ──> server-side apply ──> API

It has a thread of its own. An API that hangs or refuses costs a log line and a later attempt; the
sampling thread and the exchange with the controllers never wait for it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Protocol

from telemetry.gpunode.gpunode_status import GPU_NODES, gpunode_status, judgement
from telemetry.gpunode.trust_memory import TrustMemory
from telemetry.node_state import NodeState
from wattpack.clock import Clock
from wattpack.errors import PermanentError, TransientError
from wattpack.kube.backoff import backoff_seconds
from wattpack.kube.port import JsonObject, KubeError, NotFoundError, Resource
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND, seconds_to_ns

log = logging.getLogger(__name__)

FIELD_MANAGER = "wattpack-agent"
LOOK_NS = NS_PER_SECOND
#: docs/kubernetes-api.md: status of a GpuNode at most every 10 min unless a condition changed.
QUIET_NS = 600 * NS_PER_SECOND
#: A device that comes and goes must not write as often as it does.
URGENT_NS = 10 * NS_PER_SECOND
#: Without any change: brings back an object that somebody deleted; 3 writes/s from 10,000 nodes.
REFRESH_NS = 3600 * NS_PER_SECOND
#: After an answer that retrying cannot change until somebody grants a role or installs a CRD.
REFUSED_SECONDS = 300.0


class Applies(Protocol):
    """The one call of ``KubeApi`` that is needed."""

    def apply(
        self,
        resource: Resource,
        body: JsonObject,
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str = "",
        force: bool = True,
    ) -> JsonObject:
        """The object after server-side apply."""
        ...


class GpuNodePublisher:
    """Decides when to write, and writes.

    Args:
        api: Where the object is.
        clock: For calendar times and back-off.
        node: Its name, and the object's.
        host_unit: The host sets guaranteed caps before the kubelet starts (I10).
        has_actuator: Whether the agent was given an actuator.
        rng: Spreads attempts of nodes that failed together.

    Attributes:
        writes: Statuses that the API took.
        failures: Attempts that failed.
    """

    def __init__(
        self,
        api: Applies,
        clock: Clock,
        node: str,
        *,
        host_unit: bool,
        has_actuator: bool,
        rng: random.Random,
    ) -> None:
        self._api, self._clock, self._node = api, clock, node
        self._host_unit, self._has_actuator, self._rng = host_unit, has_actuator, rng
        self._trust = TrustMemory()
        self._generation: int | None = None
        self._written: JsonObject | None = None
        self._written_ns = 0
        self._not_before_ns = clock.monotonic_ns()
        self._failed_in_a_row = 0
        self.writes = 0
        self.failures = 0

    def step(self, state: NodeState) -> bool:
        """Write the state if that is due; whether the API took it."""
        now_ns = self._clock.monotonic_ns()
        untrusted = self._trust.update(state)
        status = self._status(state, untrusted)
        if now_ns < self._not_before_ns or not self._is_due(status, now_ns):
            return False
        try:
            status = self._write(state, untrusted)
        except KubeError as error:
            self._failed(error, now_ns)
            return False
        if self._failed_in_a_row:
            log.info("GpuNode %s is written again", self._node)
        self._failed_in_a_row = 0
        self._written, self._written_ns = status, now_ns
        self.writes += 1
        return True

    def _is_due(self, status: JsonObject, now_ns: int) -> bool:
        if self._written is None:
            return True
        age_ns = now_ns - self._written_ns
        if judgement(status) != judgement(self._written):
            return age_ns >= URGENT_NS
        return age_ns >= (QUIET_NS if status != self._written else REFRESH_NS)

    def _status(self, state: NodeState, untrusted: frozenset[str]) -> JsonObject:
        return gpunode_status(
            state,
            untrusted,
            has_actuator=self._has_actuator,
            wall_time_ns=self._clock.wall_time_ns(),
            before=self._written,
            generation=self._generation or 0,
        )

    def _write(self, state: NodeState, untrusted: frozenset[str]) -> JsonObject:
        """The status as written; the object is made first if it is missing."""
        if self._generation is None:
            self._generation = self._apply_spec()
        status = self._status(state, untrusted)
        try:
            self._apply({"status": status}, "status")
        except NotFoundError:
            log.info("GpuNode %s is gone: making it anew", self._node)
            self._generation = self._apply_spec()
            status = self._status(state, untrusted)
            self._apply({"status": status}, "status")
        return status

    def _apply_spec(self) -> int:
        spec = {"nodeName": self._node, "hostUnit": self._host_unit}
        metadata = self._apply({"spec": spec}).get("metadata")
        generation = metadata.get("generation") if isinstance(metadata, dict) else None
        return generation if isinstance(generation, int) else 0

    def _apply(self, part: JsonObject, subresource: str = "") -> JsonObject:
        body = {
            "apiVersion": GPU_NODES.api_version,
            "kind": GPU_NODES.kind,
            "metadata": {"name": self._node},
            **part,
        }
        return self._api.apply(
            GPU_NODES, body, field_manager=FIELD_MANAGER, subresource=subresource
        )

    def _failed(self, error: KubeError, now_ns: int) -> None:
        self.failures += 1
        self._failed_in_a_row += 1
        asked = error.retry_after_seconds if isinstance(error, TransientError) else None
        seconds = backoff_seconds(self._failed_in_a_row, self._rng, asked)
        if isinstance(error, PermanentError):
            seconds = REFUSED_SECONDS * self._rng.uniform(0.5, 1.0)
        # A call may have taken its whole deadline.
        self._not_before_ns = max(now_ns, self._clock.monotonic_ns()) + seconds_to_ns(seconds)
        log.warning("GpuNode %s not written, again in %.0f s: %s", self._node, seconds, error)


class GpuNodeThread(PeriodicThread):
    """Looks at the agent's state once a second, beside everything else.

    Args:
        publisher: Writes.
        state: The newest state; must not block.
        clock: Real time.
        look_ns: Between two looks; the first comes after two, so that readings and the actuator's
            first answer had time to come.
    """

    def __init__(
        self,
        publisher: GpuNodePublisher,
        state: Callable[[], NodeState],
        clock: Clock,
        look_ns: int = LOOK_NS,
    ) -> None:
        super().__init__(clock, "gpunode", look_ns, first_ns=2 * look_ns)
        self._publisher, self._state = publisher, state

    def run_once(self) -> None:
        """Write what is due. The object is for people: no defect ends sampling or leases."""
        self._publisher.step(self._state())

    def stop(self, patience_seconds: float = 1.0) -> None:
        """End; a call that hangs is left to its deadline."""
        super().stop(patience_seconds)
