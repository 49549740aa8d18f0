"""``wattpack agent`` as a person and as a DaemonSet start it."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpu.device import GpuUnavailable
from simulation.kube import EmbeddedKube
from telemetry.app import agent_command
from telemetry.app.attributor import Attributor
from telemetry.app.device_sources import replay_source, simulated_source
from telemetry.app.local_view import LocalAgent
from telemetry.app.metrics_access import metrics_access, node_registry
from tests.telemetry.stub_controller import StubController
from tests.telemetry.telemetry_builders import FIXTURES, SECOND
from tests.wattpack.kube_over_http import KubeOverHttp, kubeconfig
from wattpack.api import GpuNode
from wattpack.clock import ManualClock, SystemClock
from wattpack.errors import InputError
from wattpack.http_access import METRICS, HttpAccess, UnauthenticatedError
from wattpack.kube.port import TokenIdentity
from wattpack.metrics_port import metrics_port
from wattpack.units import NodeName

REPOSITORY = Path(__file__).parents[2]
RECORDING = FIXTURES / "matmul.jsonl.gz"

HEAVY = ("kubernetes", "pandas", "ortools", "fastapi", "numpy", "pydantic", "uvicorn", "yaml")
"""What a node agent has no use for: each costs memory on every node."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "telemetry.app.agent_command", *arguments]


def test_help_names_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        agent_command.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("--local", "--once", "--json", "--simulated", "--controller", "--actuator"):
        assert word in text


def run_local(source_clock: ManualClock, **options: Any) -> Any:
    source = simulated_source(2, source_clock, NodeName("n0"), 1)
    attributor = Attributor(None)
    local = LocalAgent(source, attributor, source_clock, SECOND // 5, "n0")
    state = local.run_once()
    attributor.close()
    source.close()
    return state


def test_simulated_boards_of_two_nodes_are_never_the_same_and_one_nodes_always_are() -> None:
    def uuids(node: str, seed: int) -> set[str]:
        devices = simulated_source(4, ManualClock(), NodeName(node), seed).reader.devices
        return {device.identity.uuid for device in devices}

    assert len(uuids("n0", 1) | uuids("n1", 1)) == 8
    assert uuids("n0", 1) == uuids("n0", 2)
    assert all(re.fullmatch(r"GPU-[0-9a-f-]{36}", uuid) for uuid in uuids("n0", 1))


def test_one_reading_of_simulated_boards_is_the_same_for_the_same_seed() -> None:
    first, second = (run_local(ManualClock(SECOND)) for _ in range(2))
    assert [s.reading for s in first.samples] == [s.reading for s in second.samples]
    assert first.missing_share() == 0.0
    assert all(s.energy_mean_watts is not None for s in first.samples)


def test_the_local_loop_samples_at_its_pace_and_shows_once_a_second() -> None:
    clock = ManualClock(SECOND)
    source = simulated_source(1, clock, NodeName("n0"), 1)
    attributor = Attributor(None)
    local = LocalAgent(source, attributor, clock, SECOND // 5, "n0")
    stop = threading.Event()
    shown: list[int] = []

    def show(state: Any) -> None:
        shown.append(state.now_ns)
        if len(shown) == 4:
            stop.set()

    local.run(show, stop, SECOND)
    attributor.close()
    assert [at - SECOND for at in shown] == [0, SECOND, 2 * SECOND, 3 * SECOND]


def test_metrics_of_a_replayed_h200_are_served() -> None:
    clock = SystemClock()
    source = replay_source(RECORDING, clock, copies=2)
    attributor = Attributor(None)
    local = LocalAgent(source, attributor, clock, SECOND // 5, "n0")
    local.round()
    registry = node_registry(lambda: local.state)
    http = metrics_port(("127.0.0.1", 0), registry, HttpAccess.insecure((), clock))
    http.start()
    with urllib.request.urlopen(f"http://127.0.0.1:{http.port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    http.stop()
    source.close()
    attributor.close()
    assert 'wattpack_gpu_power_watts{gpu="0",model="NVIDIA H200"' in text
    assert text.count("wattpack_gpu_power_watts{") == 2


def options_of(*arguments: str) -> argparse.Namespace:
    return agent_command.build_parser().parse_args(["--local", *arguments])


def test_metrics_for_other_machines_need_somebody_who_knows_the_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    clock = ManualClock()
    for flags in ([], ["--address=0.0.0.0", "--metrics-insecure"]):
        metrics_access(options_of(*flags), clock).admit(["localhost"], [], METRICS)
    with pytest.raises(InputError, match="--metrics-insecure"):
        metrics_access(options_of("--address=0.0.0.0"), clock)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(UnauthenticatedError):
        metrics_access(options_of("--address=0.0.0.0"), clock).admit(["localhost"], [], METRICS)


@pytest.mark.parametrize(("token", "status"), [("reader", 200), ("other", 403), ("forged", 401)])
def test_a_reader_of_an_agents_metrics_is_reviewed_by_the_api_server(
    tmp_path: Path, token: str, status: int
) -> None:
    clock = SystemClock()
    kube = EmbeddedKube(clock)
    kube.register_token("reader", TokenIdentity("prometheus", ("scrapers",)))
    kube.register_token("other", TokenIdentity("somebody"))
    kube.allow("scrapers", METRICS)
    with KubeOverHttp(kube) as server:
        config = tmp_path / "config"
        cluster = {"server": f"http://127.0.0.1:{server.port}"}
        config.write_text(json.dumps(kubeconfig(cluster)))
        access = metrics_access(options_of("--address=0.0.0.0", f"--kubeconfig={config}"), clock)
        http = metrics_port(("127.0.0.1", 0), node_registry(lambda: None), access)
        http.start()
        request = urllib.request.Request(
            f"http://127.0.0.1:{http.port}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        opener = urllib.request.OpenerDirector()
        opener.add_handler(urllib.request.HTTPHandler())
        with opener.open(request, timeout=30) as answer:
            assert answer.status == status
        http.stop()


def test_once_with_json_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    status = agent_command.main(["--local", "--once", "--json", "--simulated", "2", "--node", "n0"])
    (line,) = capsys.readouterr().out.splitlines()
    assert status == 0
    document = json.loads(line)
    assert document["node"] == "n0"
    assert [d["model"] for d in document["devices"]] == ["simulated H200"] * 2


def test_once_prints_a_table_that_says_what_is_not_real(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--local", "--once", "--replay", str(RECORDING), "--node", "n0"]
    assert agent_command.main(arguments) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H200" in out
    assert "REPLAY" in out


def test_a_machine_without_a_driver_gets_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu.nvml.binding as live

    def no_driver() -> None:
        raise live.pynvml.NVMLError(live.pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(live.pynvml, "nvmlInit", no_driver)
    with pytest.raises(GpuUnavailable, match=r"libnvidia-ml\.so\.1 was not found"):
        agent_command.main(["--local", "--once"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--once"],
        ["--json", "--controller", "127.0.0.1:1"],
        ["--local", "--hz", "0"],
        ["--local", "--hz", "nan"],
        ["--local", "--hz", "1000"],
        ["--local", "--simulated", "0"],
        ["--local", "--simulated", "-3"],
        ["--local", "--simulated", "100000"],
        ["--local", "--simulated", "2", "--replay", "x"],
        ["--local", "--devices", "2"],
        ["--local", "--replay", "/nonexistent.jsonl.gz"],
        ["--local", "--port", "70000", "--simulated", "1"],
        ["--controller", "127.0.0.1:1", "--simulated", "1"],
        ["--controller", "10.0.0.1:1", "--insecure", "--simulated", "1"],
        ["--local", "--node-limit-watts", "-5"],
        ["--local", "--node-limit-watts", "nan"],
        ["--local", "--other-watts", "inf"],
        ["--local", "--gpunode", "--simulated", "1"],
        ["--local", "--kubeconfig", "x", "--simulated", "1"],
        ["--controller", "127.0.0.1:1", "--insecure", "--simulated", "1", "--gpunode"],
    ],
)
def test_wrong_options_are_refused_by_name(arguments: list[str]) -> None:
    with pytest.raises(InputError):
        agent_command.main(arguments)


@pytest.mark.parametrize("arguments", [["--hz", "fast"], ["--unknown"], ["--simulated", "many"]])
def test_options_that_do_not_parse_end_with_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        agent_command.main(["--local", *arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_the_agent_process_reports_and_ends_on_sigterm() -> None:
    stub = StubController()
    stub.start()
    process = subprocess.Popen(
        command(
            *("--replay", str(RECORDING), "--devices", "2", "--node", "n7"),
            *("--controller", stub.target, "--insecure", "--port", "0"),
        ),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
    )
    try:
        hello = stub.hellos.get(timeout=60)
        report = stub.reports.get(timeout=60)
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        stub.stop()
    assert process.returncode == 0, errors.decode()
    assert hello.node == "n7"
    assert hello.devices[0].max_limit_watts == 700.0
    assert len(report.devices) == 2
    assert report.devices[0].draw_watts > 50.0
    assert b"Traceback" not in errors


def test_the_agent_process_keeps_its_gpu_node(tmp_path: Path) -> None:
    stub = StubController()
    stub.start()
    kube = EmbeddedKube(SystemClock())
    kind = GpuNode.meta.resource
    written = threading.Event()
    with KubeOverHttp(kube) as served:
        served.on_answer = lambda path: written.set() if path.endswith("/status") else None
        config = tmp_path / "config"
        config.write_text(json.dumps(kubeconfig({"server": f"http://127.0.0.1:{served.port}"})))
        process = subprocess.Popen(
            command(
                *("--replay", str(RECORDING), "--devices", "2", "--node", "n7", "--host-unit"),
                *("--controller", stub.target, "--insecure", "--port", "0"),
                *("--gpunode", "--kubeconfig", str(config)),
            ),
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
        )
        try:
            assert written.wait(60)
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
            stub.stop()
    assert process.returncode == 0, errors.decode()
    stored = GpuNode.model_validate(kube.get(kind, "n7"))
    assert stored.spec.host_unit
    assert (stored.status.gpu_count, stored.status.model) == (2, "NVIDIA H200")
    assert [c.reason for c in stored.status.conditions] == ["ReportOnly"]


def test_heavy_libraries_stay_out_of_the_agent_process() -> None:
    code = (
        "import sys, telemetry.app.agent_command, telemetry.app.agent_process, "
        "telemetry.app.local_view, telemetry.app.live_table, "
        "telemetry.exporter, gpu.nvml.binding, gpu.replay.replayed_device, "
        "telemetry.attribution.kubelet, telemetry.app.device_sources\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
