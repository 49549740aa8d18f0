"""Which pods must start together, and how many of them there will be.

Size is what the owner declares, including members that do not exist yet, because some owners
(leader-first start) create the others only once the first one runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattpack.errors import InputError
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION

_LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
_LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOB_LABEL = "batch.kubernetes.io/job-name"
_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
MAX_GANG_SIZE = 100_000


@dataclass(frozen=True, slots=True)
class GangRef:
    """A pod's gang. ``size`` is None where only an object that we could not read knows it."""

    id: str
    size: int | None


@dataclass(frozen=True, slots=True)
class GangSources:
    """Declared sizes from owners, by ``namespace/name``."""

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
    if own := labels.get(GANG_LABEL):
        text = annotations.get(GANG_SIZE_ANNOTATION)
        own_size = _whole(f"metadata.annotations.{GANG_SIZE_ANNOTATION}", text)
        return GangRef(f"{space}/gang/{own}", own_size)
    if (name := labels.get(_LWS_NAME)) and _LWS_GROUP in labels:
        group_id = f"{space}/lws/{name}-{labels[_LWS_GROUP]}"
        stated = annotations.get(_LWS_SIZE)
        field = f"metadata.annotations.{_LWS_SIZE}"
        return GangRef(group_id, None if stated is None else _whole(field, stated))
    if jobset := labels.get(JOBSET_LABEL):
        return GangRef(f"{space}/jobset/{jobset}", sources.jobsets.get(f"{space}/{jobset}"))
    if group := labels.get(COSCHEDULING_LABEL):
        return GangRef(f"{space}/podgroup/{group}", sources.pod_groups.get(f"{space}/{group}"))
    if (job := labels.get(JOB_LABEL)) and (_JOB_INDEX in labels or _JOB_INDEX in annotations):
        size = sources.jobs.get(f"{space}/{job}")
        return GangRef(f"{space}/job/{job}", size) if size is None or size > 1 else None
    return None


def job_gang_size(job: Mapping[str, Any]) -> int | None:
    """Members of an Indexed Job that run together; None for any other Job."""
    spec = job.get("spec") or {}
    if spec.get("completionMode") != "Indexed":
        return None
    return min(int(spec.get("parallelism", 1)), int(spec.get("completions", 1)))


def jobset_gang_size(jobset: Mapping[str, Any]) -> int:
    """Members of all replicated jobs of a JobSet together."""
    total = 0
    for group in (jobset.get("spec") or {}).get("replicatedJobs") or ():
        job = (group.get("template") or {}).get("spec") or {}
        total += int(group.get("replicas", 1)) * int(job.get("parallelism", 1))
    return total


def pod_group_size(group: Mapping[str, Any]) -> int | None:
    """``minMember`` of a coscheduling PodGroup."""
    size = (group.get("spec") or {}).get("minMember")
    return None if size is None else int(size)


def _whole(field: str, text: object) -> int:
    digits = str(text)
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits) <= MAX_GANG_SIZE):
        raise InputError(field, f"a whole number from 1 to {MAX_GANG_SIZE}", text)
    return int(digits)
