"""What happens when a tool is missing: a failure under CI, a loud skip elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import cluster_tools
from tests.cluster.cluster_processes import ServerProcess, eventually
from tests.cluster.conftest import _require_tools
from wattpack.errors import DeadlineExceededError, PermanentError


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


def test_waiting_has_an_end() -> None:
    with pytest.raises(DeadlineExceededError, match="the moon: not within 0 s"):
        eventually("the moon", lambda: False, seconds=0)
