"""The informer: what it knows after faults is what is there."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.kube import EmbeddedKube
from tests.examples import examples
from tests.wattpack.kube_conformance import Bench, name_of
from wattpack.api import PowerDomain
from wattpack.clock import ManualClock, SystemClock
from wattpack.kube.backoff import backoff_seconds
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.informer import RELIST_SECONDS, Informer
from wattpack.kube.port import PODS, ThrottledError

DOMAINS = PowerDomain.meta.resource


class World:
    """A store, an informer behind faults, and what its handler was told."""

    def __init__(self, rates: FaultRates | None = None, seed: int = 0, **options: Any) -> None:
        self.clock = ManualClock()
        self.kube = EmbeddedKube(self.clock, **options)
        self.bench = Bench(self.kube, "default", "t")
        self.faulty = FaultyKube(self.kube, rates or FaultRates(), seed=seed)
        self.informer = Informer(self.faulty, self.clock, DOMAINS)
        self.told: list[tuple[Any, Any]] = []
        self.informer.add_handler(lambda old, new: self.told.append((old, new)))

    def change(self, rng: random.Random) -> None:
        """Create, change or delete a domain."""
        items = self.kube.list(DOMAINS).items
        choice = rng.random()
        if not items or choice < 0.4:
            self.bench.create_domain()
            return
        body = rng.choice(items)
        if choice < 0.8:
            body["spec"]["ratingWatts"] += 1
            self.kube.replace(DOMAINS, body)
        else:
            self.kube.delete(DOMAINS, name_of(body))

    def agrees(self) -> bool:
        return self.informer.list() == self.kube.list(DOMAINS).items


def test_an_informer_lists_then_follows() -> None:
    world = World()
    first = world.bench.create_domain()
    assert not world.informer.synced()
    assert world.informer.pump() == 1
    assert world.informer.synced()
    assert world.told == [(None, first)]
    first["spec"]["ratingWatts"] = 5000
    second = world.kube.replace(DOMAINS, first)
    world.kube.delete(DOMAINS, name_of(first))
    assert world.informer.pump() == 2
    assert world.told[1][1] == second
    assert world.told[2] == (second, None)
    assert world.informer.list() == ()
    assert world.informer.get(name_of(first)) is None


def test_pumping_takes_no_time_and_lists_once() -> None:
    world = World()
    for _ in range(5):
        world.bench.create_domain()
        world.informer.pump()
    assert world.clock.monotonic_ns() == 0
    assert world.informer.lists == 1
    assert world.agrees()


def test_one_namespace_is_followed_alone() -> None:
    clock = ManualClock()
    kube = EmbeddedKube(clock)
    informer = Informer(kube, clock, PODS, namespace="default")
    informer.pump()
    here = Bench(kube, "default", "t").create_pod()
    Bench(kube, "elsewhere", "t").create_pod()
    assert informer.pump() == 1
    assert informer.get(name_of(here), "default") is not None
    assert len(informer.list()) == 1


def test_a_version_that_is_gone_leads_to_a_list_and_its_difference() -> None:
    world = World()
    kept, dropped = world.bench.create_domain(), world.bench.create_domain()
    world.informer.pump()
    world.told.clear()
    world.kube.delete(DOMAINS, name_of(dropped))
    added = world.bench.create_domain()
    world.kube.compact()
    world.bench.create_domain()
    while not world.agrees():
        world.informer.pump()
    assert world.informer.lists == 2
    assert (dropped, None) in world.told
    assert (None, added) in world.told
    assert all(name_of(new or old) != name_of(kept) for old, new in world.told)


def test_a_storm_of_410_is_answered_with_growing_pauses() -> None:
    world = World(FaultRates(gone=1.0))
    for _ in range(200):
        world.informer.pump()
        world.clock.advance_seconds(1)
    assert 5 <= world.informer.lists <= 20
    world.faulty.rates = FaultRates()
    world.clock.advance_seconds(31)
    world.bench.create_domain()
    world.informer.pump()
    assert world.agrees()


def test_an_outage_of_an_hour_ends_in_the_true_state() -> None:
    world = World()
    world.bench.create_domain()
    world.informer.pump()
    world.faulty.is_down = True
    rng = random.Random(1)
    for _ in range(3600):
        if rng.random() < 0.05:
            world.change(rng)
        world.informer.pump()
        world.clock.advance_seconds(1)
    assert world.informer.synced(), "the last good state is kept"
    world.faulty.is_down = False
    world.clock.advance_seconds(31)
    world.informer.pump()
    assert world.agrees()


@examples(40)
@given(seed=st.integers(0, 10**6))
def test_dropped_events_and_faults_end_in_the_same_state_as_none(seed: int) -> None:
    rates = FaultRates(
        throttled=0.1,
        server_error=0.1,
        stalled=0.05,
        gone=0.1,
        broken_watch=0.2,
        dropped_event=0.3,
    )
    world = World(rates, seed, history_window=8)
    rng = random.Random(seed)
    for _ in range(60):
        world.change(rng)
        world.informer.pump()
        world.clock.advance_seconds(rng.uniform(0, 5))
    world.faulty.rates = FaultRates()
    world.clock.advance_seconds(1.3 * RELIST_SECONDS)
    world.informer.pump()
    assert world.agrees()
    known: dict[str, Any] = {}
    for old, new in world.told:
        name = name_of(new or old)
        assert known.get(name) == old, "handlers hear an unbroken chain of states"
        known[name] = new
    assert [body for body in known.values() if body is not None] == sorted(
        world.informer.list(), key=lambda body: list(known).index(name_of(body))
    )


def test_back_off_grows_to_thirty_seconds_and_honours_the_server() -> None:
    rng = random.Random(0)
    waits = [backoff_seconds(n, rng) for n in range(1, 12)]
    assert all(0.5 <= wait <= 30.0 for wait in waits)
    assert waits[-1] >= 15.0
    assert len({round(backoff_seconds(9, rng), 3) for _ in range(20)}) > 10, "jitter spreads"
    assert backoff_seconds(1, rng, 7.0) == 7.0


def test_a_throttled_informer_waits_as_long_as_it_is_told() -> None:
    calls = []

    class Busy(FaultyKube):
        def list(self, *where: Any, **how: Any) -> Any:
            calls.append(self)
            raise ThrottledError("busy", 20.0)

    clock = ManualClock()
    informer = Informer(Busy(EmbeddedKube(clock), FaultRates()), clock, DOMAINS)
    for _ in range(20):
        informer.pump()
        clock.advance_seconds(1)
    assert len(calls) == 1
    informer.pump()
    assert len(calls) == 2


def test_an_informer_in_a_thread_follows_and_stops() -> None:
    clock = SystemClock()
    kube = EmbeddedKube(clock)
    bench = Bench(kube, "default", "t")
    informer = Informer(kube, clock, DOMAINS)
    told = threading.Event()
    informer.add_handler(lambda old, new: told.set())
    informer.start()
    created = bench.create_domain()
    assert told.wait(30)
    assert informer.get(name_of(created)) == created
    informer.stop()
    kube.close()


def test_a_failing_handler_is_told_and_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    kube = EmbeddedKube(clock)
    bench = Bench(kube, "default", "t")
    informer = Informer(kube, clock, DOMAINS)
    failed = threading.Event()

    def stumble(old: Any, new: Any) -> None:
        failed.set()
        raise RuntimeError("stumbled")

    informer.add_handler(stumble)
    bench.create_domain()
    informer.start()
    assert failed.wait(30)
    informer.join()
    assert isinstance(informer.failure, RuntimeError)
    assert not informer.synced()
    assert "informer of powerdomains ends" in caplog.text
