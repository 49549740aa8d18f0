"""What a benchmark starts ends with it: told once, told twice, or deaf."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._child import kept
from wattpack.errors import Terminated

ROOT = Path(__file__).parents[2]
DEAF = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]


def test_a_child_that_does_not_listen_is_killed_when_patience_is_over() -> None:
    with subprocess.Popen(DEAF, stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        assert deaf.stdout.readline() == b"ready\n"
        with pytest.raises(Terminated), kept(deaf, patience_seconds=0.05):
            raise Terminated
    assert deaf.returncode == -signal.SIGKILL


TOLD_TWICE = """
import os, signal, subprocess, sys
from benchmarks._child import kept
from wattpack import ending
from wattpack.clock import SystemClock

ending.SAME_WORD_NS = 0
with ending.end_noted(SystemClock()) as end:
    with kept(subprocess.Popen(["sleep", "600"])) as child:
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        while not end.told():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
"""


def test_a_second_signal_kills_the_child_at_once() -> None:
    program = [sys.executable, "-c", TOLD_TWICE]
    # The child holds the pipe as well: its end is seen only when both are gone, else in 600 s.
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert int(done.stdout) > 0
