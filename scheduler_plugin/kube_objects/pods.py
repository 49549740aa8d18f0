"""Facts about a pod as the API server shows it: managed, gated, pinned, bare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wattpack.errors import InputError
from wattpack.gang_sources import Marks, is_placed_by_kueue
from wattpack.gpu_resources import GpuDemand, gpu_demand
from wattpack.kube.port import JsonObject
from wattpack.object_names import (
    CONSUMED_REQUEST_ANNOTATIONS,
    CPU_CLASSES_ANNOTATION,
    DEFAULT_SCHEDULER,
    EXPECTED_WATTS_ANNOTATION,
    GATE,
    GPU_MODELS_ANNOTATION,
    NIC_CLASSES_ANNOTATION,
    OWN_REQUEST_PREFIX,
    PROVISIONING_CLASS_ANNOTATION,
)
from wattpack.pod_binding import is_finished as is_finished
from wattpack.pod_owner import owner_of
from wattpack.quantities import pod_requests
from wattpack.times import parse_rfc3339

_MIRROR = "kubernetes.io/config.mirror"
#: A weight that outvotes all of kube-scheduler's own preferences together.
_PREFERRED_WEIGHT = 100
#: A speed of a GPU type beyond this is no measurement.
_FASTEST = 1e9
#: More names than there are models of GPUs.
_MOST_NAMES = 100


def uid(pod: Mapping[str, Any]) -> str:
    """``metadata.uid``."""
    return str(pod["metadata"]["uid"])


def created_seconds(body: JsonObject) -> float | None:
    """When it was created, Unix time; None where that cannot be read."""
    try:
        return parse_rfc3339(str(body["metadata"].get("creationTimestamp"))).timestamp()
    except ValueError:
        return None


def namespace(body: Mapping[str, Any]) -> str:
    """Of a pod, or of any other object that has one."""
    return str(body["metadata"].get("namespace", "default"))


def key(pod: Mapping[str, Any]) -> str:
    """``namespace/name``."""
    return f"{namespace(pod)}/{pod['metadata']['name']}"


def node_name(pod: Mapping[str, Any]) -> str:
    """The node that the pod is bound to, or empty."""
    return str(pod["spec"].get("nodeName") or "")


def gates(pod: Mapping[str, Any]) -> list[str]:
    """Names of all scheduling gates."""
    return [str(gate["name"]) for gate in pod["spec"].get("schedulingGates") or ()]


def is_gated(pod: Mapping[str, Any]) -> bool:
    """Our gate holds the pod."""
    return GATE in gates(pod)


def is_bare(pod: Mapping[str, Any]) -> bool:
    """Nobody would create the pod again, so it must never depend on one node."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return not any(owner.get("controller") for owner in owners)


def owner_key(pod: Mapping[str, Any]) -> str:
    """What survives the pod's replacement: its controller's uid, or its own."""
    return owner_of(pod).uid


def belongs_to_job(pod: Mapping[str, Any]) -> bool:
    """Its controller is a Job, which counts every deleted pod as a failure."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") == "Job" for owner in owners)


def unmanaged_reason(pod: Mapping[str, Any]) -> str:
    """Why placement leaves the pod alone; empty if it does not."""
    spec, metadata = pod["spec"], pod["metadata"]
    if spec.get("nodeName"):
        return "it already has a node"
    if _MIRROR in (metadata.get("annotations") or {}):
        return "it is a mirror pod"
    if any(o.get("kind") == "DaemonSet" for o in metadata.get("ownerReferences") or ()):
        return "it belongs to a DaemonSet"
    if spec.get("schedulerName", DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
        return "another scheduler places it"
    if is_placed_by_kueue(Marks.of(pod)):
        return "Kueue's topology-aware scheduling places it"
    return "" if may_ask_for_gpus(pod) else "it asks for no GPU"


def may_ask_for_gpus(pod: Mapping[str, Any]) -> bool:
    """The pod asks for boards, parts of boards, or claims devices that may be either.

    Raises:
        InputError: naming the resource that cannot be read.
    """
    demand = gpus(pod)
    return demand.present or bool(demand.claims)


def gpus(pod: Mapping[str, Any]) -> GpuDemand:
    """The GPUs that the pod asks for.

    Raises:
        InputError: naming the resource that cannot be read.
    """
    return gpu_demand(pod_requests(pod), pod["spec"].get("resourceClaims") or ())


def gpu_models(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Allowed GPU models from the annotation, separated by commas."""
    return _names(pod, GPU_MODELS_ANNOTATION)


def cpu_classes(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Allowed classes of CPU, likewise."""
    return _names(pod, CPU_CLASSES_ANNOTATION)


def nic_classes(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Allowed classes of NIC, likewise."""
    return _names(pod, NIC_CLASSES_ANNOTATION)


def gpu_model_values(pod: Mapping[str, Any]) -> dict[str, int]:
    """Measured speeds that the annotation gives its models, thousandths of the fastest of them.

    Empty unless each model has one.

    Raises:
        InputError: for a speed that is none, or models of which some have one.
    """
    return _speeds(pod, GPU_MODELS_ANNOTATION)


def cpu_class_values(pod: Mapping[str, Any]) -> dict[str, int]:
    """The same of classes of CPU.

    Raises:
        InputError: as for models.
    """
    return _speeds(pod, CPU_CLASSES_ANNOTATION)


def _names(pod: Mapping[str, Any], annotation: str) -> tuple[str, ...]:
    return tuple(sorted(name for name, _ in _named(pod, annotation)))


def _speeds(pod: Mapping[str, Any], annotation: str) -> dict[str, int]:
    named = _named(pod, annotation)
    if not any(speed for _, speed in named):
        return {}
    speeds = {name: _speed(text, annotation) for name, text in named}
    fastest = max(speeds.values())
    return {name: math.ceil(1000.0 * speed / fastest) for name, speed in speeds.items()}


def _named(pod: Mapping[str, Any], annotation: str) -> list[tuple[str, str]]:
    text = str((pod["metadata"].get("annotations") or {}).get(annotation, ""))
    parts = (part.partition("=") for part in text.split(","))
    named = [(name.strip(), speed.strip()) for name, _, speed in parts if name.strip()]
    if len(named) > _MOST_NAMES:
        field = f"metadata.annotations.{annotation}"
        raise InputError(field, f"at most {_MOST_NAMES} names", f"{len(named)} names")
    return named


def _speed(text: str, annotation: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0.0 < speed <= _FASTEST:
        field = f"metadata.annotations.{annotation}"
        expected = "names alone, or a speed above 0 behind each: A=1.0,B=0.4"
        raise InputError(field, expected, text)
    return speed


def expected_watts_per_gpu(pod: Mapping[str, Any]) -> int | None:
    """Declared draw of one GPU above idle, AC watts.

    Raises:
        InputError: unless it is a whole number of watts up to 10,000.
    """
    text = (pod["metadata"].get("annotations") or {}).get(EXPECTED_WATTS_ANNOTATION)
    if text is None:
        return None
    digits = str(text)
    # Python refuses to convert very long texts with an error of its own.
    short = digits.isascii() and digits.isdigit() and len(digits) <= 20
    if not (short and int(digits) <= 10_000):
        field = f"metadata.annotations.{EXPECTED_WATTS_ANNOTATION}"
        raise InputError(field, "whole watts of one GPU, 0 to 10000", text)
    return int(digits)


def pinned_node(pod: Mapping[str, Any]) -> str:
    """The one node that our pin names, required or preferred; empty without a pin."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity")) or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    names = [_node_named(t) for t in required.get("nodeSelectorTerms") or () if _matches_any(t)]
    if names and all(names) and len(set(names)) == 1:
        return names[0]
    for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        if preferred.get("weight") == _PREFERRED_WEIGHT and (
            name := _node_named(preferred.get("preference") or {})
        ):
            return name
    return ""


def _matches_any(term: Mapping[str, Any]) -> bool:
    """An empty term matches no node, and the API server lets nobody add to it."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _node_named(term: Mapping[str, Any]) -> str:
    for rule in term.get("matchFields") or ():
        values = list(rule.get("values") or [])
        if rule.get("key") == "metadata.name" and rule.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""


def no_node_condition(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The condition in which kube-scheduler says that no node takes the pod, if it says so."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        refused = (condition.get("type"), condition.get("status")) == ("PodScheduled", "False")
        if refused and condition.get("reason") == "Unschedulable":
            return dict(condition)
    return None


def without_a_node_seconds(pod: Mapping[str, Any], wall_seconds: float) -> float:
    """For how long kube-scheduler has found no node for the pod; 0 where nobody says so."""
    condition = no_node_condition(pod)
    if condition is None:
        return 0.0
    try:
        since = parse_rfc3339(str(condition.get("lastTransitionTime"))).timestamp()
    except ValueError:
        return 0.0
    return max(0.0, wall_seconds - since)


def release_patch(pod: Mapping[str, Any], node: str = "") -> list[JsonObject]:
    """One JSON Patch that takes away our gate and, with a node, pins the pod to it.

    Without one the pod names no ProvisioningRequest of ours any more: the cluster autoscaler brings
    no node for a pod that names one.

    A pin is added to every required term, because terms are alternatives. A bare pod only prefers
    the node: a required pin cannot be loosened, and nobody would create the pod again.

    Raises:
        InputError: if the pod does not carry our gate.
    """
    names = gates(pod)
    if GATE not in names:
        raise InputError("spec.schedulingGates", f"the gate {GATE}", names, key(pod))
    position = names.index(GATE)
    metadata = pod["metadata"]
    path = f"/spec/schedulingGates/{position}"
    operations: list[JsonObject] = [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "test", "path": f"{path}/name", "value": GATE},
        {"op": "remove", "path": path},
    ]
    return operations + (_pin(pod, node) if node else _unmarked(pod))


def _unmarked(pod: Mapping[str, Any]) -> list[JsonObject]:
    marks = pod["metadata"].get("annotations") or {}
    consumed = CONSUMED_REQUEST_ANNOTATIONS[0]
    if not str(marks.get(consumed, "")).startswith(OWN_REQUEST_PREFIX):
        return []
    ours = [key for key in (consumed, PROVISIONING_CLASS_ANNOTATION) if key in marks]
    paths = [f"/metadata/annotations/{key.replace('/', '~1')}" for key in ours]
    return [{"op": "remove", "path": path} for path in paths]


def _pin(pod: Mapping[str, Any], node: str) -> list[JsonObject]:
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    addition: Any = {"weight": _PREFERRED_WEIGHT, "preference": {"matchFields": [rule]}}
    if not is_bare(pod):
        kind = "requiredDuringSchedulingIgnoredDuringExecution"
        addition = {"nodeSelectorTerms": [{"matchFields": [rule]}]}
    whole = [addition] if is_bare(pod) else addition
    affinity = pod["spec"].get("affinity")
    if not affinity:
        value = {"nodeAffinity": {kind: whole}}
        return [{"op": "add", "path": "/spec/affinity", "value": value}]
    node_affinity = affinity.get("nodeAffinity")
    if not node_affinity:
        return [{"op": "add", "path": "/spec/affinity/nodeAffinity", "value": {kind: whole}}]
    base = f"/spec/affinity/nodeAffinity/{kind}"
    present = node_affinity.get(kind)
    if not present:
        return [{"op": "add", "path": base, "value": whole}]
    if is_bare(pod):
        return [{"op": "add", "path": f"{base}/-", "value": addition}]
    operations: list[JsonObject] = []
    for i, term in enumerate(present["nodeSelectorTerms"]):
        if not _matches_any(term):
            continue
        fields = f"{base}/nodeSelectorTerms/{i}/matchFields"
        if term.get("matchFields"):
            operations.append({"op": "add", "path": f"{fields}/-", "value": rule})
        else:
            operations.append({"op": "add", "path": fields, "value": [rule]})
    return operations
