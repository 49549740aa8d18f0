"""An API with pods, the informers that follow it, and the writer of classified profiles."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from controller.app.classified_profiles import ClassifiedProfiles
from controller.app.desired_state import ObjectStore
from controller.app.forecast_reader import ForecastReader
from controller.app.running_topology import DesiredTopology
from controller.work_seen import PodWork
from simulation.kube import EmbeddedKube
from wattpack.api import WorkloadProfile
from wattpack.clock import ManualClock
from wattpack.kube.informer import Informer
from wattpack.kube.port import PODS, JsonObject, KubeApi, Resource
from wattpack.kube.write_budget import write_budget
from wattpack.units import seconds_to_ns

PROFILES = WorkloadProfile.meta.resource
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
DECODE = PodWork("decoder-decode", "bandwidth", 0.93, "telemetry")
PREFILL = PodWork("decoder-prefill", "compute", 0.97, "telemetry")
LABEL = PodWork("rl-rollout", "", 1.0, "label")


class Bench:
    """Verdicts are given; time is the test's own, also beside a real API server.

    Args:
        kube: Where people and informers look; an embedded store by default.
        api: Where the writer writes; the same by default.
    """

    def __init__(
        self, kube: KubeApi | None = None, api: KubeApi | None = None, namespace: str = "team"
    ) -> None:
        self.clock = ManualClock(seconds_to_ns(1000))
        self.kube: KubeApi = kube or EmbeddedKube(self.clock)
        self.api = api or self.kube
        self.namespace = namespace
        self.works: dict[str, PodWork] = {}
        self.leads = True
        self.store = ObjectStore()
        self.informers = [Informer(self.kube, self.clock, r) for r in (PODS, PROFILES)]
        for informer, resource in zip(self.informers, (PODS, PROFILES), strict=True):
            informer.add_handler(partial(self.store.changed, resource))
        self.desired = DesiredTopology(self.store, ForecastReader(self.store))
        self.writer = self.new_writer()

    def new_writer(self) -> ClassifiedProfiles:
        return ClassifiedProfiles(
            self.api,
            self.clock,
            self.desired,
            lambda: self.works,
            lambda: self.leads,
            write_budget(self.clock),
        )

    def pod(self, name: str, owner: JsonObject | None = None, **metadata: Any) -> JsonObject:
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, **metadata},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        if owner is not None:
            body["metadata"]["ownerReferences"] = [reference(owner)]
        return self.kube.create(PODS, body, self.namespace)

    def replica_set(self, name: str = "chat-6f7d", replicas: int = 0) -> JsonObject:
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}}
        labels = {"app": name}
        pod = {"containers": [{"name": "c", "image": "i"}]}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        return self.kube.create(REPLICA_SETS, {**body, "spec": spec}, self.namespace)

    def run(self, seconds: int, works: Mapping[str, PodWork] | None = None, step: int = 5) -> None:
        """Look every few seconds; the informers' copies are fresh at each look."""
        if works is not None:
            self.works = {f"{self.namespace}/{name}": work for name, work in works.items()}
        for _ in range(seconds // step):
            self.clock.advance_seconds(step)
            for informer in self.informers:
                informer.pump()
            self.writer.run_once()

    def profiles(self) -> dict[str, JsonObject]:
        found = self.kube.list(PROFILES, self.namespace).items
        return {body["metadata"]["name"]: body for body in found}


def reference(owner: JsonObject) -> JsonObject:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
