"""The solver's process may hang, crash or talk nonsense: the incumbent is the answer."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from scheduler_plugin.app.solver_process import ProcessPlanner, serve
from scheduler_plugin.plan_document import Plan, parse_plan
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import bound, node, pod, snapshot
from wattpack.clock import ManualClock, SystemClock

SNAPSHOT = snapshot(node("a"), pod("p"))
INCUMBENT = plan(SNAPSHOT)


def child(*lines: str, then: str = "") -> tuple[str, ...]:
    """A child that answers the first request with these lines and then does something."""
    script = f"import sys, time; sys.stdin.readline(); sys.stdout.write({''.join(lines)!r}); "
    return (sys.executable, "-c", script + "sys.stdout.flush(); " + then)


def ask(command: tuple[str, ...]) -> tuple[Plan, int]:
    planner = ProcessPlanner(
        SystemClock(), deadline_seconds=0.1, command=command, start_seconds=1.0
    )
    try:
        return planner.plan(SNAPSHOT), planner.failures
    finally:
        planner.close()


@pytest.mark.parametrize("then", ["time.sleep(60)", "sys.exit(3)", "import os; os.abort()"])
def test_the_incumbent_survives_a_child_that_hangs_or_dies(then: str) -> None:
    result, failures = ask(child(f"incumbent {INCUMBENT.model_dump_json()}\n", then=then))
    assert result == INCUMBENT
    assert failures == 1


@pytest.mark.parametrize("line", ["", "final {\n", "nonsense\n", "final null\n"])
def test_without_any_answer_the_greedy_plan_is_made_here(line: str) -> None:
    result, failures = ask(child(line, then="sys.exit(1)"))
    assert result.placements == INCUMBENT.placements
    assert failures == 1


def test_a_solver_whose_parent_is_gone_ends_without_a_word() -> None:
    options = {"deadline_seconds": 0.1, "seed": 1, "workers": 1}
    request = {"snapshot": SNAPSHOT.model_dump_json(), "options": options}
    module = [sys.executable, "-m", "scheduler_plugin.app.solver_process"]
    pipe = subprocess.PIPE
    with subprocess.Popen(module, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as solver:
        assert solver.stdin is not None
        assert solver.stdout is not None
        solver.stdout.close()
        _, said = solver.communicate(json.dumps(request) + "\n", timeout=60)
    assert (solver.returncode, said) == (0, "")


def test_a_forged_final_plan_is_refused_and_the_incumbent_used() -> None:
    forged = INCUMBENT.model_copy(
        update={"placements": (INCUMBENT.placements[0].model_copy(update={"node": "zz"}),)}
    )
    lines = [
        f"{k} {p.model_dump_json()}\n" for k, p in (("incumbent", INCUMBENT), ("final", forged))
    ]
    result, failures = ask(child(*lines, then="time.sleep(60)"))
    assert result.placements == INCUMBENT.placements
    assert "unknown node" in result.refusals[0]
    assert failures == 0


def test_when_both_plans_are_refused_nothing_is_placed() -> None:
    forged = INCUMBENT.model_copy(update={"snapshot_digest": "sha256:other"})
    lines = [f"{k} {forged.model_dump_json()}\n" for k in ("incumbent", "final")]
    result, _ = ask(child(*lines, then="time.sleep(60)"))
    assert result.placements == ()
    assert result.pending[0].reason.value == "PlanRefused"


@pytest.fixture(scope="module")
def planner() -> Iterator[ProcessPlanner]:
    real = ProcessPlanner(SystemClock(), deadline_seconds=1.0)
    yield real
    real.close()


def test_the_real_child_answers_again_and_again(planner: ProcessPlanner) -> None:
    assert planner.plan(SNAPSHOT) == INCUMBENT
    assert planner.plan(SNAPSHOT) == INCUMBENT
    assert planner.failures == 0


def test_running_pods_move_only_where_that_was_asked_for(planner: ProcessPlanner) -> None:
    halves = [bound(uid, on, 4, move_seconds=60) for uid, on in (("x", "a"), ("y", "b"))]
    crowded = snapshot(node("a"), node("b"), *halves, pod("p", 8))
    assert planner.plan(crowded).placements == ()
    assert [p.uid for p in planner.plan(crowded, moves=True).placements] == ["p"]
    assert planner.plan(crowded).steps == ()


def test_the_child_sends_the_incumbent_first_and_the_final_plan_last() -> None:
    options = {"deadline_seconds": 0.1, "seed": 0, "workers": 1}
    request = json.dumps({"options": options, "snapshot": SNAPSHOT.model_dump_json()})
    sink = io.StringIO()
    serve(io.StringIO(request + "\n"), sink, ManualClock())
    first, last = sink.getvalue().splitlines()
    assert parse_plan(first.removeprefix("incumbent ")) == INCUMBENT
    assert parse_plan(last.removeprefix("final ")) == INCUMBENT
