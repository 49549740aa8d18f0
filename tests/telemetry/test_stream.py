"""The stream to the controllers over real gRPC on loopback."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from telemetry.stream.controller_link import LONGEST_NS, Backoff
from telemetry.stream.grpc_link import Endpoint, GrpcLink, GrpcLoop
from tests.telemetry.stub_controller import StubController
from tests.telemetry.telemetry_builders import SECOND
from wattpack.clock import SystemClock, Wake
from wattpack.errors import InputError
from wattpack.wire.certificates import new_authority, new_server
from wattpack.wire.v1 import power_pb2


class CountingClock(SystemClock):
    """Counts the book-keeping of messages."""

    def __init__(self) -> None:
        self.sent = 0
        self.handled = 0

    def message_sent(self, count: int = 1) -> None:
        self.sent += count

    def message_handled(self, count: int = 1) -> None:
        self.handled += count


class Rig:
    """Links and controllers that end with the test."""

    def __init__(self) -> None:
        self.clock = CountingClock()
        self.wake: Wake = self.clock.new_wake()
        self.loop = GrpcLoop()
        self.links: list[GrpcLink] = []
        self.controllers: list[StubController] = []

    def controller(self, stub: StubController) -> StubController:
        self.controllers.append(stub)
        stub.start()
        return stub

    def link(self, endpoint: Endpoint) -> GrpcLink:
        link = GrpcLink(self.loop, endpoint, self.clock, self.wake, random.Random(1))
        self.links.append(link)
        return link

    def wait(self, condition: Callable[[], bool], tick: Callable[[], None] | None = None) -> None:
        """Wait until the condition holds; ``tick`` is what an agent does each round."""
        deadline_ns = self.clock.monotonic_ns() + 30 * SECOND
        while not condition():
            assert self.clock.monotonic_ns() < deadline_ns, "the condition never held"
            if tick is not None:
                tick()
            self.clock.wait_until(self.clock.monotonic_ns() + SECOND // 50, self.wake)

    def open(self, link: GrpcLink) -> None:
        self.wait(lambda: link.connected, lambda: keep_open(self, link))


def keep_open(rig: Rig, link: GrpcLink) -> None:
    link.keep_open(rig.clock.monotonic_ns(), lambda: power_pb2.Hello(versions=[1], node="n0"))


@pytest.fixture
def rig() -> Iterator[Rig]:
    value = Rig()
    yield value
    for link in value.links:
        link.close()
    value.loop.close()
    for controller in value.controllers:
        controller.stop()


def echo(report: power_pb2.NodeReport) -> power_pb2.LeaseBatch:
    return power_pb2.LeaseBatch(epoch=1, sequence=report.sequence, nonce=report.nonce, ttl_ms=5000)


def test_a_stream_that_is_opened_again_says_hello_anew(rig: Rig) -> None:
    stub = rig.controller(StubController())
    link = rig.link(Endpoint(stub.target))
    rig.open(link)
    hellos = stub.hellos.qsize()
    link.reopen()
    rig.wait(lambda: not link.connected)
    rig.open(link)
    assert stub.hellos.qsize() == hellos + 1
    assert link.failures == 0


def test_a_connection_that_nobody_accepts_is_given_up(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        target = f"127.0.0.1:{deaf.getsockname()[1]}"
        link = rig.link(Endpoint(target, opening_seconds=0.2))
        rig.wait(lambda: link.failures >= 2, lambda: keep_open(rig, link))


def test_a_controller_that_takes_the_hello_and_says_nothing_loses_the_stream(rig: Rig) -> None:
    controller = rig.controller(StubController())
    controller.mute = True
    link = rig.link(Endpoint(controller.target, opening_seconds=0.2))
    rig.wait(lambda: link.failures >= 2, lambda: keep_open(rig, link))
    assert not link.connected
    controller.mute = False
    rig.open(link)


def test_a_stream_that_is_given_up_takes_no_other_one_with_it(rig: Rig) -> None:
    controller = rig.controller(StubController())
    lasting, lost = (rig.link(Endpoint(controller.target, opening_seconds=0.2)) for _ in range(2))
    rig.open(lasting)
    controller.mute = True
    rig.wait(lambda: lost.failures >= 2, lambda: keep_open(rig, lost))
    gc.collect()
    lasting.send(power_pb2.NodeReport(node="n0"))
    assert controller.reports.get(timeout=10).node == "n0"
    assert lasting.connected


def test_a_stream_that_was_welcomed_may_be_quiet_for_as_long_as_it_likes(rig: Rig) -> None:
    controller = rig.controller(StubController())
    link = rig.link(Endpoint(controller.target, opening_seconds=0.2))
    rig.open(link)
    late_ns = rig.clock.monotonic_ns() + SECOND // 2
    rig.wait(lambda: rig.clock.monotonic_ns() > late_ns)
    assert link.connected
    assert link.failures == 0


def test_reports_go_out_and_batches_come_back(rig: Rig) -> None:
    stub = rig.controller(StubController(answer=echo, period_ms=500))
    link = rig.link(Endpoint(stub.target))
    assert not link.connected
    link.send(power_pb2.NodeReport(node="lost"))  # before the Welcome: nobody to send it to
    rig.open(link)
    assert stub.hellos.get(timeout=30).node == "n0"
    assert link.report_period_ns == SECOND // 2
    link.send(power_pb2.NodeReport(node="n0", sequence=1, nonce=77))
    assert stub.reports.get(timeout=30).sequence == 1
    taken: list[power_pb2.LeaseBatch] = []
    rig.wait(lambda: bool(taken), lambda: taken.extend(link.take()))
    assert taken[0].nonce == 77
    assert rig.clock.sent == 2  # hello and one report
    assert rig.clock.handled == 1  # the Welcome; batches are the owner's to count


def test_an_agent_streams_to_every_replica(rig: Rig) -> None:
    stubs = [rig.controller(StubController()) for _ in range(2)]
    links = [rig.link(Endpoint(stub.target)) for stub in stubs]
    for link in links:
        rig.open(link)
        link.send(power_pb2.NodeReport(node="n0", sequence=5))
    assert [stub.reports.get(timeout=30).sequence for stub in stubs] == [5, 5]


def test_a_link_reconnects_after_its_controller_came_back(rig: Rig) -> None:
    stub = rig.controller(StubController())
    link = rig.link(Endpoint(stub.target))
    rig.open(link)
    stub.stop()
    rig.wait(lambda: not link.connected)
    again = StubController()
    rig.controllers.append(again)
    again.start(target=stub.target)
    rig.open(link)
    assert again.hellos.get(timeout=30).node == "n0"


def test_batches_of_an_ended_stream_are_forgotten(rig: Rig) -> None:
    stub = rig.controller(StubController(answer=echo))
    link = rig.link(Endpoint(stub.target))
    rig.open(link)
    link.send(power_pb2.NodeReport(node="n0", sequence=1, nonce=3))
    rig.wait(lambda: bool(link._inbox))
    stub.stop()
    rig.wait(lambda: not link._running)
    assert link.take() == []
    assert rig.clock.handled == 2  # the Welcome and the batch that nobody may apply


def test_tls_trusts_the_own_ca_only_and_carries_the_token(rig: Rig, tmp_path: Path) -> None:
    clock = SystemClock()
    authority = new_authority("wattpack test", clock.wall_time_ns())
    other = new_authority("somebody else", clock.wall_time_ns())
    stub = StubController()
    rig.controllers.append(stub)
    stub.start(new_server(authority, ["127.0.0.1"], clock.wall_time_ns()))
    (tmp_path / "ca.crt").write_bytes(authority.certificate_pem)
    (tmp_path / "other.crt").write_bytes(other.certificate_pem)
    (tmp_path / "token").write_text("secret-1\n")
    good = rig.link(Endpoint(stub.target, tmp_path / "ca.crt", tmp_path / "token"))
    rig.open(good)
    assert stub.tokens == ["Bearer secret-1"]
    bad = rig.link(Endpoint(stub.target, tmp_path / "other.crt", tmp_path / "token"))
    rig.wait(lambda: bad.failures > 0, lambda: keep_open(rig, bad))
    assert len(stub.tokens) == 1


def test_an_authority_that_comes_late_is_read_when_it_is_there(rig: Rig, tmp_path: Path) -> None:
    clock = SystemClock()
    authority = new_authority("wattpack test", clock.wall_time_ns())
    stub = StubController()
    rig.controllers.append(stub)
    stub.start(new_server(authority, ["127.0.0.1"], clock.wall_time_ns()))
    (tmp_path / "token").write_text("t")
    link = rig.link(Endpoint(stub.target, tmp_path / "ca.crt", tmp_path / "token"))
    for content in (None, b"", new_authority("older", clock.wall_time_ns()).certificate_pem):
        if content is not None:
            (tmp_path / "ca.crt").write_bytes(content)
        before = link.failures
        rig.wait(lambda before=before: link.failures > before, lambda: keep_open(rig, link))  # type: ignore[misc]
    (tmp_path / "ca.crt").write_bytes(authority.certificate_pem)
    rig.open(link)
    assert stub.tokens == ["Bearer t"]


def test_a_rotated_token_is_used_for_the_next_stream(rig: Rig, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    stub = rig.controller(StubController())
    stub.refuse = grpc.StatusCode.UNAUTHENTICATED
    link = rig.link(Endpoint(stub.target, None, token))
    rig.wait(lambda: link.failures > 0, lambda: keep_open(rig, link))
    token.write_text("second")
    stub.refuse = None
    rig.open(link)
    assert stub.tokens[-1] == "Bearer second"


@pytest.mark.parametrize("content", [None, "", "  \n", "\x00ÿ"])
def test_a_missing_or_empty_token_is_no_stream(
    rig: Rig, tmp_path: Path, content: str | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    stub = rig.controller(StubController())
    link = rig.link(Endpoint(stub.target, None, token))
    rig.wait(lambda: link.failures > 0, lambda: keep_open(rig, link))
    assert stub.tokens == []
    assert not link.connected


def test_an_unknown_version_is_refused(rig: Rig) -> None:
    stub = rig.controller(StubController(version=99))
    link = rig.link(Endpoint(stub.target))
    rig.wait(lambda: link.failures > 0, lambda: keep_open(rig, link))
    assert not link.connected


def test_leases_before_the_welcome_are_refused(rig: Rig) -> None:
    stub = StubController()
    stub.welcome_first = False
    rig.controller(stub)
    link = rig.link(Endpoint(stub.target))
    rig.wait(lambda: link.failures > 0, lambda: keep_open(rig, link))
    assert link.take() == []


def test_nobody_at_the_address_is_a_failure_and_not_a_hang(rig: Rig) -> None:
    link = rig.link(Endpoint("127.0.0.1:1"))
    rig.wait(lambda: link.failures > 0, lambda: keep_open(rig, link))
    assert rig.clock.sent == 0


def test_a_report_that_nobody_acknowledges_ends_the_connection_within_15_s(rig: Rig) -> None:
    stub = rig.controller(StubController())
    rig.open(rig.link(Endpoint(stub.target)))
    timeouts_ms = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own descriptor, and unconnected ones
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            end = socket.socket(fileno=os.dup(descriptor))
            with end:
                is_tcp = end.family in (socket.AF_INET, socket.AF_INET6)
                if is_tcp and end.getpeername()[1] == int(stub.target.split(":")[1]):
                    value = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                    timeouts_ms.append(value)
    assert timeouts_ms == [15_000]


@pytest.mark.parametrize(("asked_ms", "period_ms"), [(1, 100), (1000, 1000), (10**9, 10_000)])
def test_the_controllers_period_is_kept_within_reason(
    rig: Rig, asked_ms: int, period_ms: int
) -> None:
    stub = rig.controller(StubController(period_ms=asked_ms))
    link = rig.link(Endpoint(stub.target))
    rig.open(link)
    assert link.report_period_ns == period_ms * 1_000_000


@pytest.mark.parametrize("target", ["", "host", "host:", ":1", "host:port", "10.0.0.1:8443"])
def test_a_wrong_address_or_plain_text_off_loopback_is_refused(target: str) -> None:
    with pytest.raises(InputError):
        Endpoint(target)


def test_back_off_doubles_with_jitter_and_starts_over_after_a_success() -> None:
    backoff = Backoff(random.Random(1))
    delays = [backoff.next_delay_ns() for _ in range(12)]
    assert SECOND // 8 <= delays[0] <= SECOND // 4
    assert all(LONGEST_NS // 2 <= delay <= LONGEST_NS for delay in delays[6:])
    assert len(set(delays)) == 12
    backoff.reset()
    assert backoff.next_delay_ns() <= SECOND // 4


def test_reports_sent_together_leave_at_the_end(rig: Rig) -> None:
    stub = rig.controller(StubController())
    link = rig.link(Endpoint(stub.target))
    rig.open(link)
    reached = threading.Event()
    with rig.loop.together():
        link.send(power_pb2.NodeReport(node="n0", sequence=1))
        rig.loop.call(reached.set)
        assert reached.wait(30.0)
        assert stub.reports.empty()
        assert rig.clock.handled == 1  # the welcome
    assert stub.reports.get(timeout=30).sequence == 1
    link.send(power_pb2.NodeReport(node="n0", sequence=2))
    assert stub.reports.get(timeout=30).sequence == 2
