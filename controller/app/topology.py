"""The topology that runs: objects and fleet in, arrays out, refusals kept for the status.

Built anew only when an object or the fleet changed. What cannot be accepted leaves what ran before
(I8); a node whose GPU model has no profile joins at its own limits, uncontrolled, and is reported,
because electricity that is already drawn cannot be refused (I1).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from capacity.errors import UnknownGpuModel
from capacity.library import ProfileLibrary
from capacity.profile import GpuProfile
from controller.app.desired import ForecastReader, Objects, ObjectStore, Refusal
from controller.app.fleet import DeviceDescription, Fleet, NodeRecord
from controller.app.view import ForecastView
from controller.model import Topology
from controller.topology import GpuSpec, NodeSpec, PodSpec, accept
from scheduler_plugin.gangs import GangSources, gang_of
from wattpack.api import DemandForecast, PowerDomain
from wattpack.errors import InputError, WattpackError
from wattpack.kube.port import JsonObject

log = logging.getLogger(__name__)


class DesiredTopology:
    """Keeps the accepted objects and the topology made of them.

    Args:
        store: Newest objects.
        forecasts: Of the domains.
        profiles: GPU types.
    """

    def __init__(
        self, store: ObjectStore, forecasts: ForecastReader, profiles: ProfileLibrary
    ) -> None:
        self._store, self._forecasts, self._profiles = store, forecasts, profiles
        self._key: tuple[int, int] | None = None
        self._topology: Topology | None = None
        self._accepted: dict[str, PowerDomain] = {}
        self._refusals: tuple[Refusal, ...] = ()
        self.models: Sequence[str] = ()
        self.pods_of_gpus: Sequence[str] = ()

    @property
    def objects(self) -> Objects:
        """The newest objects, with the domains as they were accepted."""
        newest = self._store.objects
        return replace(newest, domains=self._accepted)

    def topology(self, fleet: Fleet) -> Topology | None:
        """The topology that runs; None until a domain, a policy and a node are known."""
        key = (self._store.version, fleet.version)
        if key != self._key:
            self._key = key
            self._rebuild(fleet.records())
        return self._topology

    def refusals(self) -> tuple[Refusal, ...]:
        """Objects and nodes whose newest state does not run."""
        return (*self._refusals, *self._store.unreadable())

    def accepted_domains(self) -> Mapping[str, PowerDomain]:
        """What runs."""
        return self._accepted

    def newest_domain(self, name: str) -> PowerDomain | None:
        """The newest object of that name that could be read."""
        with self._store.lock:
            return self._store.objects.domains.get(name)

    def newest_domain_object(self, name: str) -> JsonObject | None:
        """The same as the API gave it."""
        with self._store.lock:
            return self._store.objects.plain_domains.get(name)

    def forecast_of(self, domain: str) -> DemandForecast | None:
        """The newest forecast object of a domain."""
        with self._store.lock:
            forecasts = list(self._store.objects.forecasts.values())
        return next((f for f in forecasts if f.spec.target.power_domain == domain), None)

    def forecast_views(self, wall_time_ns: int) -> dict[str, ForecastView]:
        """Usable forecasts by domain."""
        if self._topology is None:
            return {}
        tree = self._topology.tree
        ratings = dict(zip(tree.names, tree.rating_watts.tolist(), strict=True))
        return self._forecasts.views(ratings, wall_time_ns)

    def saw(self, draws_watts: Mapping[str, float], wall_time_ns: int) -> None:
        """A tick's draws, for the forecast's fall-back."""
        self._forecasts.saw(draws_watts, wall_time_ns)

    def _rebuild(self, records: Sequence[NodeRecord]) -> None:
        with self._store.lock:
            objects = replace(self._store.objects)
            pods = dict(objects.pods)
        nodes, profiles, unknown = self._nodes(records, objects)
        if not objects.domains or not nodes:
            return
        uses = pod_specs(records, pods)
        try:
            acceptance = accept(
                list(self._accepted.values()),
                list(objects.domains.values()),
                list(objects.policies.values()),
                nodes,
                uses,
                profiles,
            )
        except WattpackError as error:
            log.error("topology not rebuilt, what ran before runs on: %s", error)
            self._refusals = (*unknown, Refusal("Fleet", "", "NotUnderstood", str(error), 0))
            return
        self._accepted = {domain.name: domain for domain in acceptance.domains}
        self._topology = acceptance.topology
        self._refusals = (
            *unknown,
            *[
                Refusal(
                    PowerDomain.meta.kind,
                    name,
                    refusal.reason,
                    refusal.message,
                    objects.domains[name].generation,
                )
                for name, refusal in acceptance.refusals.items()
            ],
        )
        self._describe(records, uses)

    def _nodes(
        self, records: Sequence[NodeRecord], objects: Objects
    ) -> tuple[list[NodeSpec], dict[str, GpuProfile], list[Refusal]]:
        """Servers with labels, the profile of each product name, and who has none."""
        nodes: list[NodeSpec] = []
        profiles: dict[str, GpuProfile] = {}
        unknown: list[Refusal] = []
        for record in records:
            known = True
            for device in record.devices:
                if device.model not in profiles:
                    try:
                        profiles[device.model] = self._profiles.find(device.model)
                    except UnknownGpuModel as error:
                        known = False
                        profiles[device.model] = stand_in(self._profiles, device)
                        unknown.append(
                            Refusal("GpuNode", record.name, "UnknownGpuModel", str(error), 0)
                        )
            labels = objects.nodes.get(record.name, {}).get("metadata", {}).get("labels", {})
            gpus = tuple(
                GpuSpec(
                    d.uuid,
                    d.model,
                    d.min_limit_watts,
                    d.default_limit_watts,
                    d.max_limit_watts,
                    d.max_clock_mhz,
                )
                for d in record.devices
            )
            nodes.append(NodeSpec(record.name, gpus, labels, record.host_unit and known))
        return nodes, profiles, unknown

    def _describe(self, records: Sequence[NodeRecord], uses: Sequence[PodSpec]) -> None:
        """Columns of the live view that the arrays do not carry."""
        if self._topology is None:
            return
        model_of = {d.uuid: d.model for record in records for d in record.devices}
        pod_of = {uuid: f"{u.namespace}/{u.name}" for u in uses for uuid in u.gpu_uuids}
        self.models = [model_of[uuid] for uuid in self._topology.gpu_uuids]
        self.pods_of_gpus = [pod_of.get(uuid, "") for uuid in self._topology.gpu_uuids]

    def forecast_p99_watts(self, wall_time_ns: int) -> dict[str, float]:
        """Peak of the horizon at p99 by domain, where there is a usable forecast."""
        views = self.forecast_views(wall_time_ns)
        return {n: v.p99_watts for n, v in views.items() if v.p99_watts is not None}


def stand_in(profiles: ProfileLibrary, device: DeviceDescription) -> GpuProfile:
    """A profile for a board of which nothing is known: its floor is its default limit."""
    some = next(iter(profiles.profiles.values()))
    return replace(
        some,
        model=device.model,
        product_names=(device.model,),
        min_limit_watts=device.min_limit_watts,
        default_limit_watts=device.default_limit_watts,
        max_limit_watts=device.max_limit_watts,
        knee_watts=device.default_limit_watts,
        max_clock_mhz=float(device.max_clock_mhz),
        kernel_classes={},
    )


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
    records: Sequence[NodeRecord], pods: Mapping[tuple[str, str], JsonObject]
) -> list[PodSpec]:
    """Pods on GPUs as the agents attribute them, with class and gang as the API says."""
    specs = []
    for record in records:
        for use in record.sample.pods if record.sample is not None else ():
            body = pods.get((use.namespace, use.name), {})
            metadata, spec = body.get("metadata", {}), body.get("spec", {})
            specs.append(
                PodSpec(
                    use.namespace,
                    use.name,
                    use.device_uuids,
                    metadata.get("labels") or {},
                    str(spec.get("priorityClassName", "")),
                    gang_name(body),
                )
            )
    return specs
