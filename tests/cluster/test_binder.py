"""The binder follows the rules of kube-scheduler that the product relies on, through the API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.cluster.cluster_builders import GATE, Body, bind, create, node, pod, required, term
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

POOL = {"test.wattpack.io/pool": "binder"}
CORDON_OFF = {"nodeSelector": POOL}
NODES = {
    "binder-a": node("binder-a", gpus=4, labels={**POOL, "zone": "a"}),
    "binder-b": node("binder-b", gpus=8, labels={**POOL, "zone": "b"}),
    "binder-c": node(
        "binder-c",
        labels={**POOL, "zone": "c"},
        taints=[{"key": "wattpack.io/uncontrolled", "effect": "NoSchedule"}],
    ),
}


@pytest.fixture(scope="module")
def nodes(live_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Three nodes that kwok has made Ready."""
    plane = live_control_plane
    if plane.kind == "external":
        pytest.skip("a cluster of somebody else has its own scheduler")
    for body in NODES.values():
        create(plane, "/api/v1/nodes", body)
    for name in NODES:
        eventually(f"{name} is ready", partial(_ready, plane, name))
    yield plane
    for name in NODES:
        plane.request("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture(autouse=True)
def empty_nodes(nodes: ControlPlane) -> None:
    """Wait until the last test's pods have left."""

    def empty() -> bool:
        pods = nodes.request("GET", "/api/v1/pods").body["items"]
        return not any(p["spec"].get("nodeName") in NODES for p in pods)

    eventually("the nodes are empty", empty)


def _ready(plane: ControlPlane, name: str) -> bool:
    status = plane.request("GET", f"/api/v1/nodes/{name}").body["status"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def place(plane: ControlPlane, namespace: str, body: Body, status: Body | None = None) -> None:
    """Create a pod that stays in this test's pool."""
    body["spec"].setdefault("nodeSelector", {}).update(POOL)
    path = f"/api/v1/namespaces/{namespace}/pods"
    create(plane, path, body)
    if status:
        name = body["metadata"]["name"]
        plane.request("PATCH", f"{path}/{name}/status", {"status": status}, patch="merge")


def node_of(plane: ControlPlane, namespace: str, name: str) -> str:
    """The node that the pod gets."""

    def bound() -> str | None:
        spec = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").body["spec"]
        found: str | None = spec.get("nodeName")
        return found

    return eventually(f"{name} is bound", bound)


def unschedulable(plane: ControlPlane, namespace: str, name: str) -> str:
    """The message of the pod's PodScheduled=False condition."""

    def message() -> str | None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        conditions = plane.request("GET", path).body["status"].get("conditions", [])
        for condition in conditions:
            if condition["type"] == "PodScheduled" and condition["reason"] == "Unschedulable":
                return str(condition["message"])
        return None

    return eventually(f"{name} is said to be unschedulable", message)


def test_the_first_node_by_name_that_fits_gets_the_pod(nodes: ControlPlane, namespace: str) -> None:
    place(nodes, namespace, pod("small", gpus=1))
    assert node_of(nodes, namespace, "small") == "binder-a"
    eventually(
        "kwok runs it",
        lambda: (
            nodes.request("GET", f"/api/v1/namespaces/{namespace}/pods/small").body["status"][
                "phase"
            ]
            == "Running"
        ),
    )


def test_requests_count_against_what_is_allocatable(nodes: ControlPlane, namespace: str) -> None:
    place(nodes, namespace, pod("first", gpus=3))
    assert node_of(nodes, namespace, "first") == "binder-a"
    place(nodes, namespace, pod("second", gpus=2))
    assert node_of(nodes, namespace, "second") == "binder-b"
    place(nodes, namespace, pod("third", gpus=7))
    message = unschedulable(nodes, namespace, "third")
    assert "2 Insufficient nvidia.com/gpu" in message
    assert "untolerated taint {wattpack.io/uncontrolled: }" in message
    nodes.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/second?gracePeriodSeconds=0")
    assert node_of(nodes, namespace, "third") == "binder-b", "room that was freed is used"


PLACEMENTS: list[tuple[str, Body, str]] = [
    ("a selector", pod("p", nodeSelector={"zone": "b"}), "binder-b"),
    ("a required expression", pod("p", affinity=required(term({"zone": ["b"]}))), "binder-b"),
    ("a pin by name", pod("p", affinity=required(term(names=["binder-b"]))), "binder-b"),
    (
        "one of two terms",
        pod("p", affinity=required(term({"zone": ["x"]}), term(names=["binder-b"]))),
        "binder-b",
    ),
    (
        "a toleration and a pin",
        pod(
            "p",
            affinity=required(term(names=["binder-c"])),
            tolerations=[{"key": "wattpack.io/uncontrolled", "operator": "Exists"}],
        ),
        "binder-c",
    ),
    (
        "a preferred pin",
        pod(
            "p",
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "preference": term(names=["binder-b"])}
                    ]
                }
            },
        ),
        "binder-b",
    ),
]


@pytest.mark.parametrize("case", PLACEMENTS, ids=[case[0] for case in PLACEMENTS])
def test_placement_rules_are_kept(
    nodes: ControlPlane, namespace: str, case: tuple[str, Body, str]
) -> None:
    _, body, expected = case
    place(nodes, namespace, body)
    assert node_of(nodes, namespace, "p") == expected


def test_an_intolerant_pod_pinned_to_a_tainted_node_waits(
    nodes: ControlPlane, namespace: str
) -> None:
    place(nodes, namespace, pod("p", affinity=required(term(names=["binder-c"]))))
    assert "untolerated taint" in unschedulable(nodes, namespace, "p")


def test_a_nominated_node_is_tried_first(nodes: ControlPlane, namespace: str) -> None:
    place(nodes, namespace, pod("big", gates=[GATE], gpus=2))
    path = f"/api/v1/namespaces/{namespace}/pods/big"
    nominated = {"status": {"nominatedNodeName": "binder-b"}}
    assert nodes.request("PATCH", f"{path}/status", nominated, patch="merge").status == 200
    nodes.request("PATCH", path, [{"op": "remove", "path": "/spec/schedulingGates"}], patch="json")
    assert node_of(nodes, namespace, "big") == "binder-b"


def test_gated_pods_and_other_schedulers_pods_are_left_alone(
    nodes: ControlPlane, namespace: str
) -> None:
    place(nodes, namespace, pod("gated", gates=[GATE], gpus=1))
    place(nodes, namespace, pod("foreign", gpus=1, schedulerName="other"))
    place(nodes, namespace, pod("witness", gpus=1))
    assert node_of(nodes, namespace, "witness") == "binder-a"
    for name in ("gated", "foreign"):
        spec = nodes.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").body["spec"]
        assert "nodeName" not in spec
    path = f"/api/v1/namespaces/{namespace}/pods/gated"
    nodes.request("PATCH", path, [{"op": "remove", "path": "/spec/schedulingGates"}], patch="json")
    assert node_of(nodes, namespace, "gated") == "binder-a"


def test_the_higher_priority_goes_first(nodes: ControlPlane, namespace: str) -> None:
    classes = {"binder-low": 10, "binder-high": 1000}
    for name, value in classes.items():
        body = {"metadata": {"name": name}, "value": value}
        nodes.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    place(nodes, namespace, pod("filler", gpus=8, nodeSelector={"zone": "b"}))
    node_of(nodes, namespace, "filler")
    whole: dict[str, Any] = {"gpus": 8, "nodeSelector": {"zone": "b"}}
    place(nodes, namespace, pod("low", priorityClassName="binder-low", **whole))
    place(nodes, namespace, pod("high", priorityClassName="binder-high", **whole))
    unschedulable(nodes, namespace, "low")
    unschedulable(nodes, namespace, "high")
    nodes.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/filler?gracePeriodSeconds=0")
    assert node_of(nodes, namespace, "high") == "binder-b"
    low = nodes.request("GET", f"/api/v1/namespaces/{namespace}/pods/low").body
    assert low["spec"]["priority"] == 10
    assert "nodeName" not in low["spec"]


def test_every_pod_got_its_node_by_a_binding(nodes: ControlPlane, namespace: str) -> None:
    create(nodes, f"/api/v1/namespaces/{namespace}/pods", pod("by-hand", nodeSelector={"no": "w"}))
    assert bind(nodes, namespace, "by-hand", "binder-b").status == 201
    place(nodes, namespace, pod("counted", gpus=1))
    node_of(nodes, namespace, "counted")

    def written(*verbs: str) -> set[tuple[str, str, str]]:
        """Who wrote what of this test's pods, of the requests that have ended."""
        return {
            (event["userAgent"].partition("/")[0], about["name"], about.get("subresource", ""))
            for event in nodes.audit_events()
            if (about := event.get("objectRef", {})).get("resource") == "pods"
            and about.get("namespace") == namespace
            and event["verb"] in verbs
        }

    binding = ("wattpack-test-binder", "counted", "binding")
    eventually("the binding is logged", lambda: binding in written("create"))
    bound = {w for w in written("create") if w[1:] == binding[1:]}
    assert bound == {binding}

    def of_kwok() -> set[tuple[str, str]]:
        return {(name, sub) for who, name, sub in written("patch", "update") if who == "kwok"}

    eventually("kwok made pods run", lambda: of_kwok() or None)
    assert {subresource for _, subresource in of_kwok()} == {"status"}


def test_replicas_that_keep_apart_land_on_different_nodes(
    nodes: ControlPlane, namespace: str
) -> None:
    replicas = {"matchLabels": {"app": "controller"}}
    rule = {"topologyKey": "zone", "labelSelector": replicas}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("r-0", "r-1", "r-2"):
        body = pod(name, affinity=affinity, **CORDON_OFF)
        body["metadata"]["labels"] = replicas["matchLabels"]
        create(nodes, path, body)

    def where() -> list[str]:
        items = nodes.request("GET", path).body["items"]
        return sorted(p["spec"]["nodeName"] for p in items if p["spec"].get("nodeName"))

    eventually("two run", lambda: where() == ["binder-a", "binder-b"])

    def why() -> str:
        items = nodes.request("GET", path).body["items"]
        (left,) = (p for p in items if not p["spec"].get("nodeName"))
        return str([c.get("message") for c in left["status"].get("conditions", [])])

    eventually("the third says why", lambda: "anti-affinity" in why())


def test_a_pod_goes_where_its_volume_is(nodes: ControlPlane, namespace: str) -> None:
    affinity = {"required": {"nodeSelectorTerms": [term({"zone": ["b"]})]}}
    size = {"storage": "1Gi"}
    volume = {
        "metadata": {"name": "binder-local"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/data"},
            "nodeAffinity": affinity,
        },
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": size},
            "volumeName": "binder-local",
        },
    }
    create(nodes, "/api/v1/persistentvolumes", volume)
    create(nodes, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    place(nodes, namespace, pod("reader", volumes=mounted))
    assert node_of(nodes, namespace, "reader") == "binder-b"
    pinned = pod("elsewhere", volumes=mounted, affinity=required(term(names=["binder-a"])))
    place(nodes, namespace, pinned)
    why = unschedulable(nodes, namespace, "elsewhere")
    assert "didn't match PersistentVolume's node affinity" in why
    nodes.request("DELETE", "/api/v1/persistentvolumes/binder-local")


def test_a_pod_that_wants_company_waits_for_it(nodes: ControlPlane, namespace: str) -> None:
    rule = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "host"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    place(nodes, namespace, pod("guest", affinity=affinity))
    assert "didn't match pod affinity rules" in unschedulable(nodes, namespace, "guest")
    place(nodes, namespace, pod("host", nodeSelector={"zone": "b"}))
    assert node_of(nodes, namespace, "guest") == "binder-b"
