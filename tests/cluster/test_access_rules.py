"""RBAC decides every request, and nobody grants more than they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster_builders import Body, create
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
READ_PODS: Body = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
WRITE_PODS: Body = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
WRITE_ROLES: Body = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings"],
    "verbs": ["create", "update"],
}


def grant(plane: ControlPlane, namespace: str, name: str, *rules: Body) -> None:
    """Give the account ``bot`` a role with these rules."""
    path = f"{RBAC}/namespaces/{namespace}"
    create(plane, f"{path}/roles", {"metadata": {"name": name}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": "bot", "namespace": namespace}]
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    create(plane, f"{path}/rolebindings", body)


@pytest.fixture
def bot(control_plane: ControlPlane, namespace: str) -> Path:
    """A kubeconfig of an account without any role."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    create(control_plane, path, {"metadata": {"name": "bot"}})
    return control_plane.service_account_kubeconfig(namespace, "bot")


def test_nothing_is_allowed_before_a_binding_and_only_its_verbs_after(
    control_plane: ControlPlane, namespace: str, bot: Path
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    assert control_plane.request("GET", path, kubeconfig=bot).status == 403
    grant(control_plane, namespace, "read", READ_PODS)
    eventually(
        "the role is in force",
        lambda: control_plane.request("GET", path, kubeconfig=bot).status == 200,
    )
    assert control_plane.request("POST", path, {}, kubeconfig=bot).status == 403
    assert control_plane.request("GET", "/api/v1/nodes", kubeconfig=bot).status == 403
    eviction = f"{path}/a/eviction"
    assert control_plane.request("POST", eviction, {}, kubeconfig=bot).status == 403


def test_a_bad_token_is_refused_and_not_made_anonymous(control_plane: ControlPlane) -> None:
    headers = {"Authorization": "Bearer not.a.token"}
    nobody = control_plane.directory / "nobody.kubeconfig"
    control_plane.write_kubeconfig(nobody, {"token": "x.y.z"})
    answer = control_plane.request("GET", "/api", kubeconfig=nobody, headers=headers)
    assert answer.status == 401


def test_nobody_grants_more_than_they_hold(
    control_plane: ControlPlane, namespace: str, bot: Path
) -> None:
    grant(control_plane, namespace, "manage", READ_PODS, WRITE_ROLES)
    path = f"{RBAC}/namespaces/{namespace}"
    held = {"metadata": {"name": "held"}, "rules": [READ_PODS]}
    eventually(
        "what is held can be granted",
        lambda: control_plane.request("POST", f"{path}/roles", held, kubeconfig=bot).status == 201,
    )
    more = {"metadata": {"name": "more"}, "rules": [WRITE_PODS]}
    refused = control_plane.request("POST", f"{path}/roles", more, kubeconfig=bot)
    assert refused.status == 403
    assert "not currently held" in refused.message
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    }
    subjects = [{"kind": "ServiceAccount", "name": "bot", "namespace": namespace}]
    admin = {"metadata": {"name": "admin"}, "roleRef": reference, "subjects": subjects}
    refused = control_plane.request("POST", f"{path}/rolebindings", admin, kubeconfig=bot)
    assert refused.status == 403


def test_escalate_and_bind_are_verbs_of_their_own(
    control_plane: ControlPlane, namespace: str, bot: Path
) -> None:
    verbs = {**WRITE_ROLES, "verbs": ["create", "escalate", "bind"]}
    grant(control_plane, namespace, "trusted", verbs)
    path = f"{RBAC}/namespaces/{namespace}/roles"
    more = {"metadata": {"name": "more"}, "rules": [WRITE_PODS]}
    eventually(
        "the verb is in force",
        lambda: control_plane.request("POST", path, more, kubeconfig=bot).status == 201,
    )


def test_the_audit_log_names_who_did_what(
    control_plane: ControlPlane, namespace: str, bot: Path
) -> None:
    if control_plane.kind == "external":
        pytest.skip("a cluster of somebody else keeps its own audit log")
    control_plane.request("GET", f"/api/v1/namespaces/{namespace}/secrets/s", kubeconfig=bot)
    user = f"system:serviceaccount:{namespace}:bot"

    def seen() -> list[Body] | None:
        return control_plane.audit_events(user) or None

    event = eventually("the request is in the audit log", seen)[0]
    assert (event["verb"], event["objectRef"]["resource"]) == ("get", "secrets")
    assert event["responseStatus"]["code"] == 403
