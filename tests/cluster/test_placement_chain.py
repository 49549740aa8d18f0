"""Gated, planned, pinned, bound, Running on an API server; and nobody waits for a dead planner."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster_builders import GATE, Body, create, node, pod
from tests.cluster.cluster_processes import ServerProcess, eventually, free_port
from tests.cluster.conftest import _require_tools
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.webhook_object import webhook_configuration

ROOT = Path(__file__).parents[2]
SYSTEM = "wattpack-system"
TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
OURS = "/apis/wattpack.io/v1alpha1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NODES = ("chain-a", "chain-b")

pytestmark = pytest.mark.cluster


class Chain:
    """A control plane of its own with our CRDs, nodes, a namespace that opted in, a scheduler."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.port = free_port()
        self.owner_uid = ""

    def install(self, nodes: Sequence[str] = NODES) -> None:
        self.plane.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "crds"))
        opted_in = {"wattpack.io/placement": "enabled"}
        for name, labels in ((SYSTEM, {}), (TEAM, opted_in)):
            body = {"metadata": {"name": name, "labels": labels}}
            create(self.plane, "/api/v1/namespaces", body)
        owner = {"metadata": {"name": "owner"}}
        stored = create(self.plane, f"/api/v1/namespaces/{TEAM}/configmaps", owner)
        self.owner_uid = stored["metadata"]["uid"]
        service = {
            "metadata": {
                "name": "wattpack-scheduler",
                "annotations": {"testapi.local/endpoint": f"127.0.0.1:{self.port}"},
            },
            "spec": {"ports": [{"port": 443}]},
        }
        create(self.plane, f"/api/v1/namespaces/{SYSTEM}/services", service)
        reference = {"namespace": SYSTEM, "name": "wattpack-scheduler", "path": "/mutate"}
        create(self.plane, WEBHOOKS, webhook_configuration("wattpack-placement", reference))
        for name in nodes:
            create(self.plane, "/api/v1/nodes", node(name))
        self.plane.start_kwok()
        self.plane.start_binder()

    def start(self, verb: str, *arguments: str) -> ServerProcess:
        command = [sys.executable, "-m", "wattpack.cli", verb, f"--namespace={SYSTEM}"]
        command += [f"--kubeconfig={self.plane.kubeconfig}", *arguments]
        return ServerProcess(verb, command, self.directory, {"PYTHONPATH": str(ROOT)})

    def scheduler(self, *arguments: str) -> ServerProcess:
        started = self.start(
            "scheduler",
            "--mode=Manage",
            "--webhook-host=127.0.0.1",
            f"--webhook-port={self.port}",
            "--deadline-seconds=0.2",
            *(arguments or ("--metrics-port=0",)),
        )
        started.wait_ready(self.webhook_answers, 60)
        return started

    def webhook_answers(self) -> bool:
        made = self.plane.request("POST", f"{PODS}?dryRun=All", pod("probe", gpus=1))
        return bool(made.status == 201 and made.body["spec"].get("schedulingGates"))

    def pod(self, name: str) -> Body:
        return self.plane.request("GET", f"{PODS}/{name}").body

    def waits(self, what: str, probe: Callable[[], Any], seconds: float = 40.0) -> None:
        eventually(what, probe, seconds)

    def runs(self, name: str) -> bool:
        return bool(self.pod(name).get("status", {}).get("phase") == "Running")

    def clear(self) -> None:
        for item in self.plane.request("GET", PODS).body["items"]:
            self.plane.request(
                "DELETE", f"{PODS}/{item['metadata']['name']}", {"gracePeriodSeconds": 0}
            )
        self.waits("no pods", lambda: not self.plane.request("GET", PODS).body["items"])


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    _require_tools()
    directory = tmp_path_factory.mktemp("placement")
    plane = start_control_plane(directory)
    made = Chain(plane, directory)
    try:
        if plane.kind != "own":
            pytest.skip("only the project's own server resolves services to loopback")
        made.install()
        yield made
    finally:
        plane.stop()


@pytest.fixture
def scheduler(chain: Chain) -> Iterator[ServerProcess]:
    started = chain.scheduler()
    yield started
    started.stop()
    chain.clear()


def owned(chain: Chain, name: str, gpus: int, **metadata: Any) -> Body:
    """A pod whose controller exists, so that the garbage collector leaves it alone."""
    body = pod(name, gpus=gpus)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    body["metadata"] |= {"ownerReferences": [owner | {"uid": chain.owner_uid}], **metadata}
    return body


def test_boards_parts_of_them_and_claims_are_gated_and_nothing_else(
    chain: Chain, scheduler: ServerProcess
) -> None:
    def gated(body: Body) -> bool:
        made = chain.plane.request("POST", f"{PODS}?dryRun=All", body)
        assert made.status == 201, made.message
        return bool(made.body["spec"].get("schedulingGates"))

    def asking(name: str) -> Body:
        body = pod("asks")
        body["spec"]["containers"][0]["resources"] = {"limits": {name: "1"}}
        return body

    gpus = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "amd.com/cpx_nps4")
    assert all(gated(asking(name)) for name in gpus)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    assert gated(pod("claims", resourceClaims=claims))
    assert not gated(asking("rdma/hca"))
    assert not gated(pod("plain"))


def test_a_gang_goes_from_its_gate_to_running(chain: Chain, scheduler: ServerProcess) -> None:
    marks = {
        "labels": {"wattpack.io/gang": "g"},
        "annotations": {"wattpack.io/gang-size": "2"},
    }
    first = create(chain.plane, PODS, owned(chain, "g-0", 8, **marks))
    assert first["spec"]["schedulingGates"] == [{"name": GATE}]
    create(chain.plane, PODS, owned(chain, "g-1", 8, **marks))
    for name in ("g-0", "g-1"):
        chain.waits(f"{name} runs", lambda name=name: chain.runs(name))  # type: ignore[misc]
    assert {chain.pod(name)["spec"]["nodeName"] for name in ("g-0", "g-1")} == set(NODES)
    plans = chain.plane.request("GET", f"{OURS}/placementplans").body["items"]
    states = {
        plan["status"]["state"]
        for plan in plans
        if any(p["name"] == "g-0" for p in plan["spec"].get("promises", []))
    }
    assert states == {"Applied"}


def test_a_pod_that_fits_nowhere_waits_and_says_why(chain: Chain, scheduler: ServerProcess) -> None:
    create(chain.plane, PODS, owned(chain, "huge", 16))

    def told() -> bool:
        events = chain.plane.request("GET", f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events")
        return any("LargerThanAnyNode" in e.get("note", "") for e in events.body["items"])

    chain.waits("an event tells the cause", told)
    assert chain.pod("huge")["spec"]["schedulingGates"]


def test_pods_that_ask_for_an_adapter_run_where_one_is_and_none_is_lost(
    chain: Chain, scheduler: ServerProcess
) -> None:
    has = NODES[-1]
    amounts = {"rdma/hca": "2"}
    status = {"status": {"allocatable": amounts, "capacity": amounts}}
    chain.plane.request("PATCH", f"/api/v1/nodes/{has}/status", status, patch="merge")
    uids = {}
    for name in ("hca-0", "hca-1"):
        body = owned(chain, name, 1)
        body["spec"]["containers"][0]["resources"]["limits"] |= {"rdma/hca": "1"}
        uids[name] = create(chain.plane, PODS, body)["metadata"]["uid"]
    for name, uid in uids.items():
        chain.waits(f"{name} runs", lambda name=name: chain.runs(name))  # type: ignore[misc]
        found = chain.pod(name)
        assert (found["metadata"]["uid"], found["spec"]["nodeName"]) == (uid, has)


def test_a_domain_without_headroom_holds_its_pods_back(
    chain: Chain, scheduler: ServerProcess
) -> None:
    profile = ROOT / "manifests" / "examples" / "gpuprofile.yaml"
    chain.plane.kubectl("apply", "--server-side", "-f", str(profile))
    label = {"metadata": {"labels": {"nvidia.com/gpu.product": "Example-Accelerator-700W"}}}
    for name in NODES:
        chain.plane.request("PATCH", f"/api/v1/nodes/{name}", label, patch="merge")
    domain = {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": "row"},
        "spec": {
            "ratingWatts": 20_000,
            "members": {"nodeNames": list(NODES)},
            "nonGpuPerNode": {"worstWatts": 10_000},
        },
    }
    create(chain.plane, f"{OURS}/powerdomains", domain)
    # What the controller writes: only a domain whose spec it accepted counts.
    accepted = {"acceptedSpec": domain["spec"], "capBandWatts": 17_000, "forecastP99Watts": 16_990}
    full = {"status": accepted}
    chain.plane.request("PATCH", f"{OURS}/powerdomains/row/status", full, patch="merge")
    create(chain.plane, PODS, owned(chain, "powered", 1))

    def reason() -> str:
        plans = chain.plane.request("GET", f"{OURS}/placementplans").body["items"]
        found = [p["reason"] for plan in plans for p in plan["spec"].get("pending", [])
                 if p["name"] == "powered"]  # fmt: skip
        return found[-1] if found else ""

    chain.waits("the domain is full", lambda: reason() == "PowerDomainFull")

    def columns() -> str:
        return chain.plane.kubectl("get", "placementplans").stdout

    chain.waits("a column tells the power that is left", lambda: "0.0 kW row" in columns())
    assert "HEADROOM" in columns()
    room = {"status": {"forecastP99Watts": 4_000}}
    chain.plane.request("PATCH", f"{OURS}/powerdomains/row/status", room, patch="merge")
    chain.waits("powered runs", lambda: chain.runs("powered"))
    chain.plane.request("DELETE", f"{OURS}/powerdomains/row")


def test_a_killed_planner_holds_nobody_back(chain: Chain) -> None:
    planner = chain.scheduler()
    chain.waits("it leads", lambda: chain.plane.request(
        "GET", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/wattpack-scheduler"
    ).status == 200)  # fmt: skip
    create(chain.plane, PODS, owned(chain, "stuck", 16))
    assert chain.pod("stuck")["spec"]["schedulingGates"]
    planner.kill()
    watchdog = chain.start("watchdog", "--silence-seconds=3")
    try:
        chain.waits("released", lambda: not chain.pod("stuck")["spec"].get("schedulingGates"))
    finally:
        watchdog.stop()
        chain.clear()


def test_an_uninstall_leaves_no_webhook_and_no_held_pod(chain: Chain) -> None:
    planner = chain.scheduler()
    create(chain.plane, PODS, owned(chain, "left", 16))
    planner.stop()
    assert chain.pod("left")["spec"]["schedulingGates"]
    done = chain.start("watchdog", "--uninstall=wattpack-placement")
    chain.waits("the hook ends", lambda: not done.running())
    assert "1 pods released, 0 still held" in done.log_tail()
    assert chain.plane.request("GET", f"{WEBHOOKS}/wattpack-placement").status == 404
    assert not chain.pod("left")["spec"].get("schedulingGates")
