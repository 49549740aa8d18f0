"""Who may plan, and for how long: success keeps the Lease, the fence stops what comes after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler_plugin import solve
from scheduler_plugin.app.cluster_view import ClusterReader
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.plan_archive import PLANS
from scheduler_plugin.app.scheduler_process import (
    PATIENCE_SECONDS,
    SchedulerProcess,
    planner_elector,
)
from scheduler_plugin.app.watchdog_command import Watchdog
from scheduler_plugin.batching import Batcher
from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import (
    Cluster,
    domain_object,
    pod_object,
    profile_object,
)
from wattpack.api import DemandForecast, PowerDomain, PowerPolicy
from wattpack.kube.port import (
    EVENTS,
    LEASES,
    PODS,
    JsonObject,
    KubeApi,
    Resource,
    UnavailableError,
)
from wattpack.object_names import LEASE_NAME
from wattpack.units import NS_PER_SECOND

SYSTEM = "wattpack-system"


class Slow:
    """Every write takes two seconds; ``before`` and ``after`` are called around pod patches."""

    def __init__(self, cluster: Cluster, seconds: float = 2.0) -> None:
        self._cluster, self._api, self.seconds = cluster, cluster.api, seconds
        self.patched: list[tuple[float, str]] = []
        self.lease_is_down = False
        self.before: Callable[[str], None] = lambda name: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def _take_time(self) -> None:
        self._cluster.clock.advance_seconds(self.seconds)

    def create(self, resource: Resource, *rest: Any) -> JsonObject:
        self._take_time()
        return self._api.create(resource, *rest)

    def replace(self, resource: Resource, *rest: Any, **options: Any) -> JsonObject:
        if resource == LEASES and self.lease_is_down:
            raise UnavailableError("the Lease cannot be renewed")
        self._take_time()
        return self._api.replace(resource, *rest, **options)

    def patch_json(self, resource: Resource, name: str, *rest: Any, **options: Any) -> JsonObject:
        self.before(name)
        self._take_time()
        patched = self._api.patch_json(resource, name, *rest, **options)
        if resource == PODS and not options.get("dry_run"):
            self.patched.append((self._cluster.clock.monotonic_ns() / NS_PER_SECOND, name))
        return patched


class Replica:
    """One scheduler process over an API of its own."""

    def __init__(self, cluster: Cluster, identity: str, api: Any = None) -> None:
        self.cluster, self.metrics = cluster, PlacementMetrics()
        api = api or cluster.api
        self.elector = planner_elector(api, cluster.clock, SYSTEM, identity)

        def new_loop(fenced: KubeApi, epoch: int) -> Any:
            return cluster.new_loop(fenced, epoch)

        self.process = SchedulerProcess(
            api,
            cluster.clock,
            self.elector,
            Batcher(idle_ns=0, max_ns=0, resync_ns=NS_PER_SECOND),
            new_loop,
            self.metrics,
        )

    def step(self) -> None:
        self.process.step()


def run(cluster: Cluster, seconds: int, *steps: Callable[[], object]) -> None:
    for _ in range(seconds):
        for step in steps:
            step()
        cluster.clock.advance_seconds(1)


def lease_events(cluster: Cluster) -> list[tuple[str, str]]:
    events = cluster.api.list(EVENTS).items
    return [(e["reason"], e["note"]) for e in events if e["regarding"]["kind"] == "Lease"]


class Unreadable:
    """Lists of domains fail: no cycle can end well."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api
        self.broken = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def list(self, resource: Resource, *rest: Any, **options: Any) -> Any:
        if self.broken and resource == PowerDomain.meta.resource:
            raise UnavailableError("no domains")
        return self._api.list(resource, *rest, **options)


def held_cluster(*pods: str) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes("n1")
    for name in pods or ("p",):
        cluster.add(pod_object(name))
    return cluster


# Health


def test_a_replica_that_waits_or_leads_is_healthy_and_one_that_hangs_is_not() -> None:
    cluster = held_cluster()
    leader, standby = Replica(cluster, "a"), Replica(cluster, "b")
    run(cluster, 300, leader.step, standby.step)
    assert (leader.process.failure(), standby.process.failure()) == ("", "")
    cluster.clock.advance_seconds(PATIENCE_SECONDS + 10)
    assert "late" in leader.process.failure()
    assert "late" in standby.process.failure()
    run(cluster, 60, leader.step, standby.step)
    assert (leader.process.failure(), standby.process.failure()) == ("", "")


def leading(replica: Replica) -> float:
    value = replica.metrics.registry.get_sample_value("wattpack_placement_leading")
    assert value is not None
    return value


def test_one_replica_says_that_it_leads_and_none_while_all_hang() -> None:
    cluster = held_cluster()
    one, other = Replica(cluster, "a"), Replica(cluster, "b")
    assert (leading(one), leading(other)) == (0, 0)
    run(cluster, 5, one.step, other.step)
    assert (leading(one), leading(other)) == (1, 0)
    cluster.clock.advance_seconds(60)
    assert (leading(one), leading(other)) == (0, 0)
    run(cluster, 60, other.step)
    assert (leading(one), leading(other)) == (0, 1)


def test_a_long_cycle_that_renews_the_lease_is_no_hang() -> None:
    cluster = held_cluster()
    replica = Replica(cluster, "a")
    run(cluster, 5, replica.step)
    # What the fence does before the writes of a cycle that has not come back yet.
    run(cluster, int(2 * PATIENCE_SECONDS), replica.elector.attempt)
    assert replica.process.failure() == ""
    cluster.clock.advance_seconds(PATIENCE_SECONDS)
    assert "late" in replica.process.failure()


# Success


def test_a_planner_that_fails_gives_the_lease_to_one_that_works() -> None:
    cluster = held_cluster()
    broken, healthy = Replica(cluster, "a", Unreadable(cluster)), Replica(cluster, "b")
    broken.step()
    assert broken.process.leads()
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    run(cluster, 25, broken.step, healthy.step, watchdog.step)
    assert healthy.process.leads()
    assert pod_facts.pinned_node(cluster.pod("p")) == "n1"
    [(reason, note)] = lease_events(cluster)
    assert reason == "PlannerFailing"
    assert "planning did not work for 15 s (last success: never in this term)" in note
    assert broken.metrics.given_up._value.get() == 1


def test_planners_that_fail_in_turns_hold_no_pod_for_longer_than_the_watchdog_waits() -> None:
    """They write the Lease all the time, so a write alone must not be a sign of life."""
    cluster = held_cluster()
    replicas = [Replica(cluster, name, Unreadable(cluster)) for name in "ab"]
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    run(cluster, 36, replicas[0].step, replicas[1].step, watchdog.step)
    assert not pod_facts.is_gated(cluster.pod("p"))
    cluster.add(pod_object("q"))
    run(cluster, 60, replicas[0].step, replicas[1].step, watchdog.step)
    assert not pod_facts.is_gated(cluster.pod("q"))


def test_pods_whose_every_plan_is_refused_wait_no_longer_than_for_a_planner_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = held_cluster()
    only = Replica(cluster, "a")
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    with monkeypatch.context() as defect:
        defect.setattr(solve, "complaints", lambda *_, **__: ("a rule is broken",))
        run(cluster, 40, only.step, watchdog.step)
    assert not pod_facts.is_gated(cluster.pod("p"))
    assert pod_facts.pinned_node(cluster.pod("p")) == ""
    run(cluster, 35, only.step, watchdog.step)
    cluster.add(pod_object("q"))
    run(cluster, 10, only.step, watchdog.step)
    assert pod_facts.pinned_node(cluster.pod("q")) == "n1"


def test_a_lonely_planner_that_failed_tries_again_and_the_watchdog_falls_silent() -> None:
    cluster = held_cluster()
    api = Unreadable(cluster)
    only = Replica(cluster, "a", api)
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    run(cluster, 60, only.step, watchdog.step)
    api.broken = False
    run(cluster, 35, only.step, watchdog.step)
    cluster.add(pod_object("q"))
    run(cluster, 10, only.step, watchdog.step)
    assert pod_facts.pinned_node(cluster.pod("q")) == "n1"


def test_a_quiet_planner_keeps_its_lease_and_the_watchdog_quiet() -> None:
    cluster = Cluster()
    only = Replica(cluster, "a")
    watchdog = Watchdog(cluster.api, cluster.clock, SYSTEM)
    released: list[object] = []
    run(cluster, 120, only.step, lambda: released.append(watchdog.step()))
    assert only.process.leads()
    assert set(released) == {None}
    assert lease_events(cluster) == []


def test_a_lease_that_makes_no_sense_ends_no_process() -> None:
    cluster = held_cluster()
    elector = planner_elector(cluster.api, cluster.clock, SYSTEM, "other")
    elector.attempt()
    lease = cluster.api.get(LEASES, LEASE_NAME, SYSTEM)
    cluster.api.replace(LEASES, {**lease, "spec": {"leaseTransitions": "many"}}, SYSTEM)
    run(cluster, 5, Replica(cluster, "a").step)


@pytest.mark.parametrize("parents", [("b", "a"), ("a", None)], ids=["two", "itself"])
def test_domains_that_were_never_accepted_stop_no_planning(parents: tuple[str, str | None]) -> None:
    """a above b above a: nobody accepted them, so they say nothing about any node."""
    cluster = Cluster()
    cluster.add_nodes("n1", "n2")
    cluster.add(profile_object())
    for name, parent, node in zip("ab", parents, ("n1", "n2"), strict=True):
        if parent:
            cluster.add(domain_object(name, 50_000, [node], parent=parent))
    cluster.add(pod_object("p"))
    only = Replica(cluster, "a")
    run(cluster, 3, only.step)
    assert not pod_facts.is_gated(cluster.pod("p"))
    assert only.process.leads()


# The fence


def written_places(cluster: Cluster) -> dict[str, set[str]]:
    """Nodes by pod in all written plans."""
    places: dict[str, set[str]] = {}
    for plan in cluster.api.list(PLANS).items:
        for promise in plan["spec"]["promises"]:
            places.setdefault(promise["name"], set()).add(promise["node"])
    return places


def test_a_leader_with_slow_writes_patches_nobody_after_its_lease() -> None:
    cluster = held_cluster(*(f"p{i}" for i in range(8)))
    cluster.add_nodes("n2")
    api = Slow(cluster)
    slow, other = Replica(cluster, "a", api), Replica(cluster, "b")

    def lose(name: str) -> None:
        # From the third patch on nobody can renew; a patch then takes longer than the Lease.
        if len(api.patched) == 2:
            api.lease_is_down = True
            api.seconds = 16.0

    api.before = lose
    slow.step()
    late = [name for _, name in api.patched]
    assert len(late) == 3
    promised = {
        p["name"] for plan in cluster.api.list(PLANS).items for p in plan["spec"]["promises"]
    }
    assert set(late) <= promised
    run(cluster, 30, slow.step, other.step)
    assert other.process.leads()
    nodes = [pod_facts.pinned_node(cluster.pod(f"p{i}")) for i in range(8)]
    written: dict[str, set[str]] = {}
    for plan in cluster.api.list(PLANS).items:
        for promise in plan["spec"]["promises"]:
            written.setdefault(promise["name"], set()).add(promise["node"])
    assert all(nodes)
    assert {len(places) for places in written.values()} == {1}
    assert len(api.patched) == 3


def test_the_fence_stops_a_leader_in_the_middle_of_a_gang() -> None:
    """A gang is patched without a pause: only the check before each write can stop it."""
    cluster = Cluster()
    cluster.add_nodes("n1")
    marks = {"labels": {"wattpack.io/gang": "g"}, "annotations": {"wattpack.io/gang-size": "8"}}
    for i in range(8):
        cluster.add(pod_object(f"g{i}", **marks))
    api = Slow(cluster, 0.0)
    slow, other = Replica(cluster, "a", api), Replica(cluster, "b")

    def lose(name: str) -> None:
        if len(api.patched) == 2:
            api.lease_is_down, api.seconds = True, 4.0

    api.before = lose
    slow.step()
    other.step()
    assert 2 < len(api.patched) < 8
    assert not slow.elector.is_leader()
    sent = len(api.patched)
    run(cluster, 20, slow.step, other.step)
    assert other.process.leads()
    assert len(api.patched) == sent
    assert all(pod_facts.pinned_node(cluster.pod(f"g{i}")) == "n1" for i in range(8))


def test_a_long_apply_keeps_its_lease_by_renewing_between_writes() -> None:
    cluster = held_cluster(*(f"p{i}" for i in range(8)))
    leader, other = Replica(cluster, "a", Slow(cluster)), Replica(cluster, "b")
    for _ in range(40):
        leader.step()
        other.step()
        cluster.bind()
        cluster.clock.advance_seconds(0.5)
        assert not other.process.leads()
    assert all(pod_facts.pinned_node(cluster.pod(f"p{i}")) for i in range(8))


def test_a_successor_counts_what_its_predecessor_may_still_patch_as_taken() -> None:
    """The patch of p is under way while the Lease changes hands; it lands afterwards."""
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(pod_object("p", 8))
    under_way: list[Callable[[], object]] = []

    class Delayed(Slow):
        def patch_json(self, resource: Resource, name: str, *rest: Any, **options: Any) -> Any:
            if resource == PODS:
                under_way.append(lambda: cluster.api.patch_json(resource, name, *rest, **options))
                raise UnavailableError("no answer")
            return super().patch_json(resource, name, *rest, **options)

    first, second = Replica(cluster, "a", Delayed(cluster, 0.0)), Replica(cluster, "b")
    first.step()
    second.step()
    cluster.add(pod_object("other", 8))
    cluster.clock.advance_seconds(16)
    second.step()
    assert second.process.leads()
    assert pod_facts.pinned_node(cluster.pod("p")) == "n1"
    assert pod_facts.is_gated(cluster.pod("other"))
    with pytest.raises(Exception, match=r"test|changed|conflict|resourceVersion"):
        under_way[0]()


def test_a_plan_that_a_replaced_leader_still_wrote_is_not_the_newest() -> None:
    cluster = held_cluster()
    new = cluster.new_loop(epoch=7)
    new.step()
    cluster.clock.advance_seconds(3600)
    old = cluster.new_loop(epoch=6)
    cluster.add(pod_object("late"))
    old.step()
    names = sorted(plan["metadata"]["name"] for plan in cluster.api.list(PLANS).items)
    assert names[0].startswith("plan-00000006-")
    assert names[-1].startswith("plan-00000007-")


# Waking


@pytest.mark.parametrize(
    "resource",
    [
        PODS,
        PowerDomain.meta.resource,
        PowerPolicy.meta.resource,
        DemandForecast.meta.resource,
    ],
    ids=lambda resource: resource.kind,
)
def test_the_planner_wakes_on_what_may_make_room(resource: Resource) -> None:
    cluster = held_cluster()
    reader = ClusterReader(cluster.api, cluster.clock, threaded=True)
    woken: list[str] = []
    for informer in reader._informers.values():
        informer.start = lambda: None  # type: ignore[method-assign]
    reader.start(lambda: woken.append("woken"))
    informer = reader._informers[resource]
    informer._tell(None, {"metadata": {"name": "x"}, "spec": {}})
    assert woken == ["woken"]
