"""Moves on an API server: the chart's rights and policies, evictions, budgets, controllers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster_builders import Body, create, node, pod
from tests.cluster.cluster_processes import ServerProcess, eventually, free_port
from tests.cluster.conftest import _require_tools
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.e2e_release import NO_FLOW_SCHEMA
from tests.cluster.test_chart_installed import SYSTEM, Release

ROOT = Path(__file__).parents[2]
TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{TEAM}/deployments"
BUDGETS = f"/apis/policy/v1/namespaces/{TEAM}/poddisruptionbudgets"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:wattpack-scheduler"

pytestmark = [pytest.mark.cluster, pytest.mark.helm, pytest.mark.timeout(600)]


class Town:
    """A release that moves pods, two nodes of eight boards, and a team that opted in."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.release = Release(plane)
        self.directory = directory
        self.port = free_port()
        self.scheduler: ServerProcess | None = None

    def install(self) -> None:
        create(self.plane, "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
        labels = {"wattpack.io/placement": "enabled", "wattpack.io/moves": "enabled"}
        create(self.plane, "/api/v1/namespaces", {"metadata": {"name": TEAM, "labels": labels}})
        moves = {"enabled": True, "afterSeconds": 1, "perHour": 100, "perOwnerPerHour": 100}
        values = {"placement": {"mode": "Manage", "moves": moves}, **NO_FLOW_SCHEMA}
        done = self.release.helm(
            "install", "wattpack", str(ROOT / "charts" / "wattpack"),
            *(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = {"testapi.local/endpoint": f"127.0.0.1:{self.port}"}
        endpoint = {"metadata": {"annotations": found}}
        service = f"/api/v1/namespaces/{SYSTEM}/services/wattpack-scheduler"
        self.plane.request("PATCH", service, endpoint, patch="merge")
        for name, value in (("low", -10), ("high", 100)):
            body = {"metadata": {"name": name}, "value": value}
            create(self.plane, "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for name in ("a", "b"):
            create(self.plane, "/api/v1/nodes", node(name))
        self.plane.start_kwok()
        self.plane.start_binder()

    def start(self) -> None:
        stored = f"/api/v1/namespaces/{SYSTEM}/configmaps/wattpack-scheduler"
        settings = self.plane.request("GET", stored).body["data"]["settings.yaml"]
        assert yaml.safe_load(settings)["moves"]["enabled"] is True
        config = self.directory / "settings.yaml"
        config.write_text(settings, encoding="utf-8")
        command = [
            *(sys.executable, "-m", "wattpack.cli", "scheduler", f"--config={config}"),
            f"--kubeconfig={self.release.account('scheduler')}",
            *("--metrics-port=0", "--webhook-host=127.0.0.1", f"--webhook-port={self.port}"),
            "--deadline-seconds=0.5",
        ]
        self.scheduler = ServerProcess(
            "scheduler", command, self.directory, {"PYTHONPATH": str(ROOT)}
        )
        self.scheduler.wait_ready(self.gates, 90)

    def gates(self) -> bool:
        made = self.plane.request("POST", f"{PODS}?dryRun=All", pod("probe", gpus=1))
        return bool(made.status == 201 and made.body["spec"].get("schedulingGates"))

    def stop(self) -> None:
        if self.scheduler is not None:
            self.scheduler.stop()

    def deploy(self, name: str, gpus: int, priority: str = "", **labels: str) -> None:
        labels = {"app": name, "wattpack.io/workload": "decoder-decode", **labels}
        spec = pod(name, gpus=gpus)["spec"] | {"terminationGracePeriodSeconds": 1}
        spec |= {"priorityClassName": priority} if priority else {}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        create(self.plane, DEPLOYMENTS, body)

    def pods(self) -> list[Body]:
        return list(self.plane.request("GET", PODS).body["items"])

    def where(self, name: str) -> str:
        """The node on which a pod of this app runs for good, or empty."""
        for item in self.pods():
            runs = item.get("status", {}).get("phase") == "Running"
            leaves = item["metadata"].get("deletionTimestamp")
            if item["metadata"]["labels"]["app"] == name and runs and not leaves:
                return str(item["spec"]["nodeName"])
        return ""

    def runs(self, name: str) -> None:
        eventually(f"{name} runs", lambda: bool(self.where(name)), 150)

    def halves(self) -> None:
        """Half of each node is in use: ``x`` on one, ``y`` on the other."""
        self.deploy("x", 4)
        self.runs("x")
        create(self.plane, PODS, pod("filler", gpus=4))
        self.runs("filler")
        self.deploy("y", 4)
        self.runs("y")
        self.plane.request("DELETE", f"{PODS}/filler")
        eventually("the filler is gone", lambda: not self.where("filler"), 60)
        assert self.where("x") != self.where("y")

    def keep(self, name: str) -> None:
        """A disruption budget that lets nobody of this app go."""
        spec = {"selector": {"matchLabels": {"app": name}}, "minAvailable": 1}
        create(self.plane, BUDGETS, {"metadata": {"name": name}, "spec": spec})

        def counted() -> bool:
            status: Body = self.plane.request("GET", f"{BUDGETS}/{name}").body.get("status", {})
            return bool(status.get("expectedPods") == 1 and status.get("observedGeneration"))

        eventually("the budget knows its pod", counted, 60)

    def evicted(self) -> set[str]:
        """Apps of pods that the scheduler's account evicted, from the audit log."""
        return {
            event["objectRef"]["name"].split("-")[0]
            for event in self.plane.audit_events(ACCOUNT)
            if event["objectRef"].get("subresource") == "eviction"
            and event["responseStatus"]["code"] == 201
        }

    def refused(self) -> list[Any]:
        """What the account asked for and was not allowed."""
        return [
            (event["verb"], event["objectRef"], event["responseStatus"])
            for event in self.plane.audit_events(ACCOUNT)
            if event.get("responseStatus", {}).get("code") in (401, 403)
        ]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    _require_tools()
    plane = start_control_plane(tmp_path)
    made = Town(plane, tmp_path)
    try:
        if plane.kind != "own":
            pytest.skip("only the project's own server resolves services to loopback")
        made.install()
        made.start()
        yield made
    finally:
        made.stop()
        plane.stop()


def test_a_pod_moves_its_successor_gets_the_kept_place_and_a_killed_planner_changes_nothing(
    town: Town,
) -> None:
    town.halves()
    town.keep("x")
    kept = town.where("x")
    assert town.scheduler is not None
    town.deploy("train", 8)
    eventually("somebody is evicted", lambda: bool(town.evicted()), 150)
    town.scheduler.kill()
    town.start()
    town.runs("train")
    town.runs("y")
    assert (town.where("x"), town.where("y")) == (kept, kept)
    assert town.where("train") != kept
    assert town.evicted() == {"y"}
    assert town.refused() == []


def test_a_pod_without_our_gate_gets_room_on_two_nodes_where_no_preemption_would_help(
    town: Town,
) -> None:
    """The victim and the pod that moves are on two nodes; kube-scheduler looks at one at a time."""
    town.deploy("even", 4, "high")
    town.runs("even")
    create(town.plane, PODS, pod("filler", gpus=4))
    town.runs("filler")
    town.deploy("rest", 4, "high", **{"wattpack.io/moves": "disabled"})
    town.runs("rest")
    town.deploy("cheap", 4, "low")
    town.runs("cheap")
    town.plane.request("DELETE", f"{PODS}/filler")
    eventually("the filler is gone", lambda: not town.where("filler"), 60)
    room = town.where("even")
    assert town.where("rest") == town.where("cheap") != room
    town.stop()
    body = pod("train", gpus=8, priorityClassName="high")
    assert "schedulingGates" not in create(town.plane, PODS, body)["spec"]

    def unschedulable() -> bool:
        status = town.plane.request("GET", f"{PODS}/train").body.get("status", {})
        return any(c.get("reason") == "Unschedulable" for c in status.get("conditions", []))

    eventually("kube-scheduler finds no node", unschedulable, 60)
    town.start()
    town.runs("train")
    assert town.where("train") == room
    town.runs("even")
    assert town.where("even") == town.where("rest") != room
    assert town.where("cheap") == ""
    assert town.evicted() == {"cheap", "even"}
    assert town.refused() == []
    hints = [
        event
        for event in town.plane.audit_events(ACCOUNT)
        if event["objectRef"].get("subresource") == "status"
        and event["objectRef"]["resource"] == "pods"
    ]
    assert {event["responseStatus"]["code"] for event in hints} == {200}


def test_the_policies_hold_evictions_and_hints_to_what_opted_in(town: Town) -> None:
    town.stop()
    account = town.release.account("scheduler")
    owner = create(
        town.plane, f"/api/v1/namespaces/{TEAM}/configmaps", {"metadata": {"name": "owner"}}
    )
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    uids = {}
    for name, labels in (("open", {}), ("shut", {"wattpack.io/moves": "disabled"})):
        body = pod(name)
        body["metadata"] |= {"ownerReferences": references, "labels": {"app": name, **labels}}
        uids[name] = create(town.plane, PODS, body)["metadata"]["uid"]
        town.runs(name)

    def evict(name: str) -> Any:
        options = {"preconditions": {"uid": uids[name]}}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options}
        eviction["metadata"] = {"name": name}
        path = f"{PODS}/{name}/eviction?dryRun=All"
        return town.plane.request("POST", path, eviction, kubeconfig=account)

    eventually("who opted in may go", lambda: evict("open").status == 201, 60)
    eventually("who opted out is seen", lambda: "opted in to moves" in evict("shut").message, 60)
    status = {"op": "add", "path": "/status/phase", "value": "Failed"}
    hint = {"op": "add", "path": "/status/nominatedNodeName", "value": "a"}
    waiting = pod("waiting", nodeSelector={"no": "where"})
    create(town.plane, PODS, waiting)
    path = f"{PODS}/waiting/status"
    eventually(
        "the hint is allowed",
        lambda: (
            town.plane.request("PATCH", path, [hint], patch="json", kubeconfig=account).status
            == 200
        ),
        60,
    )
    refused = town.plane.request("PATCH", path, [status], patch="json", kubeconfig=account)
    assert (refused.status, "nominated node" in refused.message) == (403, True), refused.message
    bound = f"{PODS}/open/status"
    refused = town.plane.request("PATCH", bound, [hint], patch="json", kubeconfig=account)
    assert refused.status == 403, refused.message
