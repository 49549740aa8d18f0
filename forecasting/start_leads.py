"""How long a forecast's subject takes to get a replica more: the starts of what really runs there.

pods with a workload ─ node ─> PowerDomain and all above it ─┐
WorkloadProfiles, catalogue ─────────────────────────────────┴─> Lead: the longest start, p95

Of a domain the slowest of its kinds of work counts: whoever orders ahead by less is late for it.
Who says nothing about its work says nothing here either, nor does a classified profile that is not
sure: the likeliest entry of a class may start three times as fast as what runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from capacity.catalogue.pod_works import KnownWork, ObjectName, PodWorks
from forecasting.power_forecast.domain_boards import DomainBoards, DrawChange
from forecasting.targets import Target
from wattpack.kube.port import JsonObject
from wattpack.pod_binding import is_finished
from wattpack.power.domain_tree import DomainTree
from wattpack.power.member_claims import newest_claims
from wattpack.power.power_grid import PowerGrid, accepted_domains


@dataclass(frozen=True, slots=True)
class Lead:
    """How far ahead a subject has to order.

    Attributes:
        workload: The kind of work that takes longest to start.
        seconds: Within which a new replica of it works, 19 times in 20.
        kinds: Kinds of work that were asked.
    """

    workload: str
    seconds: float
    kinds: int


@dataclass(frozen=True, slots=True)
class RunningWork:
    """What runs where, as far as labels and profiles say.

    Attributes:
        works: WorkloadProfiles and catalogue.
        by_domain: Kinds of work below each PowerDomain, by namespace of the profile that tells it
            (empty for an entry of the catalogue) and name.
        above: The domains that feed each PowerDomain, nearest first.
        boards: What stands below each.
        changes: Work that came to each since the last look, and before it, and work that went.
        limits_watts: What caps hold each at that enforces: its rating after the feed losses that it
            declares, of all feeds where load may use them.
    """

    works: PodWorks = field(default_factory=PodWorks)
    by_domain: Mapping[str, Mapping[ObjectName, KnownWork]] = field(default_factory=dict)
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boards: DomainBoards = field(default_factory=DomainBoards)
    changes: Mapping[str, Sequence[DrawChange]] = field(default_factory=dict)
    limits_watts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        works: PodWorks,
        pods: Iterable[JsonObject],
        nodes: Iterable[JsonObject],
        domains: Sequence[JsonObject],
    ) -> RunningWork:
        """From the objects of a cluster; finished pods and pods without a node run nowhere."""
        specs = {name: domain.spec for name, domain in accepted_domains(domains).items()}
        grid = PowerGrid.of_read(specs, newest_claims(domains))
        labels = {str(n["metadata"]["name"]): n["metadata"].get("labels") or {} for n in nodes}
        paths: dict[str, tuple[str, ...]] = {}
        found: dict[str, dict[ObjectName, KnownWork]] = defaultdict(dict)
        for pod in pods:
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            work = works.of_pod(pod)
            if work is None or is_finished(pod) or node not in labels:
                continue
            if node not in paths:
                paths[node] = grid.path(grid.feeding(node, labels[node]).domain)
            for domain in paths[node]:
                space = "" if work.profile is None else str(pod["metadata"].get("namespace", ""))
                found[domain][space, work.name] = work
        above = {name: grid.path(name)[1:] for name in specs}
        return cls(works, found, above, limits_watts=_limits_watts(grid.tree))

    def placed(self, target: Target) -> Target:
        """The target with its place in the power tree and what stands and runs below it."""
        if target.kind != "domain":
            return target
        domain, boards = target.subject, self.boards
        bounded = target.below(self.limits_watts.get(domain), f"PowerDomain {domain}'s rating")
        return replace(
            bounded,
            above=self.above.get(domain, ()),
            boards=boards.board_watts(domain),
            changes=tuple(self.changes.get(domain, ())),
            load=tuple(
                replace(one, line=boards.line(domain, one.workload, one.per_board))
                for one in target.load
            ),
        )

    def lead(self, target: Target) -> Lead | None:
        """The longest start among what the target is about; None where nobody said what runs."""
        if target.kind == "domain":
            return _longest(self.by_domain.get(target.subject, {}).values())
        if target.kind == "workload":
            work = self.works.named(target.namespace, target.subject)
            return _longest([] if work is None else [work])
        return None


def _limits_watts(tree: DomainTree) -> dict[str, float]:
    """Of domains that enforce; in DryRun nothing keeps a draw below the rating."""
    rated = zip(tree.names, tree.all_feeds_watts.tolist(), tree.enforce.tolist(), strict=True)
    return {name: watts for name, watts, enforces in rated if enforces}


def _longest(works: Iterable[KnownWork]) -> Lead | None:
    sure = (w for w in works if w.is_sure)
    starts = [(seconds, w.name) for w in sure if (seconds := w.lead_seconds) is not None]
    if not starts:
        return None
    seconds, name = max(starts)
    return Lead(name, seconds, len(starts))
