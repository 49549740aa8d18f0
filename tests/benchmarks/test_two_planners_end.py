"""Whatever interrupts the experiment: its planners end before the server that they ask."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from benchmarks._turns import TurnClock
from benchmarks.two_planners import TARGETS, Experiment, Size, add_node, pod_body
from simulation.kube import EmbeddedKube
from wattpack.clock import Clock, SystemClock
from wattpack.errors import Terminated
from wattpack.kube.port import PODS
from wattpack.units import NS_PER_SECOND

ENDED_SECONDS = 10.0


def interrupting() -> None:
    """The main thread is told to end, as by Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def for_ever(clock: Clock, over: threading.Event, first: Callable[[], None]) -> None:
    first()
    while not over.is_set():
        try:
            clock.wait_until(clock.monotonic_ns() + NS_PER_SECOND)
        except Exception:
            continue  # as a loop that outlives every failure


@pytest.fixture
def _hears_ctrl_c() -> Iterator[None]:
    """Whoever started the tests in the background made them deaf to it."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.usefixtures("_hears_ctrl_c")
def test_virtual_time_that_is_interrupted_ends_in_every_thread() -> None:
    clock, over = TurnClock(), threading.Event()
    before = set(threading.enumerate())
    try:
        with pytest.raises(KeyboardInterrupt):
            clock.run(
                lambda: for_ever(clock, over, lambda: None),
                lambda: for_ever(clock, over, interrupting),
            )
        assert set(threading.enumerate()) <= before
    finally:
        over.set()


def test_planners_end_before_the_server_however_slow_their_writes_are() -> None:
    clock, begun = SystemClock(), threading.Event()
    kube = EmbeddedKube(clock)
    add_node(kube, "n0")
    kube.create(PODS, pod_body(0, 1, "owner"), "team")

    class Interrupted(Experiment):
        def world(self) -> None:
            begun.wait(ENDED_SECONDS)
            raise Terminated

    size = Size(1, 100.0, 1.0, 1.0, 1.0)  # A write takes 200 s.
    experiment = Interrupted(kube, clock, size, lambda: None, threaded=True)
    for api in experiment.apis.values():
        api._wait = telling(begun, api._wait)  # type: ignore[method-assign]
    before, began_ns = set(threading.enumerate()), clock.monotonic_ns()
    with pytest.raises(Terminated):
        experiment.in_threads()
    assert clock.monotonic_ns() - began_ns < ENDED_SECONDS * NS_PER_SECOND
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("let_go", [False, True])
def test_planners_that_pin_nothing_miss_the_pass_line(let_go: bool) -> None:
    """Whoever is let go without a node is placed by others, and shows nothing of planners."""
    clock, size = SystemClock(), Size(10, 1.0, 1.0, 1.0, 1.0)
    experiment = Experiment(EmbeddedKube(clock), clock, size, lambda: None, threaded=False)
    for i in range(size.pods if let_go else 0):
        experiment.judge.pinned("a", f"p{i:04}", "", "a", 0.0)
    found = experiment.figures("plane")
    assert found["plane_pods_pinned"] == found["plane_gpus_beyond_nodes"] == 0
    assert not TARGETS["plane_pods_without_a_pin"].met_by(found["plane_pods_without_a_pin"])
    experiment.judge.pinned("a", "p0000", "n0", "a", 0.0)
    assert experiment.figures("plane")["plane_pods_without_a_pin"] == size.pods - 1


def telling(begun: threading.Event, wait: Callable[[float], None]) -> Callable[[float], None]:
    """The same wait, which says that it has begun."""

    def told(seconds: float) -> None:
        begun.set()
        wait(seconds)

    return told
