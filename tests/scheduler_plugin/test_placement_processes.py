"""Certificates, the HTTPS webhook, the watchdog, the leading loop and the command line."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler_plugin.app import plan_command, webhook
from scheduler_plugin.app.leadership import Term
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.scheduler_process import SchedulerProcess, planner_elector
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.watchdog_command import Watchdog
from scheduler_plugin.app.webhook import MAX_BODY_BYTES, WebhookServer
from scheduler_plugin.batching import Batcher
from scheduler_plugin.documents.plan_document import parse_plan
from scheduler_plugin.documents.snapshot import parse_snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode
from tests.scheduler_plugin.placement_builders import node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import Cluster, pod_object
from wattpack.clock import SystemClock
from wattpack.kube.election import PLANNER_ELECTION, Bid, LeaderElector
from wattpack.kube.port import EVENTS, LEASES, UnavailableError
from wattpack.object_names import LEASE_NAME
from wattpack.wire.certificates import ServingIdentity, new_identity

NAMES = ("localhost", "127.0.0.1")
SYSTEM = "wattpack-system"


# Webhook


@pytest.fixture(scope="module")
def identity() -> ServingIdentity:
    return new_identity(NAMES, SystemClock().wall_time_ns())


@pytest.fixture
def server(identity: ServingIdentity) -> Iterator[WebhookServer]:
    made = WebhookServer("127.0.0.1", 0, identity, Mode.MANAGE)
    made.start()
    yield made
    made.stop()


def client(identity: ServingIdentity, server: WebhookServer) -> httpx.Client:
    context = ssl.create_default_context(cadata=identity.ca_bundle.decode())
    return httpx.Client(verify=context, base_url=f"https://127.0.0.1:{server.port}")


def review_of(body: Any) -> dict[str, Any]:
    request = {"uid": "r", "kind": {"group": "", "kind": "Pod"}, "operation": "CREATE"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request | {"object": body},
    }


def test_further_paths_are_answered_at_the_webhooks_port(
    identity: ServingIdentity, server: WebhookServer
) -> None:
    server.answer_also({"/extender/filter": lambda body: (200, b"[%s]" % body)})
    with client(identity, server) as http:
        assert http.post("/extender/filter", content=b"1").json() == [1]
        assert http.post("/extender/other", content=b"1").status_code == 404


def test_the_webhook_answers_over_its_own_certificate(
    identity: ServingIdentity, server: WebhookServer
) -> None:
    with client(identity, server) as http:
        response = http.post("/mutate?timeout=2s", json=review_of(pod_object("p")))
        assert response.json()["response"]["patchType"] == "JSONPatch"
        assert http.get("/healthz").text == "ok\n"


def test_the_webhook_refuses_what_is_no_review(
    identity: ServingIdentity, server: WebhookServer
) -> None:
    with client(identity, server) as http:
        assert http.post("/mutate", content=b"{").status_code == 400
        assert http.post("/mutate", json={"kind": "Pod"}).status_code == 400
        assert http.post("/other", json={}).status_code == 404
        assert http.get("/mutate").status_code == 404


def test_the_webhook_reads_no_body_beyond_its_limit(
    identity: ServingIdentity, server: WebhookServer
) -> None:
    context = ssl.create_default_context(cadata=identity.ca_bundle.decode())
    for length in (str(MAX_BODY_BYTES + 1), "9" * 5000, "-1", "many", ""):
        with (
            socket.create_connection(("127.0.0.1", server.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(f"POST /mutate HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
            assert secure.recv(12) == b"HTTP/1.1 413"


def test_a_silent_client_keeps_nobody_waiting(
    identity: ServingIdentity, server: WebhookServer
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)), client(identity, server) as http:
        assert http.get("/healthz").status_code == 200


def test_a_connection_that_was_used_may_be_quiet_and_others_may_not(
    identity: ServingIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server uses its connections again for 90 s; a closed one lets a pod pass by."""
    monkeypatch.setattr(webhook, "WEBHOOK_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(webhook, "QUIET_CONNECTIONS", 1)
    server = WebhookServer("127.0.0.1", 0, identity, Mode.MANAGE)
    server.start()
    context = ssl.create_default_context(cadata=identity.ca_bundle.decode())
    asking = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def connect(open_ones: contextlib.ExitStack) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
        secure = context.wrap_socket(plain, server_hostname="localhost")
        return open_ones.enter_context(secure)

    def asked(connection: ssl.SSLSocket) -> bytes:
        connection.sendall(asking)
        answer = b""
        while not answer.endswith(b"ok\n"):
            answer += connection.recv(1000)
        return answer[:12]

    try:
        with contextlib.ExitStack() as open_ones:
            used, silent = connect(open_ones), connect(open_ones)
            assert asked(used) == b"HTTP/1.1 200"
            one_too_many = connect(open_ones)
            assert asked(one_too_many) == b"HTTP/1.1 200"
            assert (silent.recv(1), one_too_many.recv(1)) == (b"", b"")
            assert asked(used) == b"HTTP/1.1 200"
    finally:
        server.stop()


def test_a_renewed_certificate_is_served_without_a_restart(
    identity: ServingIdentity, server: WebhookServer
) -> None:
    other = new_identity(NAMES, SystemClock().wall_time_ns())
    server.use(other)
    with client(other, server) as http:
        assert http.get("/healthz").status_code == 200


def test_the_webhook_is_reached_over_ipv6(identity: ServingIdentity) -> None:
    made = WebhookServer("::1", 0, identity, Mode.MANAGE)
    made.start()
    try:
        with socket.create_connection(("::1", made.port)) as plain:
            context = ssl.create_default_context(cadata=identity.ca_bundle.decode())
            context.wrap_socket(plain, server_hostname="localhost").close()
    finally:
        made.stop()


def test_the_end_of_the_webhooks_certificate_is_told_also_after_a_renewal(
    server: WebhookServer,
) -> None:
    metrics = PlacementMetrics()
    metrics.watch_webhook_certificate(lambda: server.certificate_pem)

    def expires_in_days() -> float:
        name = "wattpack_certificate_expires_timestamp_seconds"
        ends = metrics.registry.get_sample_value(name, {"server": "webhook"})
        assert ends is not None
        return (ends - SystemClock().wall_time_ns() / 10**9) / 86_400

    assert expires_in_days() == pytest.approx(90, abs=0.1)
    server.use(new_identity(NAMES, SystemClock().wall_time_ns() - 85 * 86_400 * 10**9))
    assert expires_in_days() == pytest.approx(5, abs=0.1)


# Watchdog


def held_cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(pod_object("p"))
    return cluster


def elector(cluster: Cluster, identity: str = "a") -> LeaderElector:
    return planner_elector(cluster.api, cluster.clock, SYSTEM, identity)


def test_the_watchdog_leaves_pods_to_a_planner_that_works() -> None:
    cluster = held_cluster()
    leader = elector(cluster)
    leader.attempt()
    term = Term(cluster.clock, leader)
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    for _ in range(20):
        term.succeeded()
        term.check()
        assert watchdog.step() is None
        cluster.clock.advance_seconds(5)
    assert pod_facts.is_gated(cluster.pod("p"))


def test_a_planner_that_is_alive_and_never_succeeds_counts_as_silent() -> None:
    """It renews its Lease, as a planner whose every cycle failed did for ever."""
    cluster = held_cluster()
    leader = elector(cluster)
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    for _ in range(7):
        leader.attempt()
        watchdog.step()
        cluster.clock.advance_seconds(5)
    assert not pod_facts.is_gated(cluster.pod("p"))
    notes = [e["note"] for e in cluster.api.list(EVENTS).items if e["regarding"]["kind"] == "Lease"]
    assert notes == [
        "planning has not worked for 30 s: 1 pods released without a node, 0 still held"
    ]


def test_a_lease_of_a_version_without_successes_is_heard_by_its_writes() -> None:
    cluster = held_cluster()
    bid = Bid(LEASE_NAME, SYSTEM, "older", PLANNER_ELECTION)
    older = LeaderElector(cluster.api, cluster.clock, bid)
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    for _ in range(20):
        older.attempt()
        assert watchdog.step() is None
        cluster.clock.advance_seconds(5)


def test_the_watchdog_releases_everything_after_thirty_silent_seconds() -> None:
    cluster = held_cluster()
    elector(cluster).attempt()
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    assert watchdog.step() is None
    cluster.clock.advance_seconds(29)
    assert watchdog.step() is None
    cluster.clock.advance_seconds(1)
    released = watchdog.step()
    assert released is not None
    assert released.left == 0
    assert not pod_facts.is_gated(cluster.pod("p"))
    assert pod_facts.pinned_node(cluster.pod("p")) == ""


def test_a_planner_that_never_was_counts_as_silent() -> None:
    cluster = held_cluster()
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    watchdog.step()
    cluster.clock.advance_seconds(30)
    assert watchdog.step() is not None


def test_an_api_outage_does_not_look_like_a_dead_planner() -> None:
    cluster = held_cluster()
    elector(cluster).attempt()
    down = False

    class Outage:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.api, name)

        def get(self, resource: Any, *rest: Any) -> Any:
            if down and resource is LEASES:
                raise UnavailableError("down")
            return cluster.api.get(resource, *rest)

    watchdog = Watchdog(Outage(), cluster.clock, SYSTEM)  # type: ignore[arg-type]
    watchdog.step()
    down = True
    cluster.clock.advance_seconds(60)
    assert watchdog.step() is None
    down = False
    assert watchdog.step() is None
    assert pod_facts.is_gated(cluster.pod("p"))


# The leading loop


def process(cluster: Cluster, identity: str, unread: Sequence[str] = ()) -> SchedulerProcess:
    def new_loop(api: Any, epoch: int) -> Any:
        loop = cluster.new_loop(api, epoch)
        loop.reader.start = lambda _: None  # type: ignore[method-assign]
        loop.reader.missing = lambda: list(unread)  # type: ignore[method-assign]
        return loop

    return SchedulerProcess(
        cluster.api,
        cluster.clock,
        elector(cluster, identity),
        Batcher(idle_ns=0, max_ns=0, resync_ns=1_000_000_000),
        new_loop,
        PlacementMetrics(),
    )


def test_only_the_leader_plans_and_the_other_takes_over() -> None:
    cluster = held_cluster()
    first, second = process(cluster, "a"), process(cluster, "b")
    first.step()
    assert not pod_facts.is_gated(cluster.pod("p"))
    cluster.add(pod_object("q"))
    second.step()
    assert pod_facts.is_gated(cluster.pod("q"))
    for _ in range(20):
        cluster.clock.advance_seconds(1)
        second.step()
    assert not pod_facts.is_gated(cluster.pod("q"))


def test_a_new_leader_plans_once_everything_was_read_and_complains_after_ten_seconds() -> None:
    cluster = held_cluster()
    unread = ["nodes"]
    leader = process(cluster, "a", unread)
    for _ in range(3):
        leader.step()
        cluster.clock.advance_seconds(1)
    assert pod_facts.is_gated(cluster.pod("p"))
    unread.clear()
    leader.step()
    assert not pod_facts.is_gated(cluster.pod("p"))
    cluster.add(pod_object("q"))
    unread.append("pods")
    cluster.clock.advance_seconds(8)
    leader.step()
    assert not pod_facts.is_gated(cluster.pod("q"))


def test_changes_are_gathered_until_they_pause_or_the_oldest_waits_too_long() -> None:
    batcher = Batcher(idle_ns=200, max_ns=2000, resync_ns=10_000)
    assert batcher.due_at(5) == 5
    batcher.ran(0)
    assert batcher.due_at(0) == 10_000
    batcher.changed(100)
    assert batcher.due_at(100) == 300
    for now in range(200, 2100, 100):
        batcher.changed(now)
    assert batcher.due_at(2000) == 2100
    batcher.ran(2100)
    assert batcher.due_at(2100) == 12_100
    batcher.ran(2100, again_ns=2600)
    assert batcher.due_at(2100) == 2600


def test_what_changes_during_a_cycle_waits_from_then_on_and_not_from_its_end() -> None:
    cluster = held_cluster()
    told: list[Callable[[], None]] = []
    cycles: list[float] = []

    def new_loop(api: Any, epoch: int) -> Any:
        loop = cluster.new_loop(api, epoch)
        loop.reader.start = told.append  # type: ignore[method-assign, assignment]
        planned = loop.step

        def slow() -> Any:
            cycles.append(cluster.clock.monotonic_ns() / 10**9)
            cluster.clock.advance_seconds(1)
            told[0]()
            cluster.clock.advance_seconds(3)
            return planned()

        loop.step = slow  # type: ignore[method-assign]
        return loop

    batcher = Batcher(idle_ns=60 * 10**9, max_ns=5 * 10**9, resync_ns=600 * 10**9)
    metrics = PlacementMetrics()
    who = elector(cluster)
    leader = SchedulerProcess(cluster.api, cluster.clock, who, batcher, new_loop, metrics)
    for _ in range(3):
        due_ns = leader.step()
        cluster.clock.advance_seconds(
            max(0.0, due_ns / 10**9 - cluster.clock.monotonic_ns() / 10**9)
        )
    assert cycles[1] - cycles[0] == pytest.approx(1 + 5, abs=0.01)


# Command line


def test_plan_prints_people_and_json_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.json"
    file.write_text(snapshot(node("a"), pod("p"), pod("q", 16)).model_dump_json())
    assert plan_command.main(["--snapshot", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "team/p -> a (+700 W)" in shown
    assert "team/q waits: LargerThanAnyNode" in shown
    assert plan_command.main(["--snapshot", str(file), "--json"]) == 0
    assert parse_plan(capsys.readouterr().out).placements[0].uid == "p"


def test_plan_prints_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_command.main(["--schema", "snapshot"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Snapshot"


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        ('{"nodes": [{"name": 3}]}', []),
        ("", []),
        ("{}", ["--deadline-seconds", "nan"]),
        ("{}", ["--workers", "0"]),
        ("{}", ["--seed", "-1"]),
    ],
)
def test_plan_refuses_wrong_input_with_status_two(
    content: str, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.json"
    file.write_text(content)
    assert plan_command.main(["--snapshot", str(file), *arguments]) == 2
    assert "error: " in capsys.readouterr().err


def test_plan_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_command.main(["--snapshot", "/nowhere/at/all"]) == 2
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_a_snapshot_of_a_cluster_is_what_its_planner_would_see(tmp_path: Path) -> None:
    cluster = held_cluster()
    taken = plan_command.cluster_snapshot(cluster.api, cluster.clock, PlacementSettings())
    assert [(p.name, p.state.value) for p in taken.pods] == [("p", "pending")]
    assert [n.name for n in taken.nodes] == ["n1"]
    assert pod_facts.is_gated(cluster.pod("p"))


def test_the_planned_snapshot_can_be_kept(tmp_path: Path) -> None:
    file, kept = tmp_path / "s.json", tmp_path / "kept.json"
    file.write_text(snapshot(node("a"), pod("p")).model_dump_json())
    assert plan_command.main(["--snapshot", str(file), "--write-snapshot", str(kept)]) == 0
    assert parse_snapshot(kept.read_text()) == parse_snapshot(file.read_text())
    nowhere = str(tmp_path / "no" / "folder")
    with pytest.raises(SystemExit, match="2"):
        plan_command.main(["--snapshot", str(file), "--write-snapshot", nowhere])


@pytest.mark.parametrize(
    "spec", [{"leaseTransitions": "many"}, {"leaseDurationSeconds": []}, {"holderIdentity": 7}]
)
def test_a_lease_without_sense_frees_the_pods_after_thirty_seconds(spec: dict[str, Any]) -> None:
    cluster = held_cluster()
    elector(cluster).attempt()
    lease = cluster.api.get(LEASES, LEASE_NAME, SYSTEM)
    cluster.api.replace(LEASES, {**lease, "spec": spec}, SYSTEM)
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    assert watchdog.step() is None
    cluster.clock.advance_seconds(30)
    released = watchdog.step()
    assert released is not None
    assert released.left == 0
