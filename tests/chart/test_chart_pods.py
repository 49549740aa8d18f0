"""Where pods run and what users may add to them: availability, providers, quotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm_render import (
    ENFORCING,
    of_kind,
    pod_specs,
    render,
    rendered,
    shipped,
)

pytestmark = pytest.mark.helm


SERVERS = ("controller", "scheduler", "watchdog", "forecaster", "console")


CHECK_ACTUATOR = "exec wattpack actuator --check --socket=/run/wattpack/actuator.sock"
CHECK_WATCHDOG = "exec wattpack watchdog --check --beat-file=/tmp/beat"
PROBES = {
    "actuator": {"liveness": CHECK_ACTUATOR, "readiness": CHECK_ACTUATOR},
    "agent": {
        "startup": "HTTP metrics /healthz",
        "liveness": "HTTP metrics /healthz",
        "readiness": "HTTP metrics /readyz",
    },
    "console": dict.fromkeys(("startup", "liveness", "readiness"), "HTTP http /livez"),
    "controller": {
        "startup": "HTTP http /healthz",
        "liveness": "HTTP http /healthz",
        "readiness": "HTTP http /readyz",
    },
    "forecaster": dict.fromkeys(("startup", "liveness", "readiness"), "HTTP http /healthz"),
    "scheduler": {
        "startup": "HTTPS webhook /healthz",
        "liveness": "HTTP http /healthz",
        "readiness": "HTTPS webhook /healthz",
    },
    "watchdog": {"liveness": CHECK_WATCHDOG, "readiness": CHECK_WATCHDOG},
    "uninstall": {},
}


def asked_by(probe: dict[str, Any]) -> str:
    if "exec" in probe:
        return " ".join(["exec", *probe["exec"]["command"]])
    question = probe["httpGet"]
    return f"{question.get('scheme', 'HTTP')} {question['port']} {question['path']}"


def test_each_probe_is_there_and_asks_what_is_open_and_knows() -> None:
    found = {
        component: {
            key.removesuffix("Probe"): asked_by(container[key])
            for container in spec["containers"]
            for key in container
            if key.endswith("Probe")
        }
        for component, spec in pod_specs(rendered("everything")).items()
    }
    assert found == PROBES


@pytest.mark.parametrize("component", ["controller", "scheduler"])
def test_two_replicas_never_share_a_node(component: str) -> None:
    spec = pod_specs(rendered("default"))[component]
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    chosen = term["labelSelector"]["matchLabels"]
    assert chosen["app.kubernetes.io/component"] == component


def test_an_affinity_of_the_user_s_own_replaces_ours() -> None:
    own = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert (
        pod_specs(tuple(render({"controller": {"affinity": own}})))["controller"]["affinity"] == own
    )


@pytest.mark.parametrize("component", SERVERS)
def test_a_node_that_does_not_answer_keeps_a_server_for_seconds(component: str) -> None:
    tolerations = pod_specs(rendered("default"))[component]["tolerations"]
    seconds = {t["key"]: t["tolerationSeconds"] for t in tolerations if t["effect"] == "NoExecute"}
    assert seconds == {
        "node.kubernetes.io/not-ready": 15,
        "node.kubernetes.io/unreachable": 15,
    }


@pytest.mark.parametrize("component", [*SERVERS, "agent", "actuator"])
def test_every_pod_takes_labels_annotations_environment_and_account_annotations(
    component: str,
) -> None:
    values = {
        **ENFORCING,
        "logLevel": "debug",
        component: {
            **ENFORCING.get(component, {}),
            "podLabels": {"team": "power"},
            "podAnnotations": {"example.com/owner": "power"},
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "serviceAccount": {"annotations": {"example.com/role": "wattpack"}},
        },
    }
    objects = tuple(render(values))
    (workload,) = (
        item
        for item in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet")
        if item["metadata"]["labels"]["app.kubernetes.io/component"] == component
    )
    template = workload["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "power"
    assert template["metadata"]["annotations"]["example.com/owner"] == "power"
    given = {e["name"]: e.get("value") for e in template["spec"]["containers"][0]["env"]}
    assert given["HTTPS_PROXY"] == "http://proxy:3128"
    assert given["WATTPACK_LOG_LEVEL"] == "debug"
    (account,) = (
        item
        for item in of_kind(objects, "ServiceAccount")
        if item["metadata"]["name"] == template["spec"]["serviceAccountName"]
    )
    assert account["metadata"]["annotations"]["example.com/role"] == "wattpack"


def test_the_webhook_s_port_is_one_that_the_provider_lets_through() -> None:
    objects = rendered("gke")
    (container,) = pod_specs(objects)["scheduler"]["containers"]
    assert "--webhook-port=10250" in container["args"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["webhook"] == 10250
    (policy,) = (
        item
        for item in of_kind(objects, "NetworkPolicy")
        if item["metadata"]["name"].endswith("scheduler")
    )
    allowed = {p["port"] for rule in policy["spec"]["ingress"] for p in rule["ports"]}
    assert {10250, 8081} == allowed


def test_a_quota_names_the_critical_classes_where_the_provider_wants_one() -> None:
    quotas = of_kind(rendered("gke"), "ResourceQuota")
    assert {q["metadata"]["namespace"] for q in quotas} == {"wattpack-system", "wattpack-node"}
    assert of_kind(rendered("default"), "ResourceQuota") == []


def test_each_account_is_bound_to_the_least_constraints_that_admit_its_pods() -> None:
    bound = {
        item["subjects"][0]["name"].removeprefix("wp-wattpack-"): item["roleRef"]["name"]
        for item in of_kind(rendered("openshift"), "RoleBinding")
        if item["roleRef"]["name"].startswith("system:openshift:scc:")
    }
    assert bound == {
        **dict.fromkeys(SERVERS, "system:openshift:scc:nonroot-v2"),
        "agent": "system:openshift:scc:hostmount-anyuid",
        "actuator": "system:openshift:scc:privileged",
    }


def test_no_cluster_without_a_runtime_class_or_storage_is_asked_for_one() -> None:
    objects = rendered("bare")
    assert not any("runtimeClassName" in spec for spec in pod_specs(objects).values())
    (controller,) = of_kind(objects, "StatefulSet")
    assert "volumeClaimTemplates" not in controller["spec"]


def test_what_installs_the_driver_tolerates_the_taint_that_waits_for_it() -> None:
    values = shipped("gpu-operator-values.yaml")
    places = [
        values["daemonsets"],
        values["operator"],
        *values["node-feature-discovery"].values(),
    ]
    for place in places:
        assert "wattpack.io/uncontrolled" in {t["key"] for t in place["tolerations"]}


def test_an_agent_is_followed_by_one_that_is_there_before_it_goes() -> None:
    (daemon_set,) = (
        item
        for item in of_kind(rendered("everything"), "DaemonSet")
        if item["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"
    )
    spec = daemon_set["spec"]
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "5%", "maxUnavailable": 0},
    }
    assert spec["minReadySeconds"] > 2  # until the one before is asked to go, both were heard
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 10
    # Two pods of one node must not want the same port of the host.
    assert not pod.get("hostNetwork")
    assert all("hostPort" not in p for c in pod["containers"] for p in c.get("ports", ()))


def test_a_controller_replica_has_heard_ten_ticks_before_the_next_one_goes() -> None:
    (controller,) = of_kind(rendered("default"), "StatefulSet")
    # Agents come back within 8 s at the latest; a standby takes over whole after ten ticks (I6).
    assert controller["spec"]["minReadySeconds"] >= 8 + 10
    assert controller["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") == (
        "RollingUpdate"
    )
