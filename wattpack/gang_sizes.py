"""How many members a gang has, as the object that owns it says. Pure.

Sizes that are counted from templates (Jobs, JobSets, RayClusters, Kueue's Workloads) count members
that ask for GPUs, parts of them or claims; a number that somebody wrote down counts everybody who
carries the mark.

Sources: ``batch/v1``; ``jobset.x-k8s.io/v1alpha2``; ``scheduling.x-k8s.io/v1alpha1`` of
coscheduling; ``scheduling.volcano.sh/v1beta1``; ``ray.io/v1`` (KubeRay 1.x);
``kueue.x-k8s.io/v1beta1``, whose fields that are read here ``v1beta2`` keeps;
``scheduling.k8s.io`` of Kubernetes 1.35 to 1.37.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wattpack.errors import InputError
from wattpack.gpu_resources import gpu_demand
from wattpack.quantities import pod_requests

__all__ = [
    "JOBSET_LABEL",
    "MAX_GANG_SIZE",
    "ODD_SHAPES",
    "GangSize",
    "Topology",
    "coscheduling_size",
    "declared_size",
    "job_gang_size",
    "jobset_gang_size",
    "kueue_workload_size",
    "native_group_size",
    "native_workload_sizes",
    "ray_cluster_size",
    "volcano_size",
]

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
MAX_GANG_SIZE = 100_000
ODD_SHAPES = (AttributeError, KeyError, TypeError, ValueError)
"""What reading raises where a list, a text or a number stands for an object. Whoever installed the
kind said what its fields may hold: other versions of it, or none, may let anything pass."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Members should be in one domain: nodes with the same value of a label.

    Attributes:
        key: The label.
        required: Whether the gang waits where no domain holds all of it.
    """

    key: str
    required: bool


@dataclass(frozen=True, slots=True)
class GangSize:
    """Members that start together or not at all, and how many there may be.

    Attributes:
        least: Start together; 0 for pods that need not wait for one another.
        most: Of an elastic gang; None for whoever carries its mark.
        is_elastic: Members beyond ``least`` come one by one, as room allows. Otherwise all belong
            together.
    """

    least: int
    most: int | None = None
    is_elastic: bool = False
    topology: Topology | None = None


def declared_size(field: str, text: object) -> GangSize:
    """``4``, or ``4-8`` for an elastic gang.

    Raises:
        InputError: if it is neither, or the range is empty.
    """
    least, dash, most = str(text).partition("-")
    if not dash:
        return GangSize(_whole(field, text, least))
    size = GangSize(_whole(field, text, least), _whole(field, text, most), is_elastic=True)
    if size.most is not None and size.least > size.most:
        raise InputError(field, "a range from the least to the most", text)
    return size


def job_gang_size(job: Mapping[str, Any]) -> int:
    """Members of a Job that still run together and ask for GPUs; finished indexes are none.

    Raises:
        InputError: if the Job's numbers are none.
    """
    spec, status = job.get("spec") or {}, job.get("status") or {}
    together = _job_members(spec)
    if spec.get("completions") is None or not together:
        return together
    return min(together, max(0, _number(spec, "completions", 1) - _number(status, "succeeded", 0)))


def jobset_gang_size(jobset: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]]) -> int:
    """Members of all replicated jobs of a JobSet that still run together and ask for GPUs.

    Args:
        jobset: The JobSet.
        jobs: Those of its namespace; Jobs that it has yet to create count as it declares them.

    Raises:
        InputError: if the numbers of one of them are none.
    """
    name = jobset["metadata"]["name"]
    made: dict[str, list[int]] = defaultdict(list)
    for job in jobs:
        labels = job["metadata"].get("labels") or {}
        if labels.get(JOBSET_LABEL) == name:
            made[str(labels.get(_REPLICATED_JOB))].append(job_gang_size(job))
    total = 0
    for group in (jobset.get("spec") or {}).get("replicatedJobs") or ():
        declared = _job_members((group.get("template") or {}).get("spec") or {})
        sizes = made[str(group.get("name"))]
        missing = max(0, _number(group, "replicas", 1) - len(sizes))
        total += sum(sizes) + missing * declared
    return total


def coscheduling_size(group: Mapping[str, Any]) -> GangSize | None:
    """``minMember`` of a coscheduling PodGroup; whoever else carries its label may follow.

    Raises:
        InputError: if it is no number.
    """
    spec = group.get("spec") or {}
    if spec.get("minMember") is None:
        return None
    return GangSize(_number(spec, "minMember", 1), is_elastic=True)


def volcano_size(group: Mapping[str, Any]) -> GangSize | None:
    """``minMember`` of a Volcano PodGroup.

    Its ``networkTopology`` counts tiers of HyperNodes, which are no labels of nodes: not read.

    Raises:
        InputError: if it is no number.
    """
    return coscheduling_size(group)


def ray_cluster_size(cluster: Mapping[str, Any]) -> GangSize:
    """Head and worker groups of a RayCluster: with its autoscaler from min to max, else as asked.

    Raises:
        InputError: if a group's numbers are none.
    """
    spec = cluster.get("spec") or {}
    scales = bool(spec.get("enableInTreeAutoscaling"))
    least = most = int(_asks_for_gpus((spec.get("headGroupSpec") or {}).get("template")))
    for group in spec.get("workerGroupSpecs") or ():
        if group.get("suspend") or not _asks_for_gpus(group.get("template")):
            continue
        hosts = _number(group, "numOfHosts", 1)
        now = _number(group, "replicas", _number(group, "minReplicas", 0))
        least += hosts * (_number(group, "minReplicas", 0) if scales else now)
        most += hosts * (_number(group, "maxReplicas", now) if scales else now)
    return GangSize(least, max(least, most), is_elastic=most > least)


def kueue_workload_size(workload: Mapping[str, Any]) -> GangSize:
    """Pods that ask for GPUs over all pod sets, by the counts that were admitted, less reclaimed.

    Raises:
        InputError: if a count is none.
    """
    status = workload.get("status") or {}
    admission = status.get("admission") or {}
    admitted = {a.get("name"): a for a in admission.get("podSetAssignments") or ()}
    finished = {r.get("name"): r for r in status.get("reclaimablePods") or ()}
    total, topology = 0, None
    for pod_set in (workload.get("spec") or {}).get("podSets") or ():
        if not _asks_for_gpus(pod_set.get("template")):
            continue
        name = pod_set.get("name", "main")
        count = _number(admitted.get(name) or {}, "count", _number(pod_set, "count", 1))
        total += max(0, count - _number(finished.get(name) or {}, "count", 0))
        topology = topology or _kueue_topology(pod_set.get("topologyRequest") or {})
    return GangSize(total, topology=topology)


def native_group_size(group: Mapping[str, Any]) -> GangSize:
    """``minCount`` of a PodGroup of ``scheduling.k8s.io``; 0 for the policy ``basic``.

    Raises:
        InputError: if it is no number.
    """
    spec = group.get("spec") or {}
    rules = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    keys = [str(rule["key"]) for rule in rules if rule.get("key")]
    topology = Topology(keys[0], required=True) if keys else None
    return _native(spec.get("schedulingPolicy") or {}, topology)


def native_workload_sizes(workload: Mapping[str, Any]) -> dict[str, GangSize]:
    """The same for each pod group in a Workload of Kubernetes 1.35, by its name.

    Raises:
        InputError: if a number is none.
    """
    groups = (workload.get("spec") or {}).get("podGroups") or ()
    return {str(g.get("name")): _native(g.get("policy") or {}, None) for g in groups}


def _native(policy: Mapping[str, Any], topology: Topology | None) -> GangSize:
    gang = policy.get("gang")
    least = 0 if gang is None else _number(gang, "minCount", 1)
    return GangSize(least, is_elastic=True, topology=topology)


def _kueue_topology(request: Mapping[str, Any]) -> Topology | None:
    for kind in ("required", "preferred"):
        if request.get(kind):
            return Topology(str(request[kind]), required=kind == "required")
    return None


def _asks_for_gpus(template: Mapping[str, Any] | None) -> bool:
    spec = (template or {}).get("spec") or {}
    demand = gpu_demand(pod_requests({"spec": spec}), spec.get("resourceClaims") or ())
    return demand.present or bool(demand.claims)


def _job_members(spec: Mapping[str, Any]) -> int:
    """Pods of a Job that run together, as declared; 0 if they ask for no GPU."""
    if not _asks_for_gpus(spec.get("template")):
        return 0
    parallelism = _number(spec, "parallelism", 1)
    return min(parallelism, _number(spec, "completions", parallelism))


def _number(body: Mapping[str, Any], field: str, default: int) -> int:
    value = body.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31 - 1:
        raise InputError(field, "a whole number that is not negative", value)
    return value


def _whole(field: str, text: object, digits: str) -> int:
    short = digits.isascii() and digits.isdigit() and len(digits) <= 20
    if not (short and 1 <= int(digits) <= MAX_GANG_SIZE):
        expected = f"a whole number from 1 to {MAX_GANG_SIZE}, or two of them as in 4-8"
        raise InputError(field, expected, text)
    return int(digits)
