"""A pod goes where the volumes are that its claims are bound to."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.app.volume_reader import CLAIMS, KEPT_SECONDS, VOLUMES
from simulation.kube import EmbeddedKube
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.port import ForbiddenError, JsonObject, ObjectList, Resource


def mounting(name: str, *claims: str) -> JsonObject:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return pod_object(name, 1, volumes=volumes)


def add_claim(cluster: Cluster, name: str, volume: str = "") -> None:
    body = {"kind": CLAIMS[0].kind, "metadata": {"name": name}, "spec": {"volumeName": volume}}
    cluster.api.create(CLAIMS[0], {"apiVersion": "v1", **body}, SPACE)


def add_volume(cluster: Cluster, name: str, *hosts: str) -> None:
    """One that these hosts alone can reach; any if none is named."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    body = {"kind": VOLUMES[0].kind, "metadata": {"name": name}}
    spec = {"nodeAffinity": required} if hosts else {}
    cluster.api.create(VOLUMES[0], {"apiVersion": "v1", **body, "spec": spec})


def test_a_pod_goes_where_all_of_its_volumes_can_be_reached(cluster: Cluster) -> None:
    cluster.add_nodes("n3")
    add_volume(cluster, "one", "n2", "n3")
    add_volume(cluster, "two", "n1", "n3")
    add_volume(cluster, "anywhere")
    for name in ("one", "two", "anywhere"):
        add_claim(cluster, f"c-{name}", name)
    cluster.add(mounting("p", "c-one", "c-two", "c-anywhere"))
    assert cluster.loop.step().released == {f"{SPACE}/p": "n3"}


def test_volumes_that_no_node_reaches_together_are_told(cluster: Cluster) -> None:
    add_volume(cluster, "one", "n1")
    add_volume(cluster, "two", "n2")
    add_claim(cluster, "c1", "one")
    add_claim(cluster, "c2", "two")
    cluster.add(mounting("p", "c1", "c2"))
    ((reason, _),) = cluster.loop.step().pending.values()
    assert reason == "NodeAffinityMismatch"


def test_a_claim_that_waits_for_its_first_consumer_keeps_nobody_away(cluster: Cluster) -> None:
    add_claim(cluster, "new")
    cluster.add(mounting("p", "new"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_a_claim_that_comes_later_is_found(cluster: Cluster) -> None:
    cluster.add(mounting("p", "late"))
    ((reason, message),) = cluster.loop.step().pending.values()
    assert (reason, "late" in message) == ("InvalidRequest", True)
    add_volume(cluster, "v", "n2")
    add_claim(cluster, "late", "v")
    assert cluster.loop.step().released == {f"{SPACE}/p": "n2"}


class Counting(EmbeddedKube):
    """How often volumes were read, and whether they may be."""

    lists = 0
    allowed = True

    def list(self, resource: Resource, *args: Any, **options: Any) -> ObjectList:
        if resource in (*CLAIMS, *VOLUMES):
            self.lists += 1
            if not self.allowed:
                raise ForbiddenError("no right")
        return super().list(resource, *args, **options)


@pytest.fixture
def counted(cluster: Cluster) -> tuple[Cluster, Counting]:
    api = Counting(cluster.clock)
    cluster.api = api
    cluster.loop = cluster.new_loop()
    cluster.add_nodes("n1", "n2")
    return cluster, api


def test_volumes_are_read_only_while_somebody_waits_for_one(
    counted: tuple[Cluster, Counting],
) -> None:
    cluster, api = counted
    cluster.add(pod_object("plain", 9))
    cluster.loop.step()
    assert api.lists == 0
    add_volume(cluster, "v", "n1")
    add_claim(cluster, "c", "v")
    cluster.add(mounting("p", "c") | {"metadata": pod_object("p")["metadata"]})
    cluster.loop.step()
    read = api.lists
    assert read == 2
    cluster.add(mounting("q", "c"))
    cluster.loop.step()
    assert api.lists == read, "a bound claim stays bound"
    cluster.clock.advance_seconds(KEPT_SECONDS)
    cluster.add(mounting("r", "c"))
    cluster.loop.step()
    assert api.lists == read + 2


def test_volumes_that_we_may_not_read_are_left_to_kube_scheduler(
    counted: tuple[Cluster, Counting],
) -> None:
    cluster, api = counted
    api.allowed = False
    cluster.add(mounting("p", "c"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]
