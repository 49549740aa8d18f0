"""Pins that led nowhere: one eviction, and the pods of that owner go on without a pin.

An evicted pod counts as a failure of its Job (the Job controller counts deleted pods), so a
second mistake of ours would spend the Job's ``backoffLimit``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.ledger import PIN_TIMEOUT_NS, Ledger, Promise
from wattpack.clock import Clock
from wattpack.errors import TransientError
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import PODS, JsonObject, KubeApi, KubeError
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
#: What one cycle spends on missed pins; the rest follows in the next.
REPAIRING_NS = 5 * NS_PER_SECOND
#: How long a pod may be in kube-scheduler's queue: as long as that keeps pods which it found no
#: node for before it tries them anyway (podMaxInUnschedulablePodsDuration).
UNTRIED_NS = 300 * NS_PER_SECOND
#: An eviction that the API did not take is asked for again after this time.
AGAIN_NS = 10 * NS_PER_SECOND


class MissedPins:
    """Closes promises, and repairs those that were not kept.

    Args:
        api: The cluster.
        clock: For the time that a call may take.
        ledger: Where promises are kept.
        recorder: Where Events go.
        metrics: Counts evictions.
        take_back: Gives the gang of an id back to whoever admitted it, whole; False where nobody
            did, and its pods are evicted one by one.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        ledger: Ledger,
        recorder: EventRecorder,
        metrics: PlacementMetrics,
        take_back: Callable[[str], bool],
    ) -> None:
        self._api = api
        self._clock = clock
        self._ledger = ledger
        self._recorder = recorder
        self._metrics = metrics
        self._take_back = take_back
        #: When the eviction of a pod whose node was taken away is asked for again, by uid.
        self._again_ns: dict[str, int] = {}

    def reconcile(
        self, pods: tuple[JsonObject, ...], standing: frozenset[str], now_ns: int
    ) -> None:
        """Close kept and void promises; give up pins that did not work.

        Args:
            pods: All pods.
            standing: Names of the nodes that are there and not on their way out. A pin to another
                one leads nowhere, so it is given up without waiting for its time-out.
            now_ns: Now, on the monotonic clock.
        """
        by_uid = {pod_facts.uid(pod): pod for pod in pods}
        for promise in list(self._ledger.promises.values()):
            pod = by_uid.get(promise.uid)
            if pod is None:
                self._ledger.drop([promise.uid])
            elif pod_facts.is_finished(pod):
                self._closed_finished(pod, promise.node, now_ns)
            elif pod_facts.node_name(pod):
                if _runs(pod):
                    self._ledger.drop([promise.uid])
            elif pod["metadata"].get("deletionTimestamp"):
                # Deleted before it was bound, and kept by a finalizer: that is no fault of the pin.
                self._ledger.drop([promise.uid])
        for promise in self._ledger.overdue(now_ns):
            if self._clock.monotonic_ns() - now_ns > REPAIRING_NS:
                break
            pod = by_uid[promise.uid]
            if not _was_tried(pod) and now_ns - promise.since_ns < UNTRIED_NS:
                continue
            self._ledger.drop([promise.uid])
            if pod_facts.node_name(pod) or pod_facts.is_gated(pod):
                continue
            self._give_up(pod, promise, pods, now_ns)
        going = [p for p in self._ledger.promises.values() if p.node not in standing]
        self._again_ns = {p.uid: t for p in going if (t := self._again_ns.get(p.uid)) is not None}
        for promise in going:
            if self._clock.monotonic_ns() - now_ns > REPAIRING_NS:
                break
            self._node_was_taken_away(by_uid[promise.uid], promise, pods, now_ns)

    def release_unpinned(
        self, pods: tuple[JsonObject, ...], release: Callable[[JsonObject], bool]
    ) -> dict[str, str]:
        """Let go of waiting pods whose owner lost a pin: no node by key of each released pod."""
        if not self._ledger.unpinned:
            return {}
        return {
            pod_facts.key(pod): ""
            for pod in pods
            if pod_facts.is_gated(pod)
            and self._ledger.goes_unpinned(pod_facts.owner_key(pod))
            and release(pod)
        }

    def _closed_finished(self, pod: JsonObject, node: str, now_ns: int) -> None:
        """A pod that the kubelet refused never started: its owner keeps off that node."""
        self._ledger.drop([pod_facts.uid(pod)])
        status = pod.get("status") or {}
        if status.get("phase") == "Failed" and not status.get("containerStatuses"):
            self._missed(pod, node, now_ns)

    def _missed(self, pod: JsonObject, node: str, now_ns: int) -> None:
        job = pod_facts.belongs_to_job(pod)
        self._ledger.miss(pod_facts.owner_key(pod), node, now_ns, for_good=job)

    def _give_up(
        self, pod: JsonObject, promise: Promise, pods: tuple[JsonObject, ...], now_ns: int
    ) -> None:
        """A pin that did not lead to a binding: without a pin next time, a new pod if need be."""
        node = promise.node
        if promise.gang and self._take_back(promise.gang):
            self._missed(pod, node, now_ns)
            note = f"not bound to {node} in time; Kueue takes its Workload back whole"
            regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, **pod}
            self._recorder.emit(
                regarding, EventReason.PIN_REFUSED, note, action="Returning", warning=True
            )
            return
        spent = pod_facts.belongs_to_job(pod) and self._lost_one_before(pod, pods)
        evicts = not pod_facts.is_bare(pod) and pod_facts.pinned_node(pod) == node and not spent
        if evicts and not self._evict(pod):
            # Forgotten now, it would wait at its pin for ever.
            self._ledger.promise(replace(promise, since_ns=now_ns - PIN_TIMEOUT_NS + AGAIN_NS))
            return
        self._missed(pod, node, now_ns)
        note = f"not bound to {node} in time; its owner's next pods go on without a node of ours"
        if spent:
            note = f"not bound to {node} in time; its Job lost a pod to us before, so this one \
stays: delete it and the next goes on without a node of ours"
        regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, **pod}
        action = "Evicting" if evicts else "Keeping"
        self._recorder.emit(regarding, EventReason.PIN_REFUSED, note, action=action, warning=True)

    def _node_was_taken_away(
        self, pod: JsonObject, promise: Promise, pods: tuple[JsonObject, ...], now_ns: int
    ) -> None:
        """An autoscaler was faster than kube-scheduler: nobody's mistake, so the next is pinned.

        A Job is asked for one pod at most, whatever the cause, and a bare pod goes elsewhere by
        itself.
        """
        waits = not pod_facts.node_name(pod) and not pod_facts.gates(pod)
        if not waits or pod_facts.pinned_node(pod) != promise.node or pod_facts.is_bare(pod):
            return
        if pod_facts.belongs_to_job(pod):
            self._ledger.drop([promise.uid])
            self._give_up(pod, promise, pods, now_ns)
            return
        if now_ns < self._again_ns.get(promise.uid, now_ns):
            return
        if not self._evict(pod):
            self._again_ns[promise.uid] = now_ns + AGAIN_NS
            return
        self._ledger.drop([promise.uid])
        note = f"{promise.node} was taken away before the pod was bound; the next one is planned"
        regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, **pod}
        self._recorder.emit(
            regarding, EventReason.PIN_REFUSED, note, action="Evicting", warning=True
        )

    def _lost_one_before(self, pod: JsonObject, pods: tuple[JsonObject, ...]) -> bool:
        """We remember it, or a sibling that we let go without a pin tells so after a restart."""
        owner = pod_facts.owner_key(pod)
        return self._ledger.goes_unpinned(owner) or any(
            pod_facts.owner_key(other) == owner
            and not pod_facts.gates(other)
            and not pod_facts.pinned_node(other)
            for other in pods
        )

    def _evict(self, pod: JsonObject) -> bool:
        """Ask for the eviction; False where it should be asked for again."""
        metadata = pod["metadata"]
        try:
            self._api.evict(
                metadata["name"], metadata.get("namespace", "default"), uid=metadata["uid"]
            )
        except KubeError as error:
            log.warning("pin of %s not evicted: %s", pod_facts.key(pod), error)
            return not isinstance(error, TransientError)
        self._metrics.evicted.inc()
        return True


def _runs(pod: JsonObject) -> bool:
    """The kubelet has taken the pod in."""
    return (pod.get("status") or {}).get("phase") == "Running"


def _was_tried(pod: JsonObject) -> bool:
    """Kube-scheduler has come to the pod: it is bound, or no node was found for it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    refused = any(
        condition.get("type") == "PodScheduled"
        and condition.get("status") == "False"
        and condition.get("reason") != "SchedulingGated"
        for condition in conditions
    )
    return refused or bool(pod_facts.node_name(pod)) or pod_facts.is_gated(pod)
