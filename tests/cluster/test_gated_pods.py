"""Every update of a pod that Kubernetes refuses is refused; the table is the rule book."""

from __future__ import annotations

import copy

import pytest

from tests.cluster.cluster_builders import GATE, Body, bind, create, pod, required, term
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pod_rules_table import CREATIONS, REFUSED, UPDATES, ZONE, Change

pytestmark = pytest.mark.cluster

NOBODY = "nobody"  # a scheduler that does not exist, so that nobody binds the ungated pods


@pytest.mark.parametrize("case", UPDATES, ids=[case[0] for case in UPDATES])
def test_an_update_of_a_pod_is_judged_as_kubernetes_does(
    control_plane: ControlPlane,
    shared_namespace: str,
    case: tuple[str, tuple[str, ...], Body, Change, int],
) -> None:
    what, old_gates, placement, change, expected = case
    name = "-".join(what.replace("'", "").lower().split())
    path = f"/api/v1/namespaces/{shared_namespace}/pods"
    body = pod(name, gates=old_gates, schedulerName=NOBODY, **copy.deepcopy(placement))
    created = create(control_plane, path, body)
    wanted = copy.deepcopy(created)
    change(wanted["spec"])
    answer = control_plane.request("PUT", f"{path}/{name}", wanted)
    assert answer.status == expected, answer.message
    if expected == REFUSED:
        stored = control_plane.request("GET", f"{path}/{name}").body
        assert stored["spec"] == created["spec"], "nothing of a refused update is applied"


@pytest.mark.parametrize("case", CREATIONS, ids=[case[0] for case in CREATIONS])
def test_a_new_pod_is_judged_as_kubernetes_does(
    control_plane: ControlPlane, shared_namespace: str, case: tuple[str, Body, int]
) -> None:
    what, body, expected = case
    if control_plane.kind == "kubebuilder" and "account" in what:
        pytest.skip("without controllers nobody makes accounts, so none are asked for")
    answer = control_plane.request("POST", f"/api/v1/namespaces/{shared_namespace}/pods", body)
    assert answer.status == expected, answer.message


def test_a_gated_pod_says_why_it_waits(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    created = create(control_plane, path, pod("waits", gates=[GATE]))
    condition = created["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )
    freed = control_plane.request(
        "PATCH", f"{path}/waits", [{"op": "remove", "path": "/spec/schedulingGates"}], patch="json"
    )
    assert freed.status == 200, freed.message
    assert not freed.body["status"].get("conditions")


def test_a_gated_pod_cannot_be_bound(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    create(control_plane, path, pod("held", gates=[GATE]))
    answer = bind(control_plane, namespace, "held", "n1")
    assert answer.status == 409
    assert "schedulingGates" in answer.message
    legacy = control_plane.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/bindings",
        {"metadata": {"name": "held"}, "target": {"kind": "Node", "name": "n1"}},
    )
    assert legacy.status == 409
    assert "nodeName" not in control_plane.request("GET", f"{path}/held").body["spec"]


def test_one_patch_pins_and_ungates_only_the_version_it_read(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    created = create(
        control_plane, path, pod("pinned", gates=[GATE], affinity=required(term(ZONE)))
    )
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    place = (
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        "/nodeSelectorTerms/0/matchFields"
    )

    def patch(version: str, uid: str) -> list[Body]:
        return [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
            {"op": "add", "path": place, "value": [field]},
        ]

    meta = created["metadata"]
    for version, uid in (("1", meta["uid"]), (meta["resourceVersion"], "another")):
        stale = control_plane.request("PATCH", f"{path}/pinned", patch(version, uid), patch="json")
        assert stale.status == 422, stale.message
    fresh = patch(meta["resourceVersion"], meta["uid"])
    done = control_plane.request("PATCH", f"{path}/pinned", fresh, patch="json")
    assert done.status == 200, done.message
    assert not done.body["spec"].get("schedulingGates")


def test_a_binding_is_made_once_and_only_for_the_pod_it_means(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    create(control_plane, path, pod("once", schedulerName=NOBODY))
    assert bind(control_plane, namespace, "once", "").status == 400
    assert bind(control_plane, namespace, "absent", "n1").status == 404
    assert bind(control_plane, namespace, "once", "n1", uid="another").status == 409
    assert bind(control_plane, namespace, "once", "n1").status == 201
    assert bind(control_plane, namespace, "once", "n2").status == 409


def test_a_status_update_cannot_place_or_ungate_a_pod(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    create(control_plane, path, pod("honest", gates=[GATE]))
    body = {"spec": {"nodeName": "n1", "schedulingGates": []}, "status": {"phase": "Running"}}
    answer = control_plane.request("PATCH", f"{path}/honest/status", body, patch="merge")
    assert answer.status == 200, answer.message
    assert "nodeName" not in answer.body["spec"]
    assert answer.body["spec"]["schedulingGates"] == [{"name": GATE}]
