"""What the planner sees of the cluster: informers for what it always needs, lists for the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from capacity.catalogue.pod_works import PodWorks
from capacity.interference.shared_speeds import SharedSpeeds
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from forecasting.forecast_book import ForecastBook
from scheduler_plugin.app.gang_reader import GangReader
from scheduler_plugin.app.node_watch import NodeWatch
from scheduler_plugin.app.quota_reader import QuotaReader
from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.app.slice_reader import SliceReader
from scheduler_plugin.app.under_way_reader import UnderWayReader
from scheduler_plugin.app.volume_reader import VolumeReader
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.node_facts import is_leaving
from scheduler_plugin.kube_objects.pods import uid as pod_uid
from scheduler_plugin.kube_objects.policy_floors import PolicyFloors
from scheduler_plugin.kube_objects.power_view import ModelWatts, PowerView, model_watts
from scheduler_plugin.promises.move_wish import unserved
from scheduler_plugin.promises.new_nodes import NewNodes
from scheduler_plugin.snapshot_builder import ClusterObjects
from wattpack.api import DemandForecast, GPUProfile, PowerDomain, PowerPolicy, WorkloadProfile
from wattpack.clock import Clock
from wattpack.kube.claim_follower import ClaimFollower
from wattpack.kube.informer import Informer
from wattpack.kube.port import (
    NAMESPACES,
    NODES,
    PODS,
    JsonObject,
    KubeApi,
    Resource,
    UnavailableError,
)
from wattpack.object_names import OPT_IN_LABEL, OPT_IN_VALUE, SYSTEM_NAMESPACE
from wattpack.resource_claims import ClaimBook, asks_for_claims
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)

_DOMAINS = PowerDomain.meta.resource
_FORECASTS = DemandForecast.meta.resource
_PROFILES = GPUProfile.meta.resource
_POLICIES = PowerPolicy.meta.resource
_WORKLOADS = WorkloadProfile.meta.resource
#: PodDisruptionBudgets.
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
_KINDS = (PODS, NODES, NAMESPACES, _DOMAINS, _POLICIES, _FORECASTS, _PROFILES, _WORKLOADS)
#: A change of these may make room at once.
_WAKING = frozenset([PODS, _DOMAINS, _POLICIES, _FORECASTS])


class ClusterReader:
    """Local copies of what a cycle needs.

    Args:
        api: The cluster.
        clock: For the informers and the time of each reading.
        shadow: Also plan pods without our gate in namespaces that opted in.
        threaded: The informers run in threads of their own (``start``); otherwise each reading
            pumps them, for one thread and virtual time.
        authority: Namespace whose forecasts count for domains.
        moves: Also read what says which running pods may be moved.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        shadow: bool = False,
        threaded: bool = False,
        authority: str = SYSTEM_NAMESPACE,
        moves: bool = False,
    ) -> None:
        self._api = api
        self._authority = authority
        self._clock = clock
        self._shadow = shadow
        self._threaded = threaded
        kinds = (*_KINDS, BUDGETS) if moves else _KINDS
        self._informers = {kind: Informer(api, clock, kind) for kind in kinds}
        pods, nodes = self._informers[PODS], self._informers[NODES]
        #: What nodes are at this moment, in the middle of a cycle.
        self.now = NodeWatch(nodes, pods, threaded=threaded)
        served = ServedKinds(api, clock)
        self._new_nodes = NewNodes()
        self._gangs, self._devices = GangReader(served), SliceReader(served, clock)
        self._volumes = VolumeReader(served, clock)
        self._quotas = QuotaReader(served, clock)
        self._under_way = UnderWayReader(served, clock)
        self._claims = ClaimFollower(api, clock)
        self._profiles = ProfileBook.shipped(shipped_library())
        self._profile_versions: tuple[object, ...] = ()
        self._watts = model_watts(self._profiles)
        self._shared_speeds = SharedSpeeds()
        self._works = PodWorks()
        self._works_versions: tuple[object, ...] = ()

    def start(self, on_change: Callable[[], None]) -> None:
        """Follow the cluster in threads, if there are to be any; ``on_change`` is called from them.

        Nodes and profiles do not call it: their objects change all the time and the loop looks
        again soon anyway.
        """
        if not self._threaded:
            return
        for kind in _WAKING & self._informers.keys():
            self._informers[kind].add_handler(lambda old, new: on_change())
        for informer in self._informers.values():
            informer.start()
        self._claims.start()

    def stop(self) -> None:
        """End the threads."""
        for informer in self._informers.values():
            informer.stop()
        self._claims.stop()

    def missing(self) -> list[str]:
        """The kinds that were not read once yet; never any without threads, which read on call."""
        if not self._threaded:
            return []
        return [kind.plural for kind, i in self._informers.items() if not i.synced()]

    def pods(self) -> tuple[JsonObject, ...]:
        """All pods of all namespaces; shared, do not change them.

        Raises:
            UnavailableError: until everything was read once.
        """
        if not self._threaded:
            for informer in self._informers.values():
                informer.pump()
        missing = [kind.plural for kind, i in self._informers.items() if not i.synced()]
        if missing:
            raise UnavailableError(f"not read yet: {', '.join(missing)}")
        self._new_nodes.see(self._nodes(), self._clock.monotonic_ns())
        return self._informers[PODS].list()

    def standing_nodes(self) -> frozenset[str]:
        """Names of the nodes that are there and not on their way out."""
        return frozenset(str(b["metadata"]["name"]) for b in self._nodes() if not is_leaving(b))

    def objects(
        self, pods: tuple[JsonObject, ...], kept_gangs: Collection[str] = frozenset()
    ) -> ClusterObjects:
        """Everything else, around the given pods.

        Args:
            pods: All pods.
            kept_gangs: For which places are kept.

        Raises:
            InputError: if an object of ours does not fit its schema.
            KubeError: if the API does not answer.
        """
        return ClusterObjects(
            nodes=self._nodes_to_plan(pods),
            pods=pods,
            power=PowerView(
                self._informers[_DOMAINS].list(),
                ForecastBook.of(self._authority, self._informers[_FORECASTS].list()),
            ),
            models=self._models(),
            works=self._pod_works(),
            shared_speeds=self._shared_speeds,
            gangs=self._gangs.sources(pods, kept_gangs),
            claims=self._claims.book() if any(map(asks_for_claims, pods)) else ClaimBook(),
            devices=self._devices.objects(pods),
            volumes=self._volumes.places(pods),
            quotas=self._quotas.book(),
            under_way=self._under_way.read(self._nodes(), pods),
            wall_seconds=self._clock.wall_time_ns() / NS_PER_SECOND,
            shadow_namespaces=self.opted_in() if self._shadow else frozenset(),
            namespaces=self.namespaces(),
        )

    def _nodes(self) -> tuple[JsonObject, ...]:
        return self._informers[NODES].list()

    def _nodes_to_plan(self, pods: tuple[JsonObject, ...]) -> tuple[JsonObject, ...]:
        """New ones look cordoned as long as they are left to pods that are no longer gated."""
        if self._shadow:
            return self._nodes()
        waiting = unserved(pods, self.opted_in())
        bodies = [pod for pod in pods if pod_uid(pod) in waiting]
        return self._new_nodes.left(self._nodes(), bodies, self._clock.monotonic_ns())

    def _models(self) -> Mapping[str, ModelWatts]:
        """What GPU types draw; a profile that is refused keeps its last good figures."""
        bodies = self._informers[_PROFILES].list()
        versions = _versions(bodies)
        if versions != self._profile_versions:
            self._profile_versions = versions
            self._profiles = self._profiles.with_objects(bodies)
            self._watts = model_watts(self._profiles)
            self._shared_speeds = SharedSpeeds(self._profiles.shared_pairs)
            for refusal in self._profiles.refusals.values():
                log.warning("a GPUProfile is not used: %s", refusal.message)
        return self._watts

    def _pod_works(self) -> PodWorks:
        """What kinds of work WorkloadProfiles describe; read again only when one changed."""
        bodies = self._informers[_WORKLOADS].list()
        versions = _versions(bodies)
        if versions != self._works_versions:
            self._works_versions, self._works = versions, PodWorks.of(bodies)
        return self._works

    def opted_in(self) -> frozenset[str]:
        """Namespaces that carry our opt-in label."""
        return frozenset(
            name
            for name, labels in self.namespaces().items()
            if labels.get(OPT_IN_LABEL) == OPT_IN_VALUE
        )

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of namespaces by name."""
        bodies = self._informers[NAMESPACES].list()
        return {str(b["metadata"]["name"]): b["metadata"].get("labels") or {} for b in bodies}

    def policy_floors(self) -> PolicyFloors:
        """What PowerPolicies keep for pods."""
        return PolicyFloors.of(self._informers[_POLICIES].list())

    def budgets(self) -> tuple[JsonObject, ...]:
        """PodDisruptionBudgets (with moves)."""
        return self._informers[BUDGETS].list()


def _versions(bodies: Iterable[JsonObject]) -> tuple[object, ...]:
    """Equal as long as no object changed."""
    return tuple(
        (pod_facts.namespace(b), b["metadata"]["name"], b["metadata"].get("resourceVersion"))
        for b in bodies
    )
