"""Clusters that nobody plans for: no node, none that takes pods, gangs beyond all, mixed boards.

The scheduler runs as a process on an API server; each test leaves the cluster as it found it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster_builders import Body, create, node
from tests.cluster.cluster_processes import ServerProcess, free_port
from tests.cluster.conftest import _require_tools
from tests.cluster.control_plane import start_control_plane
from tests.cluster.test_placement_chain import PODS, TEAM, Chain, owned

NODES = "/api/v1/nodes"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events"
pytestmark = pytest.mark.cluster


class Odd(Chain):
    """A chain without nodes, whose scheduler lets go of what no node can serve after 2 s."""

    metrics_port = 0

    def begin(self) -> ServerProcess:
        self.metrics_port = free_port()
        settings = self.directory / "settings.yaml"
        settings.write_text(json.dumps({"unservable_seconds": 2, "resync_seconds": 1}))
        port = f"--metrics-port={self.metrics_port}"
        return self.scheduler(f"--config={settings}", "--metrics-host=127.0.0.1", port)

    def failed_cycles(self) -> float:
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        name = 'wattpack_placement_cycles_total{outcome="failed"}'
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def told(self, name: str, reason: str) -> bool:
        events = self.plane.request("GET", EVENTS).body["items"]
        mine = [e.get("note", "") for e in events if e["regarding"]["name"] == name]
        return any(note.startswith(reason) and "released without a node" in note for note in mine)

    def free_and_unpinned(self, name: str) -> bool:
        spec = self.pod(name)["spec"]
        return not spec.get("schedulingGates") and not spec.get("affinity")

    def without_nodes(self) -> None:
        self.clear()
        for item in self.plane.request("GET", NODES).body["items"]:
            self.plane.request("DELETE", f"{NODES}/{item['metadata']['name']}")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Odd]:
    _require_tools()
    directory = tmp_path_factory.mktemp("odd")
    plane = start_control_plane(directory)
    made = Odd(plane, directory)
    try:
        if plane.kind != "own":
            pytest.skip("only the project's own server resolves services to loopback")
        made.install(nodes=())
        process = made.begin()
        yield made
        process.stop()
    finally:
        plane.stop()


@pytest.fixture
def odd(started: Odd) -> Iterator[Odd]:
    yield started
    assert started.failed_cycles() == 0
    started.without_nodes()


def gang(size: int) -> dict[str, Any]:
    marks = {"wattpack.io/gang-size": str(size)}
    return {"labels": {"wattpack.io/gang": "g"}, "annotations": marks}


def asking(odd: Odd, name: str, limits: dict[str, str]) -> Body:
    body = owned(odd, name, 0)
    body["spec"]["containers"][0]["resources"] = {"limits": limits}
    return body


def test_without_a_node_everybody_is_let_go_and_runs_once_there_is_one(odd: Odd) -> None:
    create(odd.plane, PODS, owned(odd, "p", 1))
    for name in ("g-0", "g-1"):
        create(odd.plane, PODS, owned(odd, name, 8, **gang(2)))
    for name in ("p", "g-0", "g-1"):
        odd.waits(f"{name} is let go", lambda name=name: odd.told(name, "NoNodes"))  # type: ignore[misc]
        assert odd.free_and_unpinned(name)
    create(odd.plane, NODES, node("late", gpus=17))
    for name in ("p", "g-0", "g-1"):
        odd.waits(f"{name} runs", lambda name=name: odd.runs(name))  # type: ignore[misc]


def test_where_all_nodes_are_cordoned_pods_are_let_go_and_none_is_pinned(odd: Odd) -> None:
    for name in ("x", "y"):
        body = node(name)
        body["spec"]["unschedulable"] = True
        create(odd.plane, NODES, body)
    create(odd.plane, PODS, owned(odd, "p", 1))
    odd.waits("p is let go", lambda: odd.told("p", "NoReadyNode"))
    assert odd.free_and_unpinned("p")


def test_a_gang_larger_than_the_cluster_goes_whole_and_keeps_nobody_waiting(odd: Odd) -> None:
    create(odd.plane, NODES, node("x"))
    for i in range(3):
        create(odd.plane, PODS, owned(odd, f"g-{i}", 8, **gang(3)))
    create(odd.plane, PODS, owned(odd, "p", 4))
    odd.waits("p runs", lambda: odd.runs("p"))
    for i in range(3):
        odd.waits("let go", lambda i=i: odd.told(f"g-{i}", "GangExceedsCluster"))  # type: ignore[misc]
        assert odd.free_and_unpinned(f"g-{i}")


def test_boards_instances_and_shares_of_one_node_are_each_promised_once(odd: Odd) -> None:
    body = node("mixed", gpus=2)
    parts = {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/gpu.shared": "2"}
    for kind in ("allocatable", "capacity"):
        body["status"][kind] |= parts
    create(odd.plane, NODES, body)
    for i in range(3):
        create(odd.plane, PODS, asking(odd, f"mig-{i}", {"nvidia.com/mig-1g.10gb": "1"}))
        create(odd.plane, PODS, asking(odd, f"share-{i}", {"nvidia.com/gpu.shared": "1"}))
    both = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}
    create(odd.plane, PODS, owned(odd, "whole", 2))
    create(odd.plane, PODS, asking(odd, "both", both))

    def running(kind: str) -> list[str]:
        items = odd.plane.request("GET", PODS).body["items"]
        names = [p["metadata"]["name"] for p in items if p["spec"].get("nodeName") == "mixed"]
        return [name for name in names if name.startswith(kind)]

    odd.waits("all parts are taken", lambda: len(running("share")) == 2)
    odd.waits("boards are taken", lambda: running("whole") or running("both"))
    odd.waits("instances are taken", lambda: len(running("mig")) + len(running("both")) == 2)
    assert len(running("whole")) + len(running("both")) == 1


def test_times_of_long_ago_and_absurd_nodes_disturb_nobody(odd: Odd) -> None:
    vast = node("vast")
    for kind in ("allocatable", "capacity"):
        vast["status"][kind] |= {"ephemeral-storage": "900Ti", "nvidia.com/gpu": "5000"}
    create(odd.plane, NODES, vast)
    create(odd.plane, NODES, node("sane"))
    for i, moment in enumerate(("1970-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "never")):
        ends = {"wattpack.io/expected-end": moment}
        create(odd.plane, PODS, owned(odd, f"old-{i}", 2, annotations=ends))
    for i in range(3):
        odd.waits("it runs", lambda i=i: odd.runs(f"old-{i}"))  # type: ignore[misc]
        assert odd.pod(f"old-{i}")["spec"]["nodeName"] == "sane"
