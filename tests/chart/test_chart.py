"""The chart, rendered by the real helm: valid, least privileged, strict about its values."""

from __future__ import annotations

import copy
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.chart.helm_render import (
    CHART,
    ENFORCING,
    EVERYTHING,
    KUBE_VERSION,
    ROOT,
    VALUE_SETS,
    of_kind,
    pod_specs,
    render,
    rendered,
    run_helm,
    shipped,
)

pytestmark = pytest.mark.helm

REVIEWS = {"tokenreviews", "subjectaccessreviews"}
NODE_COMPONENTS = {"agent", "actuator", "pod-resources"}
#: It ends by itself.
WITHOUT_PROBES = {"uninstall"}
PROCESSES = {"controller", "scheduler", "watchdog", "forecaster", "console", "agent", "uninstall"}


@pytest.mark.parametrize("name", VALUE_SETS)
def test_helm_lint_is_strictly_clean(name: str) -> None:
    done = run_helm(
        "lint", "--strict", f"--kube-version={KUBE_VERSION}", str(CHART), values=VALUE_SETS[name]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("name", VALUE_SETS)
def test_every_object_fits_the_kubernetes_schemas(name: str, version: str) -> None:
    for item in rendered(name):
        if not item["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(item, version, strict=True)


def test_the_schema_check_would_notice_a_wrong_field() -> None:
    broken = copy.deepcopy(of_kind(rendered("default"), "StatefulSet")[0])
    broken["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.34", strict=True)


def test_the_default_installs_every_process_but_no_privileged_one() -> None:
    assert set(pod_specs(rendered("default"))) == PROCESSES | {"pod-resources"}
    assert set(pod_specs(rendered("enforcing"))) == PROCESSES | {"actuator"}


def test_by_default_nothing_is_enforced_and_no_pod_is_touched() -> None:
    objects = rendered("default")
    assert not of_kind(objects, "MutatingWebhookConfiguration")
    settings = next(
        yaml.safe_load(item["data"]["settings.yaml"])
        for item in of_kind(objects, "ConfigMap")
        if item["metadata"]["name"].endswith("-scheduler")
    )
    assert settings == {"mode": "Shadow", "namespace": "wattpack-system"}
    assert not any("--actuator" in arg for arg in args_of("agent", "default"))


def args_of(component: str, name: str) -> list[str]:
    args: list[str] = pod_specs(rendered(name))[component]["containers"][0]["args"]
    return args


@pytest.mark.parametrize("name", VALUE_SETS)
def test_pods_meet_the_restricted_profile_but_for_agent_and_actuator(name: str) -> None:
    for component, spec in pod_specs(rendered(name)).items():
        security = spec["securityContext"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert not spec.get(key)
        for container in spec["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"]["drop"] == ["ALL"]
            assert "privileged" not in own
            if component != "actuator":
                assert "add" not in own["capabilities"]
            if component not in {"actuator", "pod-resources"}:
                assert security["runAsUser"] > 0
        if component in NODE_COMPONENTS:
            continue
        assert security["runAsNonRoot"] is True
        allowed = {"configMap", "emptyDir", "projected", "secret", "persistentVolumeClaim"}
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= allowed


def test_what_is_not_restricted_lives_in_a_namespace_of_its_own() -> None:
    objects = rendered("enforcing")
    for item in of_kind(objects, "DaemonSet"):
        assert item["metadata"]["namespace"] == "wattpack-node"
    for item in of_kind(objects, "Deployment", "StatefulSet", "Job"):
        assert item["metadata"]["namespace"] == "wattpack-system"
    (namespace,) = of_kind(objects, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_actuator_has_two_capabilities_no_token_and_no_network() -> None:
    objects = rendered("enforcing")
    spec = pod_specs(objects)["actuator"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["hostNetwork"] is False
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN", "CHOWN"]
    (policy,) = (
        item
        for item in of_kind(objects, "NetworkPolicy")
        if item["metadata"]["name"].endswith("actuator")
    )
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(policy["spec"])
    daemon_sets = {i["metadata"]["name"]: i for i in of_kind(objects, "DaemonSet")}
    assert daemon_sets["wp-wattpack-actuator"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    bound = [s for b in of_kind(objects, "ClusterRoleBinding") for s in b["subjects"]]
    assert not any(subject["name"].endswith("actuator") for subject in bound)


def test_what_opens_the_kubelets_socket_without_enforcement_is_root_and_nothing_more() -> None:
    objects = rendered("default")
    spec = pod_specs(objects)["pod-resources"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["hostNetwork"] is False
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "env" not in container  # no board is passed in
    paths = {v["hostPath"]["path"]: v["name"] for v in spec["volumes"] if "hostPath" in v}
    assert set(paths) == {"/run/wattpack", "/var/lib/kubelet/pod-resources"}
    (policy,) = (
        item
        for item in of_kind(objects, "NetworkPolicy")
        if item["metadata"]["name"].endswith("pod-resources")
    )
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(policy["spec"])
    none = tuple(render({"agent": {"kubeletPodResources": False}}))
    assert "pod-resources" not in pod_specs(none)


@pytest.mark.parametrize(
    ("name", "opener"), [("default", "pod-resources"), ("enforcing", "actuator")]
)
def test_the_agent_asks_the_socket_that_whoever_runs_as_root_serves(name: str, opener: str) -> None:
    agent = pod_specs(rendered(name))["agent"]
    (asks,) = (arg for arg in args_of("agent", name) if arg.startswith("--pod-resources-from="))
    assert f"--socket={asks.partition('=')[2]}" in args_of(opener, name)
    assert "--pod-resources=/var/lib/kubelet/pod-resources/kubelet.sock" in args_of(opener, name)
    paths = [v["hostPath"]["path"] for v in agent["volumes"] if "hostPath" in v]
    assert paths == ["/run/wattpack"]


def test_the_configuration_without_boards_is_one_that_the_door_accepts(tmp_path: Any) -> None:
    from actuator.config_file import load_config

    (text,) = (
        item["data"]["pod-resources.json"]
        for item in of_kind(rendered("default"), "ConfigMap")
        if "pod-resources.json" in item.get("data", {})
    )
    file = tmp_path / "pod-resources.json"
    file.write_text(text)
    config = load_config(file, boards=False)
    assert (config.allowed_uids, config.socket_gid) == (frozenset({65532}), 65532)


def test_the_actuators_configuration_is_one_that_it_accepts(tmp_path: Any) -> None:
    from actuator.config_file import load_config

    (data,) = (
        item["data"]
        for item in of_kind(rendered("enforcing"), "ConfigMap")
        if "actuator.json" in item.get("data", {})
    )
    file = tmp_path / "actuator.json"
    file.write_text(data["actuator.json"])
    config = load_config(file)
    assert config.guaranteed_watts == {"NVIDIA H200": 450}
    assert config.allowed_uids == {
        pod_specs(rendered("enforcing"))["agent"]["securityContext"]["runAsUser"]
    }


@pytest.mark.parametrize("name", VALUE_SETS)
def test_containers_state_resources_probes_and_a_fixed_image(name: str) -> None:
    for component, spec in pod_specs(rendered(name)).items():
        for container in spec["containers"]:
            assert set(container["resources"]) == {"requests", "limits"}
            assert not container["image"].endswith(":latest")
            assert ":" in container["image"].rsplit("/", 1)[-1]
            if component not in WITHOUT_PROBES:
                assert {"livenessProbe", "readinessProbe"} <= set(container)


@pytest.mark.parametrize("name", VALUE_SETS)
def test_every_probe_asks_the_process_and_not_a_file_or_a_socket(name: str) -> None:
    for component, spec in pod_specs(rendered(name)).items():
        for container in spec["containers"]:
            for key in (key for key in container if key.endswith("Probe")):
                probe = container[key]
                command = probe.get("exec", {}).get("command", ["wattpack", "--check"])
                assert "tcpSocket" not in probe, (component, key)
                assert (command[0], "--check" in command) == ("wattpack", True), (component, key)


def test_settings_files_are_ones_that_the_processes_accept(tmp_path: Any) -> None:
    from controller.app.controller_settings import ControllerSettings
    from forecasting.app.forecaster_command import ForecasterSettings
    from scheduler_plugin.app.scheduler_settings import PlacementSettings
    from wattpack.settings import Settings

    models: dict[str, type[Settings]] = {
        "controller": ControllerSettings,
        "scheduler": PlacementSettings,
        "forecaster": ForecasterSettings,
    }
    accounts = {
        f"system:serviceaccount:{i['metadata']['namespace']}:{i['metadata']['name']}"
        for i in of_kind(rendered("default"), "ServiceAccount")
    }
    for component, model in models.items():
        (item,) = (
            i
            for i in of_kind(rendered("default"), "ConfigMap")
            if i["metadata"]["name"] == f"wp-wattpack-{component}"
        )
        file = tmp_path / f"{component}.yaml"
        file.write_text(item["data"]["settings.yaml"])
        loaded = model.load(file=file, environment={})
        if isinstance(loaded, ControllerSettings):
            assert loaded.agent_username in accounts
            secrets = {i["metadata"]["name"] for i in of_kind(rendered("default"), "Secret")}
            assert loaded.tls_secret in secrets
            volumes = pod_specs(rendered("default"))["agent"]["volumes"]
            assert {"name": "ca", "configMap": {"name": loaded.ca_config_map}} in volumes


def test_a_given_certificate_is_read_and_never_written() -> None:
    objects = tuple(render({"tls": {"existingSecret": "ours"}}))
    assert "wp-wattpack-controller-tls" not in {i["metadata"]["name"] for i in objects}
    granted = [
        rule["verbs"]
        for item in of_kind(objects, "Role")
        for rule in item["rules"]
        if rule.get("resourceNames") == ["ours"]
    ]
    assert granted == [["get"]]


def test_command_lines_are_ones_that_the_processes_accept() -> None:
    from actuator.app.actuator_command import _parser as actuator
    from controller.app.controller_command import build_parser as controller
    from forecasting.app.forecaster_command import build_parser as forecaster
    from scheduler_plugin.app.scheduler_command import _parser as scheduler
    from scheduler_plugin.app.watchdog_command import _parser as watchdog
    from telemetry.app.agent_command import build_parser as agent

    parsers = {
        "controller": controller(),
        "forecaster": forecaster(),
        "scheduler": scheduler(),
        "watchdog": watchdog(),
        "actuator": actuator(),
        "agent": agent(),
    }
    for component, parser in parsers.items():
        verb, *rest = args_of(component, "everything")
        assert verb == component
        parser.parse_args(rest)
    verb, *rest = args_of("uninstall", "everything")
    assert parsers[verb].parse_args(rest).uninstall == "wp-wattpack-placement"


def test_a_digest_wins_over_the_tag() -> None:
    digest = "sha256:" + "a" * 64
    for spec in pod_specs(tuple(render({"image": {"digest": digest, "tag": "1"}}))).values():
        assert spec["containers"][0]["image"].endswith(f"@{digest}")


def rules_of(component: str) -> list[dict[str, Any]]:
    return [
        rule
        for item in of_kind(rendered("everything"), "ClusterRole", "Role")
        if item["metadata"]["name"] == f"wp-wattpack-{component}"
        for rule in item["rules"]
    ]


def test_no_role_has_a_wildcard_or_reads_secrets_at_large() -> None:
    for item in of_kind(rendered("everything"), "ClusterRole", "Role"):
        for rule in item["rules"]:
            named = ("apiGroups", "resources", "nonResourceURLs", "verbs")
            assert "*" not in "".join(name for key in named for name in rule.get(key, ()))
            if "secrets" in rule.get("resources", ()):
                assert item["kind"] == "Role"
                assert rule["resourceNames"]
                assert not {"list", "watch", "create"} & set(rule["verbs"])


def test_only_the_placement_processes_may_change_pods_and_the_console_changes_nothing() -> None:
    writers = set()
    for component in PROCESSES:
        for rule in rules_of(component):
            writes = set(rule["verbs"]) - {"get", "list", "watch"}
            if any(r.split("/")[0] == "pods" for r in rule.get("resources", ())) and writes:
                writers.add(component)
            # Reviews are questions in the shape of a create.
            asks = set(rule.get("resources", ())) <= REVIEWS
            assert component != "console" or not writes or asks
    assert writers == {"scheduler", "watchdog", "uninstall"}


def test_agents_reach_nothing_but_gpu_nodes() -> None:
    resources = {resource for rule in rules_of("agent") for resource in rule.get("resources", ())}
    assert resources == {"gpunodes", "gpunodes/status"} | REVIEWS


def test_the_controller_may_taint_nodes_only_where_it_enforces() -> None:
    def writes(name: str) -> list[dict[str, Any]]:
        return [
            rule
            for item in of_kind(rendered(name), "ClusterRole")
            if item["metadata"]["name"] == "wp-wattpack-controller"
            for rule in item["rules"]
            if "nodes" in rule.get("resources", ()) and set(rule["verbs"]) - {"list", "watch"}
        ]

    assert writes("default") == []
    assert writes("enforcing") == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]


def test_agents_keep_their_gpu_node_with_the_token_of_their_pod() -> None:
    assert "--gpunode" in args_of("agent", "default")
    assert pod_specs(rendered("default"))["agent"]["automountServiceAccountToken"] is True
    verbs = {r: set(rule["verbs"]) for rule in rules_of("agent") for r in rule.get("resources", ())}
    verbs = {resource: verb for resource, verb in verbs.items() if resource not in REVIEWS}
    assert verbs == {"gpunodes": {"create", "patch"}, "gpunodes/status": {"patch"}}


def test_the_webhook_is_the_one_that_the_admission_code_describes() -> None:
    from scheduler_plugin.admission import webhook_configuration

    (item,) = of_kind(rendered("everything"), "MutatingWebhookConfiguration")
    (webhook,) = item["webhooks"]
    described = webhook_configuration(item["metadata"]["name"], {}, "")["webhooks"][0]
    for key in set(described) - {"clientConfig"}:
        assert webhook[key] == described[key], key
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["timeoutSeconds"] == 2
    service = webhook["clientConfig"]["service"]
    services = {i["metadata"]["name"]: i for i in of_kind(rendered("everything"), "Service")}
    assert service["port"] in {p["port"] for p in services[service["name"]]["spec"]["ports"]}


def test_every_policy_is_bound_and_denies() -> None:
    objects = rendered("default")
    policies = {i["metadata"]["name"] for i in of_kind(objects, "ValidatingAdmissionPolicy")}
    bindings = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert {binding["spec"]["policyName"] for binding in bindings} == policies
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in bindings)


def test_policies_name_the_service_accounts_that_exist() -> None:
    objects = rendered("default")
    accounts = {
        f"system:serviceaccount:{i['metadata']['namespace']}:{i['metadata']['name']}"
        for i in of_kind(objects, "ServiceAccount")
    }
    text = yaml.safe_dump(of_kind(objects, "ValidatingAdmissionPolicy"), width=10_000)
    named = {word.strip("'\"],[") for word in text.split() if "system:serviceaccount" in word}
    assert named
    assert named <= accounts


def test_crds_are_the_generated_ones_and_survive_an_uninstall() -> None:
    crds = {
        item["metadata"]["name"]: item
        for item in of_kind(rendered("default"), "CustomResourceDefinition")
    }
    for file in sorted((ROOT / "manifests" / "crds").glob("*.yaml")):
        generated = yaml.safe_load(file.read_text())
        shipped = copy.deepcopy(crds.pop(generated["metadata"]["name"]))
        assert shipped["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert shipped == generated
    assert not crds


def test_the_uninstall_job_runs_before_anything_is_deleted() -> None:
    hooks = [
        i for i in rendered("default") if "helm.sh/hook" in i["metadata"].get("annotations", {})
    ]
    assert {i["kind"] for i in hooks} == {
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Job",
    }
    assert {i["metadata"]["annotations"]["helm.sh/hook"] for i in hooks} == {"pre-delete"}


def test_the_shipped_alerts_are_the_plain_rules_file() -> None:
    (item,) = of_kind(rendered("everything"), "PrometheusRule")
    plain = yaml.safe_load((ROOT / "manifests/alerts/wattpack.rules.yaml").read_text())
    shipped = yaml.safe_load(
        yaml.safe_dump(item["spec"]).replace(
            "https://github.com/wattpack/wattpack/blob/main/docs/runbooks/", "docs/runbooks/"
        )
    )
    assert shipped == plain
    assert item["metadata"]["labels"]["release"] == "kube-prometheus-stack"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"enforcment": "Enforce"}, "enforcment"),
        ({"enforcement": "enforce"}, "enforcement"),
        ({"enforcement": "Enforce"}, "guaranteedCapWatts"),
        (
            {**ENFORCING, "actuator": {"guaranteedCapWatts": {"NVIDIA H200": 450_000}}},
            "NVIDIA H200",
        ),
        ({**ENFORCING, "actuator": {"guaranteedCapWatts": {"NVIDIA H200": 0}}}, "NVIDIA H200"),
        ({**ENFORCING, "actuator": {"guaranteedCapWatts": {"NVIDIA H200": "450W"}}}, "NVIDIA H200"),
        ({"placement": {"mode": "On"}}, "mode"),
        ({"placement": None}, "placement"),
        ({"image": {"tag": "latest"}}, "tag"),
        ({"image": {"digest": "sha256:abc"}}, "digest"),
        ({"controller": {"replicas": 0}}, "replicas"),
        ({"controller": {"replicas": "two"}}, "replicas"),
        ({"controller": {"replica": 2}}, "replica"),
        ({"controller": {"resources": {"requests": {}, "limit": {}}}}, "limit"),
        ({"agent": {"sampleHertz": 100}}, "sampleHertz"),
        ({"agent": {"runAsUser": -1}}, "runAsUser"),
        ({"nodeNamespace": {"name": "Not A Name"}}, "name"),
        ({"prometheus": {"url": "prometheus:9090"}}, "url"),
        ({"metrics": {"serviceMonitor": {"interval": "15"}}}, "interval"),
        ({"watchdog": {"settings": {}}}, "settings"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    done = run_helm("template", "wp", str(CHART), f"--kube-version={KUBE_VERSION}", values=values)
    assert done.returncode != 0
    assert named in done.stderr
    assert not done.stdout


def test_an_old_cluster_is_refused() -> None:
    done = run_helm("template", "wp", str(CHART), "--kube-version=1.29.0", values=EVERYTHING)
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr


SERVERS = ("controller", "scheduler", "watchdog", "forecaster", "console")


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
