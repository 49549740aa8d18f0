"""Who runs, who waits for the CPU and who stands still."""

from __future__ import annotations

import os
from pathlib import Path

from scheduler_plugin.app.process_load import cpu_seconds, wants_cpu


def process(proc: Path, pid: int, states: str, ticks: tuple[int, int] = (0, 0)) -> None:
    """A process with a hostile name and a thread for each state."""
    line = f"{pid} (a) S (b) {states[0]} 1 2 3 4 5 6 7 8 9 10 {ticks[0]} {ticks[1]} 13\n"
    for number, state in enumerate(states):
        thread = proc / str(pid) / "task" / str(number)
        thread.mkdir(parents=True)
        (thread / "stat").write_text(line.replace(f") {states[0]} ", f") {state} "))
    (proc / str(pid) / "stat").write_text(line)


def test_cpu_is_that_of_user_and_system(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    process(tmp_path, 7, "S", (3 * tick, tick // 2))
    assert cpu_seconds(7, tmp_path) == 3.5


def test_one_thread_that_runs_is_enough(tmp_path: Path) -> None:
    for pid, states in enumerate(["R", "SR", "SSS", "T", "D", "Z"]):
        process(tmp_path, pid, states)
    assert [wants_cpu(pid, tmp_path) for pid in range(6)] == [True, True, *[False] * 4]


def test_who_is_gone_wants_nothing(tmp_path: Path) -> None:
    assert not wants_cpu(1, tmp_path)
    assert cpu_seconds(1, tmp_path) == 0.0


def test_this_process_runs() -> None:
    assert wants_cpu(os.getpid())
    assert cpu_seconds(os.getpid()) > 0
