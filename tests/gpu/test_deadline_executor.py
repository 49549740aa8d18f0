"""One executor for driver calls: whoever hangs is left alone, nobody waits for it twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gpu.workers.deadline_executor import Abandoned, DeadlineExecutor
from tests.telemetry.telemetry_builders import PatientClock


def gives(value: int) -> Callable[[Abandoned], int]:
    return lambda _: value


@pytest.mark.parametrize("stall_ns", [0, 1])
def test_a_hanging_job_is_missing_and_its_late_rest_is_not_begun(stall_ns: int) -> None:
    release, saw_end = threading.Event(), threading.Event()
    begun: list[str] = []
    clock = PatientClock()

    def hangs(abandoned: Abandoned) -> int:
        begun.append("first")
        clock.expired.set()
        assert release.wait(30)
        if not abandoned():
            begun.append("second")
        saw_end.set()
        return 9

    executor = DeadlineExecutor(clock, deadline_ns=100, stall_ns=stall_ns)
    first: dict[str, int | Exception] = executor.run({"a": hangs, "b": gives(1)})
    assert "a" not in first
    assert "a" not in executor.run({"a": gives(2)})  # still busy: not asked a second time
    release.set()
    assert saw_end.wait(30)
    clock.expired.clear()
    answer: dict[str, int | Exception] = {}
    for _ in range(1000):
        answer = executor.run({"a": gives(3)})
        if answer:
            break
    assert (answer, begun) == ({"a": 3}, ["first"])
    executor.close()


def test_a_defect_is_a_result_and_ends_no_worker() -> None:
    def fails(_: Abandoned) -> int:
        raise ZeroDivisionError("a bug")

    executor = DeadlineExecutor(PatientClock(), deadline_ns=100)
    results: dict[str, int | Exception] = executor.run({"a": fails, "b": gives(1)})
    assert isinstance(results["a"], ZeroDivisionError)
    assert results["b"] == 1
    assert executor.run({"a": gives(4)}) == {"a": 4}
    executor.close()


def test_many_rounds_at_the_same_time_take_one_thread_a_board() -> None:
    executor = DeadlineExecutor(PatientClock(), deadline_ns=100, stall_ns=0)
    before = threading.active_count()
    for number in range(50):
        jobs = {f"board-{i}": gives(number) for i in range(4)}
        assert set(executor.run(jobs).values()) == {number}
    assert threading.active_count() - before <= 4
    executor.close()
