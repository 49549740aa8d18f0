"""What kind of work a pod does: its label, WorkloadProfiles, the catalogue.

pod ─┬─ label wattpack.io/workload ──> WorkloadProfile of its namespace ──> its catalogue entry
     │                            └──> a catalogue entry of that name
     └─ owner ──> WorkloadProfile that was classified for it (docs/adr/0026)

From it follow how long a new replica takes to start, what it costs to move one, and what the work
does under a cap. A classified profile speaks for all pods of its owner, also for later ones; a
label overrides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_clock import ClockResponse, entry_clock
from capacity.catalogue.entry_mix import entry_mix, has_own_mixes
from capacity.catalogue.startup_time import startup_time
from capacity.catalogue.workload_memory import stop_seconds
from capacity.catalogue.workload_schema import Workload
from capacity.gpu_profile import GpuProfile
from capacity.work_mix import SUM_TOLERANCE, CapCurve, WorkMix, cap_curve, mix_of_classes
from wattpack.api import WorkloadProfile
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.object_names import CLASSIFIED_LABEL, KERNEL_CLASS_ANNOTATION, WORKLOAD_LABEL
from wattpack.pod_owner import owner_of

LEAD_LEVEL: Final = 0.95
"""Of the start's distribution: one start in twenty is later than the lead time."""

SURE: Final = 0.95
"""Confidence from which a verdict may lower a 95th percentile: below it, one pod in twenty does
other work, so that what unknown work draws is the percentile."""

WAITS: Final = "outside"
"""Class of work that waits for others: it tells how much there was to do, not what doing it draws.
Of such verdicts, sure ones too, a quarter stands for entries that draw less than the work did."""

ObjectName = tuple[str, str]
"""Namespace and name."""


def annotated_kernel_class(pod: JsonObject) -> str:
    """The kernel class that a pod's annotation says, whatever profiles do; empty for none."""
    return str((pod["metadata"].get("annotations") or {}).get(KERNEL_CLASS_ANNOTATION, ""))


@dataclass(frozen=True, slots=True)
class KnownWork:
    """What is known of one pod's work.

    Attributes:
        name: What the label says, or the classified profile's name.
        entry: Of the catalogue; None where the profile names none.
        profile: The WorkloadProfile; None where the label names an entry itself.
    """

    name: str
    entry: Workload | None
    profile: WorkloadProfile | None = None

    @property
    def lead_seconds(self) -> float | None:
        """Within which a replica that is ordered now works, 19 times in 20; None if unknown."""
        return None if self.entry is None else lead_seconds(self.entry.name)

    def move_seconds(self, checkpoint_age_seconds: float | None = None) -> float | None:
        """What a move costs each of its GPUs: the mean start and what the stop loses.

        Args:
            checkpoint_age_seconds: That is lost now; None for the mean over moments.

        Returns:
            None where nobody knows, and where a stop loses all work.
        """
        if self.entry is None:
            return None
        declared = None if self.profile is None else self.profile.spec.checkpoint_seconds
        lost = stop_seconds(self.entry) if declared is None else declared
        if lost is not None and checkpoint_age_seconds is not None:
            lost = checkpoint_age_seconds
        return None if lost is None else _start(self.entry.name)[0] + lost

    @property
    def confidence(self) -> float:
        """A classifier's; 1 where people said it."""
        said = None if self.profile is None else self.profile.spec.confidence
        return 1.0 if said is None else said

    @property
    def is_sure(self) -> bool:
        """Whether plans may count on less than for unknown work."""
        if self.profile is None or self.profile.spec.confidence is None:
            return True
        told = (self.profile.metadata.get("labels") or {}).get(CLASSIFIED_LABEL)
        return self.confidence >= SURE and told != WAITS

    def mix(self, gpu: str) -> WorkMix | None:
        """On a GPU type: ``kernelMix`` where one is given, else the entry's phases."""
        if self.profile is not None and self.profile.spec.kernel_mix:
            return mix_of_classes(self.profile.spec.kernel_mix)
        return None if self.entry is None else entry_mix(self.entry.name, gpu)

    def curve(self, profile: GpuProfile) -> CapCurve | None:
        """Under a cap on this GPU type; None where the work or one of its classes is unknown."""
        mix = self.mix(profile.model)
        return None if mix is None else cap_curve(profile, mix)

    def clock(self, gpu: str) -> ClockResponse | None:
        """Under clock locks on this GPU type; None where nobody knows.

        A ``kernelMix`` tells classes, not what waits for the clock, and a doubtful verdict nothing.
        """
        mixed = self.profile is not None and self.profile.spec.kernel_mix
        if self.entry is None or mixed or not self.is_sure:
            return None
        return entry_clock(self.entry.name, gpu)

    def p95_watts(self, profile: GpuProfile) -> float | None:
        """Of the draw at the default limit; None where nobody knows.

        An entry on a type without a mix of its own is unknown: the reference type's shares of the
        limit are up to 60 % below those of a slower host or smaller memory (A40, A100, L40S).
        """
        given = self.profile is not None and self.profile.spec.kernel_mix
        if not given and not has_own_mixes(profile.model):
            return None
        curve = self.curve(profile)
        return None if curve is None else curve.p95_watts


@dataclass(frozen=True, slots=True)
class PodWorks:
    """Answers what a pod's work is; of pods that nobody knows anything of, nothing.

    Attributes:
        profiles: By namespace and name.
        of_owner: Of classified ones, by namespace and UID of the owner.
        refusals: Why a profile is not used.
    """

    profiles: Mapping[ObjectName, WorkloadProfile] = field(default_factory=dict)
    of_owner: Mapping[ObjectName, WorkloadProfile] = field(default_factory=dict)
    refusals: Mapping[ObjectName, InputError] = field(default_factory=dict)

    @classmethod
    def of(cls, bodies: Iterable[JsonObject], kernel_classes: Set[str] | None = None) -> PodWorks:
        """From WorkloadProfile objects; one that cannot be used says nothing, and is told.

        Args:
            kernel_classes: Of all GPU types that are known; None: any name passes.
        """
        named: dict[ObjectName, WorkloadProfile] = {}
        of_owner: dict[ObjectName, WorkloadProfile] = {}
        refusals: dict[ObjectName, InputError] = {}
        for body in bodies:
            name = _name(body)
            try:
                named[name] = _usable(body, kernel_classes)
            except InputError as error:
                refusals[name] = error
                continue
            of_owner |= dict.fromkeys(_owners(body), named[name])
        return cls(named, of_owner, refusals)

    def with_changes(self, changes: Mapping[ObjectName, PodWorks]) -> PodWorks:
        """With what was read of each changed object in place of what it said; no other is read.

        Args:
            changes: By name of the object; an empty one for an object that is gone.
        """
        old = {id(self.profiles[name]) for name in changes if name in self.profiles}
        profiles = {k: v for k, v in self.profiles.items() if k not in changes}
        of_owner = {k: v for k, v in self.of_owner.items() if id(v) not in old}
        refusals = {k: v for k, v in self.refusals.items() if k not in changes}
        for read in changes.values():
            profiles |= read.profiles
            of_owner |= read.of_owner
            refusals |= read.refusals
        return PodWorks(profiles, of_owner, refusals)

    def of_pod(self, pod: Mapping[str, Any]) -> KnownWork | None:
        """What its label names, else what was classified for its owner."""
        labelled = self.labelled(pod)
        if labelled is not None:
            return labelled
        space = str(pod["metadata"].get("namespace", "default"))
        profile = self.of_owner.get((space, owner_of(pod).uid))
        return None if profile is None else _known(profile.name, profile)

    def labelled(self, pod: Mapping[str, Any]) -> KnownWork | None:
        """What its label names; a name that is neither profile nor entry says nothing."""
        metadata = pod["metadata"]
        name = (metadata.get("labels") or {}).get(WORKLOAD_LABEL)
        if not isinstance(name, str) or not name:
            return None
        return self.named(str(metadata.get("namespace", "default")), name)

    def named(self, namespace: str, name: str) -> KnownWork | None:
        """A WorkloadProfile of the namespace, else the catalogue entry."""
        profile = self.profiles.get((namespace, name))
        if profile is not None:
            return _known(name, profile)
        entry = shipped_catalogue().get(name)
        return None if entry is None else KnownWork(name, entry)


def is_classified(body: JsonObject) -> bool:
    """Whether the controller wrote the object and nobody took it over."""
    return CLASSIFIED_LABEL in (body["metadata"].get("labels") or {})


def lead_seconds(entry: str) -> float:
    """Within which a new replica of a shipped entry works, 19 times in 20."""
    return _start(entry)[1]


@lru_cache(maxsize=1024)
def _start(entry: str) -> tuple[float, float]:
    """Mean and lead time of a shipped entry's start, seconds: the quantile takes 60 ms."""
    start = startup_time(shipped_catalogue()[entry])
    return start.mean_seconds, start.quantile(LEAD_LEVEL)


def _name(body: JsonObject) -> ObjectName:
    metadata = body["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])


def _owners(body: JsonObject) -> list[ObjectName]:
    """Whose pods a classified profile speaks for; a withdrawn one, of confidence 0, for none."""
    if not is_classified(body) or (body.get("spec") or {}).get("confidence") == 0:
        return []
    space, _ = _name(body)
    return [(space, str(o.get("uid", ""))) for o in body["metadata"].get("ownerReferences") or ()]


def _known(name: str, profile: WorkloadProfile) -> KnownWork:
    return KnownWork(name, shipped_catalogue().get(profile.spec.workload), profile)


def _usable(body: JsonObject, kernel_classes: Set[str] | None) -> WorkloadProfile:
    """The object, if all of it can be used.

    Raises:
        InputError: naming the field that cannot.
    """
    profile = WorkloadProfile.read({k: v for k, v in body.items() if k != "status"})
    spec, source = profile.spec, f"WorkloadProfile {profile.name}"
    known = spec.kernel_mix.keys() if kernel_classes is None else kernel_classes
    for name in spec.kernel_mix:
        if name not in known:
            wanted = f"one of the kernel classes {', '.join(sorted(known))}"
            raise InputError(f"spec.kernelMix.{name}", wanted, name, source)
    if spec.workload and spec.workload not in shipped_catalogue():
        wanted = "an entry of `wattpack workloads`"
        raise InputError("spec.workload", wanted, spec.workload, source)
    total = sum(spec.kernel_mix.values())
    if total > 1 + SUM_TOLERANCE:
        raise InputError("spec.kernelMix", "shares whose sum is at most 1", total, source)
    return profile
