"""Which pods must start together, and how many of them there will be.

Size counts members that do not exist yet, because some owners (leader-first start) create the
others only once the first one runs. Members that have finished, and those that ask for no GPU and
so never wait for us, do not count. An Indexed Job is a gang only if its pods say so (the gang's
label): most of them are many independent pieces of work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wattpack.errors import InputError
from wattpack.gpu_resources import gpu_demand
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION
from wattpack.quantities import pod_requests

_LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
_LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOB_LABEL = "batch.kubernetes.io/job-name"
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
MAX_GANG_SIZE = 100_000


@dataclass(frozen=True, slots=True)
class GangRef:
    """A pod's gang.

    Attributes:
        size: Members; None where only an object that we could not read knows it.
        is_declared: Somebody wrote the size down once: it counts every member, also those that ask
            for no GPU and those that have finished. Otherwise it was counted from Jobs.
    """

    id: str
    size: int | None
    is_declared: bool = True


@dataclass(frozen=True, slots=True)
class GangSources:
    """Sizes from owners, by ``namespace/name``.

    Attributes:
        jobs: Members that still run together and ask for GPUs.
        jobsets: The same over all of a JobSet's Jobs.
        pod_groups: ``minMember``, as declared.
    """

    jobs: Mapping[str, int]
    jobsets: Mapping[str, int]
    pod_groups: Mapping[str, int]

    @classmethod
    def empty(cls) -> GangSources:
        """Only what pods themselves carry."""
        return cls({}, {}, {})


def gang_of(pod: Mapping[str, Any], sources: GangSources) -> GangRef | None:
    """The pod's gang, by the first source that names one; None for a single pod.

    Raises:
        InputError: if a declared size is not a whole number from 1 to 100,000.
    """
    metadata = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    space = str(metadata.get("namespace", "default"))
    job = labels.get(JOB_LABEL)
    if own := labels.get(GANG_LABEL):
        if job and GANG_SIZE_ANNOTATION not in annotations:
            return _counted(f"{space}/job/{job}", sources.jobs.get(f"{space}/{job}"))
        text = annotations.get(GANG_SIZE_ANNOTATION)
        own_size = _whole(f"metadata.annotations.{GANG_SIZE_ANNOTATION}", text)
        return GangRef(f"{space}/gang/{own}", own_size)
    if (name := labels.get(_LWS_NAME)) and _LWS_GROUP in labels:
        group_id = f"{space}/lws/{name}-{labels[_LWS_GROUP]}"
        stated = annotations.get(_LWS_SIZE)
        field = f"metadata.annotations.{_LWS_SIZE}"
        return GangRef(group_id, None if stated is None else _whole(field, stated))
    if jobset := labels.get(JOBSET_LABEL):
        return _counted(f"{space}/jobset/{jobset}", sources.jobsets.get(f"{space}/{jobset}"))
    if group := labels.get(COSCHEDULING_LABEL):
        return GangRef(f"{space}/podgroup/{group}", sources.pod_groups.get(f"{space}/{group}"))
    return None


def _counted(gang_id: str, size: int | None) -> GangRef | None:
    """One member is no gang."""
    return GangRef(gang_id, size, is_declared=False) if size is None or size > 1 else None


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


def pod_group_size(group: Mapping[str, Any]) -> int | None:
    """``minMember`` of a coscheduling PodGroup.

    Raises:
        InputError: if it is no number.
    """
    spec = group.get("spec") or {}
    return None if spec.get("minMember") is None else _number(spec, "minMember", 1)


def _job_members(spec: Mapping[str, Any]) -> int:
    """Pods of a Job that run together, as declared; 0 if they ask for no GPU."""
    template = (spec.get("template") or {}).get("spec") or {}
    if not gpu_demand(pod_requests({"spec": template})).whole:
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


def _whole(field: str, text: object) -> int:
    digits = str(text)
    short = digits.isascii() and digits.isdigit() and len(digits) <= 20
    if not (short and 1 <= int(digits) <= MAX_GANG_SIZE):
        raise InputError(field, f"a whole number from 1 to {MAX_GANG_SIZE}", text)
    return int(digits)
