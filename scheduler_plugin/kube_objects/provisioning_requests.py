"""ProvisioningRequests of ours: what they say, and how one is written for pods. Pure.

Source: ``autoscaling.x-k8s.io/v1`` ProvisioningRequest of the cluster autoscaler: an immutable spec
of ``podSets`` that name PodTemplates, and conditions ``Accepted``, ``Provisioned``, ``Failed``,
``BookingExpired`` and ``CapacityRevoked``. The autoscaler brings no other node for a pod that names
a request, whatever became of it: who is let go must name none.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.gang_sizes import ODD_SHAPES
from wattpack.kube.port import JsonObject
from wattpack.object_names import (
    CONSUMED_REQUEST_ANNOTATIONS,
    OWN_REQUEST_PREFIX,
    PROVISIONING_CLASS_ANNOTATION,
)
from wattpack.pod_owner import owner_of
from wattpack.times import parse_rfc3339

__all__ = [
    "MANAGED_BY",
    "Demand",
    "OwnRequest",
    "Stage",
    "mark_patch",
    "named_request",
    "own_requests",
    "pod_templates",
    "request_body",
]

log = logging.getLogger(__name__)
MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "wattpack"}
#: As the kind's schema limits ``podSets``.
_MOST_POD_SETS: Final = 32
#: Owners that a request is collected with: one that lives keeps it.
_MOST_OWNERS: Final = 16
#: What decides where a pod may go; names of token volumes and the like differ by pod and do not.
_POD_FIELDS: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "preemptionPolicy",
    "runtimeClassName",
    "overhead",
    "resources",
    "resourceClaims",
    "schedulerName",
    "hostNetwork",
    "os",
)
#: Labels of one member alone.
_MEMBER_LABELS: Final = frozenset(
    [
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "statefulset.kubernetes.io/pod-name",
    ]
)


class Stage(StrEnum):
    """How far a request is; the values are as Events say it."""

    WAITS = "waits for capacity"
    PROVISIONED = "is provisioned"
    FAILED = "failed"
    EXPIRED = "was provisioned, and the booking has expired"
    REVOKED = "was provisioned, and the capacity was revoked"

    @property
    def has_ended(self) -> bool:
        """It brings nothing any more."""
        return self in (Stage.FAILED, Stage.EXPIRED, Stage.REVOKED)


#: The first of these conditions that is true counts: a request that failed keeps ``Provisioned``.
_STAGES: Final = {
    "Failed": Stage.FAILED,
    "CapacityRevoked": Stage.REVOKED,
    "BookingExpired": Stage.EXPIRED,
    "Provisioned": Stage.PROVISIONED,
}


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """One request of ours.

    Attributes:
        stage: How far it is.
        message: What the autoscaler says about that.
        created_seconds: Unix time of its creation.
        since_seconds: Unix time from which it is in this stage.
        owners: Uids of whom it is collected with.
    """

    namespace: str
    name: str
    uid: str
    stage: Stage
    message: str
    created_seconds: float
    since_seconds: float
    owners: frozenset[str]


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods at our gate that are asked for together: a gang's, or one.

    Attributes:
        key: The gang's id, or the pod's uid.
        pods: Those that exist, at least one.
        missing: Members that are still to come.
        is_gang: Whether they are a gang's.
    """

    key: str
    pods: tuple[JsonObject, ...]
    missing: int = 0
    is_gang: bool = False

    @property
    def namespace(self) -> str:
        """Of all of its pods."""
        return pod_facts.namespace(self.pods[0])

    @property
    def request_name(self) -> str:
        """The same for whoever asks, whenever: a second request for them is refused as a copy."""
        return OWN_REQUEST_PREFIX + hashlib.sha256(self.key.encode()).hexdigest()[:20]

    @property
    def owners(self) -> list[JsonObject]:
        """References to what goes when the work goes: a gang's controllers, or the pod itself.

        No more than an object should carry; the others are collected later.
        """
        return [self._all_owners[uid] for uid in sorted(self._all_owners)[:_MOST_OWNERS]]

    @property
    def owner_uids(self) -> frozenset[str]:
        """Of all of them: more members may be there than when somebody asked."""
        return frozenset(self._all_owners)

    @property
    def _all_owners(self) -> dict[str, JsonObject]:
        found: dict[str, JsonObject] = {}
        for pod in self.pods:
            metadata, owner = pod["metadata"], owner_of(pod)
            if self.is_gang and not pod_facts.is_bare(pod):
                found[owner.uid] = _reference(owner.api_version, owner.kind, owner.name, owner.uid)
            else:
                uid = str(metadata["uid"])
                found[uid] = _reference("v1", "Pod", metadata["name"], uid)
        return found


def _reference(api_version: str, kind: str, name: str, uid: str) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "name": str(name), "uid": str(uid)}


def own_requests(bodies: Iterable[JsonObject]) -> list[OwnRequest]:
    """Those of ours; one that cannot be read is left out."""
    found: list[OwnRequest] = []
    for body in bodies:
        try:
            metadata = body["metadata"]
            managed = MANAGED_BY.items() <= (metadata.get("labels") or {}).items()
            if managed and str(metadata["name"]).startswith(OWN_REQUEST_PREFIX):
                found.append(_own(body))
        except (*ODD_SHAPES, ValueError) as error:
            log.warning("a ProvisioningRequest is not read: %r", error)
    return found


def _own(body: JsonObject) -> OwnRequest:
    metadata, conditions = body["metadata"], (body.get("status") or {}).get("conditions") or ()
    true = {str(c.get("type")): c for c in conditions if c.get("status") == "True"}
    told = next((name for name in _STAGES if name in true), "")
    created_seconds = _seconds(metadata.get("creationTimestamp"), 0.0)
    says: Mapping[str, Any] = true.get(told) or next(
        (c for c in conditions if c.get("type") in ("Provisioned", "Accepted")), {}
    )
    return OwnRequest(
        pod_facts.namespace(body),
        str(metadata["name"]),
        str(metadata.get("uid", "")),
        _STAGES[told] if told else Stage.WAITS,
        str(says.get("message") or says.get("reason") or ""),
        created_seconds,
        _seconds(says.get("lastTransitionTime"), created_seconds) if told else created_seconds,
        frozenset(str(owner["uid"]) for owner in metadata.get("ownerReferences") or ()),
    )


def _seconds(text: object, otherwise: float) -> float:
    return parse_rfc3339(str(text)).timestamp() if text else otherwise


def named_request(pod: Mapping[str, Any]) -> str:
    """The request whose capacity the pod is to use; empty without one."""
    marks = pod["metadata"].get("annotations") or {}
    return next((str(marks[key]) for key in CONSUMED_REQUEST_ANNOTATIONS if key in marks), "")


def mark_patch(pod: Mapping[str, Any], request: str, class_name: str) -> list[JsonObject]:
    """A JSON Patch by which the pod names its request, as long as the pod is as it was read."""
    metadata = pod["metadata"]
    marks = {CONSUMED_REQUEST_ANNOTATIONS[0]: request, PROVISIONING_CLASS_ANNOTATION: class_name}
    tests = [
        {"op": "test", "path": f"/metadata/{name}", "value": metadata[name]}
        for name in ("uid", "resourceVersion")
    ]
    if not metadata.get("annotations"):
        return [*tests, {"op": "add", "path": "/metadata/annotations", "value": marks}]
    return [
        *tests,
        *(
            {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
            for key, value in marks.items()
        ),
    ]


def pod_templates(demand: Demand) -> list[tuple[JsonObject, int]]:
    """PodTemplates of the demand, and how many pods each stands for; alike pods share one.

    Members that do not exist yet count as the most frequent of those that do.

    Raises:
        InputError: for more unlike pods than one request may ask for.
    """
    bodies: dict[str, JsonObject] = {}
    counts: Counter[str] = Counter()
    for pod in demand.pods:
        template = _template(pod)
        text = json.dumps(template, sort_keys=True)
        name = f"{demand.request_name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        bodies[name] = template
        counts[name] += 1
    if len(bodies) > _MOST_POD_SETS:
        raise InputError("podSets", f"at most {_MOST_POD_SETS} unlike pods", len(bodies))
    most = max(sorted(counts), key=lambda name: counts[name])
    counts[most] += demand.missing
    return [
        (
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": _metadata(demand, name),
                "template": bodies[name],
            },
            counts[name],
        )
        for name in sorted(bodies)
    ]


def request_body(
    demand: Demand, api_version: str, class_name: str, templates: Sequence[tuple[JsonObject, int]]
) -> JsonObject:
    """The request for as many pods of each template."""
    pod_sets = [
        {"podTemplateRef": {"name": body["metadata"]["name"]}, "count": count}
        for body, count in templates
    ]
    return {
        "apiVersion": api_version,
        "kind": "ProvisioningRequest",
        "metadata": _metadata(demand, demand.request_name),
        "spec": {"provisioningClassName": class_name, "podSets": pod_sets},
    }


def _metadata(demand: Demand, name: str) -> JsonObject:
    where = {"name": name, "namespace": demand.namespace}
    return {**where, "labels": dict(MANAGED_BY), "ownerReferences": demand.owners}


def _template(pod: Mapping[str, Any]) -> JsonObject:
    """What of a pod says which nodes can take it, as far as an autoscaler may know it."""
    spec = pod["spec"]
    labels = pod["metadata"].get("labels") or {}
    kept: JsonObject = {name: spec[name] for name in _POD_FIELDS if spec.get(name)}
    kept["containers"] = [_container(c) for c in spec.get("containers") or ()]
    if spec.get("initContainers"):
        kept["initContainers"] = [_container(c) for c in spec["initContainers"]]
    # Claims of ephemeral volumes carry the pod's name: nobody would ever make the template's.
    volumes = [v for v in spec.get("volumes") or () if v.get("persistentVolumeClaim")]
    if volumes:
        kept["volumes"] = volumes
    shared = {key: value for key, value in labels.items() if key not in _MEMBER_LABELS}
    return {"metadata": {"labels": shared}, "spec": kept}


def _container(container: Mapping[str, Any]) -> JsonObject:
    fields = ("name", "image", "resources", "restartPolicy")
    kept: JsonObject = {name: container[name] for name in fields if container.get(name)}
    if ports := [port for port in container.get("ports") or () if port.get("hostPort")]:
        kept["ports"] = ports
    return kept
