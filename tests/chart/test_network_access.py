"""Who reaches which port: the chart's NetworkPolicies, judged by a reading of their own rules.

The judge knows pod and namespace labels; whatever selects no pod is open, as in Kubernetes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm_render import ENFORCING, EVERYTHING, of_kind, render, rendered

Pod = tuple[str, dict[str, str]]
"""Namespace and labels; a namespace carries its name as the only label."""

SYSTEM, NODES = "wattpack-system", "wattpack-node"
STRANGER: Pod = ("default", {"app": "curl"})
NEIGHBOUR: Pod = (SYSTEM, {"app": "curl"})
ON_NODES: Pod = (NODES, {"app": "curl"})
PROMETHEUS: Pod = ("monitoring", {"app": "prometheus"})


def pod(component: str) -> Pod:
    labels = {"name": "wattpack", "instance": "wp", "component": component}
    namespace = NODES if component in {"agent", "actuator"} else SYSTEM
    return namespace, {f"app.kubernetes.io/{key}": value for key, value in labels.items()}


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())


def names(peer: dict[str, Any], policy_namespace: str, caller: Pod) -> bool:
    namespace, labels = caller
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}):
            return False
    elif namespace != policy_namespace:
        return False
    return matches(peer.get("podSelector", {}), labels)


def admitted(policies: list[dict[str, Any]], caller: Pod, target: Pod, port: int) -> bool:
    """Whether a connection is let through."""
    selecting = [
        p
        for p in policies
        if p["metadata"]["namespace"] == target[0]
        and matches(p["spec"]["podSelector"], target[1])
        and "Ingress" in p["spec"]["policyTypes"]
    ]
    if not selecting:
        return True
    return any(
        port in {each["port"] for each in rule["ports"]}
        and (
            # No peers at all means everybody.
            not rule.get("from")
            or any(names(peer, policy["metadata"]["namespace"], caller) for peer in rule["from"])
        )
        for policy in selecting
        for rule in policy["spec"].get("ingress", ())
    )


TABLE = [
    (pod("agent"), "controller", 8443, True),
    (STRANGER, "controller", 8443, False),
    (NEIGHBOUR, "controller", 8443, False),
    (ON_NODES, "controller", 8443, False),
    (pod("console"), "controller", 8081, True),
    (PROMETHEUS, "controller", 8081, True),
    (STRANGER, "controller", 8081, False),
    (NEIGHBOUR, "controller", 8081, False),
    (pod("agent"), "controller", 8081, False),
    (PROMETHEUS, "scheduler", 8081, True),
    (STRANGER, "scheduler", 8081, False),
    (STRANGER, "scheduler", 8443, True),  # the API server has no label; it cannot be told apart
    (STRANGER, "watchdog", 8081, False),
    (PROMETHEUS, "forecaster", 8081, True),
    (STRANGER, "forecaster", 8081, False),
    (STRANGER, "console", 8080, False),
    (NEIGHBOUR, "console", 8080, False),
    (PROMETHEUS, "agent", 9400, True),
    (STRANGER, "agent", 9400, False),
    (pod("controller"), "agent", 9400, False),
    (STRANGER, "actuator", 1, False),
    (pod("agent"), "actuator", 1, False),
    (STRANGER, "uninstall", 1, False),
]


@pytest.mark.parametrize(("caller", "component", "port", "allowed"), TABLE)
def test_each_port_is_reached_by_those_who_need_it_only(
    caller: Pod, component: str, port: int, allowed: bool
) -> None:
    policies = of_kind(rendered("everything"), "NetworkPolicy")
    assert admitted(policies, caller, pod(component), port) is allowed


def verdicts(policies: list[dict[str, Any]]) -> list[bool]:
    return [admitted(policies, caller, pod(to), port) for caller, to, port, _ in TABLE]


def test_the_table_turns_red_without_any_one_of_the_policies() -> None:
    policies = of_kind(rendered("everything"), "NetworkPolicy")
    expected = [allowed for *_, allowed in TABLE]
    assert len(policies) == 7 + 1
    for policy in policies:
        rest = [p for p in policies if p is not policy]
        assert verdicts(rest) != expected, policy["metadata"]["name"]


@pytest.mark.parametrize("name", ["default", "enforcing", "everything", "gke", "openshift", "bare"])
def test_no_pod_of_ours_is_without_a_policy(name: str) -> None:
    objects = rendered(name)
    policies = of_kind(objects, "NetworkPolicy")
    for item in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job"):
        where = item["metadata"].get("namespace", SYSTEM)
        labels = item["spec"]["template"]["metadata"]["labels"]
        assert not admitted(policies, STRANGER, (where, labels), 65000), item["metadata"]["name"]


def test_closed_lists_close_and_open_ones_name_who_comes_in() -> None:
    closed = {**EVERYTHING, "networkPolicy": {"metricsFrom": []}}
    policies = of_kind(tuple(render(closed)), "NetworkPolicy")
    assert not admitted(policies, PROMETHEUS, pod("agent"), 9400)
    assert not admitted(policies, PROMETHEUS, pod("controller"), 8081)
    assert admitted(policies, pod("console"), pod("controller"), 8081)
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    named = {
        **ENFORCING,
        "networkPolicy": {"consoleFrom": [ingress], "apiServerFrom": [ingress]},
    }
    policies = of_kind(tuple(render(named)), "NetworkPolicy")
    for component, port in (("console", 8080), ("scheduler", 8443)):
        assert admitted(policies, ("ingress", {}), pod(component), port)
        assert not admitted(policies, STRANGER, pod(component), port)


def test_whoever_scrapes_shows_a_token_and_may_read_metrics_only() -> None:
    readers = [{"name": "prometheus-k8s", "namespace": "monitoring"}]
    values = {**EVERYTHING, "metrics": {**EVERYTHING["metrics"], "readers": readers}}
    objects = tuple(render(values))
    for monitor in of_kind(objects, "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["bearerTokenFile"].startswith("/var/run/secrets/kubernetes.io/")
    (monitor,) = of_kind(objects, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (secret,) = (
        s for s in of_kind(objects, "Secret") if s["type"] == "kubernetes.io/service-account-token"
    )
    assert endpoint["authorization"]["credentials"]["name"] == secret["metadata"]["name"]
    assert secret["metadata"]["namespace"] == monitor["metadata"]["namespace"] == NODES
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    (binding,) = (
        b
        for b in of_kind(objects, "ClusterRoleBinding")
        if b["roleRef"]["name"] == "wp-wattpack-metrics-reader"
    )
    bound = {(s["namespace"], s["name"]) for s in binding["subjects"]}
    assert bound == {("monitoring", "prometheus-k8s"), (NODES, account)}
    (role,) = (
        r
        for r in of_kind(objects, "ClusterRole")
        if r["metadata"]["name"] == "wp-wattpack-metrics-reader"
    )
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    bindings = of_kind(rendered("default"), "ClusterRoleBinding")
    assert role["metadata"]["name"] not in {b["roleRef"]["name"] for b in bindings}


def test_leases_of_ours_and_nothing_else_go_with_leader_elections() -> None:
    (schema,) = of_kind(rendered("default"), "FlowSchema")
    assert schema["spec"]["priorityLevelConfiguration"] == {"name": "leader-election"}
    (rule,) = schema["spec"]["rules"]
    (resources,) = rule["resourceRules"]
    assert resources["resources"] == ["leases"]
    assert resources["namespaces"] == [SYSTEM]
    accounts = {subject["serviceAccount"]["name"] for subject in rule["subjects"]}
    assert accounts == {f"wp-wattpack-{name}" for name in ("controller", "scheduler", "watchdog")}
    known = {a["metadata"]["name"] for a in of_kind(rendered("default"), "ServiceAccount")}
    assert accounts <= known
