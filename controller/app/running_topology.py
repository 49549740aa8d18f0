"""The topology that runs: objects and fleet in, arrays out, refusals kept for the status.

Built anew only when an object or the fleet changed. What cannot be accepted leaves what ran before
(I8); a node whose GPU model has no profile joins at its own limits, uncontrolled, and is reported,
because electricity that is already drawn cannot be refused (I1).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from capacity.catalogue.pod_works import PodWorks
from capacity.gpu_profile import GpuProfile
from controller.acceptance import BREAKS_I1, Acceptance, Site, accept
from controller.app.desired_state import ObjectId, Objects, ObjectStore, Refusal
from controller.app.fleet import Fleet
from controller.app.forecast_reader import ForecastReader, Outlooks
from controller.app.known_servers import Members, find_members
from controller.app.node_record import NodeRecord
from controller.membership import PodSpec
from controller.policies import require_sound
from controller.servers_aside import Aside, counted_aside, moves_aside
from controller.tick_values import Topology, Transition
from controller.units_watch import SeenBoard
from controller.work_curves import Curves, curves_of_gpus
from wattpack.api import GPUProfile, PowerDomain, PowerPolicy
from wattpack.api.conditions import find_condition
from wattpack.api.object_meta import ConditionStatus
from wattpack.errors import InputError, WattpackError
from wattpack.gangs import GangSources, gang_of
from wattpack.kube.port import JsonObject
from wattpack.power.power_grid import PowerGrid, accepted

log = logging.getLogger(__name__)


class DesiredTopology:
    """Keeps the accepted objects and the topology made of them.

    Args:
        store: Newest objects.
        forecasts: Of the domains.
    """

    def __init__(self, store: ObjectStore, forecasts: ForecastReader) -> None:
        self._store, self._forecasts = store, forecasts
        self._key: tuple[int, int, int] | None = None
        self._seen: tuple[int, Mapping[str, SeenBoard]] = (0, {})
        self._topology: Topology | None = None
        #: Membership and limits of the accepted domains.
        self.grid = PowerGrid.of({})
        self._accepted: dict[str, PowerDomain] = {}
        self._policies: dict[str, PowerPolicy] = {}
        self._refusals: tuple[Refusal, ...] = ()
        self._aside: tuple[Aside, ...] = ()
        self._moves: list[Transition] = []
        self.models: Sequence[str] = ()
        self.pods_of_gpus: Sequence[str] = ()
        self.curves_of_gpus: Curves = {}
        self.pod_of_gpu: Mapping[str, tuple[str, str]] = {}
        self.idle_watts_of_gpu: Mapping[str, float] = {}

    @property
    def objects(self) -> Objects:
        """The newest objects, with the domains as they were accepted."""
        return replace(self._store.snapshot(), domains=self._accepted)

    def topology(self, fleet: Fleet) -> Topology | None:
        """The topology that runs; None until a domain, a policy and a node are known."""
        key = (self._store.version, fleet.version, self._seen[0])
        if key != self._key:
            self._key = key
            self._rebuild(fleet.records())
        return self._topology

    def saw_boards(self, version: int, seen: Mapping[str, SeenBoard]) -> None:
        """What the units of boards tell of their work, by UUID; another version is taken in."""
        if version != self._seen[0]:
            self._seen = (version, seen)

    def seen_boards(self) -> Mapping[str, SeenBoard]:
        """The same as it was given last."""
        return self._seen[1]

    def forget_gone(self, fleet: Fleet, now_ns: int) -> None:
        """Drop silent servers whose Node objects were deleted; what still reports is counted.

        Also one that was dropped and speaks again, until it is silent once more.
        """
        with self._store.lock:
            gone = list(self._store.gone_nodes)
        for name in fleet.forget_silent(gone, now_ns) if gone else ():
            log.info("node %s was deleted and is silent: no longer counted", name)

    def refusals(self) -> tuple[Refusal, ...]:
        """Objects and nodes whose newest state does not run."""
        with self._store.lock:
            profiles = self._store.profiles.refusals.values()
        kind = GPUProfile.meta.kind
        told = [Refusal(kind, r.name, "NotUnderstood", r.message, r.generation) for r in profiles]
        found = (*self._refusals, *told, *self._store.unreadable())
        return tuple(_with_servers(refusal, self._aside) for refusal in found)

    def take_moves(self) -> tuple[Transition, ...]:
        """Servers that began or ceased to count aside since the last call."""
        moves, self._moves = tuple(self._moves), []
        return moves

    def counted_aside(self) -> tuple[Aside, ...]:
        """Servers that count elsewhere than in the domain that claims them, or nowhere."""
        return self._aside

    def accepted_domains(self) -> Mapping[str, PowerDomain]:
        """What runs."""
        return self._accepted

    def newest_domain(self, name: str) -> PowerDomain | None:
        """The newest object of that name that could be read."""
        with self._store.lock:
            return self._store.objects.domains.get(name)

    def newest(self) -> Objects:
        """The newest objects that could be read."""
        return self._store.snapshot()

    def take_ended(self) -> set[ObjectId]:
        """Objects that ended since the last call."""
        return self._store.take_ended()

    def works(self) -> PodWorks:
        """Which work pods do, as WorkloadProfiles and labels say."""
        return self._store.works()

    def profiles_in_use(self) -> Mapping[str, GpuProfile]:
        """What is used of each GPUProfile object, by its name."""
        with self._store.lock:
            return self._store.profiles.taken

    def running(self) -> Topology | None:
        """The topology that was built last."""
        return self._topology

    def pods(self) -> Mapping[tuple[str, str], JsonObject]:
        """The newest pod objects by namespace and name."""
        with self._store.lock:
            return dict(self._store.objects.pods)

    def newest_domain_object(self, name: str) -> JsonObject | None:
        """The same as the API gave it."""
        with self._store.lock:
            return self._store.objects.plain_domains.get(name)

    def outlooks(self, wall_time_ns: int) -> Outlooks:
        """What is expected of every domain that runs."""
        if self._topology is None:
            return Outlooks()
        tree = self._topology.tree
        ratings = dict(zip(tree.names, tree.rating_watts.tolist(), strict=True))
        return self._forecasts.outlooks(ratings, wall_time_ns)

    def saw(self, measured_watts: Mapping[str, float], wall_time_ns: int) -> None:
        """A tick's measured draws: forecasts are held against them, and fall back to them."""
        self._forecasts.saw(measured_watts, wall_time_ns)

    def _ran_before(self, newest: Mapping[str, PowerDomain]) -> list[PowerDomain]:
        """What this replica accepted, or the one that led before it: a failover changes none."""
        earlier = {
            name: ran for name, domain in newest.items() if (ran := accepted(domain)) is not None
        }
        return list({**earlier, **self._accepted}.values())

    def _rebuild(self, records: Sequence[NodeRecord]) -> None:
        with self._store.lock:
            objects, profiles = self._store.snapshot(), self._store.profiles
            works, gone = self._store.works(), dict(self._store.gone_nodes)
        seen = {uuid: board.work for uuid, board in self._seen[1].items()}
        members = find_members(records, objects.nodes, profiles, seen, gone)
        uses = pod_specs(records, members, objects.pods, works)
        refused_policies = self._judge_policies(objects.policies)
        domains, waiting = _held_back(objects.domains, members)
        policies = list(self._policies.values())
        site = Site(policies, members.heard, uses, members.profiles, objects.claims)
        try:
            acceptance = accept(self._ran_before(domains), list(domains.values()), site)
            topology = _with_unheard(acceptance, site, members)
        except WattpackError as error:
            log.error("topology not rebuilt, what ran before runs on: %s", error)
            refusal = Refusal("Fleet", "", "NotUnderstood", str(error), 0)
            self._refusals = (*members.refusals, *refused_policies, refusal)
            return
        refused = (*waiting, *_refused_domains(acceptance, domains))
        self._refusals = (*members.refusals, *refused_policies, *refused)
        grid = PowerGrid.of({d.name: d.spec for d in acceptance.domains}, objects.claims)
        aside = counted_aside(grid, [*members.heard, *members.unheard])
        self._moves += moves_aside(self._aside, aside)
        self._aside = aside
        # Before the first agent speaks nothing is known that a change could break: what is wrong
        # with a spec by itself is told, but none is accepted.
        if topology is None or not members.heard:
            return
        self._accepted = {domain.name: domain for domain in acceptance.domains}
        self._topology = topology
        self.grid = grid
        self._refusals += _torn_nodes(self.grid, members)
        self._describe(members, uses)

    def _judge_policies(self, newest: Mapping[str, PowerPolicy]) -> list[Refusal]:
        """Take over policies that can rule; of the others the last good spec stays."""
        refusals, sound = [], {}
        for name, policy in newest.items():
            try:
                require_sound(policy)
                sound[name] = policy
            except InputError as error:
                kind, generation = PowerPolicy.meta.kind, policy.generation
                refusals.append(Refusal(kind, name, "NotUnderstood", str(error), generation))
                if name in self._policies:
                    sound[name] = self._policies[name]
        self._policies = sound
        return refusals

    def _describe(self, members: Members, uses: Sequence[PodSpec]) -> None:
        """Columns of the live view that the arrays do not carry."""
        if self._topology is None:
            return
        nodes = [*members.heard, *members.unheard]
        model_of = {gpu.uuid: gpu.model for node in nodes for gpu in node.gpus}
        self.pod_of_gpu = {uuid: (u.namespace, u.name) for u in uses for uuid in u.gpu_uuids}
        pod_of = {uuid: "/".join(pod) for uuid, pod in self.pod_of_gpu.items()}
        self.idle_watts_of_gpu = {
            uuid: members.profiles[model].idle_watts for uuid, model in model_of.items()
        }
        self.models = [model_of[uuid] for uuid in self._topology.gpu_uuids]
        self.pods_of_gpus = [pod_of.get(uuid, "") for uuid in self._topology.gpu_uuids]
        position = {uuid: i for i, uuid in enumerate(self._topology.gpu_uuids)}
        profiles = [members.profiles[model] for model in self.models]
        seen = {position[u]: b.work for u, b in self._seen[1].items() if u in position}
        self.curves_of_gpus = curves_of_gpus(profiles, position, uses, seen)


def _with_unheard(acceptance: Acceptance, site: Site, members: Members) -> Topology | None:
    """What was accepted, with the servers that no agent speaks for counted in (I1).

    They are no reason to refuse what operators want: what they draw they draw anyhow.
    """
    if acceptance.topology is None or not members.unheard:
        return acceptance.topology
    everybody = replace(site, nodes=[*members.heard, *members.unheard])
    return everybody.build({d.name: d for d in acceptance.domains}, strict=False)


def _held_back(
    newest: Mapping[str, PowerDomain], members: Members
) -> tuple[dict[str, PowerDomain], tuple[Refusal, ...]]:
    """What to judge now: a spec that broke I1 waits until every server with GPUs was heard.

    A replica that has just begun to lead hears one agent first. Judged by that one, the spec would
    be accepted, and the servers that broke it would come back below it.
    """
    judged, waiting = dict(newest), []
    for name, domain in newest.items() if members.unheard else ():
        verdict = find_condition(domain.status.conditions, "Accepted")
        ran = accepted(domain)
        if verdict is None or ran is None or verdict.observed_generation != domain.generation:
            continue
        if verdict.status == ConditionStatus.FALSE and verdict.reason == BREAKS_I1:
            judged[name] = ran
            kind, generation = PowerDomain.meta.kind, domain.generation
            waiting.append(Refusal(kind, name, BREAKS_I1, verdict.message, generation))
    return judged, tuple(waiting)


def _refused_domains(
    acceptance: Acceptance, newest: Mapping[str, PowerDomain]
) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(PowerDomain.meta.kind, name, r.reason, r.message, newest[name].generation)
        for name, r in acceptance.refusals.items()
    )


def _with_servers(refusal: Refusal, aside: Sequence[Aside]) -> Refusal:
    """The refusal of a domain with what becomes of its servers."""
    if refusal.kind != PowerDomain.meta.kind:
        return refusal
    told = [a.of_the_refused() for a in aside if a.claimed_by == refusal.name]
    return replace(refusal, message="; ".join([refusal.message, *told])) if told else refusal


def _torn_nodes(grid: PowerGrid, members: Members) -> tuple[Refusal, ...]:
    """Servers that two branches claim: they count below the deepest domain, and are named."""
    refusals = []
    for node in (*members.heard, *members.unheard):
        try:
            grid.feeding(node.name, node.labels).require_one_branch(node.name)
        except InputError as error:
            refusals.append(Refusal("GpuNode", node.name, "TwoBranches", str(error), 0))
    return tuple(refusals)


def gang_name(body: JsonObject) -> str:
    """The pod's gang; empty without one, or with a malformed declaration: it counts alone."""
    if not body:
        return ""
    try:
        gang = gang_of(body, GangSources.empty())
    except InputError as error:
        log.warning("pod %s counts alone: %s", body["metadata"].get("name"), error)
        return ""
    return gang.id if gang is not None else ""


def pod_specs(
    records: Sequence[NodeRecord],
    members: Members,
    pods: Mapping[tuple[str, str], JsonObject],
    works: PodWorks,
) -> list[PodSpec]:
    """Pods on GPUs as the agents attribute them, with class, gang and work as the API says.

    An agent's word counts for its own GPUs and for pods that are bound to its own node.
    """
    specs = []
    for record, node in zip(records, members.heard, strict=True):
        own = {gpu.uuid for gpu in node.gpus}
        for use in record.sample.pods if record.sample is not None else ():
            body = pods.get((use.namespace, use.name), {})
            if (body.get("spec") or {}).get("nodeName") != record.name:
                # Of another node, or not bound at all: this node's word gives it no class.
                body = {}
            metadata, spec = body.get("metadata", {}), body.get("spec", {})
            specs.append(
                PodSpec(
                    use.namespace,
                    use.name,
                    tuple(uuid for uuid in use.device_uuids if uuid in own),
                    metadata.get("labels") or {},
                    str(spec.get("priorityClassName", "")),
                    gang_name(body),
                    works.of_pod(body) if body else None,
                )
            )
    return specs
