"""Carries a plan out: promises first, then one patch a pod."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scheduler_plugin import pods as pod_facts
from scheduler_plugin.ledger import RESERVATION_NS, Ledger, Reservation
from scheduler_plugin.plan_document import Pending, Placement, Plan
from scheduler_plugin.snapshot import Pod, Snapshot
from wattpack.api import PlacementPlan
from wattpack.api.times import rfc3339
from wattpack.clock import Clock
from wattpack.kube.port import (
    PODS,
    ConflictError,
    InvalidError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
)

_LOG = logging.getLogger(__name__)
PLANS = PlacementPlan.meta.resource
#: Limits of the PlacementPlan schema.
MAX_PROMISES = 2048
MAX_PENDING = 2048
_ATTEMPTS = 3


class Outcome(Enum):
    """What became of one release."""

    RELEASED = "released"
    CONFLICT = "conflict"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan: outcome by pod uid, and the object that holds the promises."""

    plan_name: str
    outcomes: Mapping[str, Outcome]


class Applier:
    """Writes plans to the API.

    Args:
        api: The cluster.
        clock: For names and promise times.
        ledger: Where promises are kept; shared with the snapshot builder.
        kept_plans: How many PlacementPlan objects stay.
    """

    def __init__(self, api: KubeApi, clock: Clock, ledger: Ledger, kept_plans: int = 20) -> None:
        self._api = api
        self._clock = clock
        self._ledger = ledger
        self._kept_plans = kept_plans
        self._names: list[str] = []

    def recover(self) -> None:
        """Take up what an earlier process promised; pods tell which promises are still open."""
        plans = sorted(self._api.list(PLANS).items, key=lambda item: str(item["metadata"]["name"]))
        self._names = [str(item["metadata"]["name"]) for item in plans]
        now_ns = self._clock.monotonic_ns()
        for item in plans:
            for promise in PlacementPlan.read(item).spec.promises:
                if promise.pod_uid.startswith("#"):
                    slot = promise.gang + promise.pod_uid
                    until_ns = now_ns + RESERVATION_NS
                    self._ledger.reserve(
                        Reservation(slot, promise.node, promise.gang, None, until_ns)
                    )
                else:
                    self._ledger.promise(promise.pod_uid, promise.node, promise.pod_uid, now_ns)

    def apply(self, plan: Plan, snapshot: Snapshot, pending: Mapping[str, JsonObject]) -> Applied:
        """Promise everything in a PlacementPlan, then release pod by pod, gangs last and together.

        Args:
            plan: What to do; it was checked.
            snapshot: What it was made for.
            pending: Pods that wait, as they were read, by uid.
        """
        chosen = _within_limit(plan)
        pods = {pod.uid: pod for pod in snapshot.pods}
        recorded = self.record(plan, chosen, pods)
        now_ns = self._clock.monotonic_ns()
        for placement in chosen:
            body = pending.get(placement.uid)
            if body is None:
                self._reserve(placement, pods[placement.uid], now_ns)
            else:
                owner = pod_facts.owner_key(body)
                self._ledger.promise(placement.uid, placement.node, owner, now_ns)
        outcomes = {p.uid: self.release(pending[p.uid], p.node) for p in chosen if p.uid in pending}
        for placement in chosen:
            lost = outcomes.get(placement.uid) in (Outcome.GONE, Outcome.CONFLICT)
            if lost and placement.gang:
                self._reserve(placement, pods[placement.uid], now_ns)
        self.finish(recorded, "Applied" if chosen else "Expired")
        return Applied(str(recorded["metadata"]["name"]), outcomes)

    def release(self, body: JsonObject, node: str) -> Outcome:
        """Pin one pod and take our gate away; a pod that changed meanwhile is read again."""
        uid, metadata = pod_facts.uid(body), body["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "default")
        outcome = Outcome.CONFLICT
        for _ in range(_ATTEMPTS):
            try:
                self._api.patch_json(PODS, name, pod_facts.release_patch(body, node), namespace)
            except ConflictError:
                fresh = self._read_again(body)
                if fresh is None:
                    break
                body = fresh
                continue
            except NotFoundError:
                outcome = Outcome.GONE
                break
            except InvalidError as error:
                _LOG.warning("release of %s refused: %s", pod_facts.key(body), error)
                outcome = Outcome.REFUSED
                break
            except KubeError as error:
                # The patch may have been made: the promise stays until the pod itself tells.
                _LOG.warning("release of %s unanswered: %s", pod_facts.key(body), error)
                return Outcome.UNKNOWN
            return Outcome.RELEASED
        self._ledger.drop([uid])
        return outcome

    def _read_again(self, body: JsonObject) -> JsonObject | None:
        """The pod as it is now, if it is the same pod and asks for the same."""
        metadata = body["metadata"]
        try:
            fresh = self._api.get(PODS, metadata["name"], metadata.get("namespace", "default"))
        except KubeError:
            return None
        same = fresh["metadata"]["uid"] == metadata["uid"] and fresh["spec"] == body["spec"]
        return fresh if same and not fresh["metadata"].get("deletionTimestamp") else None

    def _reserve(self, placement: Placement, template: Pod, now_ns: int) -> None:
        absent = "#" in placement.uid
        slot = placement.uid if absent else f"{placement.gang}#{placement.uid}"
        until_ns = now_ns + RESERVATION_NS
        self._ledger.reserve(Reservation(slot, placement.node, placement.gang, template, until_ns))

    def record(self, plan: Plan, chosen: list[Placement], pods: Mapping[str, Pod]) -> JsonObject:
        """Write the PlacementPlan object; the object as stored."""
        wall_ns = self._clock.wall_time_ns()
        name = f"plan-{wall_ns:x}-{plan.snapshot_digest[7:13]}"
        body: JsonObject = {
            "apiVersion": PLANS.api_version,
            "kind": PLANS.kind,
            "metadata": {"name": name},
            "spec": {
                "snapshotDigest": plan.snapshot_digest,
                "promises": [_promise(p, pods[p.uid]) for p in chosen],
                "pending": [_pending(p, pods[p.uid]) for p in plan.pending if "#" not in p.uid][
                    :MAX_PENDING
                ],
                "gap": plan.gap,
                "method": plan.method,
                "createdAt": rfc3339(wall_ns),
            },
        }
        recorded = self._api.create(PLANS, body)
        self._names.append(name)
        return recorded

    def finish(self, recorded: JsonObject, state: str) -> None:
        """Say how far the plan came; a failure here loses only the summary."""
        promised = len(recorded["spec"].get("promises", []))
        generation = int(recorded["metadata"].get("generation", 0))
        status = {"observedGeneration": generation, "state": state, "pods": promised}
        try:
            self._api.replace(PLANS, {**recorded, "status": status}, subresource="status")
            while len(self._names) > self._kept_plans:
                self._api.delete(PLANS, self._names.pop(0))
        except KubeError as error:
            name = recorded["metadata"]["name"]
            _LOG.warning("PlacementPlan %s: status or clean-up not written: %s", name, error)


def _pending(entry: Pending, pod: Pod) -> JsonObject:
    return {
        "podUid": entry.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "reason": entry.reason.value,
        "message": entry.message[:1024],
    }


def absent_uid(uid: str) -> str:
    """A pod's uid, or ``#`` and the member for a gang member that does not exist yet."""
    return "#" + uid.rsplit("#", 1)[1] if "#" in uid else uid


def _promise(placement: Placement, pod: Pod) -> JsonObject:
    return {
        "podUid": absent_uid(placement.uid),
        "namespace": pod.namespace,
        "name": pod.name,
        "node": placement.node,
        "gang": placement.gang[:253],
    }


def _within_limit(plan: Plan) -> list[Placement]:
    """Plain pods, then gangs, never part of a gang, as many as one PlacementPlan may hold."""
    gangs: dict[str, list[Placement]] = {}
    for placement in plan.placements:
        if placement.gang:
            gangs.setdefault(placement.gang, []).append(placement)
    chosen: list[Placement] = []
    for members in gangs.values():
        if len(chosen) + len(members) <= MAX_PROMISES:
            chosen += members
    plain = [p for p in plan.placements if not p.gang][: MAX_PROMISES - len(chosen)]
    return plain + chosen
