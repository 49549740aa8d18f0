"""The embedded API: the conformance list, and what only it offers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from simulation.kube import EmbeddedKube
from simulation.kube.object_store import Store
from tests.cluster.cluster_builders import pod as cluster_pod
from tests.cluster.pod_rules_table import REFUSED, UPDATES
from tests.wattpack.kube_conformance import BEHAVIOURS, Bench, name_of
from wattpack.api import PowerDomain
from wattpack.clock import ManualClock, SystemClock
from wattpack.kube.port import (
    EVENTS,
    PODS,
    PRIORITY_CLASSES,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    TokenIdentity,
)

DOMAINS = PowerDomain.meta.resource


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kube(clock: ManualClock) -> EmbeddedKube:
    return EmbeddedKube(clock)


@pytest.fixture
def bench(kube: EmbeddedKube) -> Bench:
    return Bench(kube, "default", "t")


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_the_embedded_api_conforms(behaviour: Callable[[Bench], None], bench: Bench) -> None:
    behaviour(bench)


@pytest.mark.parametrize("case", UPDATES, ids=[case[0] for case in UPDATES])
def test_an_update_of_a_pod_is_judged_as_kubernetes_does(kube: EmbeddedKube, case: Any) -> None:
    _, gates, placement, change, expected = case
    body = cluster_pod("p", gates=gates, **copy.deepcopy(placement))
    created = kube.create(PODS, body, "default")
    wanted = copy.deepcopy(created)
    change(wanted["spec"])
    if expected == REFUSED:
        with pytest.raises(InvalidError):
            kube.replace(PODS, wanted, "default")
        assert kube.get(PODS, "p", "default") == created
    else:
        kube.replace(PODS, wanted, "default")


def test_a_watch_from_before_the_window_is_gone(clock: ManualClock) -> None:
    kube = EmbeddedKube(clock, history_window=4)
    bench = Bench(kube, "default", "t")
    start = kube.list(DOMAINS).resource_version
    for _ in range(10):
        bench.create_domain()
    with pytest.raises(GoneError):
        list(kube.watch(DOMAINS, start, timeout_seconds=0))


def test_compaction_makes_old_versions_gone(kube: EmbeddedKube, bench: Bench) -> None:
    start = kube.list(DOMAINS).resource_version
    bench.create_domain()
    kube.compact()
    with pytest.raises(GoneError):
        list(kube.watch(DOMAINS, start, timeout_seconds=0))
    assert list(kube.watch(DOMAINS, kube.list(DOMAINS).resource_version, timeout_seconds=0))


def test_an_idle_watch_sends_bookmarks_and_ends(kube: EmbeddedKube, clock: ManualClock) -> None:
    start_ns = clock.monotonic_ns()
    events = list(kube.watch(DOMAINS, "0", timeout_seconds=300))
    assert {event.type for event in events} == {"BOOKMARK"}
    assert len(events) >= 5
    assert clock.monotonic_ns() - start_ns == 300 * 10**9


def test_a_watch_of_no_seconds_takes_no_time(kube: EmbeddedKube, bench: Bench) -> None:
    bench.create_domain()
    events = list(kube.watch(DOMAINS, "0", timeout_seconds=0))
    assert [event.type for event in events] == ["ADDED", "BOOKMARK"]


def test_a_waiting_watch_is_woken_by_a_write() -> None:
    kube = EmbeddedKube(SystemClock())
    bench = Bench(kube, "default", "t")
    stream = kube.watch(DOMAINS, "0", timeout_seconds=60)
    first: list[str] = []
    thread = threading.Thread(target=lambda: first.append(next(stream).type))
    thread.start()
    bench.create_domain()
    thread.join(30)
    assert first == ["ADDED"]
    kube.close()


def test_what_is_handed_out_is_a_copy(kube: EmbeddedKube, bench: Bench) -> None:
    created = bench.create_domain()
    created["spec"]["ratingWatts"] = 1
    kube.list(DOMAINS).items[0]["spec"]["ratingWatts"] = 2
    assert kube.get(DOMAINS, name_of(created))["spec"]["ratingWatts"] == 1000


def test_equal_seeds_give_equal_objects() -> None:
    def history() -> list[Any]:
        kube = EmbeddedKube(ManualClock(), seed=7)
        bench = Bench(kube, "default", "t")
        for _ in range(3):
            bench.create_pod()
        return [event.object for event in kube.watch(PODS, "0", timeout_seconds=0)]

    assert history() == history()


def test_dependents_go_with_their_last_owner(kube: EmbeddedKube, bench: Bench) -> None:
    owners = [bench.create_domain(), bench.create_domain()]
    pod = bench.pod()
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": name_of(owner),
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]
    kube.create(PODS, pod, "default")
    kube.delete(DOMAINS, name_of(owners[0]))
    assert len(kube.get(PODS, name_of(pod), "default")["metadata"]["ownerReferences"]) == 1
    kube.delete(DOMAINS, name_of(owners[1]))
    with pytest.raises(NotFoundError):
        kube.get(PODS, name_of(pod), "default")


def test_a_gated_pod_says_so_and_is_not_bound(kube: EmbeddedKube, bench: Bench) -> None:
    pod = bench.create_pod(schedulingGates=[{"name": "wattpack.io/placement"}])
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    with pytest.raises(ConflictError, match="schedulingGates"):
        kube.bind(name_of(pod), "default", "n1")


def test_a_pod_is_bound_once(kube: EmbeddedKube, bench: Bench) -> None:
    pod = bench.create_pod()
    bound = kube.bind(name_of(pod), "default", "n1")
    assert bound["spec"]["nodeName"] == "n1"
    assert [p["metadata"]["name"] for p in kube.list(PODS, None, "", "spec.nodeName=n1").items] == [
        name_of(pod)
    ]
    with pytest.raises(ConflictError):
        kube.bind(name_of(pod), "default", "n2")


def test_a_bound_pod_waits_for_its_kubelet_where_there_is_one(clock: ManualClock) -> None:
    kube = EmbeddedKube(clock, kubelet_confirms_deletion=True)
    bench = Bench(kube, "default", "t")
    pod = bench.create_pod()
    kube.bind(name_of(pod), "default", "n1")
    kube.evict(name_of(pod), "default")
    assert kube.get(PODS, name_of(pod), "default")["metadata"]["deletionTimestamp"]
    kube.delete(PODS, name_of(pod), "default", grace_period_seconds=0)
    with pytest.raises(NotFoundError):
        kube.get(PODS, name_of(pod), "default")


def test_priority_comes_from_the_class(kube: EmbeddedKube, bench: Bench) -> None:
    kube.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    assert bench.create_pod(priorityClassName="high")["spec"]["priority"] == 1000
    assert bench.create_pod()["spec"]["priority"] == 0
    with pytest.raises(ForbiddenError, match="PriorityClass"):
        bench.create_pod(priorityClassName="absent")


def test_tokens_are_judged_by_the_table(kube: EmbeddedKube) -> None:
    identity = TokenIdentity("agent", extra={"authentication.kubernetes.io/node-name": ["n1"]})
    kube.register_token("secret", identity, ["wattpack"])
    assert kube.review_token("secret", ["wattpack"]).node_name == "n1"
    for token, audience in (("secret", "other"), ("unknown", "wattpack"), ("", "wattpack")):
        with pytest.raises(ForbiddenError):
            kube.review_token(token, [audience])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"metadata": {}},
        {"metadata": {"name": "UPPER"}},
        {"metadata": {"name": "a" * 300}},
        {"metadata": {"name": 5}},
        {"metadata": {"name": "a"}, "kind": "PowerPolicy", "spec": {"ratingWatts": 1}},
        {"metadata": {"name": "a", "labels": {"x": 1}}, "spec": {"ratingWatts": 1}},
        {"metadata": {"name": "a"}, "spec": {"ratingWatts": float("nan")}},
        {"metadata": {"name": "a"}, "spec": {"ratingWatts": {1, 2}}},
        {"metadata": {"name": "a"}, "spec": "x" * 2_000_000},
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "a", "resourceVersion": "4"}, "spec": {"ratingWatts": 1}},
    ],
)
def test_a_broken_object_is_refused_and_nothing_is_stored(
    kube: EmbeddedKube, body: dict[str, Any]
) -> None:
    with pytest.raises(InvalidError):
        kube.create(DOMAINS, body)
    assert kube.list(DOMAINS).items == ()


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "explode", "path": "/spec"}],
        [{"op": "add", "path": "spec", "value": 1}],
        [{"op": "add", "path": "/spec/ratingWatts"}],
        [{"op": "replace", "path": "/spec/absent", "value": 1}],
        [{"op": "add", "path": "/spec/budgets/7", "value": {}}],
        [{"op": "remove", "path": ""}],
        [{"op": "replace", "path": "", "value": 5}],
        [{"op": "add", "path": "/spec/ratingWatts/x", "value": 5}],
        [{"op": "replace", "path": "/metadata/name", "value": "other"}],
    ],
)
def test_a_broken_patch_is_refused_and_nothing_changes(
    kube: EmbeddedKube, bench: Bench, operations: list[dict[str, Any]]
) -> None:
    created = bench.create_domain()
    with pytest.raises(InvalidError):
        kube.patch_json(DOMAINS, name_of(created), operations)
    assert kube.get(DOMAINS, name_of(created)) == created


def test_concurrent_writers_lose_no_update(kube: EmbeddedKube, bench: Bench) -> None:
    name = name_of(bench.create_domain())

    def count_up() -> None:
        done = 0
        while done < 25:
            body = kube.get(DOMAINS, name)
            body["spec"]["ratingWatts"] += 1
            try:
                kube.replace(DOMAINS, body)
            except ConflictError:
                continue
            done += 1

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert kube.get(DOMAINS, name)["spec"]["ratingWatts"] == 1100


def test_events_live_an_hour(kube: EmbeddedKube, clock: ManualClock) -> None:
    def report(name: str) -> None:
        kube.create(EVENTS, {"metadata": {"name": name}, "reason": "Test"}, "default")

    report("old")
    clock.advance_seconds(3599)
    report("middle")
    assert len(kube.list(EVENTS).items) == 2
    clock.advance_seconds(1)
    report("new")
    assert [name_of(event) for event in kube.list(EVENTS).items] == ["middle", "new"]


def test_a_watch_is_woken_by_writes_of_its_kind_alone() -> None:
    """Seventeen watches that wake at every write cost the demo a tenth of its time."""
    store, woken = Store(8), []
    end = store.listen(PODS, lambda: woken.append("pods"))
    store.listen(EVENTS, lambda: woken.append("events"))
    body = {"metadata": {"name": "a", "uid": "u"}}
    store.insert(PODS, ("", "a"), body, {})
    store.insert(EVENTS, ("", "a"), body, {})
    store.remove(PODS, ("", "a"))
    assert woken == ["pods", "events", "pods"]
    end()
    store.insert(PODS, ("", "a"), body, {})
    assert woken == ["pods", "events", "pods"]


def test_a_store_that_closes_wakes_its_watches_and_waits_until_they_have_left() -> None:
    store, left = Store(8), threading.Event()

    def leave() -> None:
        threading.Thread(target=lambda: (left.set(), end())).start()

    end = store.listen(PODS, leave)
    store.close()
    assert left.is_set()


def test_a_watch_that_stands_outlives_a_compaction_while_its_kind_was_quiet(
    kube: EmbeddedKube, clock: ManualClock
) -> None:
    version = kube.list(PODS).resource_version
    watch = kube.watch(PODS, version, timeout_seconds=300.0)
    kube.create(PODS, cluster_pod("first"), "default")
    assert next(watch).object["metadata"]["name"] == "first"
    kube.create(EVENTS, {"metadata": {"name": "e"}, "reason": "Test"}, "default")
    kube.compact()
    kube.create(PODS, cluster_pod("second"), "default")
    assert next(watch).object["metadata"]["name"] == "second"
    with pytest.raises(GoneError):
        next(kube.watch(PODS, version, timeout_seconds=0.0))
