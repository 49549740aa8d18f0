"""The whole loop on an API server: installed by helm, every process under its own account.

Gated, planned, pinned, bound, Running; the load drives its PowerDomain over the cap band; caps are
lowered on the boards; the leader and the planner die; the uninstall leaves nothing behind. The
tests below are one story and run in their order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capacity.profile_library import gpu_profile_object, shipped_library
from tests.cluster.cluster_builders import GATE, Body, create, pod
from tests.cluster.cluster_processes import eventually
from tests.cluster.conftest import _require_tools
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.e2e_release import SYSTEM, LiveRelease, has_helm
from tests.cluster.e2e_servers import GPUS, GUARANTEED_WATTS, MODEL, Servers, running_pods

TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
OURS = "/apis/wattpack.io/v1alpha1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SERVERS = tuple(f"gpu-{i}" for i in range(4))
GANG = tuple(f"train-{i}" for i in range(4))
#: Below what the servers draw at full load (about 28 kW), above what I1 asks for (about 21 kW).
RATING_WATTS = 25_000
VALUES: dict[str, Any] = {
    "enforcement": "Enforce",
    "actuator": {"guaranteedCapWatts": {MODEL: GUARANTEED_WATTS}},
    "placement": {"mode": "Manage"},
    # A quick election, so that the test need not wait for the ordinary 15 s.
    "controller": {
        "settings": {"lease_seconds": 4, "renew_deadline_seconds": 3.0, "retry_seconds": 0.5},
        # The test server does not count volume claim templates among a pod's volumes.
        "persistence": {"enabled": False},
    },
    "scheduler": {"settings": {"deadline_seconds": 0.2}},
    "watchdog": {"extraArgs": ["--silence-seconds=6"]},
}

# Not marked helm: that tier would run it a second time.
pytestmark = pytest.mark.cluster


class World:
    """The release, its servers and what people would look at."""

    def __init__(self, release: LiveRelease) -> None:
        self.release = release
        self.plane: ControlPlane = release.plane
        self.servers: Servers | None = None

    def set_up(self) -> None:
        self.release.add_servers(SERVERS, GPUS, MODEL.replace(" ", "-"))
        self.release.install()
        for index in range(2):
            self.release.start_controller(index)
        self.release.start_scheduler()
        watchdog = self.release.start("watchdog", "watchdog")
        watchdog.wait_ready(lambda: bool(self.release.requests_by("watchdog")), 40)
        create(
            self.plane,
            "/api/v1/namespaces",
            {"metadata": {"name": TEAM, "labels": {"wattpack.io/placement": "enabled"}}},
        )
        profile = gpu_profile_object(shipped_library().find(MODEL), "")
        create(self.plane, f"{OURS}/gpuprofiles", profile)
        create(self.plane, f"{OURS}/powerdomains", row())
        ports = self.release.ports
        self.servers = Servers(
            SERVERS,
            [f"127.0.0.1:{ports[f'wattpack-controller-{i}']}" for i in range(2)],
            self.release.server_name(),
            self.release.mount_authority(),
            {name: self.release.agent_token(name) for name in SERVERS},
            lambda: running_pods(self.plane.request("GET", PODS).body.get("items", [])),
        )
        self.servers.start()

    def boards(self) -> Servers:
        assert self.servers is not None
        return self.servers

    def pod(self, name: str) -> Body:
        return self.plane.request("GET", f"{PODS}/{name}").body

    def row_status(self) -> dict[str, Any]:
        body = self.plane.request("GET", f"{OURS}/powerdomains/row").body
        status: dict[str, Any] = body.get("status", {})
        return status

    def set_row(self, **spec: object) -> None:
        """What an operator patches."""
        answer = self.plane.request(
            "PATCH", f"{OURS}/powerdomains/row", {"spec": spec}, patch="merge"
        )
        assert answer.status == 200, answer.message

    def accepted(self) -> str:
        """The status of the row's Accepted condition, once it is about the newest spec."""
        body = self.plane.request("GET", f"{OURS}/powerdomains/row").body
        found = [
            condition["status"]
            for condition in body.get("status", {}).get("conditions", [])
            if condition["type"] == "Accepted"
            and condition.get("observedGeneration") == body["metadata"]["generation"]
        ]
        return found[0] if found else ""

    def printed(self) -> dict[str, str]:
        """What ``kubectl get pdom row`` shows, by column."""
        head, line = self.plane.kubectl("get", "pdom", "row", "-o", "wide").stdout.splitlines()
        starts = [match.start() for match in re.finditer(r"\S+", head)]
        ends = [*starts[1:], None]
        return {head[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}

    def webhook_gates(self) -> bool:
        made = self.plane.request("POST", f"{PODS}?dryRun=All", pod("probe", gpus=1))
        return made.status == 201 and bool(made.body["spec"].get("schedulingGates"))

    def leader(self) -> str:
        """The replica that holds the Lease."""
        holder = str(self.release.lease("wattpack-controller").get("holderIdentity", ""))
        return next((n for n in self.release.ports if holder.startswith(n)), "")

    def tear_down(self) -> None:
        if self.servers is not None:
            self.servers.stop()
        self.release.stop()


def row() -> Body:
    """The breaker above the four servers."""
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": "row"},
        "spec": {
            "ratingWatts": RATING_WATTS,
            "members": {"nodeNames": list(SERVERS)},
            "nonGpuPerNode": {"worstWatts": 1500, "idleWatts": 1000},
            # The ordinary 2 % a second would take half a minute to raise idle boards.
            "maxRaiseFractionPerSecond": 0.2,
        },
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    _require_tools()
    why = has_helm()
    if why:
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    directory: Path = tmp_path_factory.mktemp("e2e")
    plane = start_control_plane(directory)
    made = World(LiveRelease(plane, tmp_path_factory.mktemp("release"), VALUES))
    try:
        if plane.kind != "own":
            pytest.skip("only the project's own server resolves services to loopback")
        plane.start_kwok()
        plane.start_binder()
        made.set_up()
        yield made
    finally:
        made.tear_down()
        plane.stop()


def test_a_new_domain_is_watched_and_nothing_is_written(world: World) -> None:
    boards = world.boards()
    eventually("a leader", world.leader, 30)
    eventually("the domain is ready", lambda: world.printed().get("READY") == "True", 30)
    assert int(world.printed()["DRAW"]) == pytest.approx(boards.breaker_watts(), rel=0.05)
    assert set(boards.limits_watts()) == {GUARANTEED_WATTS}
    assert set(boards.epochs()) == {0}


def test_enforcing_is_refused_until_every_load_is_declared(world: World) -> None:
    world.set_row(enforcement="Enforce")
    eventually("refused", lambda: world.accepted() == "False")
    assert world.row_status()["acceptedSpec"].get("enforcement", "DryRun") == "DryRun"
    world.set_row(loadDeclaredComplete=True)
    eventually("accepted", lambda: world.accepted() == "True")


def test_idle_boards_are_raised_above_their_guaranteed_caps(world: World) -> None:
    boards = world.boards()
    eventually("leases reach every board", lambda: min(boards.limits_watts()) > 600, 30)
    eventually("no board is below its request", lambda: world.printed()["CAPPED"] == "0", 15)
    status = world.row_status()
    assert status["members"] == len(SERVERS)
    assert status["gpus"] == len(SERVERS) * GPUS


def test_a_gang_runs_and_its_load_lowers_the_caps_of_its_domain(world: World) -> None:
    boards = world.boards()
    eventually("the webhook answers", world.webhook_gates, 30)
    before = max(boards.limits_watts())
    # It declares less than it will draw: the planner trusts it, the controller measures.
    marks = {"wattpack.io/gang-size": "4", "wattpack.io/expected-watts-per-gpu": "300"}
    for name in GANG:
        body = pod(name, gpus=GPUS)
        body["metadata"] |= {"labels": {"wattpack.io/gang": "train"}, "annotations": marks}
        gates = create(world.plane, PODS, body)["spec"]["schedulingGates"]
        assert gates == [{"name": GATE}]
    for name in GANG:
        eventually(f"{name} runs", lambda name=name: phase(world, name) == "Running", 30)  # type: ignore[misc]
    placed = {world.pod(name)["spec"]["nodeName"] for name in GANG}
    assert placed == set(SERVERS)
    for name in GANG:
        assert pinned_to(world.pod(name)) == [world.pod(name)["spec"]["nodeName"]]
    eventually("the load is there", lambda: world.boards().bank.demand_watts.min() > 600, 15)
    eventually("caps are lowered", lambda: max(boards.limits_watts()) < before - 50, 30)
    eventually("the draw is below the rating", lambda: boards.breaker_watts() < RATING_WATTS, 15)
    eventually("kubectl shows it", lambda: int(world.printed().get("CAPPED", "0")) > 0, 15)
    shown = world.printed()
    assert shown["BUDGET"] == str(RATING_WATTS)
    assert 15_000 < int(shown["DRAW"]) < RATING_WATTS * 1.1
    assert shown["READY"] == "True"
    assert min(boards.limits_watts()) >= GUARANTEED_WATTS


def phase(world: World, name: str) -> str:
    return str(world.pod(name).get("status", {}).get("phase", ""))


def pinned_to(body: Body) -> list[str]:
    """Nodes named in the first term of the pod's node affinity, required or preferred."""
    affinity = body["spec"]["affinity"]["nodeAffinity"]
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution")
    term = required["nodeSelectorTerms"][0] if required else preferred[0]["preference"]
    return [name for field in term["matchFields"] for name in field["values"]]


def test_a_killed_leader_is_followed_by_the_other_replica_with_a_higher_epoch(
    world: World,
) -> None:
    boards = world.boards()
    first = eventually("a leader", world.leader)
    epoch = world.row_status()["epoch"]
    assert set(boards.epochs()) == {epoch}
    world.release.processes[first].kill()
    second = eventually(
        "the other leads", lambda: world.leader() if world.leader() != first else None, 20
    )
    assert second != first
    eventually("a higher epoch", lambda: world.row_status()["epoch"] > epoch, 20)
    assert second == world.leader()
    eventually("actuators obey the new leader", lambda: min(boards.epochs()) > epoch, 20)
    eventually("its leases reach the boards", lambda: min(boards.limits_watts()) > 310, 30)
    assert boards.breaker_watts() < RATING_WATTS


def test_a_killed_planner_holds_nobody_back(world: World) -> None:
    world.release.processes["scheduler"].kill()
    create(world.plane, PODS, pod("late", gates=[GATE], gpus=1))
    assert world.pod("late")["spec"]["schedulingGates"]
    eventually("released", lambda: not world.pod("late")["spec"].get("schedulingGates"), 40)


def test_an_uninstall_leaves_no_webhook_and_no_gated_pod(world: World) -> None:
    world.release.processes["watchdog"].stop()
    create(world.plane, PODS, pod("last", gates=[GATE], gpus=1))
    assert "1 pods released, 0 still held" in world.release.uninstall_hook()
    assert world.plane.request("GET", f"{WEBHOOKS}/wattpack-placement").status == 404
    items = world.plane.request("GET", "/api/v1/pods").body["items"]
    assert [i["metadata"]["name"] for i in items if i["spec"].get("schedulingGates")] == []


@pytest.mark.parametrize("component", ["controller", "scheduler", "watchdog", "uninstall"])
def test_no_process_asked_for_more_than_its_account_may(world: World, component: str) -> None:
    events = world.release.requests_by(component)
    assert events, "the component has asked nothing"
    refused = [
        f"{event['verb']} {event['requestURI']}: {event['responseStatus']['code']}"
        for event in events
        if event.get("responseStatus", {}).get("code") in {401, 403}
    ]
    assert refused == []


def test_a_stopped_leader_gives_its_lease_back(world: World) -> None:
    leader = eventually("a leader", world.leader)
    world.release.processes[leader].stop()
    assert world.release.lease("wattpack-controller").get("holderIdentity", "") == ""
    assert SYSTEM in str(world.release.helm("list"))
