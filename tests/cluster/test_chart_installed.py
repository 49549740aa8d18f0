"""The chart on an API server: installed by helm, its roles suffice and its policies hold."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster_builders import create, node, pod
from tests.cluster.cluster_connection import Answer
from tests.cluster.cluster_processes import eventually, free_port
from tests.cluster.control_plane import ControlPlane
from tests.cluster.e2e_release import NO_FLOW_SCHEMA

ROOT = Path(__file__).parents[2]
KUBE_VERSION = "1.34.0"
SYSTEM, NODES = "wattpack-system", "wattpack-node"
DOMAINS = "/apis/wattpack.io/v1alpha1/powerdomains"
_numbers = itertools.count(1)
GPU_NODES = "/apis/wattpack.io/v1alpha1/gpunodes"

pytestmark = [pytest.mark.cluster, pytest.mark.helm]


@dataclass
class Release:
    """An installed release and the control plane below it."""

    plane: ControlPlane

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        built = ROOT / ".cache" / "tools" / "bin" / "helm"
        found = str(built) if built.exists() else shutil.which("helm")
        if found is None:
            if os.environ.get("CI") == "true":
                pytest.fail("helm is missing: run `make tools`")
            pytest.skip("helm is missing: run `make tools`")
        return subprocess.run(
            [found, f"--kubeconfig={self.plane.kubeconfig}", f"--namespace={SYSTEM}", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "HOME": str(self.plane.directory)},
        )

    def account(self, component: str, *, node: str | None = None) -> Path:
        """A kubeconfig with a token of one of the release's accounts."""
        namespace = NODES if component == "agent" else SYSTEM
        return self.plane.service_account_kubeconfig(namespace, f"wattpack-{component}", node=node)


@pytest.fixture(scope="module")
def release(fresh_control_plane: ControlPlane) -> Iterator[Release]:
    """Everything installed, enforcing and managing, in a namespace that admits restricted pods."""
    made = Release(fresh_control_plane)
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    create(
        fresh_control_plane, "/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": level}}
    )
    values = {
        "enforcement": "Enforce",
        "actuator": {"guaranteedCapWatts": {"NVIDIA H200": 450}},
        "placement": {"mode": "Manage", "provisioning": {"enabled": True}},
        **NO_FLOW_SCHEMA,
    }
    done = made.helm(
        "install", "wattpack", str(ROOT / "charts" / "wattpack"),
        *(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wait_for_policies(fresh_control_plane)
    yield made
    done = made.helm("uninstall", "wattpack", "--no-hooks")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def space(release: Release) -> Iterator[str]:
    """A namespace on the release's server."""
    name = f"tenant-{next(_numbers)}"
    create(release.plane, "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    release.plane.request("DELETE", f"/api/v1/namespaces/{name}")


def wait_for_policies(plane: ControlPlane) -> None:
    """A new policy rules a moment after it is stored."""
    create(plane, DOMAINS, domain("probe"))
    status = f"{DOMAINS}/probe/status"
    plane.request("PATCH", status, {"status": {"members": 1}}, patch="merge")
    eventually(
        "the policies are in force",
        lambda: plane.request("DELETE", f"{DOMAINS}/probe?dryRun=All").status == 403,
    )
    plane.request("PATCH", status, {"status": {"members": 0}}, patch="merge")
    plane.request("DELETE", f"{DOMAINS}/probe")


def component(item: dict[str, Any]) -> str:
    return str(item["metadata"]["labels"]["app.kubernetes.io/component"])


def domain(name: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": name},
        "spec": {"ratingWatts": 400_000, **spec},
    }


def test_pod_security_admits_every_pod_of_the_release_and_no_other(release: Release) -> None:
    plane = release.plane
    if plane.kind == "kubebuilder":
        pytest.skip("a bare kube-apiserver runs no controllers")
    labels = {"nvidia.com/gpu.present": "true"}
    create(plane, "/api/v1/nodes", node("admitted", gpus=8, labels=labels))

    def missing() -> set[str]:
        wanted, made = set(), set()
        for space in (SYSTEM, NODES):
            for kind in ("deployments", "statefulsets", "daemonsets"):
                path = f"/apis/apps/v1/namespaces/{space}/{kind}"
                wanted |= {component(item) for item in plane.request("GET", path).body["items"]}
            pods = plane.request("GET", f"/api/v1/namespaces/{space}/pods").body["items"]
            made |= {component(item) for item in pods}
        return wanted - made

    eventually("every workload has a pod", lambda: missing() == set(), 30)
    path = f"/api/v1/namespaces/{SYSTEM}/pods"
    greedy = pod("greedy", volumes=[{"name": "host", "hostPath": {"path": "/"}}])
    refused = plane.request("POST", path, greedy)
    assert refused.status == 403
    assert 'violates PodSecurity "restricted' in refused.message
    plane.request("DELETE", "/api/v1/nodes/admitted")


def test_a_domain_with_members_cannot_be_deleted(release: Release) -> None:
    plane = release.plane
    create(plane, DOMAINS, domain("row-full"))
    status = {"status": {"members": 3}}
    answer = plane.request("PATCH", f"{DOMAINS}/row-full/status", status, patch="merge")
    assert answer.status == 200, answer.message
    refused = plane.request("DELETE", f"{DOMAINS}/row-full")
    assert refused.status == 403
    assert "still has nodes below it" in refused.message
    plane.request("PATCH", f"{DOMAINS}/row-full/status", {"status": {"members": 0}}, patch="merge")
    assert plane.request("DELETE", f"{DOMAINS}/row-full").status == 200


def gpu_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": name},
        "spec": {"nodeName": name},
    }


def test_an_agent_writes_its_own_gpu_node_and_no_other(release: Release) -> None:
    plane = release.plane
    for name in ("chart-a", "chart-b"):
        create(plane, "/api/v1/nodes", node(name))
    agent = release.account("agent", node="chart-a")
    own = plane.request("POST", GPU_NODES, gpu_node("chart-a"), kubeconfig=agent)
    assert own.status == 201, own.message
    other = plane.request("POST", GPU_NODES, gpu_node("chart-b"), kubeconfig=agent)
    assert other.status == 403
    assert "only the GpuNode of the node" in other.message
    unbound = plane.request(
        "POST", GPU_NODES, gpu_node("chart-b"), kubeconfig=release.account("agent")
    )
    assert unbound.status == 403
    assert plane.request("DELETE", f"{GPU_NODES}/chart-a", kubeconfig=agent).status == 403
    for name in ("chart-a", "chart-b"):
        plane.request("DELETE", f"/api/v1/nodes/{name}")
    plane.request("DELETE", f"{GPU_NODES}/chart-a")


RECORDING = ROOT / "tests" / "telemetry" / "fixtures" / "h200" / "matmul.jsonl.gz"


def agent_command(node_name: str, kubeconfig: Path) -> list[str]:
    """An agent with two replayed boards and no controller in reach."""
    return [
        sys.executable, "-m", "wattpack.cli", "agent", f"--node={node_name}", "--port=0",
        f"--replay={RECORDING}", "--devices=2", "--controller=127.0.0.1:1", "--insecure",
        "--gpunode", f"--kubeconfig={kubeconfig}",
    ]  # fmt: skip


def gpu_node_status(plane: ControlPlane, name: str) -> dict[str, Any] | None:
    """The status that an agent wrote, None while there is only what the schema fills in."""
    answer = plane.request("GET", f"{GPU_NODES}/{name}")
    status: dict[str, Any] = answer.body.get("status", {}) if answer.status == 200 else {}
    return status if "gpuCount" in status else None


def test_an_agent_process_keeps_its_own_gpu_node_and_is_denied_another(
    release: Release, tmp_path: Path
) -> None:
    plane = release.plane
    for name in ("agent-a", "agent-b"):
        create(plane, "/api/v1/nodes", node(name))
    account = release.account("agent", node="agent-a")
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as errors:
        agents = [
            subprocess.Popen(agent_command(name, account), env=environment, stderr=errors)
            for name in ("agent-a", "agent-b")
        ]
    try:
        found = eventually(
            "the agent wrote its GpuNode",
            lambda: gpu_node_status(plane, "agent-a"),
            60,
        )
        eventually("the other was denied", lambda: "only the GpuNode of" in log.read_text(), 60)
        other = plane.request("GET", f"{GPU_NODES}/agent-b").status
    finally:
        for started in agents:
            started.terminate()
            assert started.wait(30) == 0
        for name in ("agent-a", "agent-b"):
            plane.request("DELETE", f"/api/v1/nodes/{name}")
            plane.request("DELETE", f"{GPU_NODES}/{name}")
    assert other == 404
    assert (found["gpuCount"], found["model"]) == (2, "NVIDIA H200")
    assert found["conditions"][0]["reason"] == "ReportOnly"


OURS = {"key": "wattpack.io/uncontrolled", "effect": "NoSchedule"}
OTHERS = {"key": "example.com/reserved", "value": "x", "effect": "NoSchedule"}


@pytest.fixture
def tainted_node(release: Release) -> Iterator[str]:
    """The path of a node with somebody else's taint."""
    create(release.plane, "/api/v1/nodes", node("chart-tainted", taints=[OTHERS]))
    yield "/api/v1/nodes/chart-tainted"
    release.plane.request("DELETE", "/api/v1/nodes/chart-tainted")


def test_the_controller_moves_its_taint_with_the_patch_that_it_sends(
    release: Release, tainted_node: str
) -> None:
    from controller.uncontrolled_taint import taint_patch

    plane, account = release.plane, release.account("controller")
    for wanted, expected in ((True, [OTHERS, OURS]), (False, [OTHERS])):
        operations = taint_patch(plane.request("GET", tainted_node).body, wanted=wanted)
        answer = plane.request("PATCH", tainted_node, operations, patch="json", kubeconfig=account)
        assert answer.status == 200, answer.message
        assert answer.body["spec"]["taints"] == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/taints/0"},
        {"op": "replace", "path": "/spec/taints/0/value", "value": "y"},
        {"op": "add", "path": "/spec/taints/-", "value": {**OTHERS, "effect": "NoExecute"}},
        {"op": "add", "path": "/spec/unschedulable", "value": True},
        {"op": "add", "path": "/metadata/labels/stolen", "value": "yes"},
        {"op": "add", "path": "/metadata/annotations/a", "value": "b"},
    ],
    ids=lambda operation: str(operation["path"]),
)
def test_the_controller_may_change_nothing_else_of_a_node(
    release: Release, tainted_node: str, operation: dict[str, Any]
) -> None:
    refused = release.plane.request(
        "PATCH",
        tainted_node,
        [operation],
        patch="json",
        kubeconfig=release.account("controller"),
    )
    assert refused.status == 403, refused.message
    assert "only its own taint" in refused.message


GATES = [{"name": "wattpack.io/placement"}, {"name": "example.com/other"}]


@pytest.fixture
def gated(release: Release, space: str) -> str:
    """The path of a pod with our gate and somebody else's."""
    path = f"/api/v1/namespaces/{space}/pods"
    create(release.plane, path, pod("gated", schedulingGates=GATES))
    return f"{path}/gated"


def as_scheduler(release: Release, path: str, *operations: dict[str, Any]) -> Answer:
    account = release.account("scheduler")
    return release.plane.request("PATCH", path, list(operations), patch="json", kubeconfig=account)


def test_the_scheduler_may_remove_its_gate_and_pin_the_node(release: Release, gated: str) -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    answer = as_scheduler(
        release,
        gated,
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": required}},
    )
    assert answer.status == 200, answer.message
    assert answer.body["spec"]["schedulingGates"] == [{"name": "example.com/other"}]


def test_the_scheduler_may_have_a_pod_name_its_provisioning_request(
    release: Release, gated: str
) -> None:
    marks = {
        "autoscaling.x-k8s.io/consume-provisioning-request": "wattpack-1",
        "autoscaling.x-k8s.io/provisioning-class-name": "c",
    }
    path = "/metadata/annotations"
    answer = as_scheduler(release, gated, {"op": "add", "path": path, "value": marks})
    assert answer.status == 200, answer.message
    more = {"op": "add", "path": f"{path}/a", "value": "b"}
    assert as_scheduler(release, gated, more).status == 403
    answer = as_scheduler(release, gated, {"op": "remove", "path": path})
    assert answer.status == 200, answer.message
    assert "annotations" not in answer.body["metadata"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/spec/schedulingGates/1"},
        {"op": "add", "path": "/metadata/labels", "value": {"stolen": "yes"}},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "evil:1"},
        {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}},
        {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}},
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
    ],
    ids=lambda operation: str(operation["path"]),
)
def test_the_scheduler_may_change_nothing_else_of_a_pod(
    release: Release, gated: str, operation: dict[str, Any]
) -> None:
    answer = as_scheduler(release, gated, operation)
    assert answer.status in {403, 422}, answer.body
    assert "wattpack may" in answer.message


def test_people_are_not_bound_by_the_schedulers_policy(release: Release, gated: str) -> None:
    label = {"op": "add", "path": "/metadata/labels", "value": {"mine": "yes"}}
    answer = release.plane.request("PATCH", gated, [label], patch="json")
    assert answer.status == 200, answer.message


RULE = {"key": "metadata.name", "operator": "In", "values": ["n"]}
PIN = {"nodeSelectorTerms": [{"matchFields": [RULE]}]}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def pinned(name: str, required: dict[str, Any] | None = PIN, **owner: Any) -> dict[str, Any]:
    """A pod of a Job that may run on one node only; ``kind=""`` has no owner."""
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {kind: required}} if required else None
    made = pod(name, **({"affinity": affinity} if affinity else {}))
    if owner.get("kind", "Job"):
        made["metadata"]["ownerReferences"] = [OWNER | owner]
    return made


def evict_as_scheduler(
    release: Release, path: str, name: str, query: str = "", **options: Any
) -> Answer:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    }
    account = release.account("scheduler")
    return release.plane.request("POST", f"{path}/{name}/eviction{query}", body, kubeconfig=account)


@pytest.fixture
def tenant(release: Release, space: str) -> str:
    """The path of the pods of a namespace that opted in; one of them is nobody's business."""
    label = {"metadata": {"labels": {"wattpack.io/placement": "enabled"}}}
    release.plane.request("PATCH", f"/api/v1/namespaces/{space}", label, patch="merge")
    path = f"/api/v1/namespaces/{space}/pods"
    create(release.plane, path, pod("bystander"))
    return path


def add_owned(release: Release, path: str, body: dict[str, Any]) -> str:
    """Create the pod below something that exists, so that nobody collects it; its uid."""
    beside = path.removesuffix("pods") + "configmaps"
    owner = create(release.plane, beside, {"metadata": {"name": "owner"}})["metadata"]["uid"]
    for reference in body["metadata"].get("ownerReferences", []):
        reference["uid"] = owner
    return str(create(release.plane, path, body)["metadata"]["uid"])


def test_the_scheduler_may_evict_a_pod_that_it_pinned(release: Release, tenant: str) -> None:
    uid = add_owned(release, tenant, pinned("p"))
    answer = evict_as_scheduler(release, tenant, "p", preconditions={"uid": uid})
    assert answer.status == 201, answer.message
    assert release.plane.request("GET", f"{tenant}/p").status == 404


ELSEWHERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (pinned("p", None), "pods that it pinned"),
        (pinned("p", {"nodeSelectorTerms": [{"matchFields": [RULE]}, ELSEWHERE]}), "it pinned"),
        (pinned("p", {"nodeSelectorTerms": [ELSEWHERE]}), "pods that it pinned"),
        (pinned("p", kind=""), "somebody will create again"),
        (pinned("p", kind="DaemonSet", apiVersion="apps/v1"), "somebody will create again"),
        ({**pinned("p"), "spec": {**pinned("p")["spec"], "nodeName": "n"}}, "no node yet"),
    ],
    ids=["no pin", "one term", "a zone", "bare", "daemon", "bound"],
)
def test_the_scheduler_may_evict_no_other_pod(
    release: Release, tenant: str, body: dict[str, Any], why: str
) -> None:
    uid = add_owned(release, tenant, body)

    options = {"preconditions": {"uid": uid}}

    def seen() -> bool:
        """The policy judges by a copy of the pods that follows within moments."""
        probe = evict_as_scheduler(release, tenant, "p", "?dryRun=All", **options)
        return why in probe.message

    eventually("the policy has seen the pod", seen)
    assert evict_as_scheduler(release, tenant, "p", **options).status == 403
    assert release.plane.request("GET", f"{tenant}/p").status == 200


def test_an_eviction_names_its_pod_and_leaves_it_time(release: Release, tenant: str) -> None:
    uid = add_owned(release, tenant, pinned("p"))
    for options in ({}, {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}):
        answer = evict_as_scheduler(release, tenant, "p", **options)
        assert (answer.status, "by its uid" in answer.message) == (403, True), answer.message


def test_nothing_is_evicted_where_nobody_opted_in(release: Release, space: str) -> None:
    path = f"/api/v1/namespaces/{space}/pods"
    uid = add_owned(release, path, pinned("p"))
    answer = evict_as_scheduler(release, path, "p", preconditions={"uid": uid})
    assert (answer.status, "opted in" in answer.message) == (403, True), answer.message


@pytest.mark.parametrize(
    ("component", "verb", "resource", "allowed"),
    [
        ("controller", "list", "powerdomains.wattpack.io", True),
        ("controller", "patch", "powerdomains.wattpack.io/status", True),
        ("controller", "patch", "powerdomains.wattpack.io", False),
        ("controller", "patch", "capacityplans.wattpack.io/status", False),
        ("controller", "patch", "workloadprofiles.wattpack.io", True),
        ("controller", "delete", "workloadprofiles.wattpack.io", False),
        ("controller", "patch", "pods", False),
        ("controller", "create", "tokenreviews.authentication.k8s.io", True),
        ("controller", "get", "secrets", False),
        ("scheduler", "patch", "pods", True),
        ("scheduler", "delete", "pods", False),
        ("scheduler", "create", "pods/eviction", True),
        ("scheduler", "list", "secrets", False),
        ("watchdog", "patch", "pods", True),
        ("watchdog", "create", "pods/eviction", False),
        ("forecaster", "patch", "demandforecasts.wattpack.io/status", True),
        ("forecaster", "patch", "capacityplans.wattpack.io/status", True),
        ("forecaster", "watch", "demandforecasts.wattpack.io", True),
        ("forecaster", "list", "pods", True),
        ("forecaster", "watch", "pods", False),
        ("console", "list", "pods", True),
        ("console", "watch", "demandforecasts.wattpack.io", True),
        ("console", "patch", "demandforecasts.wattpack.io/status", False),
        ("console", "patch", "powerdomains.wattpack.io", False),
    ],
)
def test_each_account_may_do_its_work_and_no_more(
    release: Release, component: str, verb: str, resource: str, allowed: bool
) -> None:
    kind, _, subresource = resource.partition("/")
    done = release.plane.kubectl(
        "auth", "can-i", verb, kind, f"--subresource={subresource}", "--all-namespaces",
        kubeconfig=release.account(component), check=False,
    )  # fmt: skip
    assert (done.stdout.strip() == "yes") is allowed, done.stdout + done.stderr


def test_the_webhook_never_holds_up_a_pod_while_nobody_answers(
    release: Release, space: str
) -> None:
    plane = release.plane
    label = {"metadata": {"labels": {"wattpack.io/placement": "enabled"}}}
    plane.request("PATCH", f"/api/v1/namespaces/{space}", label, patch="merge")
    wanted = pod("gpu")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    create(plane, f"/api/v1/namespaces/{space}/pods", wanted)


def test_crds_and_their_objects_survive_a_second_install(release: Release) -> None:
    create(release.plane, DOMAINS, domain("kept"))
    done = release.helm("upgrade", "wattpack", str(ROOT / "charts" / "wattpack"), "--reuse-values")
    assert done.returncode == 0, done.stderr
    assert release.plane.request("GET", f"{DOMAINS}/kept").status == 200
    release.plane.request("DELETE", f"{DOMAINS}/kept")


def refused_requests(plane: ControlPlane, component: str) -> list[str]:
    """What the API server forbade to an account of the release."""
    events = plane.audit_events(f"system:serviceaccount:{SYSTEM}:wattpack-{component}")
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event.get("responseStatus", {}).get("code") == 403
    ]


@contextlib.contextmanager
def process(release: Release, component: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real process of the product under its own account."""
    started = subprocess.Popen(
        [sys.executable, "-m", "wattpack.cli", component,
         f"--kubeconfig={release.account(component)}", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)


def test_the_scheduler_leads_and_serves_its_webhook_with_its_own_rights(release: Release) -> None:
    plane = release.plane
    webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/wattpack-scheduler"

    def trusted() -> bool:
        body = plane.request("GET", f"{webhooks}/wattpack-placement").body
        return "caBundle" in body["webhooks"][0]["clientConfig"]

    before = len(refused_requests(plane, "scheduler"))
    with process(
        release, "scheduler", "--mode=Manage", f"--namespace={SYSTEM}", "--metrics-port=0",
        "--webhook-host=127.0.0.1", f"--webhook-port={free_port()}",
        "--service=wattpack-scheduler", "--secret=wattpack-scheduler-tls",
    ):  # fmt: skip
        eventually("the webhook trusts the scheduler", trusted, 60)
        eventually("the scheduler leads", lambda: plane.request("GET", lease).status == 200, 60)
    assert refused_requests(plane, "scheduler")[before:] == []


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_controller_leads_with_its_own_rights(release: Release, tmp_path: Path) -> None:
    plane = release.plane
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/wattpack-controller"
    settings = yaml.safe_load(
        plane.request(
            "GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/wattpack-controller"
        ).body["data"]["settings.yaml"]
    )  # fmt: skip
    file = tmp_path / "settings.yaml"
    local = {"stream_address": "127.0.0.1:0", "http_port": free_port(), "audit_file": ":memory:"}
    file.write_text(yaml.safe_dump(settings | local))
    http = f"http://127.0.0.1:{local['http_port']}"
    before = len(refused_requests(plane, "controller"))
    with process(release, "controller", f"--config={file}"):
        eventually("the controller leads", lambda: plane.request("GET", lease).status == 200, 60)
        eventually("every informer has listed", lambda: answers(f"{http}/readyz"), 60)
    assert refused_requests(plane, "controller")[before:] == []


def test_the_watchdog_reads_the_lease_with_its_own_rights(release: Release) -> None:
    plane = release.plane
    user = f"system:serviceaccount:{SYSTEM}:wattpack-watchdog"

    def looked() -> bool:
        return any(
            "/leases/wattpack-scheduler" in e["requestURI"] for e in plane.audit_events(user)
        )

    with process(release, "watchdog", f"--namespace={SYSTEM}"):
        eventually("the watchdog has looked", looked, 60)
    assert refused_requests(plane, "watchdog") == []


def test_the_forecaster_finishes_a_round_with_its_own_rights(release: Release) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with process(release, "forecaster", "--once", f"--prometheus-url={nobody}") as started:
        assert started.wait(60) == 0
    assert refused_requests(release.plane, "forecaster") == []


def test_the_uninstall_hook_leaves_no_webhook_and_no_gated_pod(
    release: Release, space: str
) -> None:
    plane = release.plane
    create(plane, f"/api/v1/namespaces/{space}/pods", pod("held", schedulingGates=GATES[:1]))
    chart = str(ROOT / "charts" / "wattpack")
    shown = release.helm(
        "template", "wattpack", chart, "--show-only=templates/uninstall-hook.yaml",
        f"--kube-version={KUBE_VERSION}",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    hooks = [item for item in yaml.safe_load_all(shown.stdout) if item]
    (job,) = (item for item in hooks if item["kind"] == "Job")
    plane.kubectl(
        "apply", "-f", "-", stdin=yaml.safe_dump_all(item for item in hooks if item is not job)
    )
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"][1:]
    started = subprocess.run(
        [sys.executable, "-m", "wattpack.cli", "watchdog",
         f"--kubeconfig={release.account('uninstall')}", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert started.returncode == 0, started.stdout + started.stderr
    assert refused_requests(plane, "uninstall") == []
    held = plane.request("GET", f"/api/v1/namespaces/{space}/pods/held").body
    assert "schedulingGates" not in held["spec"]
    webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    assert plane.request("GET", f"{webhooks}/wattpack-placement").status == 404
