"""Nothing of a release may be missing: what pods mount, run as, are found by and are kept alive by.

Each test turns red when any one of the objects or fields that it speaks of is taken away.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm_render import VALUE_SETS, of_kind, pod_specs, rendered

pytestmark = pytest.mark.helm

Objects = tuple[dict[str, Any], ...]
SYSTEM = "wattpack-system"
KUBELET_S_OWN = "kube-root-ca.crt"


def name_of(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", SYSTEM), item["metadata"]["name"]


def workloads(objects: Objects) -> list[dict[str, Any]]:
    return of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job")


def component_of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["labels"]["app.kubernetes.io/component"])


def sources(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Volumes with the parts of projected ones beside the others."""
    volumes: list[dict[str, Any]] = spec.get("volumes", [])
    parts = [part for v in volumes for part in v.get("projected", {}).get("sources", ())]
    return [*volumes, *parts]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_what_a_pod_mounts_and_runs_as_is_in_the_release(name: str) -> None:
    objects = rendered(name)
    there = {kind: {name_of(i) for i in of_kind(objects, kind)} for kind in
             ("ConfigMap", "Secret", "ServiceAccount")}  # fmt: skip
    for item in workloads(objects):
        spec, (space, _) = item["spec"]["template"]["spec"], name_of(item)
        if item["kind"] == "Job":  # a hook has its own account beside it
            assert spec["serviceAccountName"] in {n for _, n in there["ServiceAccount"]}
        else:
            assert (space, spec["serviceAccountName"]) in there["ServiceAccount"]
        for source in sources(spec):
            if (given := source.get("configMap")) and given["name"] != KUBELET_S_OWN:
                assert (space, given["name"]) in there["ConfigMap"]
            if given := source.get("secret"):
                assert (space, given.get("secretName") or given["name"]) in there["Secret"]


def test_a_lent_token_is_of_an_account_that_exists() -> None:
    objects = rendered("everything")
    (secret,) = (
        s for s in of_kind(objects, "Secret") if s["type"] == "kubernetes.io/service-account-token"
    )
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    accounts = {name_of(i): i for i in of_kind(objects, "ServiceAccount")}
    assert (secret["metadata"]["namespace"], account) in accounts


@pytest.mark.parametrize(
    ("component", "ports"),
    [
        ("controller", {"http", "grpc"}),
        ("scheduler", {"http", "webhook"}),
        ("forecaster", {"http"}),
        ("console", {"http"}),
    ],
)
def test_each_server_is_found_by_a_service_on_all_its_ports(
    component: str, ports: set[str]
) -> None:
    objects = rendered("everything")
    (item,) = (w for w in workloads(objects) if component_of(w) == component)
    labels = item["spec"]["template"]["metadata"]["labels"]
    (container,) = item["spec"]["template"]["spec"]["containers"]
    served = {
        port["targetPort"]
        for service in of_kind(objects, "Service")
        if service["spec"]["selector"].items() <= labels.items()
        for port in service["spec"]["ports"]
    }
    assert served == ports == {port["name"] for port in container["ports"]}


def test_whoever_exports_metrics_is_scraped_where_the_operator_is_there() -> None:
    objects = rendered("everything")
    services = of_kind(objects, "Service")
    scraped = set()
    for monitor in of_kind(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (endpoint,) = monitor["spec"]["endpoints"]
        # Else alerts name the forecaster's namespace, and a forecast's is exported_namespace.
        assert endpoint["honorLabels"] is True
        for service in services:
            names = {port["name"] for port in service["spec"]["ports"]}
            if wanted.items() <= service["metadata"]["labels"].items():
                assert endpoint["port"] in names
                scraped.add(component_of(service))
    assert scraped == {"controller", "scheduler", "forecaster"}
    (monitor,) = of_kind(objects, "PodMonitor")
    (agent,) = (w for w in workloads(objects) if component_of(w) == "agent")
    labels = agent["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_a_drain_takes_one_replica_at_a_time_of_what_must_go_on() -> None:
    objects = rendered("everything")
    kept = {}
    for item in workloads(objects):
        labels = item["spec"]["template"]["metadata"]["labels"]
        for budget in of_kind(objects, "PodDisruptionBudget"):
            if budget["spec"]["selector"]["matchLabels"].items() <= labels.items():
                kept[component_of(item)] = budget["spec"]["maxUnavailable"]
    assert kept == dict.fromkeys(("controller", "scheduler", "watchdog"), 1)


ROOT = {"runAsUser": 0}
SOMEBODY = {"runAsUser": 65532, "runAsGroup": 65532}
SERVER = {**SOMEBODY, "runAsNonRoot": True, "fsGroup": 65532}
CLUSTER, NODE = "system-cluster-critical", "system-node-critical"


@pytest.mark.parametrize(
    ("name", "component", "identity", "token", "priority"),
    [
        ("everything", "controller", SERVER, True, CLUSTER),
        ("everything", "scheduler", SERVER, True, CLUSTER),
        ("everything", "watchdog", SERVER, True, CLUSTER),
        ("everything", "uninstall", SERVER, True, CLUSTER),
        ("everything", "forecaster", SERVER, True, None),
        ("everything", "console", SERVER, True, None),
        ("everything", "agent", SOMEBODY, True, NODE),
        ("everything", "actuator", ROOT, False, NODE),
        # Its socket is for the agent's group.
        ("default", "pod-resources", {**ROOT, "supplementalGroups": [65532]}, False, NODE),
    ],
)
def test_each_pod_says_who_it_is_what_it_holds_and_how_much_it_matters(
    name: str, component: str, identity: dict[str, Any], token: bool, priority: str | None
) -> None:
    spec = pod_specs(rendered(name))[component]
    seccomp = {"seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["securityContext"] == identity | seccomp
    assert spec["automountServiceAccountToken"] is token
    assert spec.get("priorityClassName") == priority


@pytest.mark.parametrize("component", ["agent", "actuator"])
def test_what_a_node_needs_runs_on_every_node_with_its_boards(component: str) -> None:
    spec = pod_specs(rendered("everything"))[component]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["runtimeClassName"] == "nvidia"


def test_the_uninstall_hook_runs_where_the_servers_ran() -> None:
    specs = pod_specs(rendered("everything"))
    assert specs["uninstall"]["tolerations"] == specs["watchdog"]["tolerations"]


READ, WRITE = {"get", "list", "watch"}, {"create", "update", "patch", "delete"}
ELECTRICITY = ("powerdomains", "powerpolicies", "poweroverrides", "gpuprofiles")
OF_TEAMS = ("workloadprofiles", "demandforecasts", "capacityplans")
MADE_BY_PROCESSES = ("gpunodes", "placementplans")


@pytest.mark.parametrize(
    ("role", "rights", "label"),
    [
        (
            "view",
            dict.fromkeys((*ELECTRICITY, *OF_TEAMS, *MADE_BY_PROCESSES), READ),
            "rbac.authorization.k8s.io/aggregate-to-view",
        ),
        (
            "edit",
            dict.fromkeys(OF_TEAMS, WRITE),
            "rbac.authorization.k8s.io/aggregate-to-edit",
        ),
        ("power-admin", dict.fromkeys(ELECTRICITY, READ | WRITE), ""),
    ],
)
def test_people_see_all_change_their_own_and_leave_electricity_to_its_owners(
    role: str, rights: dict[str, set[str]], label: str
) -> None:
    (item,) = (
        i
        for i in of_kind(rendered("default"), "ClusterRole")
        if i["metadata"]["name"] == f"wp-wattpack-{role}"
    )
    found = {r: set(rule["verbs"]) for rule in item["rules"] for r in rule["resources"]}
    assert found == rights
    aggregated = [key for key in item["metadata"]["labels"] if "aggregate-to" in key]
    assert aggregated == ([label] if label else [])


@pytest.mark.parametrize(
    "component", ["controller", "scheduler", "watchdog", "forecaster", "console", "agent"]
)
def test_each_role_is_bound_to_the_account_that_its_pod_runs_as(component: str) -> None:
    objects = rendered("everything")
    account = pod_specs(objects)[component]["serviceAccountName"]
    roles = {
        (role["kind"], *name_of(role))
        for role in of_kind(objects, "ClusterRole", "Role")
        if role["metadata"]["name"] in (account, f"{account}-ca")
    }
    bound = {
        (b["roleRef"]["kind"], name_of(b)[0], b["roleRef"]["name"])
        for b in of_kind(objects, "ClusterRoleBinding", "RoleBinding")
        if account in {s["name"] for s in b["subjects"]}
    }
    assert roles
    assert bound == roles
