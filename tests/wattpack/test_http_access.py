"""Who may read over HTTP: hosts, tokens and rights, judged by the embedded API's book."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.http_access import (
    LIVE_VIEW,
    MAX_NEW_NAMESPACES,
    METRICS,
    RIGHTS,
    TOKENS,
    Caller,
    HttpAccess,
    HttpRefusal,
    NotAllowedError,
    ReviewsUnavailableError,
    UnauthenticatedError,
    UnknownHostError,
    pods_in,
)
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import Access, ForbiddenError, TokenIdentity

READER = TokenIdentity("system:serviceaccount:monitoring:prometheus", ("system:authenticated",))


class CountingKube(EmbeddedKube):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.reviewed_tokens = self.reviewed_rights = 0

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        self.reviewed_tokens += 1
        return super().review_token(token, audiences)

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        self.reviewed_rights += 1
        return super().review_access(identity, access)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kube(clock: ManualClock) -> CountingKube:
    kube = CountingKube(clock)
    kube.register_token("reader", READER)
    kube.allow(READER.username, METRICS)
    return kube


def access_of(kube: EmbeddedKube, clock: ManualClock) -> HttpAccess:
    return HttpAccess(["wattpack.example", "*.pods.example"], kube, clock)


def ask(access: HttpAccess, token: str = "reader", what: Access = METRICS) -> Caller:
    return access.admit(["wattpack.example"], [f"Bearer {token}"], what)


@pytest.mark.parametrize(
    "host",
    [
        "wattpack.example", "WATTPACK.example:8081", "wattpack.example.", "a.pods.example",
        "a.b.pods.example:1", "10.1.2.3:8081", "[fd00::1]:8081", "localhost:80", "127.0.0.1",
    ],
)  # fmt: skip
def test_our_names_and_plain_addresses_are_hosts(
    kube: CountingKube, clock: ManualClock, host: str
) -> None:
    caller = access_of(kube, clock).admit([host], ["Bearer reader"], METRICS)
    assert caller.identity == READER


@pytest.mark.parametrize(
    "hosts",
    [
        ["evil.example"], ["pods.example"], ["xpods.example"], ["wattpack.example.evil.example"],
        [""], [], ["wattpack.example", "wattpack.example"], ["user@wattpack.example"],
        ["wattpack.example/x"], ["1.2.3.4.evil.example"], ["wattpack.example:99999999"],
        ["localhost.evil.example"], ["[evil]"], ["wattpack.example evil"], ["\x00"],
    ],
)  # fmt: skip
def test_any_other_host_is_refused_also_where_nobody_is_asked(
    kube: CountingKube, clock: ManualClock, hosts: list[str]
) -> None:
    for access in (access_of(kube, clock), HttpAccess.insecure(["wattpack.example"], clock)):
        with pytest.raises(UnknownHostError) as refusal:
            access.admit(hosts, ["Bearer reader"], METRICS)
        assert refusal.value.status == 403
    assert kube.reviewed_tokens == 0


@pytest.mark.parametrize(
    "headers",
    [
        [], ["reader"], ["Bearer"], ["Bearer "], ["Basic reader"], ["Bearer reader"] * 2,
        ["Bearer unknown"], ["Bearer rea der"], ["Bearer r\x00"], ["Bearer ü"],
        ["Bearer " + "x" * 20_000],
    ],
)  # fmt: skip
def test_without_one_good_token_nobody_is_known(
    kube: CountingKube, clock: ManualClock, headers: list[str]
) -> None:
    with pytest.raises(UnauthenticatedError) as refusal:
        access_of(kube, clock).admit(["localhost"], headers, METRICS)
    assert refusal.value.status == 401
    assert "WWW-Authenticate" in refusal.value.headers
    assert kube.reviewed_rights == 0


def test_a_known_caller_without_the_right_is_told_which(
    kube: CountingKube, clock: ManualClock
) -> None:
    with pytest.raises(NotAllowedError, match=r"prometheus may not get /v1/live") as refusal:
        ask(access_of(kube, clock), what=LIVE_VIEW)
    assert refusal.value.status == 403


def test_a_silent_api_server_shows_nothing_to_anybody(
    kube: CountingKube, clock: ManualClock
) -> None:
    faulty = FaultyKube(kube, FaultRates())
    access = HttpAccess(["wattpack.example"], faulty, clock)
    faulty.is_down = True
    with pytest.raises(ReviewsUnavailableError) as refusal:
        ask(access)
    assert refusal.value.status == 503
    faulty.is_down = False
    caller = ask(access)
    faulty.is_down = True
    with pytest.raises(ReviewsUnavailableError):
        access.allows(caller, LIVE_VIEW)
    assert access.refused() == {"ReviewsUnavailableError": 1}


def test_our_own_missing_right_to_ask_is_not_the_callers_fault(clock: ManualClock) -> None:
    class Unprivileged(CountingKube):
        def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
            raise ForbiddenError("tokenreviews is forbidden")

    with pytest.raises(ReviewsUnavailableError):
        ask(access_of(Unprivileged(clock), clock))


def test_answers_are_kept_as_long_as_the_kubelet_keeps_them_and_no_longer(
    kube: CountingKube, clock: ManualClock
) -> None:
    access = access_of(kube, clock)
    for _ in range(100):
        ask(access)
    assert (kube.reviewed_tokens, kube.reviewed_rights) == (1, 1)
    clock.advance_to(TOKENS.answer_ns)
    ask(access)
    assert (kube.reviewed_tokens, kube.reviewed_rights) == (2, 1)
    clock.advance_to(RIGHTS.answer_ns)
    kube.forbid(READER.username, METRICS)
    with pytest.raises(NotAllowedError):
        ask(access)


def test_a_right_that_was_given_is_seen_within_half_a_minute(
    kube: CountingKube, clock: ManualClock
) -> None:
    access = access_of(kube, clock)
    for _ in range(10):
        with pytest.raises(NotAllowedError):
            ask(access, what=LIVE_VIEW)
    assert kube.reviewed_rights == 1
    kube.allow("system:authenticated", LIVE_VIEW)
    clock.advance_to(RIGHTS.refusal_ns)
    assert ask(access, what=LIVE_VIEW).identity == READER


def test_garbage_does_not_displace_those_who_are_known(
    kube: CountingKube, clock: ManualClock
) -> None:
    access = access_of(kube, clock)
    ask(access)
    for number in range(TOKENS.most + 10):
        with pytest.raises(UnauthenticatedError):
            ask(access, token=f"garbage-{number}")
    before = kube.reviewed_tokens
    ask(access)
    assert kube.reviewed_tokens == before


def test_two_tokens_with_one_name_and_other_groups_are_not_mixed_up(
    kube: CountingKube, clock: ManualClock
) -> None:
    kube.register_token("admin", TokenIdentity("ann", ("admins",)))
    kube.register_token("scoped", TokenIdentity("ann", ()))
    kube.allow("admins", LIVE_VIEW)
    access = access_of(kube, clock)
    ask(access, "admin", LIVE_VIEW)
    with pytest.raises(NotAllowedError):
        ask(access, "scoped", LIVE_VIEW)


def test_pods_are_named_only_where_the_caller_may_list_them(
    kube: CountingKube, clock: ManualClock
) -> None:
    access = access_of(kube, clock)
    caller = ask(access)
    kube.allow(READER.username, pods_in("team-a"))
    assert access.visible_namespaces(caller, {"team-a", "team-b"}) == {"team-a"}
    kube.allow(READER.username, pods_in(""))
    clock.advance_to(RIGHTS.refusal_ns)
    assert access.visible_namespaces(caller, {"team-a", "team-b"}) == {"team-a", "team-b"}


def test_thousands_of_namespaces_are_asked_for_a_few_at_a_time(
    kube: CountingKube, clock: ManualClock
) -> None:
    names = [f"team-{number:03}" for number in range(3 * MAX_NEW_NAMESPACES)]
    for name in names:
        kube.allow(READER.username, pods_in(name))
    access = access_of(kube, clock)
    caller = ask(access)
    sizes = [len(access.visible_namespaces(caller, names)) for _ in range(3)]
    assert sizes == [MAX_NEW_NAMESPACES, 2 * MAX_NEW_NAMESPACES, 3 * MAX_NEW_NAMESPACES]


def test_insecure_admits_everybody(clock: ManualClock) -> None:
    access = HttpAccess.insecure(["wattpack.example"], clock)
    caller = access.admit(["wattpack.example"], [], LIVE_VIEW)
    assert caller == Caller(None)
    assert access.visible_namespaces(caller, {"a"}) == {"a"}


def test_a_caller_without_a_name_has_no_right_where_people_are_asked(
    kube: CountingKube, clock: ManualClock
) -> None:
    assert not access_of(kube, clock).allows(Caller(None), METRICS)


@pytest.mark.parametrize("name", ["a:80", "", "a/b", "*", "*.", "*.*.a", "a b", "http://a"])
def test_a_name_that_no_request_can_carry_is_refused_at_the_start(
    clock: ManualClock, name: str
) -> None:
    with pytest.raises(InputError, match="http hosts"):
        HttpAccess([name], None, clock)


def test_who_asks_at_the_same_time_shares_one_question(clock: ManualClock) -> None:
    asked, go = threading.Semaphore(0), threading.Event()

    class SlowKube(CountingKube):
        def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
            asked.release()
            assert go.wait(10.0)
            return super().review_token(token, audiences)

    kube = SlowKube(clock)
    kube.register_token("reader", READER)
    kube.allow(READER.username, METRICS)
    access = access_of(kube, clock)
    callers: list[Caller | HttpRefusal] = []

    def run() -> None:
        callers.append(ask(access))

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert asked.acquire(timeout=10.0)
    go.set()
    for thread in threads:
        thread.join(10.0)
    assert callers == [Caller(READER)] * 20
    assert kube.reviewed_tokens == 1
