"""GPUs that bound pods hold through ResourceClaims are taken; pods with claims are left alone."""

from __future__ import annotations

from scheduler_plugin import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.claim_follower import CLAIM_KINDS
from wattpack.kube.port import PODS, JsonObject

KIND = CLAIM_KINDS[0]


def add_claim(cluster: Cluster, name: str, user: JsonObject, gpus: int) -> None:
    devices = [
        {"driver": "gpu.nvidia.com", "pool": "n1", "device": f"gpu-{i}"} for i in range(gpus)
    ]
    allocated = {"allocation": {"devices": {"results": devices}}} if gpus else {}
    reserved = {"reservedFor": [{"resource": "pods", "uid": user["metadata"]["uid"]}]}
    body = {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": {"name": name}}
    cluster.api.create(KIND, {**body, "spec": {}, "status": allocated | reserved}, SPACE)


def add_claimer(cluster: Cluster, *, gpus: int) -> JsonObject:
    """A pod on the only node, with that many GPUs by a claim and none by a resource name."""
    claims = [{"name": "c", "resourceClaimName": "c"}]
    pod = cluster.api.create(PODS, pod_object("claimer", 0, resourceClaims=claims), SPACE)
    cluster.api.bind("claimer", SPACE, "n1")
    add_claim(cluster, "c", pod, gpus)
    return pod


def placed(cluster: Cluster, name: str) -> bool:
    return bool(pod_facts.pinned_node(cluster.pod(name)))


def cluster_of_one_node() -> Cluster:
    cluster = Cluster()
    cluster.add_nodes("n1")
    return cluster


def test_claimed_gpus_are_not_given_away_again() -> None:
    cluster = cluster_of_one_node()
    add_claimer(cluster, gpus=5)
    cluster.add(pod_object("four", 4))
    cluster.add(pod_object("three", 3))
    cluster.loop.step()
    assert not placed(cluster, "four")
    assert placed(cluster, "three")


def test_claimed_gpus_of_a_pod_that_cannot_be_read_are_taken_too() -> None:
    cluster = cluster_of_one_node()
    add_claimer(cluster, gpus=5)
    name = "wattpack.io/expected-watts-per-gpu"
    cluster.api.patch_json(
        PODS,
        "claimer",
        [{"op": "add", "path": "/metadata/annotations", "value": {name: "many"}}],
        SPACE,
    )
    cluster.add(pod_object("four", 4))
    cluster.loop.step()
    assert not placed(cluster, "four")


def test_a_claim_that_was_not_allocated_takes_nothing() -> None:
    cluster = cluster_of_one_node()
    add_claimer(cluster, gpus=0)
    cluster.add(pod_object("eight", 8))
    cluster.loop.step()
    assert placed(cluster, "eight")


def test_more_claimed_gpus_than_the_node_offers_by_name_stop_nothing() -> None:
    cluster = cluster_of_one_node()
    cluster.add_nodes("n2")
    add_claimer(cluster, gpus=12)
    cluster.add(pod_object("eight", 8))
    cluster.loop.step()
    assert pod_facts.pinned_node(cluster.pod("eight")) == "n2"


def test_a_pod_with_a_claim_is_left_as_it_is() -> None:
    cluster = cluster_of_one_node()
    claims = [{"name": "c", "resourceClaimName": "c"}]
    cluster.add(pod_object("claimer", 1, resourceClaims=claims))
    before = cluster.pod("claimer")
    cluster.loop.step()
    assert cluster.pod("claimer") == before


def test_a_finished_pod_hands_on_the_gpus_of_a_claim_that_it_shared() -> None:
    cluster = cluster_of_one_node()
    first = add_claimer(cluster, gpus=5)
    second = cluster.api.create(
        PODS,
        pod_object("second", 0, resourceClaims=first["spec"]["resourceClaims"]),
        SPACE,
    )
    cluster.api.bind("second", SPACE, "n1")
    users = [{"resource": "pods", "uid": pod["metadata"]["uid"]} for pod in (first, second)]
    claim = cluster.api.get(KIND, "c", SPACE)
    cluster.api.replace(KIND, {**claim, "status": {**claim["status"], "reservedFor": users}}, SPACE)
    done = {**cluster.pod("claimer"), "status": {"phase": "Succeeded"}}
    cluster.api.replace(PODS, done, SPACE, subresource="status")
    cluster.add(pod_object("four", 4))
    cluster.loop.step()
    assert not placed(cluster, "four")
