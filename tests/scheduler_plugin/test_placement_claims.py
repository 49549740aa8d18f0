"""GPUs through ResourceClaims: what bound pods hold is taken, what others ask for is planned."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.app.slice_reader import CLAIM_TEMPLATES, KEPT_SECONDS, RESOURCE_SLICES
from scheduler_plugin.documents.mig_geometry import GEOMETRIES
from scheduler_plugin.kube_objects import pods as pod_facts
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


SLICES, TEMPLATES = RESOURCE_SLICES[0], CLAIM_TEMPLATES[0]
H200 = "NVIDIA H200"


def add_slice(cluster: Cluster, node: str, boards: int, product: str = H200) -> None:
    """The boards of a node that a driver offers; none by a resource name."""
    attributes = {"type": {"string": "gpu"}, "productName": {"string": product}}
    devices = [{"name": f"gpu-{i}", "attributes": attributes} for i in range(boards)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices}
    body = {"apiVersion": SLICES.api_version, "kind": SLICES.kind, "spec": spec}
    cluster.api.create(SLICES, body | {"metadata": {"name": f"{node}-gpus"}})


def asks(count: int, **more: Any) -> JsonObject:
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count, **more}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def add_template(cluster: Cluster, name: str, spec: JsonObject) -> None:
    body = {"apiVersion": TEMPLATES.api_version, "kind": TEMPLATES.kind, "spec": {"spec": spec}}
    cluster.api.create(TEMPLATES, body | {"metadata": {"name": name}}, SPACE)


def from_template(name: str, template: str, **changes: Any) -> JsonObject:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return pod_object(name, 0, resourceClaims=claims, **changes)


def dra_cluster(*boards: int) -> Cluster:
    cluster = Cluster()
    for i, count in enumerate(boards, start=1):
        cluster.add_nodes(f"n{i}", gpus=0)
        add_slice(cluster, f"n{i}", count)
    return cluster


def test_devices_of_slices_are_room_for_claims_alone() -> None:
    cluster = dra_cluster(8, 4)
    add_template(cluster, "six", asks(6))
    cluster.add(from_template("claims", "six"))
    cluster.add(pod_object("by-name", 1))
    result = cluster.loop.step()
    assert result.released == {f"{SPACE}/claims": "n1"}
    assert list(result.pending) == [f"{SPACE}/by-name"]


def test_claims_find_no_room_on_boards_that_a_device_plugin_hands_out() -> None:
    cluster = dra_cluster(1)
    cluster.add_nodes("plugin", gpus=8)
    add_template(cluster, "two", asks(2))
    cluster.add(from_template("claims", "two"))
    ((_, message),) = cluster.loop.step().pending.values()
    assert "deviceclass.resource.kubernetes.io/gpu.nvidia.com" in message


def test_what_bound_pods_hold_is_no_room_for_claims() -> None:
    cluster = dra_cluster(8)
    add_claimer(cluster, gpus=5)
    add_template(cluster, "four", asks(4))
    add_template(cluster, "three", asks(3))
    cluster.add(from_template("large", "four"))
    cluster.add(from_template("small", "three"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/small"]


def test_a_claim_that_names_a_product_goes_to_such_boards() -> None:
    cluster = dra_cluster(8)
    cluster.add_nodes("a", gpus=0, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    add_slice(cluster, "a", 8, "NVIDIA A100-SXM4-80GB")
    cel = "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A100-SXM4-80GB'"
    add_template(cluster, "a100", asks(1, selectors=[{"cel": {"expression": cel}}]))
    cluster.add(from_template("p", "a100"))
    assert cluster.loop.step().released == {f"{SPACE}/p": "a"}


def test_a_pod_goes_where_a_claim_that_it_shares_is_allocated() -> None:
    cluster = dra_cluster(8, 8)
    first = add_claimer(cluster, gpus=5)
    claim = cluster.api.get(KIND, "c", SPACE)
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    claim["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    cluster.api.replace(KIND, claim, SPACE)
    add_template(cluster, "eight", asks(8))
    cluster.add(from_template("large", "eight"))
    cluster.add(pod_object("second", 0, resourceClaims=first["spec"]["resourceClaims"]))
    result = cluster.loop.step()
    assert result.released == {f"{SPACE}/large": "n2", f"{SPACE}/second": "n1"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"devices": {"requests": [{"name": "n", "exactly": {"deviceClassName": "nic"}}]}}, "nic"),
        (None, "that is there"),
    ],
)
def test_a_pod_whose_claims_cannot_be_counted_is_let_go_at_once(
    spec: JsonObject | None, why: str
) -> None:
    cluster = dra_cluster(8)
    if spec is not None:
        add_template(cluster, "t", spec)
    cluster.add(from_template("p", "t"))
    ((reason, message),) = cluster.loop.step().pending.values()
    assert reason == "ClaimNotCounted"
    assert why in message
    assert pod_facts.gates(cluster.pod("p")) == []
    assert pod_facts.pinned_node(cluster.pod("p")) == ""


def test_a_gang_of_pods_with_claims_starts_whole() -> None:
    cluster = dra_cluster(8, 8)
    add_template(cluster, "eight", asks(8))
    marks: dict[str, Any] = {"labels": {"wattpack.io/gang": "g"}}
    marks["annotations"] = {"wattpack.io/gang-size": "3"}
    for i in range(3):
        cluster.add(from_template(f"p{i}", "eight", **marks))
    assert cluster.loop.step().released == {}
    cluster.add_nodes("n3", gpus=0)
    add_slice(cluster, "n3", 8)
    cluster.clock.advance_seconds(KEPT_SECONDS + 1)
    assert len(cluster.loop.step().released) == 3


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_parts_of_boards_are_planned_by_their_names(name: str) -> None:
    cluster = Cluster()
    cluster.add_nodes("none", gpus=0)
    cluster.add_nodes("some", gpus=0, offers={name: "2"})
    for i in range(3):
        cluster.add(pod_object(f"p{i}", 0, asks={name: "1"}))
    result = cluster.loop.step()
    assert sorted(result.released.values()) == ["some", "some"]
    ((_, message),) = result.pending.values()
    assert name in message


def add_cuttable(cluster: Cluster, node: str) -> None:
    """One board that its driver cuts as claims ask for it: the board and all its partitions."""
    counters = {"consumesCounters": [{"counterSet": "board"}]}
    found = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}} | counters]
    for profile in GEOMETRIES["H200-141GB"].profiles:
        attributes = {"type": {"string": "mig"}, "profile": {"string": profile}}
        name = "mig-" + profile.replace(".", "-").replace("+", "-")
        found.append({"name": name, "attributes": attributes} | counters)
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": found}
    body = {"apiVersion": SLICES.api_version, "kind": SLICES.kind, "spec": spec}
    cluster.add_nodes(node, gpus=0)
    cluster.api.create(SLICES, body | {"metadata": {"name": f"{node}-cut"}})


def asks_instance(profile: str) -> JsonObject:
    cel = f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"
    exactly = {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": cel}}]}
    return {"devices": {"requests": [{"name": "mig", "exactly": exactly}]}}


def test_boards_that_a_driver_cuts_hold_what_their_slices_hold() -> None:
    """Two of 3g, as on any such board; no third beside them, and not the whole board."""
    cluster = Cluster()
    add_cuttable(cluster, "n1")
    add_template(cluster, "3g", asks_instance("3g.71gb"))
    add_template(cluster, "whole", asks(1))
    for i in range(3):
        cluster.add(from_template(f"p{i}", "3g"))
    assert len(cluster.loop.step().released) == 2
    cluster.add(from_template("q", "whole"))
    result = cluster.loop.step()
    assert result.released == {}
    assert f"{SPACE}/q" in result.pending


def test_a_bound_instance_leaves_the_rest_of_its_board() -> None:
    cluster = Cluster()
    add_cuttable(cluster, "n1")
    user = add_claimer(cluster, gpus=0)
    results = [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "mig-3g-71gb"}]
    claim = cluster.api.get(KIND, "c", SPACE)
    reserved = [{"resource": "pods", "uid": user["metadata"]["uid"]}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    cluster.api.replace(KIND, {**claim, "status": status}, SPACE)
    add_template(cluster, "4g", asks_instance("4g.71gb"))
    add_template(cluster, "3g", asks_instance("3g.71gb"))
    cluster.add(from_template("four", "4g"))
    cluster.add(from_template("three", "3g"))
    # The running instance is taken to be on the first slices that it may have: 4g has only those.
    assert cluster.loop.step().released == {f"{SPACE}/three": "n1"}
