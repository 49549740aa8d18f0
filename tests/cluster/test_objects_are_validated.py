"""What the API server refuses of the kinds that the chart renders."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.cluster.cluster_builders import Body, create
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

APPS, BATCH, CORE = "/apis/apps/v1", "/apis/batch/v1", "/api/v1"
RBAC, POLICY = "/apis/rbac.authorization.k8s.io/v1", "/apis/policy/v1"
TEMPLATE: Body = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
JOB_TEMPLATE: Body = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SELECTOR: Body = {"matchLabels": {"app": "x"}}


def workload(**changes: Any) -> Body:
    """A workload's spec with some fields replaced."""
    spec = {"selector": SELECTOR, "template": copy.deepcopy(TEMPLATE)}
    return {"metadata": {"generateName": "x-"}, "spec": {**spec, **changes}}


def relabelled(labels: Body) -> Body:
    """The template with other labels."""
    return {**copy.deepcopy(TEMPLATE), "metadata": {"labels": labels}}


def role(**rule: Any) -> Body:
    return {"metadata": {"generateName": "x-"}, "rules": [rule]}


def service(**spec: Any) -> Body:
    return {"metadata": {"generateName": "x-"}, "spec": spec}


def job(**spec: Any) -> Body:
    return {"metadata": {"generateName": "x-"}, "spec": {"template": JOB_TEMPLATE, **spec}}


PORT: Body = {"port": 80, "name": "http"}
CASES: list[tuple[str, str, str, Body, int]] = [
    ("deployment", APPS, "deployments", workload(replicas=0), 201),
    ("negative replicas", APPS, "deployments", workload(replicas=-1), 422),
    ("no selector", APPS, "deployments", workload(selector=None), 422),
    ("empty selector", APPS, "deployments", workload(selector={}), 422),
    ("foreign selector", APPS, "deployments", workload(template=relabelled({"a": "b"})), 422),
    ("unknown strategy", APPS, "deployments", workload(strategy={"type": "Wild"}), 422),
    ("text for replicas", APPS, "deployments", workload(replicas="two"), 400),
    ("negative set", APPS, "statefulsets", workload(replicas=-1), 422),
    ("set", APPS, "statefulsets", workload(replicas=0, serviceName="x"), 201),
    ("daemon set", APPS, "daemonsets", workload(template=relabelled({"app": "x"})), 201),
    ("daemon strategy", APPS, "daemonsets", workload(updateStrategy={"type": "Wild"}), 422),
    ("job", BATCH, "jobs", job(suspend=True), 201),
    ("job that restarts always", BATCH, "jobs", job(template=TEMPLATE), 422),
    ("negative parallelism", BATCH, "jobs", job(parallelism=-1), 422),
    ("indexed without count", BATCH, "jobs", job(completionMode="Indexed", parallelism=2), 422),
    ("service", CORE, "services", service(ports=[PORT]), 201),
    ("service without ports", CORE, "services", service(selector={"a": "b"}), 422),
    ("headless without ports", CORE, "services", service(clusterIP="None"), 201),
    ("port out of range", CORE, "services", service(ports=[{"port": 70000}]), 422),
    ("port twice", CORE, "services", service(ports=[PORT, PORT]), 422),
    ("role", RBAC, "roles", role(apiGroups=[""], resources=["pods"], verbs=["get"]), 201),
    ("role without verbs", RBAC, "roles", role(apiGroups=[""], resources=["pods"]), 422),
    ("role without group", RBAC, "roles", role(resources=["pods"], verbs=["get"]), 422),
    ("role with URL", RBAC, "roles", role(nonResourceURLs=["/x"], verbs=["get"]), 422),
    (
        "two budgets in one",
        POLICY,
        "poddisruptionbudgets",
        {
            "metadata": {"generateName": "x-"},
            "spec": {"selector": SELECTOR, "minAvailable": 1, "maxUnavailable": 1},
        },
        422,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_an_object_is_judged_as_kubernetes_does(
    control_plane: ControlPlane, shared_namespace: str, case: tuple[str, str, str, Body, int]
) -> None:
    _, group, plural, body, expected = case
    path = f"{group}/namespaces/{shared_namespace}/{plural}?dryRun=All"
    answer = control_plane.request("POST", path, body)
    assert answer.status == expected, answer.message


def test_unknown_fields_are_refused_when_asked_strictly(
    control_plane: ControlPlane, shared_namespace: str
) -> None:
    path = f"{APPS}/namespaces/{shared_namespace}/deployments?fieldValidation=Strict"
    answer = control_plane.request("POST", path, workload(replicsa=1))
    assert answer.status == 400
    assert 'unknown field "spec.replicsa"' in answer.message


def test_selectors_and_role_references_do_not_change(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"{APPS}/namespaces/{namespace}/deployments"
    body = {**workload(replicas=0), "metadata": {"name": "web"}}
    create(control_plane, path, body)
    other = {"spec": {"selector": {"matchLabels": {"b": "c"}}, "template": relabelled({"b": "c"})}}
    answer = control_plane.request("PATCH", f"{path}/web", other, patch="merge")
    assert answer.status == 422
    assert "immutable" in answer.message
    roles = f"{RBAC}/namespaces/{namespace}/rolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    create(control_plane, roles, {"metadata": {"name": "b"}, "roleRef": reference})
    changed = {"roleRef": {**reference, "name": "admin"}}
    assert control_plane.request("PATCH", f"{roles}/b", changed, patch="merge").status == 422


def test_priorities_come_from_their_class_only(control_plane: ControlPlane) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    tall = {"metadata": {"name": "too-tall"}, "value": 1_000_000_001}
    assert control_plane.request("POST", path, tall).status == 422
    system = {"metadata": {"name": "system-mine"}, "value": 1}
    assert control_plane.request("POST", path, system).status == 422
    create(control_plane, path, {"metadata": {"name": "fixed"}, "value": 5})
    changed = control_plane.request("PATCH", f"{path}/fixed", {"value": 6}, patch="merge")
    assert changed.status == 422
    control_plane.request("DELETE", f"{path}/fixed")
