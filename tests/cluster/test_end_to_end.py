"""The whole loop on an API server: installed by helm, every process under its own account.

Gated, planned, pinned, bound, Running; the load drives its PowerDomain over the cap band; caps are
lowered on the boards; the leader and the planner die; the uninstall leaves nothing behind. The
tests below are one story and run in their order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_builders import GATE, Body, create, pod
from tests.cluster.cluster_processes import eventually, free_port
from tests.cluster.cluster_tools import REPOSITORY
from tests.cluster.conftest import _require_tools
from tests.cluster.control_plane import start_control_plane
from tests.cluster.e2e_release import SYSTEM, LiveRelease, app_version, has_helm
from tests.cluster.e2e_rights import Grant, refused, unused
from tests.cluster.e2e_servers import GPUS, GUARANTEED_WATTS
from tests.cluster.e2e_world import (
    ASIDE,
    OURS,
    PODS,
    RATING_WATTS,
    SERVERS,
    SPARE,
    TEAM,
    UNCONTROLLED,
    VALUES,
    World,
    fetched,
    kind,
)

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RECORDING = REPOSITORY / "tests" / "telemetry" / "fixtures" / "h200" / "matmul.jsonl.gz"
ACCOUNTS = (
    "controller",
    "scheduler",
    "watchdog",
    "forecaster",
    "console",
    "agent",
    "uninstall",
)
JOBSET, POD_GROUP = "jobset.sigs.k8s.io/jobset-name", "scheduling.x-k8s.io/pod-group"
EVENTS = "/apis/events.k8s.io/v1/events"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{TEAM}/resourceclaims"
#: Labels, annotations and specs that make the planner look for what else knows of a pod.
OF_OTHERS: dict[str, tuple[Body, Body, Body]] = {
    "ray-0": ({"ray.io/cluster": "r"}, {}, {}),
    "volcano-0": ({}, {"scheduling.k8s.io/group-name": "v"}, {}),
    "kueue-0": ({}, {"kueue.x-k8s.io/workload": "w"}, {}),
    "native-0": ({}, {}, {"workloadRef": {"name": "w", "podGroup": "g"}}),
    "volume-0": (
        {},
        {},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]},
    ),
    "claims-0": ({}, {}, {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "none"}]}),
}
#: Kubernetes 1.35, whose types the server has, knows no ``spec.schedulingGroup`` yet.
OF_LATER_RELEASES = Grant("list", "scheduling.k8s.io", "podgroups")
GANG = tuple(f"train-{i}" for i in range(4))

# Not marked helm: that tier would run it a second time.
pytestmark = pytest.mark.cluster


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


def test_i1_a_server_below_a_rack_refused_from_its_first_write_counts_in_the_row(
    world: World,
) -> None:
    """Nobody but the rack selects it, no agent speaks for it: its GPU counts at the most."""
    path, before = f"{OURS}/powerdomains", world.row_status()
    create(world.plane, path, below_the_row("rack", enforcement="Enforce"))
    eventually("refused", lambda: accepted(world, f"{path}/rack") == "False", 10)
    eventually("counted", lambda: world.row_status()["members"] == len(SERVERS) + 1, 15)
    after = world.row_status()
    assert after["gpus"] == before["gpus"] + 1
    assert after["drawWatts"] > before["drawWatts"] + 700
    assert after["budgetWatts"] == RATING_WATTS
    shown = world.plane.kubectl("describe", "pdom", "row", "rack").stdout
    assert "1 server counts here for rack, which is not in use" in shown
    assert "its 1 server counts in row" in shown
    eventually("told", lambda: "ServersCountedAside" in told_about(world, "row"))
    # Mended, it is an ordinary rack; its members are its own, and a part of the row.
    mend = {"spec": {"enforcement": "DryRun"}}
    assert world.plane.request("PATCH", f"{path}/rack", mend, patch="merge").status == 200
    eventually("accepted", lambda: accepted(world, f"{path}/rack") == "True", 10)
    eventually("in silence", lambda: "count" not in ready_message(world, "row"), 15)
    assert world.row_status()["members"] == len(SERVERS) + 1
    # Without a server it may go: the admission policy keeps domains that have members.
    moved = {"spec": {"members": {"nodeNames": []}}}
    assert world.plane.request("PATCH", f"{path}/rack", moved, patch="merge").status == 200
    eventually("left", lambda: world.row_status()["members"] == len(SERVERS), 15)
    eventually("empty", lambda: not members(world, "rack"), 15)
    assert world.plane.request("DELETE", f"{path}/rack").status == 200


def below_the_row(name: str, **spec: object) -> Body:
    members = {"nodeNames": [SPARE]}
    body = {"parent": "row", "ratingWatts": 5_000, "members": members, **spec}
    kind = {"apiVersion": "wattpack.io/v1alpha1", "kind": "PowerDomain"}
    return {**kind, "metadata": {"name": name}, "spec": body}


def ready_message(world: World, name: str) -> str:
    body = world.plane.request("GET", f"{OURS}/powerdomains/{name}").body
    return next(c["message"] for c in body["status"]["conditions"] if c["type"] == "Ready")


def members(world: World, name: str) -> int:
    body = world.plane.request("GET", f"{OURS}/powerdomains/{name}").body
    return int(body["status"].get("members", 0))


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


def test_servers_lose_the_taint_once_their_caps_are_held(world: World) -> None:
    def tainted() -> list[str]:
        nodes = world.plane.request("GET", "/api/v1/nodes").body["items"]
        return [n["metadata"]["name"] for n in nodes if UNCONTROLLED in n["spec"].get("taints", [])]

    eventually("nobody is tainted", lambda: not tainted(), 15)


def test_a_pod_is_pinned_to_a_node_that_never_gets_it(world: World) -> None:
    """The planner waits for 30 s; the story goes on meanwhile."""
    eventually("the webhook answers", world.webhook_gates, 30)
    fault = world.plane.inject_fault
    fault("status", r"/pods/stuck-[^/]+/binding$", code=500, method="POST", count=1_000_000)
    # Somebody else wrote the pod in between.
    fault("status", r"/pods/stuck-[^/]+$", code=409, method="PATCH", count=1)
    create(world.plane, f"/apis/apps/v1/namespaces/{TEAM}/replicasets", stuck())
    eventually("it is pinned", lambda: pinned_stuck(world), 20)


def stuck() -> Body:
    """A replica set whose pod asks for the spare GPU."""
    labels, place = {"app": "stuck"}, {"kubernetes.io/hostname": SPARE}
    one = pod("stuck", gpus=1, nodeSelector=place)
    template = {"metadata": {"labels": labels}, "spec": one["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "stuck"}, "spec": spec}


def pinned_stuck(world: World) -> set[str]:
    """The replica set's pods that wait for the node that they are pinned to."""
    items = world.plane.request("GET", PODS).body["items"]
    return {
        i["metadata"]["uid"]
        for i in items
        if i["metadata"]["name"].startswith("stuck-")
        and not i["spec"].get("schedulingGates")
        and i["spec"].get("affinity")
    }


def test_a_forecast_without_history_says_so(world: World) -> None:
    world.release.start_forecaster(f"http://127.0.0.1:{free_port()}")
    path = f"{OURS}/namespaces/{SYSTEM}/demandforecasts/row-power"

    def reasons() -> set[str]:
        status = world.plane.request("GET", path).body.get("status", {})
        return {condition["reason"] for condition in status.get("conditions", ())}

    eventually("the forecaster has judged", lambda: "HistoryUnavailable" in reasons(), 30)


def test_what_is_written_between_two_rounds_is_judged_within_ten_seconds(world: World) -> None:
    target = {"powerDomain": "row", "series": "row_watts"}
    nowhere = {
        "name": "sale", "start": "2026-11-20T00:00:00", "end": "2026-11-21T00:00:00",
        "timeZone": "No/Where", "factor": 2.0,
    }  # fmt: skip
    spec = {"target": target, "events": [nowhere]}
    path = f"{OURS}/namespaces/{SYSTEM}/demandforecasts"
    create(world.plane, path, {"metadata": {"name": "sure"}, "spec": spec} | kind("DemandForecast"))
    eventually("the forecast is refused", lambda: accepted(world, f"{path}/sure") == "False", 10)
    team = f"{OURS}/namespaces/{TEAM}"
    next_plan = f"{team}/capacityplans/next"
    eventually("the plan is accepted", lambda: accepted(world, next_plan) == "True", 10)
    eventually("the plan is answered", lambda: dollars_of(world, next_plan) == 10.5, 30)


def dollars_of(world: World, path: str) -> float:
    """Per hour, of a CapacityPlan's answer; 0 without one."""
    status = world.plane.request("GET", path).body.get("status", {})
    return float(status.get("costPerHour", 0.0))


def accepted(world: World, path: str) -> str:
    """What the object's Accepted condition says; empty without one that has words."""
    status = world.plane.request("GET", path).body.get("status", {})
    said = (c for c in status.get("conditions", ()) if c["type"] == "Accepted" and c["message"])
    return next((str(c["status"]) for c in said), "")


def test_an_agent_keeps_its_gpu_node_and_shows_metrics_to_readers_only(world: World) -> None:
    url = f"{world.release.start_agent(ASIDE, RECORDING)}/metrics"
    path = f"{OURS}/gpunodes/{ASIDE}"

    def counted() -> bool:
        answer = world.plane.request("GET", path)
        return answer.status == 200 and answer.body.get("status", {}).get("gpuCount") == 2

    eventually("the agent wrote its GpuNode", counted, 30)
    assert fetched(url, world.release.token("wattpack-scheduler", SYSTEM))[0] == 403
    assert fetched(url, world.token_of_a_reader())[0] == 200


@pytest.mark.parametrize("component", ["scheduler", "forecaster"])
def test_metrics_are_for_readers_whom_the_server_knows_and_health_for_all(
    world: World, component: str
) -> None:
    address = f"http://127.0.0.1:{world.release.http_ports[component]}"
    url = f"{address}/metrics"
    reader = world.token_of_a_reader()
    eventually("it is healthy", lambda: fetched(f"{address}/healthz", "")[0] == 200, 30)
    assert fetched(url, "")[0] == 401
    assert fetched(url, f"{reader[:-8]}AAAAAAAA")[0] == 401
    assert fetched(url, world.release.token("wattpack-watchdog", SYSTEM))[0] == 403
    status, text = fetched(url, reader)
    assert status == 200
    assert b'wattpack_http_refused_requests_total{reason="UnauthenticatedError"} 2.0' in text


def test_the_console_shows_what_the_controllers_show_it(world: World) -> None:
    url = f"{world.release.start_console()}/api/v1/live"
    reader = world.token_of_a_reader()
    eventually("the console shows the row", lambda: b'"row"' in fetched(url, reader)[1], 30)
    leader = world.leader()
    live = f"http://127.0.0.1:{world.release.http_ports[leader]}/v1/live"
    assert fetched(live, world.release.token("wattpack-scheduler", SYSTEM))[0] == 403
    assert fetched(live, world.release.token("wattpack-console", SYSTEM))[0] == 200
    world.seen_used.add(Grant("get", path="/v1/live"))


def test_gpus_that_a_pod_claims_are_followed_where_the_cluster_serves_claims(world: World) -> None:
    """The plane has no such kind of its own: its custom resources stand in for the built-in one."""
    create(world.plane, CRDS, claims_crd())
    eventually("served", lambda: world.plane.request("GET", CLAIMS).status == 200)
    devices = [{"driver": "gpu.nvidia.com", "pool": SERVERS[0], "device": "gpu-0"}]
    status = {"allocation": {"devices": {"results": devices}}}
    typed = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    create(world.plane, CLAIMS, typed | {"metadata": {"name": "one"}, "status": status})
    asked = [{"name": "gpu", "resourceClaimName": "one"}]
    # Nobody binds it: what it says of itself shall change nothing in the story that follows.
    body = pod("claimer", schedulerName="somebody", resourceClaims=asked)
    create(world.plane, PODS, body)
    url = f"{world.release.console_url}/api/v1/placement"
    reader = world.token_of_a_reader()

    def left() -> list[str]:
        fetched(url, reader)
        return [
            right
            for account in ("console", "scheduler")
            for right in unused(world.release.grants(account), world.release.requests_by(account))
            if "resourceclaims" in right
        ]

    # A planner for whom nobody waits reads nothing.
    create(world.plane, PODS, pod("brief", gpus=1, nodeSelector={"pool": "none"}))
    eventually("console and planner list and watch them", lambda: not left(), 30)
    assert world.plane.request("DELETE", f"{PODS}/brief").status == 200


def claims_crd() -> Body:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    # A group of Kubernetes itself asks for a word of approval.
    approval = {"api-approved.kubernetes.io": "unapproved, stands in for the built-in kind"}
    plural, kind = "resourceclaims", "ResourceClaim"
    return {
        "metadata": {"name": f"{plural}.resource.k8s.io", "annotations": approval},
        "spec": {
            "group": "resource.k8s.io",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": "resourceclaim", "kind": kind},
            "versions": [version | {"schema": {"openAPIV3Schema": anything}}],
        },
    }


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
    # Status is written every ten seconds: caps and the draw of before them may stand together.
    eventually("and the draw of now", lambda: int(world.printed()["DRAW"]) < RATING_WATTS * 1.1, 15)
    shown = world.printed()
    assert shown["BUDGET"] == str(RATING_WATTS)
    assert int(shown["DRAW"]) > 15_000
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


def test_pods_wait_for_causes_that_change(world: World) -> None:
    """What the planner tells of them is looked at when it ends; the story goes on meanwhile."""
    choosy = pod("choosy", gpus=GPUS, nodeSelector={"pool": "x"})
    create(world.plane, PODS, choosy)
    for name, label in (("set-0", JOBSET), ("group-0", POD_GROUP)):
        body = pod(name, gpus=1)
        body["metadata"]["labels"] = {label: "gang-of-another-kind"}
        create(world.plane, PODS, body)
    for name, (labels, marks, spec) in OF_OTHERS.items():
        # No node is theirs: they wait for as long as the story goes on.
        body = pod(name, gpus=1, nodeSelector={"pool": "none"}, **spec)
        body["metadata"] |= {"labels": labels, "annotations": marks}
        create(world.plane, PODS, body)
    eventually("choosy waits", lambda: "PodPending" in told_about(world, "choosy"), 20)
    labels = {"metadata": {"labels": {"pool": "x"}}}
    path = f"/api/v1/nodes/{SERVERS[0]}"
    assert world.plane.request("PATCH", path, labels, patch="merge").status == 200


def told_about(world: World, name: str) -> dict[str, int]:
    """How often each reason was told in Events about an object."""
    found: dict[str, int] = {}
    for item in world.plane.request("GET", EVENTS).body["items"]:
        if item["regarding"]["name"] == name:
            count = item.get("series", {}).get("count", 1)
            found[item["reason"]] = max(count, found.get(item["reason"], 0))
    return found


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


def test_a_greater_breaker_is_accepted(world: World) -> None:
    """It takes half a minute until caps are released: looked at when the leader ends."""
    world.set_row(ratingWatts=RATING_WATTS * 2)
    eventually("accepted", lambda: world.accepted() == "True")


def test_a_pin_that_leads_nowhere_is_given_up(world: World) -> None:
    first = pinned_stuck(world)
    eventually("another pod is there", lambda: not pinned_stuck(world) & first, 30)
    world.plane.clear_faults()


def test_a_planner_that_ends_says_how_often_and_another_goes_on(world: World) -> None:
    world.release.processes["scheduler"].stop()
    assert told_about(world, "choosy")["PodPending"] >= 2
    assert world.release.lease("wattpack-scheduler").get("holderIdentity", "") == ""
    world.release.start_scheduler()
    eventually("it leads", lambda: world.release.lease("wattpack-scheduler")["holderIdentity"], 30)


def test_a_killed_planner_holds_nobody_back(world: World) -> None:
    world.release.processes["scheduler"].kill()
    create(world.plane, PODS, pod("late", gates=[GATE], gpus=1))
    assert world.pod("late")["spec"]["schedulingGates"]
    eventually("released", lambda: not world.pod("late")["spec"].get("schedulingGates"), 40)
    told = "PlacementReleased"
    eventually("told", lambda: told in told_about(world, "wattpack-scheduler"))
    create(world.plane, PODS, pod("later", gates=[GATE], gpus=1))
    eventually("again", lambda: not world.pod("later")["spec"].get("schedulingGates"), 20)


def test_an_uninstall_leaves_no_webhook_and_no_gated_pod(world: World) -> None:
    world.release.processes["watchdog"].stop()
    create(world.plane, PODS, pod("last", gates=[GATE], gpus=1))
    assert "1 pods released, 0 still held" in world.release.uninstall_hook()
    assert world.plane.request("GET", f"{WEBHOOKS}/wattpack-placement").status == 404
    items = world.plane.request("GET", "/api/v1/pods").body["items"]
    assert [i["metadata"]["name"] for i in items if i["spec"].get("schedulingGates")] == []


def test_a_stopped_leader_gives_its_lease_back(world: World) -> None:
    leader = eventually("a leader", world.leader)
    eventually("caps are released", lambda: world.row_status()["band"] == "Normal", 30)
    world.release.processes[leader].stop()
    assert told_about(world, "row")["CapsRestored"] >= 2
    assert world.release.lease("wattpack-controller").get("holderIdentity", "") == ""
    assert SYSTEM in str(world.release.helm("list"))


@pytest.mark.parametrize("component", ACCOUNTS)
def test_an_account_may_do_what_its_process_did_and_nothing_more(
    world: World, component: str
) -> None:
    events = world.release.requests_by(component)
    assert refused(events) == []
    grants = world.release.grants(component)
    assert grants
    assert unused(grants - world.seen_used - {OF_LATER_RELEASES}, events) == []


@pytest.mark.parametrize("component", ACCOUNTS)
def test_a_process_says_who_it_is_and_of_which_version(world: World, component: str) -> None:
    # The hook is the watchdog's program.
    process = "watchdog" if component == "uninstall" else component
    names = {str(e["userAgent"]).split(" ")[0] for e in world.release.requests_by(component)}
    assert names == {f"wattpack-{process}/{app_version()}"}


def test_in_shadow_the_planner_has_no_further_right_and_lacks_none(world: World) -> None:
    before = world.release.grants("scheduler")
    world.release.upgrade({"placement": {"mode": "Shadow"}})
    world.release.start_scheduler()
    grants = world.release.grants("scheduler")
    assert grants <= before

    def left() -> list[str]:
        return unused(grants - {OF_LATER_RELEASES}, world.release.requests_by("scheduler"))

    eventually("all of it was used", lambda: not left(), 20)
    assert refused(world.release.requests_by("scheduler")) == []
