"""The solver's process may hang, crash, run out of memory or talk nonsense: there is a plan."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from scheduler_plugin.app import solver_child
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.solver_child import Failure, SolverChild
from scheduler_plugin.app.solver_failures import failure_teller
from scheduler_plugin.app.solver_pipe import SolverRequest
from scheduler_plugin.app.solver_process import ChildSettings, ProcessPlanner
from scheduler_plugin.app.solver_worker import serve
from scheduler_plugin.documents.plan_document import PendingReason, Plan, parse_plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.documents.snapshot_stream import SnapshotSender
from scheduler_plugin.solve import SearchSettings, plan
from simulation.kube import EmbeddedKube
from tests.scheduler_plugin.placement_builders import bound, domain, node, pod, snapshot
from wattpack.clock import ManualClock, SystemClock
from wattpack.kube.event_reports import EventRecorder
from wattpack.kube.port import EVENTS
from wattpack.units import NS_PER_SECOND

SNAPSHOT = snapshot(node("a"), pod("p"))
INCUMBENT = plan(SNAPSHOT)
WAITS = "sys.stdin.read()"
"""What a child does that hangs: until the parent closes the pipe or kills it."""


def child(*lines: str, then: str = "") -> tuple[str, ...]:
    """A child that is ready, answers the first request with these lines, then does something."""
    script = "import os, sys; print('ready', flush=True); sys.stdin.buffer.read(1); "
    script += f"sys.stdout.write({''.join(lines)!r}); sys.stdout.flush(); "
    return (sys.executable, "-S", "-c", script + then)


def ask(command: tuple[str, ...]) -> tuple[Plan, list[Failure]]:
    failures: list[Failure] = []
    settings = ChildSettings(command, start_seconds=20.0, grace_seconds=0.2, ready_seconds=60.0)
    planner = ProcessPlanner(SystemClock(), 1.0, child=settings, failed=failures.append)
    try:
        return planner.plan(SNAPSHOT), failures
    finally:
        planner.close()


@pytest.mark.parametrize(
    ("then", "failure"),
    [
        (WAITS, Failure.HANG),
        ("os._exit(3)", Failure.CRASH),
        ("os.abort()", Failure.CRASH),
        (f"print('out-of-memory', flush=True); {WAITS}", Failure.OUT_OF_MEMORY),
        (f"print('final 1 {{', flush=True); {WAITS}", Failure.NONSENSE),
        (f"print('what?', flush=True); {WAITS}", Failure.NONSENSE),
    ],
)
def test_the_incumbent_survives_whatever_becomes_of_the_child(then: str, failure: Failure) -> None:
    result, failures = ask(child(f"incumbent 1 {INCUMBENT.model_dump_json()}\n", then=then))
    assert result == INCUMBENT
    assert failures == [failure]


@pytest.mark.parametrize("line", ["", "final 1 {\n", "nonsense\n", "final 1 null\n", "incumbent\n"])
def test_without_any_answer_the_greedy_plan_is_made_here(line: str) -> None:
    result, failures = ask(child(line, then="sys.exit(1)"))
    assert result.placements == INCUMBENT.placements
    assert len(failures) == 1


def test_a_child_without_cpu_is_late_and_its_answer_to_an_earlier_question_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solver_child, "cpu_seconds", lambda pid: 0.0)
    monkeypatch.setattr(solver_child, "wants_cpu", lambda pid: True)
    script = "import sys; from scheduler_plugin.app.solver_pipe import requests; "
    script += "print('ready', flush=True); asked = requests(sys.stdin.buffer); "
    script += "next(asked); next(asked); "
    script += f"print('final 1', {INCUMBENT.model_dump_json()!r}, flush=True); {WAITS}"
    settings = ChildSettings((sys.executable, "-c", script), 20.0, 0.05, ready_seconds=60.0)
    failures: list[Failure] = []
    planner = ProcessPlanner(SystemClock(), 0.3, child=settings, failed=failures.append)
    try:
        first = planner.plan(SNAPSHOT)
        child = planner._child
        assert child is not None
        assert planner.plan(SNAPSHOT).placements == first.placements == INCUMBENT.placements
        while not child.has_answered:
            child._clock.wait_until(child._clock.monotonic_ns() + 10**9, child._wake)
        assert failures == [Failure.LATE, Failure.LATE]
        assert planner._child is child
    finally:
        planner.close()


@pytest.mark.parametrize(
    ("spent", "wants", "failure"),
    [(0.0, False, Failure.HANG), (9.0, True, Failure.HANG), (0.0, True, Failure.LATE)],
)
def test_only_a_child_that_wants_cpu_and_had_too_little_is_late(
    spent: float, wants: bool, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([5.0, 5.0 + spent])
    monkeypatch.setattr(solver_child, "cpu_seconds", lambda pid: next(readings))
    monkeypatch.setattr(solver_child, "wants_cpu", lambda pid: wants)
    command = (sys.executable, "-S", "-c", "import sys; print('ready', flush=True); " + WAITS)
    settings = ChildSettings(command, start_seconds=5.0, grace_seconds=0.05, ready_seconds=60.0)
    failures: list[Failure] = []
    planner = ProcessPlanner(SystemClock(), 0.05, child=settings, failed=failures.append)
    try:
        assert planner.plan(SNAPSHOT).placements == INCUMBENT.placements
        assert failures == [failure]
    finally:
        planner.close()


def test_closed_in_the_middle_of_a_plan_it_plans_here_and_starts_no_other_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closes(child: SolverChild, until_ns: int) -> bool:
        planner.close()
        return False

    monkeypatch.setattr(SolverChild, "is_ready", closes)
    failures: list[Failure] = []
    settings = ChildSettings((sys.executable, "-S", "-c", "import sys; " + WAITS))
    planner = ProcessPlanner(SystemClock(), child=settings, failed=failures.append)
    assert planner.plan(SNAPSHOT).placements == INCUMBENT.placements
    assert planner.plan(SNAPSHOT).placements == INCUMBENT.placements
    assert (planner.child_pid, failures) == (None, [])


def test_a_child_that_is_never_ready_is_replaced() -> None:
    command = (sys.executable, "-S", "-c", "import sys; " + WAITS)
    settings = ChildSettings(command, start_seconds=0.0, ready_seconds=0.05)
    planner = ProcessPlanner(SystemClock(), 0.05, child=settings)
    try:
        assert planner.plan(SNAPSHOT).placements == INCUMBENT.placements
        assert planner.failures == 1
    finally:
        planner.close()


def test_a_child_that_is_slow_to_start_is_waited_for_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solver_child, "wants_cpu", lambda pid: True)
    script = "import signal, sys; mine = [signal.SIGUSR1]; "
    script += "signal.pthread_sigmask(signal.SIG_BLOCK, mine); signal.sigwait(mine); "
    script += "print('ready', flush=True); sys.stdin.buffer.read(1); "
    script += f"print('final 1', {INCUMBENT.model_dump_json()!r}, flush=True); {WAITS}"
    # A signal before the child blocks it would end the child: it is blocked from the beginning.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    failures: list[Failure] = []
    command = (sys.executable, "-S", "-c", script)
    settings = ChildSettings(command, start_seconds=20.0, ready_seconds=0.05)
    planner = ProcessPlanner(SystemClock(), 20.0, child=settings, failed=failures.append)
    try:
        assert planner.plan(SNAPSHOT).placements == INCUMBENT.placements
        assert failures == [Failure.LATE]
        child = planner._child
        assert child is not None
        os.kill(child.pid, signal.SIGUSR1)
        assert child.is_ready(child._clock.monotonic_ns() + 60 * NS_PER_SECOND)
        assert planner.plan(SNAPSHOT) == INCUMBENT
        assert planner._child is child
    finally:
        planner.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])


def test_a_child_that_dies_between_two_cycles_is_replaced_before_it_is_asked() -> None:
    line = f"final 1 {INCUMBENT.model_dump_json()}\n"
    failures: list[Failure] = []
    settings = ChildSettings(child(line), ready_seconds=60.0)
    planner = ProcessPlanner(SystemClock(), 20.0, child=settings, failed=failures.append)
    try:
        assert planner.plan(SNAPSHOT) == INCUMBENT
        assert planner._child is not None
        planner._child._reader.join(20.0)
        assert planner.plan(SNAPSHOT) == INCUMBENT
        assert failures == [Failure.CRASH]
    finally:
        planner.close()


def test_a_solver_out_of_memory_says_so_and_the_plan_is_made_here() -> None:
    """130 MiB are enough for the imports (a third more where pyarrow is installed, which pandas
    then loads) and not for these pods, which are read there."""
    crowd = snapshot(node("a"), *(pod(f"p{i}", name="n" * 600) for i in range(15_000)))
    failures: list[Failure] = []
    limited = replace(ChildSettings.bounded(memory_mib=130), ready_seconds=60.0)
    planner = ProcessPlanner(SystemClock(), 5.0, child=limited, failed=failures.append)
    try:
        assert len(planner.plan(crowd).placements) == 8
        assert failures == [Failure.OUT_OF_MEMORY]
    finally:
        planner.close()


def request(of: Snapshot, deadline_seconds: float = 0.1, deadline_ns: int = 0) -> bytes:
    change = SnapshotSender().change(of)
    return SolverRequest(change, deadline_seconds, deadline_ns, 0, 1, moves=False).to_bytes()


def test_a_solver_whose_parent_is_gone_ends_without_a_word() -> None:
    module = [sys.executable, "-m", "scheduler_plugin.app.solver_worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(module, stdin=pipe, stdout=pipe, stderr=pipe) as solver:
        assert solver.stdin is not None
        assert solver.stdout is not None
        assert solver.stdout.readline() == b"ready\n"
        solver.stdout.close()
        _, said = solver.communicate(request(SNAPSHOT), timeout=60)
    assert (solver.returncode, said) == (0, b"")


def test_a_forged_final_plan_is_refused_and_the_incumbent_used() -> None:
    forged = INCUMBENT.model_copy(
        update={"placements": (INCUMBENT.placements[0].model_copy(update={"node": "zz"}),)}
    )
    lines = [
        f"{k} 1 {p.model_dump_json()}\n" for k, p in (("incumbent", INCUMBENT), ("final", forged))
    ]
    result, failures = ask(child(*lines, then=WAITS))
    assert result.placements == INCUMBENT.placements
    assert "unknown node" in result.refusals[0]
    assert failures == []


def test_when_both_plans_are_refused_nothing_is_placed() -> None:
    forged = INCUMBENT.model_copy(update={"snapshot_digest": "sha256:other"})
    lines = [f"{k} 1 {forged.model_dump_json()}\n" for k in ("incumbent", "final")]
    result, _ = ask(child(*lines, then=WAITS))
    assert result.placements == ()
    assert result.pending[0].reason.value == "PlanRefused"


@pytest.fixture(scope="module")
def planner() -> Iterator[ProcessPlanner]:
    real = ProcessPlanner(SystemClock(), 3.0, child=ChildSettings(ready_seconds=60.0))
    yield real
    real.close()


def test_the_real_child_answers_again_and_again(planner: ProcessPlanner) -> None:
    assert planner.plan(SNAPSHOT) == INCUMBENT
    assert planner.plan(SNAPSHOT) == INCUMBENT
    more = snapshot(node("a"), node("b"), bound("q", "a", 8), pod("p"))
    assert planner.plan(more) == plan(more)
    assert planner.plan(SNAPSHOT) == INCUMBENT
    assert planner.failures == 0


def test_running_pods_move_only_where_that_was_asked_for(planner: ProcessPlanner) -> None:
    halves = [bound(uid, on, 4, move_seconds=60) for uid, on in (("x", "a"), ("y", "b"))]
    crowded = snapshot(node("a"), node("b"), *halves, pod("p", 8))
    assert planner.plan(crowded).placements == ()
    assert [p.uid for p in planner.plan(crowded, moves=True).placements] == ["p"]
    assert planner.plan(crowded).steps == ()


def test_the_child_sends_the_incumbent_first_and_the_final_plan_last() -> None:
    sink = io.StringIO()
    deadline_ns = 3 * NS_PER_SECOND
    serve(io.BytesIO(request(SNAPSHOT, 3.0, deadline_ns)), sink, ManualClock())
    ready, first, last = sink.getvalue().splitlines()
    assert ready == "ready"
    assert parse_plan(first.removeprefix("incumbent 1 ")) == INCUMBENT
    assert parse_plan(last.removeprefix("final 1 ")) == INCUMBENT


def test_the_best_greedy_plan_follows_the_first_where_it_is_better() -> None:
    """Two frugal pods go where the first order puts a hungry one; r and s keep a gap open."""
    few_watts = snapshot(
        domain("d", 1500),
        node("a", domain="d"),
        node("b", 4, gpu_model="B"),
        pod("large", 1, expected_watts_per_gpu=1400, milli_cpu=9_000, gpu_models=("H200",)),
        pod("p", 1, expected_watts_per_gpu=700, gpu_models=("H200",)),
        pod("q", 1, expected_watts_per_gpu=700, gpu_models=("H200",)),
        pod("r", 3, gpu_models=("B",)),
        pod("s", 2, gpu_models=("B",)),
    )
    sink = io.StringIO()
    serve(io.BytesIO(request(few_watts, 3.0, 3 * NS_PER_SECOND)), sink, ManualClock())
    plans = [parse_plan(line.split(" ", 2)[2]) for line in sink.getvalue().splitlines()[1:]]
    placed = [sorted(p.uid for p in each.placements) for each in plans]
    assert placed == [["large", "r"], ["p", "q", "r"], ["p", "q", "r"]]


class Hasty(ManualClock):
    """Each look at it takes a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def monotonic_ns(self) -> int:
        self.advance_seconds(self._seconds)
        return super().monotonic_ns()


@pytest.mark.parametrize(
    ("a_look_seconds", "reason", "remedy"),
    [
        (0.3, PendingReason.NOT_EXPLAINED, "late"),
        (0.01, PendingReason.INSUFFICIENT_GPUS, "late"),
        (0.0, PendingReason.INSUFFICIENT_GPUS, "smallest"),
    ],
)
def test_who_is_late_is_told_the_cause_alone_and_later_nothing(
    a_look_seconds: float, reason: PendingReason, remedy: str
) -> None:
    full = snapshot(node("a", 1), pod("p"), pod("q", milli_cpu=1))
    settings = SearchSettings(clock=Hasty(a_look_seconds), explain_seconds=0.005)
    hasty = plan(full, settings=settings)
    assert [p.uid for p in hasty.placements] == [p.uid for p in plan(full).placements]
    assert [(p.reason, p.remedy) for p in hasty.pending] == [(reason, remedy)]


def test_a_failure_is_counted_by_cause_and_told_on_the_lease() -> None:
    clock, metrics = ManualClock(), PlacementMetrics()
    api = EmbeddedKube(clock)
    recorder = EventRecorder(api, clock, "wattpack.io/scheduler", "a")
    tell = failure_teller(recorder, metrics, "system")
    for failure in (*Failure, Failure.HANG):
        tell(failure)
    causes = {f: metrics.solver_failures.labels(f.value)._value.get() for f in Failure}
    assert causes == {f: 2 if f is Failure.HANG else 1 for f in Failure}
    events = api.list(EVENTS, "system").items
    assert {event["reason"] for event in events} == {"SolverFailed"}
    assert {event["regarding"]["kind"] for event in events} == {"Lease"}
    assert sorted(event["action"] for event in events) == ["ReplacingSolver", "Waiting"]
