"""Nodes that an autoscaler has asked for and that are not there yet. Pure.

Sources: ``karpenter.sh/v1`` NodeClaim, whose conditions become true as ``Launched``, ``Registered``
and ``Initialized``; ``autoscaling.x-k8s.io`` ProvisioningRequest of the cluster autoscaler, whose
capacity is booked for the pods that name it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.node_facts import is_ready
from scheduler_plugin.kube_objects.provisioning_requests import named_request
from wattpack.errors import InputError
from wattpack.gang_sizes import ODD_SHAPES
from wattpack.gpu_resources import GpuKind, board_count, gpu_kind
from wattpack.kube.port import JsonObject
from wattpack.quantities import resources

__all__ = ["UnderWay", "under_way"]

log = logging.getLogger(__name__)
_ENDED: Final = ("Failed", "BookingExpired", "CapacityRevoked")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What is to come.

    Attributes:
        nodes: As they will be, in the shape of Node objects, beside those whom they are for.
        requested: In words, by uid of pods at our gate, the request that brings nodes for them.
        requests: All ProvisioningRequests, as they were read.
    """

    nodes: tuple[JsonObject, ...] = ()
    requested: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[JsonObject, ...] = ()


def under_way(
    claims: Iterable[JsonObject],
    requests: Iterable[JsonObject],
    nodes: Iterable[JsonObject],
    pods: Iterable[JsonObject],
) -> UnderWay:
    """What is to come for pods at our gate.

    Args:
        claims: NodeClaims.
        requests: ProvisioningRequests.
        nodes: All nodes.
        pods: All pods.
    """
    everybody, asked = tuple(pods), tuple(requests)
    ready = {str(body["metadata"]["name"]) for body in nodes if is_ready(body)}
    coming: list[JsonObject] = []
    for claim in claims:
        try:
            coming += _node_of(claim, ready)
        except (InputError, *ODD_SHAPES) as error:
            log.warning("NodeClaim %s is not read: %r", claim["metadata"].get("name"), error)
    for boards in sorted(_asked_by_others(everybody), reverse=True):
        _take(coming, boards)
    return UnderWay(
        tuple(body for body in coming if board_count(body)), _named(asked, everybody), asked
    )


def _node_of(claim: JsonObject, ready: set[str]) -> Iterator[JsonObject]:
    """The node that a claim will be; nothing where it is there, or not launched yet.

    Raises:
        InputError: for boards that no quantity says.
    """
    metadata, spec, status = claim["metadata"], claim.get("spec") or {}, claim.get("status") or {}
    is_there = _says(status, "Initialized") or status.get("nodeName") in ready
    if metadata.get("deletionTimestamp") or is_there or not _says(status, "Launched"):
        return
    name = str(status.get("nodeName") or metadata["name"])
    labels = {
        str(rule["key"]): str(rule["values"][0])
        for rule in spec.get("requirements") or ()
        if rule.get("operator") == "In" and len(rule.get("values") or ()) == 1
    }
    labels |= {"kubernetes.io/hostname": name, **(metadata.get("labels") or {})}
    amounts = dict(status.get("allocatable") or {})
    boards = {name: text for name, text in amounts.items() if gpu_kind(name) is not None}
    counted = resources("status.allocatable", boards)
    yield {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(spec.get("taints") or ())},
        "status": {
            "allocatable": amounts | {name: str(counted[name]) for name in boards},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _says(status: Mapping[str, Any], condition: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)


def _asked_by_others(pods: Iterable[JsonObject]) -> Iterator[int]:
    """Boards of the pods that kube-scheduler has no node for: autoscalers bring nodes for them."""
    for pod in pods:
        waits = not (pod_facts.node_name(pod) or pod_facts.is_finished(pod))
        if waits and not pod_facts.gates(pod) and pod_facts.no_node_condition(pod) is not None:
            try:
                yield pod_facts.gpus(pod).whole
            except InputError:
                continue


def _take(coming: list[JsonObject], boards: int) -> None:
    """So many boards of the smallest node that has them are somebody's."""
    able = [body for body in coming if board_count(body) >= boards > 0]
    if able:
        allocatable = min(able, key=board_count)["status"]["allocatable"]
        for name in [name for name in allocatable if gpu_kind(name) is GpuKind.WHOLE]:
            allocatable[name] = str(max(0, int(allocatable[name]) - boards))


def _named(requests: Iterable[JsonObject], pods: Iterable[JsonObject]) -> dict[str, str]:
    known: dict[tuple[str, str], str] = {}
    for request in requests:
        try:
            known |= _told(request)
        except ODD_SHAPES as error:
            log.warning("a ProvisioningRequest is not read: %r", error)
    found: dict[str, str] = {}
    for pod in pods if known else ():
        text = known.get((pod_facts.namespace(pod), named_request(pod)))
        if text is not None and pod_facts.is_gated(pod):
            found[pod_facts.uid(pod)] = text
    return found


def _told(request: JsonObject) -> dict[tuple[str, str], str]:
    """What a request that has not ended says, by namespace and name."""
    status, name = request.get("status") or {}, str(request["metadata"]["name"])
    if any(_says(status, ended) for ended in _ENDED):
        return {}
    stage = "is provisioned" if _says(status, "Provisioned") else "waits for capacity"
    text = f"ProvisioningRequest {name} {stage} for it"
    return {(pod_facts.namespace(request), name): text}
