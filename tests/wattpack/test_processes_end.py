"""Real processes are told to end: nothing of theirs stays in the temporary folder."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forecasting.sqlite import HistoryStore
from tests.wattpack.kube_over_http import kubeconfig

START_SECONDS = 60.0
DEMOS = ["demo", "demo just started", "demo with a dashboard"]
PROCESSES = ["agent", "console", "controller", "forecaster", "scheduler", "watchdog", *DEMOS]


def arguments_of(process: str, folder: Path) -> tuple[list[str], str]:
    """Command line, and what standard error or output says once it runs."""
    config = folder / "kubeconfig"
    config.write_text(json.dumps(kubeconfig({"server": "http://127.0.0.1:9"})))
    if process == "demo":
        return ["demo", "--headless", "--replicas=1", "--duration=36000"], " s "
    if process == "demo just started":
        return ["demo", "--headless", "--replicas=2", "--duration=36000"], "servers"
    if process == "demo with a dashboard":
        return ["demo", "--port=0", "--speed=30"], "kW, "
    if process == "controller":
        ports = ["--stream-address=127.0.0.1:0", "--http-host=127.0.0.1", "--http-port=0"]
        return ["controller", *ports, f"--kubeconfig={config}"], "no certificate yet"
    if process == "scheduler":
        ports = ["--webhook-port=0", "--metrics-port=0"]
        return ["scheduler", *ports, f"--kubeconfig={config}"], "lease"
    if process == "watchdog":
        return ["watchdog", f"--kubeconfig={config}"], "lease not read"
    if process == "console":
        source = "--controller=http://127.0.0.1:9/v1/live"
        return ["console", source, "--port=0", f"--kubeconfig={config}"], "dashboard"
    if process == "forecaster":
        HistoryStore(folder / "history.sqlite").close()
        history = f"--history-file={folder / 'history.sqlite'}"
        return ["forecaster", history, f"--kubeconfig={config}"], "not"
    controller = "--controller=127.0.0.1:9"
    return ["agent", "--simulated=2", controller, "--insecure", "--port=0"], "reports to"


def wait_for(process: subprocess.Popen[bytes], words: str) -> None:
    """Until it has said this; it never falls silent before."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        said = b""
        while words.encode() not in said:
            assert selector.select(START_SECONDS), said
            chunk = os.read(process.stdout.fileno(), 4096)
            assert chunk, said
            said += chunk


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_ends_without_a_traceback_and_takes_its_files_away(
    tmp_path: Path, name: str, number: signal.Signals
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    arguments, words = arguments_of(name, tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "wattpack.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
    )
    try:
        wait_for(process, words)
        # The demo's tokens lie there while it runs.
        assert name not in {"demo", "demo with a dashboard"} or any(temporary.rglob("*token*"))
        process.send_signal(number)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in {0, 128 + number}
    assert b"Traceback" not in said, said.decode()
    assert [path.name for path in temporary.rglob("*")] == []
