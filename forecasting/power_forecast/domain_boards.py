"""What boards stand below each PowerDomain, and what they would draw if all worked.

nodes ─ product, boards ─┐
pods ─ boards, work ─────┼─ PowerGrid ─> by domain: startable and busy watts
GPU profiles ────────────┘

Free boards may be given to anybody: they count at their default limit, as do boards whose work
nobody knows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from capacity.catalogue.pod_works import KnownWork, PodWorks, annotated_kernel_class
from capacity.gpu_profile import GpuProfile
from capacity.profile_book import ProfileBook
from capacity.profile_errors import UnknownGpuModel
from capacity.work_mix import WorkMix, mix_of_classes
from forecasting.power_forecast.present_rows import UNKNOWN_BOARDS, BoardWatts
from forecasting.power_forecast.work_watts import Boards, LoadLine, busy_watts, startable_watts
from wattpack.errors import InputError
from wattpack.gpu_resources import board_count, gpu_demand
from wattpack.kube.port import JsonObject
from wattpack.object_names import GPU_MODEL_LABELS, WORKLOAD_LABEL
from wattpack.pod_binding import bound_at_seconds, is_finished
from wattpack.power.member_claims import newest_claims
from wattpack.power.power_grid import PowerGrid, accepted_domains
from wattpack.quantities import pod_requests

MOST_BOARDS: Final = 1024
"""Of one server; a node that offers more cannot be read."""

LONGEST_BIN_SECONDS: Final = 3600.0
"""No step is longer: what went so long ago is in no newest bin any more."""


@dataclass(frozen=True, slots=True)
class DomainBoards:
    """AC watts by PowerDomain; a domain with a GPU type that nobody knows is not among them.

    Attributes:
        startable_watts: Rise if work came to all free boards.
        busy_watts: Of all boards at work.
        held_watts: Of those at work that a pod holds.
        serving: Boards by what their pods say of their work, of every domain with a pod.
        pods: By UID, what each pod draws and in which domains.
        gone: The same of pods that went within an hour, and when they were missed first, Unix time.
    """

    startable_watts: Mapping[str, float] = field(default_factory=dict)
    busy_watts: Mapping[str, float] = field(default_factory=dict)
    held_watts: Mapping[str, float] = field(default_factory=dict)
    serving: Mapping[str, Mapping[str, tuple[Boards, ...]]] = field(default_factory=dict)
    pods: Mapping[str, PodWatts] = field(default_factory=dict)
    gone: Mapping[str, tuple[PodWatts, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        works: PodWorks,
        book: ProfileBook,
        pods: Iterable[JsonObject],
        nodes: Iterable[JsonObject],
        domains: Sequence[JsonObject],
        grid: PowerGrid | None = None,
    ) -> DomainBoards:
        """From the objects of a cluster; finished pods and pods without a node hold no boards.

        Args:
            works: What pods do.
            book: What boards draw.
            pods: All of them.
            nodes: All of them.
            domains: PowerDomain objects.
            grid: Of these domains, where the caller has it already.
        """
        if grid is None:
            specs = {name: domain.spec for name, domain in accepted_domains(domains).items()}
            grid = PowerGrid.of_read(specs, newest_claims(domains))
        held = _held(pods)
        sums = _Sums()
        unknown: set[str] = set()
        for node in nodes:
            count = board_count(node)
            if count == 0:
                continue
            name = str(node["metadata"]["name"])
            labels = node["metadata"].get("labels") or {}
            path = grid.path(grid.feeding(name, labels).domain)
            profile = _profile(book, labels)
            if profile is None or count > MOST_BOARDS:
                unknown |= set(path)
                continue
            sums.add(path, *_boards(works, profile, count, held.get(name, ())))
        return sums.of(sums.busy.keys() - unknown)

    def board_watts(self, domain: str) -> BoardWatts:
        """What stands below a domain, as far as it is known."""
        if domain not in self.busy_watts:
            return UNKNOWN_BOARDS
        found = (of[domain] for of in (self.startable_watts, self.busy_watts, self.held_watts))
        return BoardWatts(*found)

    def line(self, domain: str, workload: str, load_per_board: float) -> LoadLine | None:
        """What a load makes the boards of its pods draw; None where none is known of."""
        boards = self.serving.get(domain, {}).get(workload, ())
        return LoadLine.shared(boards, load_per_board) if boards else None

    def since(self, before: DomainBoards, now_seconds: float) -> DomainBoards:
        """This look with what an earlier one knows of pods that went.

        Args:
            before: What it saw and is not there any more went just now.
            now_seconds: Of this look, Unix time.
        """
        recent = {
            uid: (pod, at)
            for uid, (pod, at) in before.gone.items()
            if now_seconds - at < LONGEST_BIN_SECONDS
        }
        recent |= {uid: (pod, now_seconds) for uid, pod in before.pods.items()}
        gone = {uid: one for uid, one in recent.items() if uid not in self.pods}
        return replace(self, gone=gone)

    def changes(self) -> dict[str, list[DrawChange]]:
        """Work that came to a domain or went from it."""
        found: dict[str, list[DrawChange]] = {}
        came = [(pod, pod.bound_at_seconds, pod.watts) for pod in self.pods.values()]
        went = [(pod, at, -pod.watts) for pod, at in self.gone.values()]
        for pod, at, watts in (*came, *went):
            if math.isfinite(at):
                for domain in pod.domains:
                    found.setdefault(domain, []).append(DrawChange(at, watts))
        return found


class PodWatts(NamedTuple):
    """A pod with boards.

    Attributes:
        domains: That feed it.
        bound_at_seconds: When it got its node, Unix time; infinity where it does not say so.
        watts: That it draws above its boards' idle draw, AC watts.
    """

    domains: tuple[str, ...]
    bound_at_seconds: float
    watts: float


class DrawChange(NamedTuple):
    """Work that came to a domain, or went.

    Attributes:
        at_seconds: When, Unix time.
        watts: Mean that it draws, AC watts; negative for work that went.
    """

    at_seconds: float
    watts: float


class _Held(NamedTuple):
    """Boards of one pod."""

    uid: str
    name: str
    boards: Boards
    bound_at_seconds: float


@dataclass(slots=True)
class _Sums:
    """Filled node by node; by domain."""

    startable: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    held: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    serving: dict[str, dict[str, list[Boards]]] = field(default_factory=dict)
    pods: dict[str, PodWatts] = field(default_factory=dict)

    def add(self, path: Sequence[str], free: Boards, working: Sequence[_Held]) -> None:
        """A node's boards count in all domains that feed it."""
        startable, at_work = startable_watts([free]), busy_watts(one.boards for one in working)
        busy = busy_watts([free]) + at_work
        for one in working:
            drawn = startable_watts([one.boards])
            self.pods[one.uid] = PodWatts(tuple(path), one.bound_at_seconds, drawn)
        for domain in path:
            self.startable[domain] += startable
            self.busy[domain] += busy
            self.held[domain] += at_work
            by_name = self.serving.setdefault(domain, {})
            for one in working:
                by_name.setdefault(one.name, []).append(one.boards)

    def of(self, domains: Set[str]) -> DomainBoards:
        """Of these domains."""
        return DomainBoards(
            {d: self.startable[d] for d in domains},
            {d: self.busy[d] for d in domains},
            {d: self.held[d] for d in domains},
            {d: {n: tuple(b) for n, b in self.serving[d].items()} for d in domains},
            self.pods,
        )


def _held(pods: Iterable[JsonObject]) -> dict[str, list[tuple[JsonObject, int]]]:
    """Pods with boards and how many, by node."""
    found: dict[str, list[tuple[JsonObject, int]]] = defaultdict(list)
    for pod in pods:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if not node or is_finished(pod):
            continue
        try:
            boards = gpu_demand(pod_requests(pod)).most_boards
        except InputError:
            continue
        if boards:
            found[node].append((pod, boards))
    return found


def _profile(book: ProfileBook, labels: Mapping[str, str]) -> GpuProfile | None:
    model = next((labels[name] for name in GPU_MODEL_LABELS if name in labels), "")
    try:
        return book.find(model)
    except UnknownGpuModel:
        return None


def _boards(
    works: PodWorks, profile: GpuProfile, count: int, pods: Sequence[tuple[JsonObject, int]]
) -> tuple[Boards, list[_Held]]:
    """The node's free boards, and those of its pods; never more than it has."""
    left, working = count, list[_Held]()
    for pod, boards in pods:
        taken = min(left, boards)
        left -= taken
        work = works.of_pod(pod)
        mix = _mix(work, profile, pod)
        name = _work_name(pod, work)
        uid = str(pod["metadata"].get("uid") or pod["metadata"]["name"])
        working.append(_Held(uid, name, Boards(profile, mix, taken), bound_at_seconds(pod)))
    return Boards(profile, None, left), working


def _work_name(pod: JsonObject, work: KnownWork | None) -> str:
    """Under which a load finds it: what the pod says, else what was classified for its owner.

    A service's name need be neither a WorkloadProfile nor a catalogue entry: where it runs is
    told by its pods alone.
    """
    said = (pod["metadata"].get("labels") or {}).get(WORKLOAD_LABEL)
    if isinstance(said, str) and said:
        return said
    return "" if work is None else work.name


def _mix(work: KnownWork | None, profile: GpuProfile, pod: JsonObject) -> WorkMix | None:
    """What a pod does: its annotation speaks first, as in plans; None where nobody is sure."""
    if annotated := annotated_kernel_class(pod):
        return mix_of_classes({annotated: 1.0})
    return work.mix(profile.model) if work is not None and work.is_sure else None
