"""Leader election: never two leaders, and an epoch that rises with every term (I4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simulation.kube import EmbeddedKube
from tests.examples import examples
from wattpack.clock import Clock, ManualClock, SystemClock, Wake
from wattpack.errors import InputError
from wattpack.fencing import MAX_EPOCH
from wattpack.kube.election import PLANNER_ELECTION, Bid, ElectionSettings, LeaderElector
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import LEASES, ConflictError, JsonObject, UnavailableError
from wattpack.units import NS_PER_SECOND

NAMESPACE = "wattpack"


class SkewedClock(ManualClock):
    """A clock that runs at a rate of its own beside a true one, from an origin of its own."""

    def __init__(self, truth: ManualClock, rate: float, origin_ns: int) -> None:
        super().__init__()
        self._truth, self._rate, self._origin_ns = truth, rate, origin_ns

    def monotonic_ns(self) -> int:
        return self._origin_ns + round(self._truth.monotonic_ns() * self._rate)

    def wall_time_ns(self) -> int:
        return self.monotonic_ns()


class Interleaved:
    """Lets others act before and after each call of one candidate, and loses answers."""

    def __init__(self, api: EmbeddedKube) -> None:
        self._api = api
        self.before: list[Callable[[], None]] = []
        self.lose_next_answer = False

    def _pause(self) -> None:
        if self.before:
            self.before.pop(0)()

    def get(self, *where: Any) -> JsonObject:
        self._pause()
        found = self._api.get(*where)
        self._pause()
        return found

    def create(self, *what: Any) -> JsonObject:
        return self._write(lambda: self._api.create(*what))

    def replace(self, *what: Any) -> JsonObject:
        return self._write(lambda: self._api.replace(*what))

    def _write(self, write: Callable[[], JsonObject]) -> JsonObject:
        self._pause()
        stored = write()
        self._pause()
        if self.lose_next_answer:
            self.lose_next_answer = False
            raise UnavailableError("lost answer")
        return stored


def elector(api: Any, clock: Clock, identity: str, **options: Any) -> LeaderElector:
    bid = Bid("controller", NAMESPACE, identity, PLANNER_ELECTION, **options)
    return LeaderElector(api, clock, bid)


seconds = st.floats(0.0, 20.0)
candidates = st.integers(0, 2)
# What others do before and after each call of an attempt.
acts = st.lists(st.lists(st.one_of(seconds, candidates), max_size=3), max_size=4)


class Election(RuleBasedStateMachine):
    """Three candidates whose clocks' rates differ by less than lease over renew deadline (1.5)."""

    @initialize(rates=st.tuples(*[st.floats(0.82, 1.2)] * 3))
    def candidates_stand(self, rates: tuple[float, float, float]) -> None:
        self.truth = ManualClock()
        self.kube = EmbeddedKube(self.truth)
        self.apis = [Interleaved(self.kube) for _ in rates]
        self.clocks = [
            SkewedClock(self.truth, rate, i * 977 * NS_PER_SECOND) for i, rate in enumerate(rates)
        ]
        self.electors = [
            elector(api, clock, f"candidate-{i}")
            for i, (api, clock) in enumerate(zip(self.apis, self.clocks, strict=True))
        ]
        self.busy: set[int] = set()
        self.terms: dict[int, int] = {}
        self.highest = 0

    def _act(self, acts: Sequence[float | int]) -> None:
        for act in acts:
            if isinstance(act, float):
                self.truth.advance_seconds(act)
            elif act not in self.busy:
                self._attempt(act, ())
            self.never_two_leaders()

    def _attempt(self, who: int, during: Sequence[Sequence[float | int]]) -> None:
        self.busy.add(who)
        self.apis[who].before = [partial(self._act, acts) for acts in during]
        self.electors[who].attempt()
        self.apis[who].before = []
        self.busy.discard(who)

    @rule(who=candidates, during=acts, lose=st.booleans())
    def attempt(self, who: int, during: list[list[float | int]], lose: bool) -> None:
        self.apis[who].lose_next_answer = lose
        self._attempt(who, during)
        self.apis[who].lose_next_answer = False

    @rule(duration=seconds)
    def time_passes(self, duration: float) -> None:
        self.truth.advance_seconds(duration)

    @rule(who=candidates)
    def release(self, who: int) -> None:
        self.electors[who].release()
        assert not self.electors[who].is_leader()

    @rule(who=candidates, epoch=st.integers(0, 50))
    def raise_epoch(self, who: int, epoch: int) -> None:
        if self.electors[who].raise_epoch_above(epoch):
            assert self.electors[who].epoch() > epoch

    @invariant()
    def never_two_leaders(self) -> None:
        leading = [i for i, one in enumerate(self.electors) if one.is_leader()]
        assert len(leading) <= 1
        for who in leading:
            epoch = self.electors[who].epoch()
            assert self.terms.setdefault(epoch, who) == who, "an epoch belongs to one candidate"
            assert epoch >= self.highest, "an epoch never falls"
            self.highest = epoch


TestElection = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")(
    Election.TestCase
)
TestElection.settings = examples(
    60, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kube(clock: ManualClock) -> EmbeddedKube:
    return EmbeddedKube(clock)


def test_the_first_candidate_leads_with_epoch_one(kube: EmbeddedKube, clock: ManualClock) -> None:
    one = elector(kube, clock, "one")
    assert not one.is_leader()
    assert one.epoch() == 0
    assert one.attempt()
    assert one.epoch() == 1
    assert one.holder() == "one"


def test_the_epoch_strictly_rises_on_take_over(kube: EmbeddedKube, clock: ManualClock) -> None:
    one, two = elector(kube, clock, "one"), elector(kube, clock, "two")
    epochs = []
    for leader, other in ((one, two), (two, one), (one, two)):
        assert leader.attempt()
        epochs.append(leader.epoch())
        assert not other.attempt()
        clock.advance_seconds(16)
    assert epochs == sorted(set(epochs))


def test_a_leader_that_cannot_renew_stops_before_others_may_start(
    kube: EmbeddedKube, clock: ManualClock
) -> None:
    faulty = FaultyKube(kube, FaultRates())
    one, two = elector(faulty, clock, "one"), elector(kube, clock, "two")
    assert one.attempt()
    assert not two.attempt()
    faulty.is_down = True
    clock.advance_seconds(9)
    assert one.attempt(), "still inside the renew deadline"
    assert not one.renewed_within(5)
    clock.advance_seconds(2)
    assert not one.is_leader()
    assert not two.attempt(), "the lease has not run out"
    clock.advance_seconds(5)
    assert two.attempt()
    faulty.is_down = False
    assert not one.attempt()


def test_a_released_lease_is_taken_at_once(kube: EmbeddedKube, clock: ManualClock) -> None:
    one, two = elector(kube, clock, "one"), elector(kube, clock, "two")
    one.attempt()
    two.attempt()
    one.release()
    assert not one.is_leader()
    assert two.attempt()
    assert two.epoch() == 2


@pytest.mark.parametrize("written", [None, 1])
def test_a_shortened_duration_makes_no_second_leader(
    kube: EmbeddedKube, clock: ManualClock, written: int | None
) -> None:
    one, two = elector(kube, clock, "one"), elector(kube, clock, "two")
    assert one.attempt()
    lease = kube.get(LEASES, "controller", NAMESPACE)
    lease["spec"]["leaseDurationSeconds"] = written
    kube.replace(LEASES, lease, NAMESPACE)
    assert not two.attempt()
    clock.advance_seconds(2.0)
    assert one.is_leader()
    assert not two.attempt()


def test_a_write_in_between_ends_the_term(kube: EmbeddedKube, clock: ManualClock) -> None:
    api = Interleaved(kube)
    one = elector(api, clock, "one")
    one.attempt()

    def meddle() -> None:
        lease = kube.get(LEASES, "controller", NAMESPACE)
        lease["metadata"]["labels"] = {"touched": "1"}
        kube.replace(LEASES, lease, NAMESPACE)

    api.before = [lambda: None, meddle]
    assert not one.attempt()
    assert isinstance(one.last_error, ConflictError)
    assert one.attempt()
    assert one.epoch() == 2


def test_a_leader_moves_beyond_an_epoch_that_agents_report(
    kube: EmbeddedKube, clock: ManualClock
) -> None:
    one = elector(kube, clock, "one")
    assert not one.raise_epoch_above(3), "only a leader may"
    one.attempt()
    assert one.raise_epoch_above(41)
    assert one.epoch() == 42
    assert kube.get(LEASES, "controller", NAMESPACE)["spec"]["leaseTransitions"] == 42
    assert one.raise_epoch_above(7)
    assert one.epoch() == 42


@pytest.mark.parametrize("epoch", [-1, MAX_EPOCH, 2**63, True, 1.5, "7", None])
def test_an_epoch_that_no_lease_can_hold_is_refused(
    kube: EmbeddedKube, clock: ManualClock, epoch: Any
) -> None:
    with pytest.raises(InputError):
        elector(kube, clock, "one").raise_epoch_above(epoch)


def test_a_deleted_lease_is_not_taken_by_others_at_once(
    kube: EmbeddedKube, clock: ManualClock
) -> None:
    one, two = elector(kube, clock, "one"), elector(kube, clock, "two")
    one.attempt()
    two.attempt()
    kube.delete(LEASES, "controller", NAMESPACE)
    assert not two.attempt()
    assert one.is_leader()
    clock.advance_seconds(16)
    assert two.attempt()
    assert two.epoch() == 2


def test_an_answer_that_comes_too_late_makes_no_leader(
    kube: EmbeddedKube, clock: ManualClock
) -> None:
    api = Interleaved(kube)
    one, two = elector(api, clock, "one"), elector(kube, clock, "two")

    def meanwhile() -> None:
        assert not two.attempt()
        clock.advance_seconds(16)
        assert two.attempt()

    assert one.attempt()
    api.before = [lambda: None, lambda: None, lambda: None, meanwhile]
    assert not one.attempt()
    assert two.is_leader()


def test_a_lost_answer_is_not_counted_as_a_renewal(kube: EmbeddedKube, clock: ManualClock) -> None:
    api = Interleaved(kube)
    one = elector(api, clock, "one")
    one.attempt()
    clock.advance_seconds(9)
    api.lose_next_answer = True
    one.attempt()
    clock.advance_seconds(2)
    assert not one.is_leader()
    assert one.attempt()
    assert one.epoch() == 2


@pytest.mark.parametrize("durations", [(15, 15, 2), (15, 10, 10), (15, 10, 0), (5, 10, 2)])
def test_durations_that_could_make_two_leaders_are_refused(
    durations: tuple[int, float, float],
) -> None:
    with pytest.raises(InputError):
        ElectionSettings(*durations)


def test_a_thread_takes_and_releases_the_lease() -> None:
    clock = SystemClock()
    kube = EmbeddedKube(clock)
    one = elector(kube, clock, "one")
    one.start()
    one.stop()
    assert not one.is_leader()
    assert kube.get(LEASES, "controller", NAMESPACE)["spec"]["holderIdentity"] == ""


def test_a_thread_that_breaks_says_so_and_its_term_runs_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ManualClock):
        def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
            raise RuntimeError("no time left")

    clock = Broken()
    one = elector(EmbeddedKube(clock), clock, "one")
    one.start()
    one.join()
    assert isinstance(one.failure, RuntimeError)
    assert "election for controller ends" in caplog.text
    assert one.is_leader()
    clock.advance_seconds(10)
    assert not one.is_leader()


class Over(Exception):
    """The thread has done what the test wanted."""


class UntilWon(ManualClock):
    """Jumps from wait to wait in the candidate's thread, and ends it once it has won."""

    won_ns = -1

    def won(self) -> None:
        self.won_ns = self.monotonic_ns()

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        if self.won_ns >= 0:
            raise Over
        return super().wait_until(deadline_ns, wake)


@pytest.mark.parametrize("seed", range(10))
def test_a_standby_takes_the_lease_when_it_expires_and_not_a_look_later(seed: int) -> None:
    clock = UntilWon()
    kube = EmbeddedKube(clock)
    assert elector(kube, clock, "leader").attempt()
    written_ns = clock.monotonic_ns()
    # It looks for the first time while the Lease is seven tenths of a second old, and then no more.
    clock.advance_seconds(0.7)
    standby = elector(kube, clock, "standby", seed=seed, won=clock.won)
    standby.start()
    standby.join()
    assert isinstance(standby.failure, Over)
    lease_ns = PLANNER_ELECTION.lease_seconds * NS_PER_SECOND
    assert clock.won_ns == written_ns + lease_ns + round(0.7 * NS_PER_SECOND)


def test_a_term_is_told_once_at_its_beginning() -> None:
    clock = ManualClock()
    told: list[str] = []
    one = elector(EmbeddedKube(clock), clock, "one", won=lambda: told.append("won"))
    for _ in range(3):
        one.attempt()
    assert told == ["won"]
    one.release()
    one.attempt()
    assert told == ["won", "won"]
