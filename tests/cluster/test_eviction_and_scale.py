"""Disruption budgets hold back evictions; /scale changes replicas and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.cluster_builders import Body, create, pod
from tests.cluster.cluster_connection import Answer
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("with_controllers")]


def evict(plane: ControlPlane, namespace: str, name: str, query: str = "") -> Answer:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction{query}"
    return plane.request("POST", path, body)


def run(plane: ControlPlane, namespace: str, name: str) -> None:
    """A pod that says that it runs and is ready."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = pod(name, nodeSelector={"no": "where"})
    body["metadata"]["labels"] = {"set": "web"}
    create(plane, path, body)
    status: Body = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    plane.request("PATCH", f"{path}/{name}/status", {"status": status}, patch="merge")


def budget(plane: ControlPlane, namespace: str, **spec: Any) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"set": "web"}}
    create(plane, path, {"metadata": {"name": "web"}, "spec": {"selector": selector, **spec}})

    def observed() -> bool:
        status: Body = plane.request("GET", f"{path}/web").body["status"]
        return bool(status.get("observedGeneration") == 1 and status["expectedPods"] == 2)

    eventually("the budget knows its pods", observed)


def test_an_eviction_is_refused_when_the_budget_is_spent(
    control_plane: ControlPlane, namespace: str
) -> None:
    for name in ("a", "b"):
        run(control_plane, namespace, name)
    budget(control_plane, namespace, minAvailable=1)
    eventually(
        "one disruption is allowed",
        lambda: evict(control_plane, namespace, "a", "?dryRun=All").status == 201,
    )
    assert evict(control_plane, namespace, "a").status == 201
    refused = evict(control_plane, namespace, "b")
    assert refused.status == 429
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    path = f"/api/v1/namespaces/{namespace}/pods"
    assert control_plane.request("GET", f"{path}/a").status == 404
    assert control_plane.request("GET", f"{path}/b").status == 200


def test_a_pod_that_does_not_run_is_evicted_freely(
    control_plane: ControlPlane, namespace: str
) -> None:
    run(control_plane, namespace, "a")
    run(control_plane, namespace, "b")
    budget(control_plane, namespace, maxUnavailable=0)
    assert evict(control_plane, namespace, "a").status == 429
    waiting = pod("c", nodeSelector={"no": "where"})
    waiting["metadata"]["labels"] = {"set": "web"}
    create(control_plane, f"/api/v1/namespaces/{namespace}/pods", waiting)
    assert evict(control_plane, namespace, "c").status == 201
    assert evict(control_plane, namespace, "absent").status == 404


def test_scale_is_read_and_written(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    create(control_plane, path, {"metadata": {"name": "web"}, "spec": spec})
    scale = control_plane.request("GET", f"{path}/web/scale").body
    assert (scale["kind"], scale["spec"].get("replicas", 0)) == ("Scale", 0)
    assert scale["status"]["selector"] == "a=b"
    control_plane.kubectl("-n", namespace, "scale", "deployment/web", "--replicas=2")
    assert control_plane.request("GET", f"{path}/web").body["spec"]["replicas"] == 2
    negative = {"spec": {"replicas": -1}}
    answer = control_plane.request("PATCH", f"{path}/web/scale", negative, patch="merge")
    assert answer.status == 422
