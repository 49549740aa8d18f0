"""The chart, rendered by the real helm: valid, least privileged, strict about its values."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.chart.helm_render import (
    CHART,
    ENFORCING,
    EVERYTHING,
    KUBE_VERSION,
    PROCESSES,
    ROOT,
    VALUE_SETS,
    args_of,
    of_kind,
    pod_specs,
    render,
    rendered,
    run_helm,
)
from tests.webhook_object import webhook_configuration

pytestmark = pytest.mark.helm

NODE_COMPONENTS = {"agent", "actuator", "pod-resources"}
#: It ends by itself.
WITHOUT_PROBES = {"uninstall"}


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
    from actuator.app.config_file import load_config

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
    from actuator.app.config_file import load_config

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


def test_the_objective_reaches_the_scheduler_with_the_figures_that_it_needs(tmp_path: Any) -> None:
    from scheduler_plugin.app.scheduler_settings import PlacementSettings

    def loaded(placement: dict[str, Any]) -> PlacementSettings:
        (item,) = (
            i
            for i in of_kind(tuple(render({"placement": placement})), "ConfigMap")
            if i["metadata"]["name"] == "wp-wattpack-scheduler"
        )
        file = tmp_path / "scheduler.yaml"
        file.write_text(item["data"]["settings.yaml"])
        return PlacementSettings.load(file=file, environment={})

    assert loaded({}).objective == PlacementSettings().objective
    order = ["disruption", "cost", "carbon"]
    figures = {"gpuPrices": {"H200-SXM": 3.8}, "carbonGramsPerKwh": {"site": 45}}
    settings = loaded({"objective": order, **figures})
    assert [stage.value for stage in settings.objective] == order
    assert settings.gpu_prices == {"H200-SXM": 3.8}
    assert settings.carbon_grams_per_kwh == {"site": 45}


def test_risks_by_priority_reach_who_places_and_who_promises(tmp_path: Any) -> None:
    from controller.app.controller_settings import ControllerSettings
    from scheduler_plugin.app.scheduler_settings import PlacementSettings

    kinds: dict[str, Any] = {"scheduler": PlacementSettings, "controller": ControllerSettings}
    values = {"placement": {"riskBelowPriority": {"1000": 0.05, "-10": 0.2}}}
    for chosen, wanted in (({}, {}), (values, {1000: 0.05, -10: 0.2})):
        for item in of_kind(tuple(render(chosen)), "ConfigMap"):
            component = item["metadata"]["name"].removeprefix("wp-wattpack-")
            if component in kinds:
                file = tmp_path / "settings.yaml"
                file.write_text(item["data"]["settings.yaml"])
                settings = kinds[component].load(file=file, environment={})
                assert settings.risk_below_priority == wanted


def test_links_of_the_documented_page_reach_the_scheduler(tmp_path: Any) -> None:
    from scheduler_plugin.app.scheduler_settings import PlacementSettings

    page = (Path(__file__).parents[2] / "docs" / "placement-links.md").read_text("utf-8")
    values = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    (item,) = (
        i
        for i in of_kind(tuple(render(values)), "ConfigMap")
        if i["metadata"]["name"] == "wp-wattpack-scheduler"
    )
    file = tmp_path / "scheduler.yaml"
    file.write_text(item["data"]["settings.yaml"])
    links = PlacementSettings.load(file=file, environment={}).links
    assert links.label == "network.topology.nvidia.com/leaf"
    assert [group.uplink_megabits for group in links.groups] == [3_200_000, 3_200_000, 12_800_000]
    assert [pair.latency_microseconds for pair in links.pairs] == [4, 9]


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


def test_each_shard_of_the_forecaster_is_a_deployment_of_its_own() -> None:
    def deployments(**values: Any) -> list[dict[str, Any]]:
        made = of_kind(tuple(render({"forecaster": values})), "Deployment")
        return [one for one in made if one["metadata"]["name"].startswith("wp-wattpack-forecaster")]

    (alone,) = deployments()
    assert "wattpack.io/forecaster-shard" not in str(alone)
    shards = deployments(shards=3, podLabels={"own": "label"})
    selected = [one["spec"]["selector"]["matchLabels"] for one in shards]
    assert len({frozenset(labels.items()) for labels in selected}) == 3
    for number, (one, labels) in enumerate(zip(shards, selected, strict=True), start=1):
        pod = one["spec"]["template"]
        assert labels.items() <= pod["metadata"]["labels"].items()
        assert pod["metadata"]["labels"]["own"] == "label"
        assert f"--shard={number}/3" in pod["spec"]["containers"][0]["args"]
    (service,) = [
        one
        for one in of_kind(tuple(render({"forecaster": {"shards": 3}})), "Service")
        if one["metadata"]["name"] == "wp-wattpack-forecaster"
    ]
    wanted = service["spec"]["selector"].items()
    assert all(wanted <= one["spec"]["template"]["metadata"]["labels"].items() for one in shards)


def forecaster_objects(**values: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Deployments and claims of the forecaster."""
    made = tuple(render({"forecaster": values}))
    deployments, claims = (
        [i for i in of_kind(made, kind) if "forecaster" in i["metadata"]["name"]]
        for kind in ("Deployment", "PersistentVolumeClaim")
    )
    return deployments, claims


def state_volume(deployment: dict[str, Any]) -> dict[str, Any]:
    """Where a forecaster keeps what it learned."""
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "state"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "state"]
    (file,) = [one for one in pod["containers"][0]["args"] if one.startswith("--state-file=")]
    assert file.removeprefix("--state-file=").startswith(mount["mountPath"] + "/")
    found: dict[str, Any] = volume
    return found


def test_what_the_forecaster_learned_goes_with_its_pod_by_default() -> None:
    (deployment,), claims = forecaster_objects()
    assert claims == []
    assert "emptyDir" in state_volume(deployment)
    assert "strategy" not in deployment["spec"]


def test_what_the_forecaster_learned_outlives_its_pod_on_a_claim() -> None:
    persistence = {"enabled": True, "size": "3Gi", "storageClassName": "fast"}
    (deployment,), (claim,) = forecaster_objects(persistence=persistence)
    assert state_volume(deployment)["persistentVolumeClaim"] == {
        "claimName": claim["metadata"]["name"]
    }
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "3Gi"}},
    }
    # A pod that comes before the old one has gone waits for the volume, on another node for ever.
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    # Records of promises cannot be rehearsed: as the controllers' claims they stay at an uninstall.
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_claim_without_a_class_takes_the_clusters_default() -> None:
    _, (claim,) = forecaster_objects(persistence={"enabled": True})
    assert "storageClassName" not in claim["spec"]


def test_the_forecaster_takes_a_claim_that_is_there() -> None:
    persistence = {"enabled": True, "existingClaim": "mine"}
    (deployment,), claims = forecaster_objects(persistence=persistence)
    assert claims == []
    assert state_volume(deployment)["persistentVolumeClaim"] == {"claimName": "mine"}
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_each_shard_has_a_claim_of_its_own() -> None:
    deployments, claims = forecaster_objects(shards=3, persistence={"enabled": True})
    mounted = [state_volume(i)["persistentVolumeClaim"]["claimName"] for i in deployments]
    assert len(set(mounted)) == 3
    assert mounted == [claim["metadata"]["name"] for claim in claims]


def test_a_digest_wins_over_the_tag() -> None:
    digest = "sha256:" + "a" * 64
    for spec in pod_specs(tuple(render({"image": {"digest": digest, "tag": "1"}}))).values():
        assert spec["containers"][0]["image"].endswith(f"@{digest}")


def test_the_webhook_is_the_one_that_the_contract_describes() -> None:
    (item,) = of_kind(rendered("everything"), "MutatingWebhookConfiguration")
    (webhook,) = item["webhooks"]
    described = webhook_configuration(item["metadata"]["name"], {})["webhooks"][0]
    for key in set(described) - {"clientConfig"}:
        assert webhook[key] == described[key], key
    service = webhook["clientConfig"]["service"]
    services = {i["metadata"]["name"]: i for i in of_kind(rendered("everything"), "Service")}
    assert service["port"] in {p["port"] for p in services[service["name"]]["spec"]["ports"]}


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
        ({"forecaster": {"settings": {"interval_secs": 60}}}, "interval_secs"),
        ({"forecaster": {"settings": {"interval_seconds": "abc"}}}, "interval_seconds"),
        ({"forecaster": {"settings": {"prometheus_url": "http://x"}}}, "prometheus_url"),
        ({"forecaster": {"persistence": {"size": "1 GB"}}}, "size"),
        ({"forecaster": {"persistence": {"storageClass": "fast"}}}, "storageClass"),
        ({"forecaster": {"persistence": {"existingClaim": "No Name"}}}, "existingClaim"),
        (
            {"forecaster": {"replicas": 2, "persistence": {"enabled": True}}},
            "forecaster.replicas: expected 1",
        ),
        (
            {"forecaster": {"shards": 2, "persistence": {"enabled": True, "existingClaim": "a"}}},
            "forecaster.persistence.existingClaim: expected none",
        ),
        ({"placement": {"policy": "cost"}}, "placement.gpuPrices: expected"),
        (
            {"placement": {"objective": ["disruption", "cost"]}},
            "placement.gpuPrices: expected",
        ),
        (
            {"placement": {"objective": ["disruption", "carbon"]}},
            "placement.carbonGramsPerKwh: expected",
        ),
        (
            {"placement": {"riskBelowPriority": {"1000": 0.05, "0": 0.01, "-5": 0.3}}},
            "placement.riskBelowPriority.0: expected at least 0.05",
        ),
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
