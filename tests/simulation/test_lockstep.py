"""Simulated time moves only when everybody waits; threads, wakes, processes, deaths, stalls."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from simulation.lockstep import (
    Conductor,
    LockstepClock,
    LockstepEndedError,
    LockstepStalledError,
    Pace,
    connect,
)
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

SECOND = NS_PER_SECOND
JOIN = 30.0
Body = Callable[[], None]


@contextmanager
def conducting(conductor: Conductor) -> Iterator[Conductor]:
    problems: list[Exception] = []

    def run() -> None:
        try:
            conductor.run()
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield conductor
    finally:
        conductor.stop()
        thread.join(JOIN)
        assert not thread.is_alive()
    if problems:
        raise problems[0]


def start(target: Body) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def joined(clock: LockstepClock, begin: threading.Barrier, body: Callable[[], None]) -> Body:
    """The body in a thread that holds time before anybody begins: who is late misses nothing."""

    def whole() -> None:
        clock.join()
        begin.wait(JOIN)
        body()

    return whole


def finish(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(JOIN)
        assert not thread.is_alive()


def test_two_loops_of_one_process_meet_at_each_common_time() -> None:
    seen: list[tuple[int, str]] = []
    with conducting(Conductor()) as conductor:
        clock = conductor.clock("both")

        def loop(name: str, period_ns: int, count: int) -> None:
            for i in range(1, count + 1):
                clock.wait_until(i * period_ns)
                seen.append((clock.monotonic_ns(), name))
            clock.leave()

        begin = threading.Barrier(3)
        loops = partial(loop, "slow", 3 * SECOND, 4), partial(loop, "fast", SECOND, 12)
        threads = [start(joined(clock, begin, body)) for body in loops]
        begin.wait(JOIN)
        clock.ready()
        finish(*threads)
        clock.close()
    times = [t for t, _ in seen]
    assert times == sorted(times)
    assert [t // SECOND for t, name in seen if name == "slow"] == [3, 6, 9, 12]
    assert [t // SECOND for t, name in seen if name == "fast"] == list(range(1, 13))


def test_time_stands_while_one_participant_works() -> None:
    with conducting(Conductor()) as conductor:
        clock = conductor.clock("p")
        release = threading.Event()
        passed = threading.Event()

        def worker() -> None:
            release.wait(JOIN)
            clock.wait_until(10 * SECOND)

        def waiter() -> None:
            clock.wait_until(5 * SECOND)
            passed.set()

        clock.join()  # this thread runs: nothing may move
        begin = threading.Barrier(3)
        threads = [start(joined(clock, begin, body)) for body in (worker, waiter)]
        begin.wait(JOIN)
        clock.ready()
        assert not passed.wait(0.05)
        assert clock.monotonic_ns() == 0
        release.set()
        clock.leave()
        finish(*threads)
        assert clock.monotonic_ns() == 10 * SECOND
        clock.close()


def test_a_wake_ends_a_wait_without_moving_time() -> None:
    with conducting(Conductor()) as conductor:
        clock = conductor.clock("p")
        wake = clock.new_wake()
        result: list[tuple[bool, int]] = []

        def waiter() -> None:
            result.append((clock.wait_until(10 * SECOND, wake), clock.monotonic_ns()))
            result.append((clock.wait_until(20 * SECOND, wake), clock.monotonic_ns()))

        def waker() -> None:
            clock.wait_until(4 * SECOND)
            wake.set()
            clock.leave()

        clock.join()
        begin = threading.Barrier(3)
        threads = [start(joined(clock, begin, body)) for body in (waiter, waker)]
        begin.wait(JOIN)
        clock.ready()
        clock.wait_until(1 * SECOND)
        clock.leave()
        finish(*threads)
        clock.close()
    assert result == [(True, 4 * SECOND), (False, 20 * SECOND)]


def test_who_was_woken_holds_time_from_the_moment_of_the_wake() -> None:
    with conducting(Conductor()) as conductor:
        clock = conductor.clock("p")
        wake, release, passed = clock.new_wake(), threading.Event(), threading.Event()

        def woken() -> None:
            clock.wait_until(10 * SECOND, wake)
            release.wait(JOIN)
            clock.leave()

        def other() -> None:
            clock.wait_until(5 * SECOND)
            passed.set()
            clock.leave()

        clock.join()
        begin = threading.Barrier(3)
        threads = [start(joined(clock, begin, body)) for body in (woken, other)]
        begin.wait(JOIN)
        clock.ready()
        clock.wait_until(SECOND)  # both wait by now
        wake.set()
        clock.leave()
        assert not passed.wait(0.05)
        assert clock.monotonic_ns() == SECOND
        release.set()
        finish(*threads)
        assert clock.monotonic_ns() == 5 * SECOND
        clock.close()


def test_a_wake_that_was_set_before_is_not_lost() -> None:
    with conducting(Conductor()) as conductor:
        clock = conductor.clock("p")
        wake = clock.new_wake()
        wake.set()
        assert clock.wait_until(SECOND, wake) is True
        assert clock.monotonic_ns() == 0
        clock.close()


def test_a_message_under_way_holds_time_until_it_is_handled() -> None:
    with conducting(Conductor(processes=2)) as conductor:
        sender, receiver = conductor.clock("sender"), conductor.clock("receiver")
        sender.ready()
        receiver.ready()
        sender.message_sent()
        thread = start(lambda: sender.wait_until(SECOND) and None)
        thread.join(0.05)
        assert sender.monotonic_ns() == 0
        receiver.message_handled()
        finish(thread)
        assert sender.monotonic_ns() == SECOND
        sender.close()
        receiver.close()


@pytest.mark.parametrize("joins", [True, False])
def test_a_message_between_threads_of_a_clock_on_its_own_holds_time(joins: bool) -> None:
    with conducting(Conductor()) as conductor:
        clock = conductor.clock("alone", alone=True)
        if joins:
            clock.join()
        clock.message_sent(2)
        clock.message_sent()
        clock.ready()
        clock.leave()
        thread = start(lambda: clock.wait_until(SECOND) and None)
        for handled in (1, 2):
            thread.join(0.05)
            assert clock.monotonic_ns() == 0
            clock.message_handled(handled)
        finish(thread)
        assert clock.monotonic_ns() == SECOND
        clock.close()


def test_a_stall_of_a_clock_on_its_own_counts_the_messages() -> None:
    conductor = Conductor(pace=Pace(stall_seconds=0.05))
    clock = conductor.clock("planner", alone=True)
    clock.message_sent(2)
    clock.ready()
    waiting = start_waiting(clock)
    with pytest.raises(LockstepStalledError, match="2 messages under way"):
        conductor.run()
    finish(waiting)
    clock.close()


def test_speed_is_a_ceiling() -> None:
    wall = ManualClock()
    conductor = Conductor(pace=Pace(30.0, wall=wall))
    conductor._joined = 1
    conductor._earliest = lambda: 3 * SECOND  # type: ignore[method-assign]
    timeout, target = conductor._judge(moved_ns=0, heard_ns=0)
    assert timeout == pytest.approx(0.1)
    assert target == 3 * SECOND
    wall.advance_seconds(0.1)
    assert conductor._judge(moved_ns=0, heard_ns=0) == (None, 3 * SECOND)
    conductor._close()


def test_the_plant_moves_before_anybody_sees_the_new_time() -> None:
    calls: list[tuple[int, int]] = []
    conductor = Conductor(before_release=lambda now_ns: calls.append((now_ns, conductor.now_ns)))
    with conducting(conductor):
        clock = conductor.clock("p")
        clock.ready()
        clock.wait_until(2 * SECOND)
        clock.wait_until(3 * SECOND)
        clock.close()
    assert calls == [(2 * SECOND, 0), (3 * SECOND, 2 * SECOND)]


def test_a_stall_names_who_holds_time_and_the_messages() -> None:
    conductor = Conductor(pace=Pace(stall_seconds=0.05))
    clock = conductor.clock("planner")
    clock.join()
    clock.message_sent(2)
    clock.ready()
    waiting = start_waiting(clock)
    with pytest.raises(LockstepStalledError) as problem:
        conductor.run()
    finish(waiting)
    with pytest.raises(LockstepEndedError):
        clock.wait_until(9 * SECOND)
    clock.close()
    assert "planner/MainThread (runs)" in str(problem.value)
    assert "2 messages under way" in str(problem.value)
    assert "planner sent 2 handled 0" in str(problem.value)


def start_waiting(clock: LockstepClock) -> threading.Thread:
    def body() -> None:
        with pytest.raises(LockstepEndedError):
            clock.wait_until(9 * SECOND)

    return start(body)


def test_garbage_on_the_socket_ends_only_that_connection(tmp_path: Path) -> None:
    with conducting(Conductor(tmp_path, processes=2)):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(tmp_path / "conductor.sock"))
            rude.sendall(b"wait 1 nonsense 3\n\xff\xfe\n")
            assert rude.recv(10) == b""
        clock = connect(tmp_path, "polite")
        clock.ready()
        clock.wait_until(SECOND)
        assert clock.monotonic_ns() == SECOND
        clock.close()


def test_no_conductor_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LockstepEndedError, match="no conductor"):
        connect(tmp_path, "early")


def _echo(directory: str, link: Connection, die_after: int) -> None:
    """A process that answers each message, and may be killed half-way."""
    clock = connect(Path(directory), "echo")
    wake = clock.new_wake()
    count = 0

    def receive() -> None:
        nonlocal count
        with suppress(EOFError):
            while True:
                data = link.recv_bytes()
                count += 1
                if count == die_after:
                    os._exit(1)
                clock.message_sent()
                link.send_bytes(data)
                wake.set()
                clock.message_handled()

    threading.Thread(target=receive, daemon=True).start()
    clock.join()
    clock.ready()
    with suppress(LockstepEndedError):
        for i in range(1, 1000):
            clock.wait_until(i * 10 * SECOND, wake)


def _talk(tmp_path: Path, die_after: int) -> list[tuple[int, int]]:
    """Times at which we sent and at which the answer came, over two real processes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    exchanged: list[tuple[int, int]] = []
    with conducting(Conductor(tmp_path, processes=2)):
        clock = connect(tmp_path, "talker")
        echo = context.Process(target=_echo, args=(str(tmp_path), theirs, die_after), daemon=True)
        echo.start()
        theirs.close()
        sent_at: list[int] = []

        def receive() -> None:
            with suppress(EOFError, OSError):
                while ours.recv_bytes():
                    exchanged.append((sent_at[-1], clock.monotonic_ns()))
                    clock.message_handled()

        receiver = start(receive)
        clock.join()
        clock.ready()
        for i in range(1, 51):
            clock.wait_until(i * SECOND)
            sent_at.append(clock.monotonic_ns())
            clock.message_sent()
            try:
                ours.send_bytes(b"m")
            except BrokenPipeError:
                clock.message_handled()
        clock.wait_until(60 * SECOND)
        assert clock.monotonic_ns() == 60 * SECOND
        clock.close()
        echo.join(JOIN)
        assert not echo.is_alive()
        finish(receiver)
        ours.close()
    return exchanged


def test_messages_between_two_processes_arrive_at_the_time_they_were_sent(tmp_path: Path) -> None:
    exchanged = _talk(tmp_path, die_after=-1)
    assert exchanged == [(i * SECOND, i * SECOND) for i in range(1, 51)]


def test_a_killed_process_does_not_hold_time(tmp_path: Path) -> None:
    exchanged = _talk(tmp_path, die_after=20)
    assert exchanged == [(i * SECOND, i * SECOND) for i in range(1, 20)]
