"""The one table of gang sources: which mark makes a pod a member, which object knows more.

A row is a source; the first row whose mark a pod carries counts. An Indexed Job is a gang only if
its pods say so (our label): most of them are many independent pieces of work.

Sources of the names: the projects' own API packages, of the versions that ``kinds`` lists; for
KubeRay ``ray-operator/controllers/ray/utils/constant.go``, for Kueue
``pkg/controller/jobs/pod/constants`` and ``apis/kueue/v1beta1/topology_types.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from wattpack import gang_sizes
from wattpack.gang_sizes import JOBSET_LABEL, GangSize, Topology, declared_size
from wattpack.kube.port import JOBS, Resource
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION

__all__ = [
    "GANG_SOURCES",
    "KUEUE_WORKLOADS",
    "PREFERRED_TOPOLOGY_ANNOTATION",
    "REQUIRED_TOPOLOGY_ANNOTATION",
    "GangSource",
    "Marks",
    "Membership",
    "is_placed_by_kueue",
    "sources_of",
]

#: On the pods of any gang: a label of nodes whose value all members should share, or have to.
PREFERRED_TOPOLOGY_ANNOTATION = "wattpack.io/gang-preferred-topology"
REQUIRED_TOPOLOGY_ANNOTATION = "wattpack.io/gang-required-topology"
JOB_LABEL = "batch.kubernetes.io/job-name"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
_LWS = "leaderworkerset.sigs.k8s.io"
_KUEUE = "kueue.x-k8s.io"
_VOLCANO_GROUP = "scheduling.k8s.io/group-name"
_RAY_LABEL = "ray.io/cluster"
#: A pod with one of these gets its node from Kueue's topology-aware scheduling.
_TAS_MARKS = frozenset(
    f"{_KUEUE}/{mark}"
    for mark in (
        "tas",
        "podset-required-topology",
        "podset-preferred-topology",
        "podset-unconstrained-topology",
    )
)
_TAS_GATE = f"{_KUEUE}/topology"

Sizes = Mapping[str, GangSize | None]
"""By ``name``, in the owner's namespace."""


def _versions(group: str, versions: Iterable[str], plural: str, kind: str) -> tuple[Resource, ...]:
    return tuple(Resource(group, version, plural, kind, True) for version in versions)


KUEUE_WORKLOADS = _versions("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "workloads", "Workload")


class Marks(NamedTuple):
    """What a pod says of itself."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> Marks:
        """Of an object as the API server shows it, or as admission sees it."""
        metadata = pod["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        return cls(labels, annotations, pod.get("spec") or {})


class Membership(NamedTuple):
    """A pod's gang as its mark names it.

    Attributes:
        id: Behind the namespace, unique among all sources.
        owner: Name of the object that knows the size; empty where the pod says it.
        size: What the pod itself says.
    """

    id: str
    owner: str = ""
    size: GangSize | None = None


@dataclass(frozen=True, slots=True)
class GangSource:
    """One row.

    Attributes:
        name: For people and for ``GangSources``.
        marks: Labels, annotations or fields of the spec; a pod with none of them is no member.
        member: Whether a pod carries the mark, and of which gang.
        kinds: The object that knows the size, the newest version first; empty where pods do.
        sizes: By owner's name, from the object and the Jobs of its namespace.
        reads_jobs: Whether ``sizes`` needs Jobs.
        is_declared: Somebody wrote the size down: it counts every member, also those that ask for
            no GPU and those that have finished. Otherwise it is counted from templates.
    """

    name: str
    marks: frozenset[str]
    member: Callable[[Marks], Membership | None]
    kinds: tuple[Resource, ...] = ()
    sizes: Callable[[Mapping[str, Any], list[Mapping[str, Any]]], Sizes] | None = None
    reads_jobs: bool = False
    is_declared: bool = True


def is_placed_by_kueue(marks: Marks) -> bool:
    """Kueue's topology-aware scheduling gives the pod its node, so that nobody else may."""
    gates = {str(gate.get("name")) for gate in marks.spec.get("schedulingGates") or ()}
    return _TAS_GATE in gates or not _TAS_MARKS.isdisjoint({*marks.labels, *marks.annotations})


def _own(marks: Marks) -> Membership | None:
    name = marks.labels.get(GANG_LABEL)
    if not name or (marks.labels.get(JOB_LABEL) and GANG_SIZE_ANNOTATION not in marks.annotations):
        return None
    field = f"metadata.annotations.{GANG_SIZE_ANNOTATION}"
    size = declared_size(field, marks.annotations.get(GANG_SIZE_ANNOTATION))
    return Membership(f"gang/{name}", size=size)


def _job(marks: Marks) -> Membership | None:
    job = marks.labels.get(JOB_LABEL)
    return Membership(f"job/{job}", job) if job and marks.labels.get(GANG_LABEL) else None


def _leader_worker_set(marks: Marks) -> Membership | None:
    name, index = marks.labels.get(f"{_LWS}/name"), marks.labels.get(f"{_LWS}/group-index")
    if not name or index is None:
        return None
    stated = marks.annotations.get(f"{_LWS}/size")
    if stated is None:
        return Membership(f"lws/{name}-{index}")
    size = declared_size(f"metadata.annotations.{_LWS}/size", stated)
    key = marks.annotations.get(f"{_LWS}/exclusive-topology")
    topology = Topology(key, required=True) if key else None
    return Membership(f"lws/{name}-{index}", size=GangSize(size.least, topology=topology))


def _kueue(marks: Marks) -> Membership | None:
    if group := marks.labels.get(f"{_KUEUE}/pod-group-name"):
        field = f"metadata.annotations.{_KUEUE}/pod-group-total-count"
        stated = marks.annotations.get(f"{_KUEUE}/pod-group-total-count")
        size = None if stated is None else GangSize(declared_size(field, stated).least)
        return Membership(f"kueue/{group}", group, size)
    workload = marks.annotations.get(f"{_KUEUE}/workload")
    return Membership(f"kueue/{workload}", workload) if workload else None


def _jobset(marks: Marks) -> Membership | None:
    name = marks.labels.get(JOBSET_LABEL)
    return Membership(f"jobset/{name}", name) if name else None


def _native_group(marks: Marks) -> Membership | None:
    name = (marks.spec.get("schedulingGroup") or {}).get("podGroupName")
    return Membership(f"native/{name}", str(name)) if name else None


def _native_workload(marks: Marks) -> Membership | None:
    ref = marks.spec.get("workloadRef") or {}
    if not ref.get("name") or not ref.get("podGroup"):
        return None
    group = f"{ref['name']}/{ref['podGroup']}"
    replica = ref.get("podGroupReplicaKey")
    return Membership(f"native/{group}" + (f"/{replica}" if replica else ""), group)


def _coscheduling(marks: Marks) -> Membership | None:
    name = marks.labels.get(COSCHEDULING_LABEL)
    return Membership(f"podgroup/{name}", name) if name else None


def _volcano(marks: Marks) -> Membership | None:
    name = marks.annotations.get(_VOLCANO_GROUP)
    return Membership(f"volcano/{name}", name) if name else None


def _ray(marks: Marks) -> Membership | None:
    name = marks.labels.get(_RAY_LABEL)
    return Membership(f"ray/{name}", name) if name else None


_Reader = Callable[[Mapping[str, Any]], GangSize | None]


def _alone(
    read: _Reader,
) -> Callable[[Mapping[str, Any], list[Mapping[str, Any]]], Sizes]:
    """One object, one gang of its name."""
    return lambda body, jobs: {str(body["metadata"]["name"]): read(body)}


def _native_groups(body: Mapping[str, Any], jobs: list[Mapping[str, Any]]) -> Sizes:
    name = body["metadata"]["name"]
    sizes = gang_sizes.native_workload_sizes(body)
    return {f"{name}/{group}": size for group, size in sizes.items()}


GANG_SOURCES: tuple[GangSource, ...] = (
    GangSource("own label", frozenset({GANG_LABEL}), _own),
    GangSource(
        "Job with own label",
        frozenset({GANG_LABEL}),
        _job,
        (JOBS,),
        _alone(lambda job: GangSize(gang_sizes.job_gang_size(job))),
        is_declared=False,
    ),
    GangSource("LeaderWorkerSet", frozenset({f"{_LWS}/name"}), _leader_worker_set),
    GangSource(
        "Kueue Workload",
        frozenset({f"{_KUEUE}/pod-group-name", f"{_KUEUE}/workload"}),
        _kueue,
        KUEUE_WORKLOADS,
        _alone(gang_sizes.kueue_workload_size),
        is_declared=False,
    ),
    GangSource(
        "JobSet",
        frozenset({JOBSET_LABEL}),
        _jobset,
        _versions("jobset.x-k8s.io", ("v1alpha2",), "jobsets", "JobSet"),
        lambda body, jobs: {
            str(body["metadata"]["name"]): GangSize(gang_sizes.jobset_gang_size(body, jobs))
        },
        reads_jobs=True,
        is_declared=False,
    ),
    GangSource(
        "native PodGroup",
        frozenset({"schedulingGroup"}),
        _native_group,
        _versions(
            "scheduling.k8s.io", ("v1beta1", "v1alpha3", "v1alpha2"), "podgroups", "PodGroup"
        ),
        _alone(gang_sizes.native_group_size),
    ),
    GangSource(
        "native Workload of 1.35",
        frozenset({"workloadRef"}),
        _native_workload,
        _versions("scheduling.k8s.io", ("v1alpha1",), "workloads", "Workload"),
        _native_groups,
    ),
    GangSource(
        "coscheduling PodGroup",
        frozenset({COSCHEDULING_LABEL}),
        _coscheduling,
        _versions("scheduling.x-k8s.io", ("v1alpha1",), "podgroups", "PodGroup"),
        _alone(gang_sizes.coscheduling_size),
    ),
    GangSource(
        "Volcano PodGroup",
        frozenset({_VOLCANO_GROUP}),
        _volcano,
        _versions("scheduling.volcano.sh", ("v1beta1",), "podgroups", "PodGroup"),
        _alone(gang_sizes.volcano_size),
    ),
    GangSource(
        "RayCluster",
        frozenset({_RAY_LABEL}),
        _ray,
        _versions("ray.io", ("v1", "v1alpha1"), "rayclusters", "RayCluster"),
        _alone(gang_sizes.ray_cluster_size),
        is_declared=False,
    ),
)
_ALL_MARKS: frozenset[str] = frozenset().union(*(source.marks for source in GANG_SOURCES))


def sources_of(marks: Marks) -> tuple[GangSource, ...]:
    """Those that could have the pod as a member, in the table's order; most pods have none."""
    if all(_ALL_MARKS.isdisjoint(each) for each in marks):
        return ()
    return tuple(s for s in GANG_SOURCES if any(not s.marks.isdisjoint(each) for each in marks))
