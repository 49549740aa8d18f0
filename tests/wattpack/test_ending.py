"""The note of a process's end, without a process: time and signals are given."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wattpack.clock import ManualClock, SystemClock
from wattpack.ending import LOOK_NS, SAME_WORD_NS, EndNote, Word, end_noted, until_told_to_end
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import NS_PER_SECOND

ROOT = Path(__file__).parents[2]
PACKAGES = ("actuator", "capacity", "console", "controller", "forecasting", "gpu")
PACKAGES += ("scheduler_plugin", "simulation", "telemetry", "wattpack", "benchmarks")


class ToldAt(ManualClock):
    """Tells at a time, without waking anybody."""

    def __init__(self, note: EndNote, at_ns: int) -> None:
        super().__init__()
        self._note, self._at_ns, self.looks = note, at_ns, 0

    def wait_until(self, deadline_ns: int, wake: object = None) -> bool:
        super().wait_until(deadline_ns)
        self.looks += 1
        if self.monotonic_ns() >= self._at_ns and not self._note.told():
            self._note.heard(signal.SIGTERM, self.monotonic_ns())
        return False


def test_who_waits_looks_twice_a_second_though_nothing_wakes_it() -> None:
    note = EndNote()
    clock = ToldAt(note, 5 * NS_PER_SECOND)
    until_told_to_end(note, clock)
    assert clock.monotonic_ns() <= 5 * NS_PER_SECOND + LOOK_NS
    assert clock.looks == 10


@pytest.mark.parametrize(
    ("after_ns", "word"),
    [(0, Word.ECHO), (SAME_WORD_NS - 1, Word.ECHO), (SAME_WORD_NS, Word.AT_ONCE)],
)
def test_a_signal_that_a_wrapper_says_twice_is_one_word(after_ns: int, word: Word) -> None:
    note = EndNote()
    assert note.heard(signal.SIGINT, 7) is Word.END
    assert note.heard(signal.SIGINT, 7 + after_ns) is word
    assert note.number == signal.SIGINT


def test_steps_run_once_told_each_though_one_fails() -> None:
    note, ran = EndNote(), []

    def fails() -> None:
        ran.append("fails")
        raise OSError

    note.call(fails)
    note.call(lambda: ran.append("goes on"))
    note.heard(signal.SIGTERM, 0)
    note.run_steps()
    note.run_steps()
    note.call(lambda: ran.append("too late to wait"))
    assert ran == ["fails", "goes on", "too late to wait"]


def test_a_scratch_folder_goes_while_somebody_writes_in_it() -> None:
    folder, stop = ScratchFolder(), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                (folder.path / str(number)).write_text("")
            except FileNotFoundError:
                return

    writer = threading.Thread(target=write)
    writer.start()
    folder._leave_nothing()
    writer.join(timeout=30)
    stop.set()
    assert not writer.is_alive()
    assert list(folder.path.parent.glob(f"{folder.path.name}*")) == []
    folder.close()


@pytest.mark.parametrize(
    ("owner", "calls"),
    [
        ("wattpack/ending.py", {"signal.signal", "signal.set_wakeup_fd", "os._exit"}),
        ("wattpack/scratch_folder.py", {"tempfile.TemporaryDirectory", "tempfile.mkdtemp"}),
    ],
)
def test_one_module_hears_signals_and_one_makes_temporary_folders(
    owner: str, calls: set[str]
) -> None:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            where = file.relative_to(ROOT).as_posix()
            if where == owner or where.startswith("wattpack/generate/"):
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    assert ast.unparse(node.func) not in calls, f"{where}:{node.lineno}"


def test_who_was_told_to_outlive_the_terminal_does() -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with end_noted(SystemClock()) as end:
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert not end.told()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, earlier)


TOLD_TWICE_AND_OVER = """
import atexit, os, signal, threading
from wattpack import ending
from wattpack.clock import SystemClock

ending.SAME_WORD_NS = 0
go, never = threading.Event(), threading.Event()

def last_step():
    go.set()
    threading.main_thread().join(5)
    never.wait(0.3)  # the interpreter's end takes no time at all

atexit.register(os._exit, 7)
ending.last_step(last_step)
with ending.end_noted(SystemClock()) as end:
    os.kill(os.getpid(), signal.SIGTERM)
    while not end.told():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    go.wait()
"""


def test_the_end_at_once_has_the_last_word_though_it_frees_the_main_thread() -> None:
    program = [sys.executable, "-c", TOLD_TWICE_AND_OVER]
    assert subprocess.run(program, cwd=ROOT, timeout=30, check=False).returncode == 143
