"""What happens when a tool is missing: a failure under CI, a loud skip elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import cluster_tools
from tests.cluster.cluster_processes import ServerProcess, eventually
from tests.cluster.cluster_tools import tool
from tests.cluster.conftest import _require_tools
from wattpack.errors import DeadlineExceededError, PermanentError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_tools, "TOOLS_DIRECTORY", tmp_path)


@pytest.mark.usefixtures("nothing_built")
def test_a_missing_tool_names_the_command_that_builds_it() -> None:
    assert "make control-plane" in cluster_tools.missing_control_plane_tool()
    with pytest.raises(cluster_tools.ToolMissingError, match="make tools"):
        cluster_tools.tool("helm")
    with pytest.raises(cluster_tools.ToolMissingError, match="make system-tools"):
        cluster_tools.system_tool("no-such-program")


@pytest.mark.usefixtures("nothing_built")
def test_a_missing_tool_fails_under_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="make control-plane"):
        _require_tools()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="CLUSTER TESTS SKIPPED"):
        _require_tools()


def test_a_process_that_ends_at_once_says_what_it_wrote(tmp_path: Path) -> None:
    process = ServerProcess("brief", ["sh", "-c", "echo no luck; exit 3"], tmp_path)
    with pytest.raises(PermanentError, match=r"status 3:\nno luck"):
        process.wait_ready(lambda: False)


def test_a_process_that_ignores_the_polite_signal_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.cluster_processes.STOP_SECONDS", 0.1)
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    process = ServerProcess("stubborn", ["sh", "-c", script], tmp_path)
    process.wait_ready(lambda: "ready" in process.log_tail())
    process.stop()
    assert not process.running()
    process.stop()


TOLD_TWICE = """
import os, signal, sys
from pathlib import Path
from tests.cluster.cluster_processes import ServerProcess
from wattpack import ending
from wattpack.clock import SystemClock

ending.SAME_WORD_NS = 0
with ending.end_noted(SystemClock()) as end:
    gone = ServerProcess("gone", ["true"], Path(sys.argv[1]))
    gone.stop()
    print(ServerProcess("endless", ["sleep", "600"], Path(sys.argv[1])).pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    while not end.told():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""


def test_a_second_signal_leaves_no_started_process(tmp_path: Path) -> None:
    program = [sys.executable, "-c", TOLD_TWICE, str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == 143
    pid = int(done.stdout)
    try:
        eventually("what it started is gone", lambda: not _runs(pid), 10)
    finally:
        if _runs(pid):
            os.kill(pid, signal.SIGKILL)


def test_waiting_has_an_end() -> None:
    with pytest.raises(DeadlineExceededError, match="the moon: not within 0 s"):
        eventually("the moon", lambda: False, seconds=0)


@pytest.mark.cluster
def test_the_playground_gives_people_a_cluster_until_they_interrupt_it(tmp_path: Path) -> None:
    _require_tools()
    command = [sys.executable, "-m", "tests.cluster.playground", "--nodes", "2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as playground:
        try:
            assert playground.stdout is not None
            exported = playground.stdout.readline()
            kubeconfig = exported.split("KUBECONFIG=")[1].split()[0]
            kubectl = [str(tool("kubectl")), f"--kubeconfig={kubeconfig}", "get"]
            nodes = subprocess.run([*kubectl, "nodes"], capture_output=True, text=True, check=True)
            assert nodes.stdout.count(" Ready ") == 2
            subprocess.run([*kubectl, "pdom"], capture_output=True, check=True)
        finally:
            playground.send_signal(signal.SIGINT)
        assert playground.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_a_second_signal_ends_the_playground_at_once_with_all_its_processes(tmp_path: Path) -> None:
    _require_tools()
    command = [sys.executable, "-m", "tests.cluster.playground", "--nodes", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as playground:
        try:
            assert playground.stdout is not None
            assert "KUBECONFIG" in playground.stdout.readline()
            started = _children(playground.pid)
            assert len(started) >= 3
            # Stopped servers do not end when asked to: the stopping hangs.
            for pid in started:
                os.kill(pid, signal.SIGSTOP)
            playground.send_signal(signal.SIGINT)
            eventually("the stopping has begun", lambda: _has_pending(started, signal.SIGTERM), 30)

            def ended() -> bool:
                playground.send_signal(signal.SIGINT)  # the first ones are taken for echoes
                return playground.poll() is not None

            eventually("the playground has ended", ended, 5)
            assert playground.returncode == 130
        finally:
            playground.kill()
    eventually("its processes are gone", lambda: not any(map(_runs, started)), 10)
    assert list(tmp_path.iterdir()) == []


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)


def _has_pending(pids: list[int], number: int) -> bool:
    pending = (int(_status(pid).get("ShdPnd", "0"), 16) for pid in pids)
    return any(mask >> (number - 1) & 1 for mask in pending)


def _runs(pid: int) -> bool:
    try:
        return _status(pid)["State"].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
