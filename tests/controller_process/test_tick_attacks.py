"""The tick goes on, whatever is written into objects, files and Leases, and waits for nobody."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controller.app.controller_metrics import ControllerMetrics
from controller.app.decision_log import DecisionLog
from controller.app.domain_status import StatusThread
from controller.app.elected_leadership import ElectedLeadership
from controller.app.fleet import Fleet, Leadership
from controller.app.tick_loop import Ticker, TickIdentity, TickOutcome, TickPorts
from controller.tick_values import Commands, PowerSettings, Topology
from controller.work_seen import PodWork
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello, make_reading, make_report
from tests.controller_process.object_builders import (
    DOMAINS,
    NODES,
    OVERRIDES,
    Cluster,
    make_cluster,
    make_domain,
    make_node,
    make_object,
)
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.kube.election import PLANNER_ELECTION, Bid, LeaderElector
from wattpack.kube.port import LEASES, JsonObject, KubeApi
from wattpack.live_view import LiveDecision, LiveView


class Leader:
    """Leads with one epoch and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.term = Leadership(3, True, True)

    def leadership(self) -> Leadership:
        return self.term

    def raise_epoch_above(self, epoch: int) -> None:
        self.asked.append(epoch)


class Meters:
    """What the meters of domains show: (AC watts, time stamp)."""

    def __init__(self) -> None:
        self.shown: dict[str, tuple[float, int]] = {}

    def read(self) -> Mapping[str, tuple[float, int]]:
        return self.shown


class Bench:
    """A ticker over a cluster, in virtual time."""

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        works: Callable[[], Mapping[str, PodWork]] = dict,
        audit: DecisionLog | None = None,
    ) -> None:
        self.cluster, self.fleet, self.clock, self.leader = cluster, fleet, ManualClock(), Leader()
        self.meters = Meters()
        self.sent: list[Commands] = []
        self.sequence = 0
        self.ticker = Ticker(
            TickPorts(
                fleet=fleet,
                desired=cluster.desired,
                leadership=self.leader,
                meters=self.meters,
                clock=self.clock,
                audit=audit or DecisionLog(":memory:"),
                metrics=ControllerMetrics(),
                send=self._send,
                works=works,
            ),
            PowerSettings(),
            TickIdentity("test"),
        )

    def _send(self, topology: Topology, commands: Commands) -> int:
        self.sent.append(commands)
        return 0

    def tick(self, *nodes: str, **fields: Any) -> TickOutcome | None:
        self.clock.advance_seconds(1.0)
        self.sequence += 1
        for node in nodes:
            report = make_report(node, sequence=self.sequence, **fields)
            self.fleet.report(report, self.clock.monotonic_ns())
        return self.ticker.tick()


@pytest.fixture
def bench() -> Bench:
    fleet = Fleet()
    fleet.hello(make_hello("node-1"))
    return Bench(make_cluster(make_node("node-1")), fleet)


class AskedWhileTicking(DecisionLog):
    """Somebody asks for the live view in the middle of each tick."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.ask: Callable[[], object] = lambda: None

    def append(self, decisions: Sequence[LiveDecision]) -> None:
        self.ask()
        super().append(decisions)


def test_a_view_asked_for_within_a_tick_does_not_stand_for_that_tick() -> None:
    """The old view took the new tick's number, and nobody saw the new one."""
    fleet, audit = Fleet(), AskedWhileTicking()
    fleet.hello(make_hello("node-1"))
    bench = Bench(make_cluster(make_node("node-1")), fleet, audit=audit)
    audit.ask = bench.ticker.live
    for _ in range(3):
        outcome = bench.tick("node-1")
        view = bench.ticker.live()
        assert outcome is not None
        assert view is not None
        assert view.wall_time_ns == outcome.wall_time_ns
    assert view.tick == 3


def test_a_view_asked_for_within_the_first_tick_of_a_new_topology_is_the_last_one() -> None:
    """It took the old tick's arrays and the new topology's names, and failed."""
    fleet, audit = Fleet(), AskedWhileTicking()
    fleet.hello(make_hello("node-1"))
    cluster = make_cluster(make_node("node-1"), make_node("node-2"))
    bench = Bench(cluster, fleet, audit=audit)
    bench.tick("node-1")
    views: list[LiveView | None] = []
    audit.ask = lambda: views.append(bench.ticker.live())
    fleet.hello(make_hello("node-2", gpus=4))
    bench.tick("node-1")
    (within,) = views
    after = bench.ticker.live()
    assert within is not None
    assert after is not None
    assert (within.tick, len(within.gpus.pod), len(within.gpus.model)) == (1, 2, 2)
    assert (after.tick, len(after.gpus.pod), len(after.gpus.model)) == (2, 6, 6)


def override(name: str = "hand", **spec: Any) -> JsonObject:
    values = {
        "target": {"node": "node-1"},
        "capWatts": 250.0,
        "reason": "test",
        "expiresAt": "2099-01-01T00:00:00Z",
    }
    return make_object("PowerOverride", name, values | spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"expiresAt": "2026-13-45T99:99:99Z"},
        {"expiresAt": "2099-01-01T00:00:00"},
        {"expiresAt": "soon"},
        {"capWatts": -5.0},
        {"capWatts": "much"},
        {"capWatts": "300"},
        {"capWatts": True},
        {"capWatts": float("nan")},
        {"capWatts": None},
        {"target": {}},
        {"target": {"node": "node-1", "domain": "row"}},
    ],
)
def test_an_override_that_cannot_be_read_is_told_and_the_last_good_one_rules(
    bench: Bench, spec: JsonObject
) -> None:
    bench.cluster.put(OVERRIDES, override())
    bench.cluster.put(OVERRIDES, override(**spec))
    outcome = bench.tick("node-1")
    assert outcome is not None
    assert outcome.seen.override_cap_watts.tolist() == [250.0, 250.0]
    assert {r.reason for r in bench.cluster.desired.refusals()} == {"Unreadable"}


def test_a_field_of_a_newer_version_does_not_keep_an_override_from_ruling(bench: Bench) -> None:
    bench.cluster.put(OVERRIDES, override(newerField=True))
    outcome = bench.tick("node-1")
    assert outcome is not None
    assert outcome.seen.override_cap_watts.tolist() == [250.0, 250.0]
    assert not bench.cluster.desired.refusals()


@pytest.mark.parametrize("target", [{"node": "nobody"}, {"domain": "none"}, {"gpuUuid": "GPU-0"}])
def test_an_override_of_something_unknown_caps_nothing(bench: Bench, target: JsonObject) -> None:
    bench.cluster.put(OVERRIDES, override(target=target))
    outcome = bench.tick("node-1")
    assert outcome is not None
    assert (outcome.seen.budget_watts == 40_000.0).all()


def test_an_override_above_every_limit_raises_nothing(bench: Bench) -> None:
    bench.cluster.put(OVERRIDES, override(capWatts=5000.0))
    for _ in range(30):
        assert bench.tick("node-1") is not None
    assert max(c.cap_watts.max() for c in bench.sent) <= 700.0


@pytest.mark.parametrize(
    "window",
    [
        {"start": "22:00", "end": "2099-01-01T00:00:00Z", "budgetWatts": 1.0},
        {"start": "25:99", "end": "26:00", "budgetWatts": 1.0},
        {"start": "2026-02-31T00:00:00Z", "end": "2026-03-31T00:00:00Z", "budgetWatts": 1.0},
    ],
)
def test_a_budget_window_without_sense_is_refused_and_the_rating_rules(
    bench: Bench, window: JsonObject
) -> None:
    bench.tick("node-1")
    bench.cluster.put(DOMAINS, make_domain(budgets=[window]))
    outcome = bench.tick("node-1")
    assert outcome is not None
    assert outcome.seen.budget_watts.tolist() == [40_000.0]


def test_the_tick_goes_on_when_every_object_is_deleted(bench: Bench) -> None:
    bench.tick("node-1")
    bench.cluster.remove(NODES, make_node("node-1"))
    bench.cluster.remove(DOMAINS, make_domain())
    assert bench.tick("node-1") is not None
    for _ in range(70):
        assert bench.tick() is not None


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**31, 2**20 + 4])
def test_an_epoch_out_of_reach_moves_no_lease_and_is_told(bench: Bench, epoch: int) -> None:
    bench.tick("node-1")
    outcome = bench.tick("node-1", highest_epoch=epoch)
    assert outcome is not None
    assert bench.leader.asked == []
    assert [t.kind for t in outcome.decisions.transitions] == ["EpochIgnored"]


def test_an_epoch_within_reach_is_gone_beyond(bench: Bench) -> None:
    bench.tick("node-1", highest_epoch=2**20)
    assert bench.leader.asked == [2**20]


def test_reports_whose_watts_stand_still_while_their_counters_run_are_not_believed(
    bench: Bench,
) -> None:
    outcome = None
    for second in range(1, 8):
        devices = [
            make_reading(
                f"node-1-gpu-{i}", draw_watts=100.0 + i, energy_joules=1000.0 + 700.0 * second
            )
            for i in range(2)
        ]
        outcome = bench.tick("node-1", devices=devices)
    assert outcome is not None
    assert outcome.decisions.stale_readings.all()
    assert outcome.decisions.draw_watts.max() > 2 * 700.0


def test_a_whole_report_sent_again_and_again_with_new_numbers_is_not_believed(bench: Bench) -> None:
    outcome = None
    for _ in range(8):
        outcome = bench.tick("node-1")
    assert outcome is not None
    assert outcome.decisions.stale_readings.all()


def test_a_tick_without_anything_known_does_nothing() -> None:
    assert Bench(make_cluster(), Fleet()).tick() is None


def test_a_domain_deleted_and_made_anew_with_a_refused_spec_does_not_end_the_status(
    bench: Bench,
) -> None:
    outcome = bench.tick("node-1")
    assert outcome is not None
    api = EmbeddedKube(bench.clock)
    status = StatusThread(api, bench.clock, bench.cluster.desired, "test")
    bench.cluster.desired.accepted_domains().pop("row")  # type: ignore[attr-defined]
    status.take(outcome)
    status.run_once()


def test_a_domain_that_brakes_again_and_again_fills_no_feed(bench: Bench) -> None:
    """BRAKE lets go after five calm seconds, so it can come back every nine."""
    told: list[tuple[int, str]] = []
    bands: list[int] = []
    for second in range(300):
        watts = 70_000.0 if second % 9 == 0 else 20_000.0
        bench.meters.shown = {"row": (watts + second % 5, bench.clock.monotonic_ns())}
        outcome = bench.tick("node-1")
        assert outcome is not None
        bands.append(int(outcome.decisions.band[0]))
        told += [(second, t.kind) for t in outcome.decisions.transitions]
    for begin in range(240):
        inside = Counter(kind for second, kind in told if begin <= second < begin + 60)
        assert max(inside.values(), default=0) <= 3
    assert sum(a != b for a, b in pairwise(bands)) > 60
    shown = bench.ticker.live()
    assert shown is not None
    assert any("told in one line" in decision.message for decision in shown.decisions)


def test_an_audit_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    file.write_bytes(b"not a database, only text that is long enough to be looked at" * 10)
    with pytest.raises(InputError, match="audit_file"):
        DecisionLog(file)
    with pytest.raises(InputError, match="audit_file"):
        DecisionLog(tmp_path / "missing" / "audit.db")


def test_a_standby_that_starts_again_keeps_what_it_decided_before(tmp_path: Path) -> None:
    kept = []
    for start in range(3):
        log = DecisionLog(tmp_path / "audit.sqlite")
        fleet = Fleet()
        fleet.hello(make_hello("node-1"))
        bench = Bench(make_cluster(make_node("node-1")), fleet, audit=log)
        bench.leader.term = Leadership(0, False, False)
        bench.clock.advance_seconds(3600.0 * start)
        bench.tick("node-1")
        for _ in range(10):
            bench.tick()
        kept.append(len(log.newest(100)))
        log.close()
    assert kept == [kept[0], 2 * kept[0], 3 * kept[0]]
    assert kept[0] > 0


def test_somebody_who_locks_the_audit_file_costs_rows_and_no_tick(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "audit.db")
    other = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    log.append([LiveDecision(id="1", wall_time_ns=1, epoch=1, domain="d", kind="k", message="m")])
    other.close()
    log.close()
    assert log.failures == 1


class Unreachable(EmbeddedKube):
    """An API that must not be called from the tick."""

    allowed = True

    def get(self, *where: Any, **how: Any) -> JsonObject:
        assert self.allowed
        return super().get(*where, **how)


def make_elector(api: KubeApi, clock: ManualClock) -> LeaderElector:
    return LeaderElector(api, clock, Bid("lease", "ns", "me", PLANNER_ELECTION))


def test_an_agent_that_reports_a_higher_epoch_never_makes_the_tick_wait_for_the_api() -> None:
    clock = ManualClock()
    api = Unreachable(clock)
    elector = make_elector(api, clock)
    assert elector.attempt()
    api.allowed = False
    ElectedLeadership(elector, 5.0).raise_epoch_above(41)
    ElectedLeadership(elector, 5.0).raise_epoch_above(2**40)  # impossible: told, not followed
    api.allowed = True
    assert elector.epoch() == 1
    assert elector.attempt()
    assert elector.epoch() == 42
    assert elector.attempt()
    assert elector.epoch() == 42


def test_a_lease_that_cannot_be_read_does_not_end_the_election() -> None:
    class Stops(ManualClock):
        """Repairs the Lease at the first wait and ends the election at the second."""

        waits = 0

        def wait_until(self, deadline_ns: int, wake: Any = None) -> bool:
            self.waits += 1
            if self.waits == 1:
                failures.append(elector.failure)
                garbled["spec"] = {}
                api.replace(LEASES, garbled, "ns")
            else:
                leads.append(elector.is_leader())
                elector._stopping = True
            return super().wait_until(deadline_ns)

    clock, failures, leads = Stops(), [], []  # type: ignore[var-annotated]
    api = EmbeddedKube(clock)
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lease"}}
    garbled = api.create(LEASES, {**body, "spec": {"leaseTransitions": "many"}}, "ns")
    elector = make_elector(api, clock)
    elector._run()
    assert isinstance(failures[0], ValueError)
    assert leads == [True]
    assert elector.failure is None
