"""Pods and plans as the console shows them: counted, and those that wait grouped by their cause.

Whatever the API server admits as a pod gives a row; what cannot be read is said in that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from console.decision_feed import in_kilowatts
from wattpack.errors import InputError
from wattpack.gpu_resources import gpu_demand
from wattpack.kube.port import JsonObject
from wattpack.quantities import pod_requests
from wattpack.times import parse_rfc3339

#: Pods that are listed of one group; the others are counted.
SHOWN_PODS = 25
SHOWN_PLANS = 10

#: Cause of the planner: what it means, and what somebody can do about it.
CAUSES: Mapping[str, tuple[str, str]] = {
    "PowerDomainFull": (
        "no power left below a breaker",
        "wait for work to end, lower its class, or raise the domain's budget",
    ),
    "QuotaExceeded": (
        "its namespace or queue holds what its quota allows",
        "wait for the team's own work to end, or raise the quota",
    ),
    "InsufficientGpus": ("not enough free GPUs on one node", "wait, or add nodes"),
    "InsufficientResource": (
        "not enough of another resource beside free GPUs",
        "ask for less of what the detail names, or wait",
    ),
    "InsufficientCpu": ("not enough CPU beside free GPUs", "ask for less CPU, or wait"),
    "InsufficientMemory": ("not enough memory beside free GPUs", "ask for less memory, or wait"),
    "TooManyPods": ("nodes are at their pod limit", "raise the kubelet's pod limit"),
    "SlowNeighbours": (
        "who shares the boards would slow it down, or it them",
        "wait, share with other work, or raise the node's slow-down limit",
    ),
    "PodAffinityOrSpread": (
        "other pods keep it off the nodes with room",
        "wait, or loosen its affinity or spread",
    ),
    "ResourcesFragmented": ("free capacity is spread over nodes", "wait, or move small pods"),
    "LargerThanAnyNode": ("larger than any node", "ask for less on one node"),
    "GangIncomplete": ("members of the gang are missing", "create the missing members"),
    "GangDoesNotFit": ("the gang does not fit as a whole", "wait, or use fewer members"),
    "GangExceedsCluster": (
        "the gang is larger than the cluster",
        "use fewer members, or add nodes",
    ),
    "NodeUnderWay": ("a node that is on its way will serve it", "wait for the node"),
    "GangMinimumFirst": ("the gang's first members have no place yet", "wait for them"),
    "GangIsFull": ("the gang has its most members", "raise its most, or wait"),
    "HeldFor": (
        "room is held for work that waited longer",
        "wait: the detail says until when at most",
    ),
    "SiblingGated": ("a member waits at another gate", "look at who holds that gate"),
    "NodeAffinityMismatch": ("its selectors match no node", "correct selector or affinity"),
    "TaintNotTolerated": ("tainted nodes only", "add a toleration, or wait for the taint to go"),
    "NoGpuModel": ("no node has that GPU type", "ask for another GPU type"),
    "NoCpuClass": ("no node has that class of CPU", "allow another class of CPU"),
    "NoNicClass": ("no node has that class of NIC", "allow another class of NIC"),
    "UplinkFull": ("uplinks do not bear its traffic", "wait, or use fewer racks"),
    "NoReadyNode": ("matching nodes are not ready", "look at the nodes"),
    "NoNodes": ("the cluster has no nodes", "add nodes"),
    "GpuPowerUnknown": ("nobody knows what that GPU draws", "add a GPUProfile"),
    "GuaranteedCapsInfeasible": (
        "guaranteed caps do not fit below the breaker",
        "raise the rating's share or lower guaranteed caps",
    ),
    "NodeQuarantined": ("every matching node refused it before", "look at the pod's events"),
    "NotExplained": ("the deadline came before its cause was looked for", "wait for a later plan"),
    "PlanRefused": ("the checker refused the plan", "report it: this is a defect"),
    "ClaimNotCounted": ("its claims cannot be counted", "nothing: it was let go"),
    "ReleaseRefused": ("the API refuses its release", "look at the pod's events"),
    "InvalidRequest": ("its request cannot be read", "correct the pod"),
    "WaitingForPlan": ("waits for the next plan", ""),
    "WaitingForBinder": ("waits for kube-scheduler", ""),
    "Unreadable": ("the console cannot read it", "look at the pod"),
}


@dataclass(frozen=True, slots=True)
class PodRow:
    """One pod that asks for GPUs.

    Attributes:
        gpus: Boards, or parts of them, at most.
        created_ms: Unix time in ms, 0 if unknown.
        problem: Why the pod could not be read, empty if it could.
    """

    uid: str
    namespace: str
    name: str
    gpus: int
    priority: int
    priority_class: str
    node: str
    phase: str
    gated: bool
    created_ms: int
    problem: str = ""


def pod_row(pod: JsonObject, claimed_gpus: int = 0) -> PodRow | None:
    """The row of a pod; None for one that asks for no GPU or has ended.

    Args:
        pod: As the API has it.
        claimed_gpus: That it has beside those of its resource names.
    """
    metadata, spec = _mapping(pod, "metadata"), _mapping(pod, "spec")
    status = _mapping(pod, "status")
    phase = str(status.get("phase") or "Pending")
    if phase in {"Succeeded", "Failed"}:
        return None
    problem, gpus = "", 0
    try:
        gpus = gpu_demand(pod_requests(pod)).most_boards + claimed_gpus
    except (InputError, TypeError, AttributeError, KeyError, ValueError) as error:
        problem = str(error)[:300]
    if not gpus and not problem:
        return None
    priority = spec.get("priority")
    return PodRow(
        uid=str(metadata.get("uid", "")),
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        gpus=gpus,
        priority=priority if isinstance(priority, int) else 0,
        priority_class=str(spec.get("priorityClassName") or ""),
        node=str(spec.get("nodeName") or ""),
        phase=phase,
        gated=bool(spec.get("schedulingGates")),
        created_ms=_milliseconds(metadata.get("creationTimestamp")),
        problem=problem,
    )


@dataclass(frozen=True, slots=True)
class _Waiting:
    row: PodRow
    reason: str
    message: str
    domains: tuple[str, ...]


def placement_view(rows: Iterable[PodRow], plans: Sequence[JsonObject]) -> dict[str, object]:
    """What the page shows of pods and plans.

    Args:
        rows: Pods that ask for GPUs and have not ended.
        plans: PlacementPlan objects.
    """
    newest = sorted(plans, key=lambda p: str(_mapping(p, "spec").get("createdAt")), reverse=True)
    causes = _causes(newest[0]) if newest else {}
    placed = 0
    groups: dict[tuple[str, tuple[str, ...]], list[_Waiting]] = {}
    for row in rows:
        if row.node:
            placed += 1
            continue
        waiting = _waiting(row, causes.get(row.uid, {}))
        groups.setdefault((waiting.reason, waiting.domains), []).append(waiting)
    shown = [_group(reason, domains, found) for (reason, domains), found in groups.items()]
    shown.sort(key=lambda group: (-_number(group["priority"]), _number(group["oldestMs"])))
    return {
        "placed": placed,
        "pending": sum(len(found) for found in groups.values()),
        "groups": shown,
        "plans": [_plan_row(plan) for plan in newest[:SHOWN_PLANS]],
    }


def _causes(plan: JsonObject) -> dict[str, JsonObject]:
    entries = _mapping(plan, "spec").get("pending")
    found = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    return {str(entry.get("podUid", "")): entry for entry in found}


def _waiting(row: PodRow, entry: JsonObject) -> _Waiting:
    if row.problem:
        return _Waiting(row, "Unreadable", row.problem, ())
    otherwise = "WaitingForPlan" if row.gated else "WaitingForBinder"
    domains = entry.get("powerDomains")
    return _Waiting(
        row,
        str(entry.get("reason") or otherwise),
        in_kilowatts(str(entry.get("message") or "")),
        tuple(map(str, domains)) if isinstance(domains, list) else (),
    )


def _group(reason: str, domains: tuple[str, ...], found: list[_Waiting]) -> dict[str, object]:
    found.sort(key=lambda w: (-w.row.priority, w.row.created_ms, w.row.namespace, w.row.name))
    words, remedy = CAUSES.get(reason, (reason, ""))
    return {
        "reason": reason,
        "words": words,
        "remedy": remedy,
        "domains": list(domains),
        "count": len(found),
        "gpus": sum(w.row.gpus for w in found),
        "priority": max(w.row.priority for w in found),
        "oldestMs": min(w.row.created_ms for w in found),
        "message": found[0].message,
        "pods": [
            {
                "name": f"{w.row.namespace}/{w.row.name}",
                "gpus": w.row.gpus,
                "priorityClass": w.row.priority_class,
                "priority": w.row.priority,
                "createdMs": w.row.created_ms,
                "message": w.message,
            }
            for w in found[:SHOWN_PODS]
        ],
    }


def _plan_row(plan: JsonObject) -> dict[str, object]:
    spec, status = _mapping(plan, "spec"), _mapping(plan, "status")
    return {
        "name": str(_mapping(plan, "metadata").get("name", "")),
        "pods": _length(spec.get("promises")),
        "pending": _length(spec.get("pending")),
        "moves": spec.get("moves", 0),
        "gap": spec.get("gap"),
        "method": str(spec.get("method") or ""),
        "state": str(status.get("state") or ""),
        "headroom": _tightest(_mapping(status, "headroom")),
        "createdAt": str(spec.get("createdAt") or ""),
    }


def _tightest(headroom: JsonObject) -> dict[str, object] | None:
    """The domain with the fewest watts left for pods, None if the plan does not say."""
    listed = headroom.get("domains")
    first = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(first, dict):
        return None
    watts = {key: _number(first.get(key)) for key in ("limitWatts", "countedWatts", "freeWatts")}
    return {"domain": str(first.get("name", "")), **watts}


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def _mapping(body: JsonObject, key: str) -> JsonObject:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _milliseconds(stamp: object) -> int:
    try:
        return round(parse_rfc3339(str(stamp)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
