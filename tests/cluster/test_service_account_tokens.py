"""Tokens are bound to pods and nodes as the kubelet's are, and admission policies can read them."""

from __future__ import annotations

import pytest

from tests.cluster.cluster_builders import bind, create, node, pod
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from wattpack.errors import PermanentError

pytestmark = pytest.mark.cluster

NODE_NAME_EXTRA = "authentication.kubernetes.io/node-name"
POD_NAME_EXTRA = "authentication.kubernetes.io/pod-name"


def whoami(plane: ControlPlane, **bound: str) -> dict[str, object]:
    """What the server knows about the holder of a fresh token."""
    kubeconfig = plane.service_account_kubeconfig(bound.pop("namespace"), "agent", **bound)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = plane.request("POST", path, review, kubeconfig=kubeconfig)
    assert answer.status == 201, answer.message
    info: dict[str, object] = answer.body["status"]["userInfo"]
    return info


@pytest.fixture
def agent(control_plane: ControlPlane, namespace: str) -> str:
    """A namespace with the account ``agent``."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    create(control_plane, path, {"metadata": {"name": "agent"}})
    return namespace


def test_a_plain_token_names_its_account_only(control_plane: ControlPlane, agent: str) -> None:
    info = whoami(control_plane, namespace=agent)
    assert info["username"] == f"system:serviceaccount:{agent}:agent"
    assert NODE_NAME_EXTRA not in info["extra"]  # type: ignore[operator]


def test_a_pod_bound_token_carries_the_pods_node_and_dies_with_the_pod(
    control_plane: ControlPlane, agent: str
) -> None:
    create(control_plane, "/api/v1/nodes", node(f"{agent}-n"))
    pods = f"/api/v1/namespaces/{agent}/pods"
    create(control_plane, pods, pod("p", serviceAccountName="agent", nodeSelector={"no": "where"}))
    assert bind(control_plane, agent, "p", f"{agent}-n").status == 201
    extra = whoami(control_plane, namespace=agent, pod="p")["extra"]
    assert extra[NODE_NAME_EXTRA] == [f"{agent}-n"]  # type: ignore[index]
    assert extra[POD_NAME_EXTRA] == ["p"]  # type: ignore[index]
    kubeconfig = control_plane.service_account_kubeconfig(agent, "agent", pod="p")
    control_plane.request("DELETE", f"{pods}/p?gracePeriodSeconds=0")
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    eventually(
        "the token is refused",
        lambda: control_plane.request("POST", path, review, kubeconfig=kubeconfig).status == 401,
    )
    control_plane.request("DELETE", f"/api/v1/nodes/{agent}-n")


def test_a_node_bound_token_carries_the_node(control_plane: ControlPlane, agent: str) -> None:
    create(control_plane, "/api/v1/nodes", node(f"{agent}-n"))
    extra = whoami(control_plane, namespace=agent, node=f"{agent}-n")["extra"]
    assert extra[NODE_NAME_EXTRA] == [f"{agent}-n"]  # type: ignore[index]
    control_plane.request("DELETE", f"/api/v1/nodes/{agent}-n")


def test_a_token_is_refused_for_what_is_not_there_or_not_its_own(
    control_plane: ControlPlane, agent: str
) -> None:
    with pytest.raises(PermanentError, match="not found"):
        control_plane.service_account_kubeconfig(agent, "agent", node="nowhere")
    create(control_plane, f"/api/v1/namespaces/{agent}/pods", pod("other", nodeSelector={"a": "b"}))
    with pytest.raises(PermanentError, match="different serviceaccount"):
        control_plane.service_account_kubeconfig(agent, "agent", pod="other")
    path = f"/api/v1/namespaces/{agent}/serviceaccounts/agent/token"
    short = control_plane.request("POST", path, {"spec": {"expirationSeconds": 60}})
    assert short.status == 400
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "another"}
    create(
        control_plane,
        f"/api/v1/namespaces/{agent}/pods",
        pod("own", serviceAccountName="agent", nodeSelector={"a": "b"}),
    )
    stale = {"spec": {"boundObjectRef": {**reference, "name": "own"}}}
    assert control_plane.request("POST", path, stale).status == 409


def test_an_admission_policy_keeps_an_agent_to_its_own_node(
    control_plane: ControlPlane, agent: str
) -> None:
    for name in ("mine", "yours"):
        create(control_plane, "/api/v1/nodes", node(f"{agent}-{name}"))
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
    role = {"metadata": {"name": "write"}, "rules": [rule]}
    create(control_plane, f"{rbac}/namespaces/{agent}/roles", role)
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": agent}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "write"}
    binding = {"metadata": {"name": "write"}, "roleRef": reference, "subjects": [subject]}
    create(control_plane, f"{rbac}/namespaces/{agent}/rolebindings", binding)
    admission = "/apis/admissionregistration.k8s.io/v1"
    expression = (
        f"request.userInfo.extra[?'{NODE_NAME_EXTRA}'].orValue(['']).exists(n, "
        "n == object.metadata.name)"
    )
    resources = [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }
    ]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": agent}}
    policy = {
        "metadata": {"name": agent},
        "spec": {
            "matchConstraints": {"resourceRules": resources},
            "validations": [{"expression": expression, "message": "not your node"}],
        },
    }
    create(control_plane, f"{admission}/validatingadmissionpolicies", policy)
    bound = {
        "metadata": {"name": agent},
        "spec": {
            "policyName": agent,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    create(control_plane, f"{admission}/validatingadmissionpolicybindings", bound)
    token = control_plane.service_account_kubeconfig(agent, "agent", node=f"{agent}-mine")
    path = f"/api/v1/namespaces/{agent}/configmaps"

    def write(name: str, suffix: str = "") -> int:
        body = {"metadata": {"name": name}}
        return control_plane.request("POST", f"{path}{suffix}", body, kubeconfig=token).status

    eventually(
        "the policy is in force", lambda: write(f"{agent}-yours", "?dryRun=All") == 422, seconds=30
    )
    assert write(f"{agent}-yours") == 422
    assert write(f"{agent}-mine") == 201
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        control_plane.request("DELETE", f"{admission}/{kind}/{agent}")
    for name in ("mine", "yours"):
        control_plane.request("DELETE", f"/api/v1/nodes/{agent}-{name}")
