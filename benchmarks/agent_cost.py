"""What the node agent costs its node: CPU time and memory of a real agent process.

The agent replays a recording of a real H200 as 8 boards at 5 Hz, streams to a controller stub on
loopback and is scraped every 5 s. The NVML library is not in ``cpu_percent_of_one_core``; the
figures ``cpu_with_nvml_...`` add what its calls cost on real boards (``_nvml_cost``), computed, not
measured here.
``--nvml`` reads this machine's boards instead, as many as there are.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from benchmarks._child import kept
from benchmarks._nvml_cost import share_of_a_core
from benchmarks.runner import Options, Result, Target
from wattpack.clock import SystemClock
from wattpack.errors import PermanentError
from wattpack.units import NS_PER_SECOND
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

NAME = "agent_cost"
SUMMARY = "CPU share and memory of the node agent with 8 boards at 5 Hz"

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests/telemetry/fixtures/h200/matmul.jsonl.gz"
DEVICES = 8
HZ = 5

WARM_UP_SECONDS = 5
SCRAPE_EVERY_SECONDS = 5


class _Sink(power_pb2_grpc.PowerControlServicer):
    """Welcomes every agent and swallows its reports."""

    def __init__(self) -> None:
        self.reports = 0
        self.devices = 0

    def Stream(  # noqa: N802 - the name in the proto file
        self, request_iterator: Iterator[power_pb2.AgentMessage], context: grpc.ServicerContext
    ) -> Iterator[power_pb2.ControllerMessage]:
        self.devices = len(next(request_iterator).hello.devices)
        yield power_pb2.ControllerMessage(
            welcome=power_pb2.Welcome(version=1, controller="sink", report_period_ms=1000)
        )
        for _ in request_iterator:
            self.reports += 1


def run(options: Options) -> Result:
    """Measure one agent for 30 s (quick: 10 s)."""
    seconds = 10 if options.quick else 30
    sink = _Sink()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    power_pb2_grpc.add_PowerControlServicer_to_server(sink, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    port = _free_port()
    live = "--nvml" in options.arguments
    try:
        with kept(_start(target, port, live=live)) as agent:
            clock = SystemClock()
            options.progress(f"agent {agent.pid} warms up for {WARM_UP_SECONDS} s")
            _follow(clock, agent, WARM_UP_SECONDS, port)
            reports = sink.reports
            cpu_before, begin_ns = cpu_seconds(agent.pid), clock.monotonic_ns()
            options.progress(f"measuring for {seconds} s")
            scraped = _follow(clock, agent, seconds, port)
            elapsed = (clock.monotonic_ns() - begin_ns) / NS_PER_SECOND
            cpu = cpu_seconds(agent.pid) - cpu_before
            memory_bytes = peak_memory_bytes(agent.pid)
            reports = sink.reports - reports
    finally:
        server.stop(0).wait(5)
    own = {
        "sampling_hz": HZ,
        "measured_seconds": round(elapsed, 1),
        "reports": reports,
        "scrapes": scraped,
        "cpu_percent_of_one_core": round(100.0 * cpu / elapsed, 3),
        "peak_resident_mebibytes": round(memory_bytes / 2**20, 1),
    }
    return _live_result(own, sink.devices) if live else _replay_result(own)


def _replay_result(own: dict[str, float]) -> Result:
    cpu = own["cpu_percent_of_one_core"]
    figures = {
        "devices": DEVICES,
        **own,
        "cpu_with_nvml_percent_of_one_core": round(cpu + nvml_percent(worst=False), 3),
        "cpu_with_nvml_worst_percent_of_one_core": round(cpu + nvml_percent(worst=True), 3),
    }
    return Result(
        figures,
        {
            "cpu_percent_of_one_core": Target(at_most=1.0),
            "cpu_with_nvml_percent_of_one_core": Target(at_most=1.0),
            "peak_resident_mebibytes": Target(at_most=100.0),
        },
    )


def _live_result(own: dict[str, float], devices: int) -> Result:
    return Result(
        {"devices": devices, **own},
        {
            "cpu_percent_of_one_core": Target(at_most=1.0),
            "peak_resident_mebibytes": Target(at_most=100.0),
        },
    )


def nvml_percent(*, worst: bool) -> float:
    """What NVML's calls for all boards take of a core, computed from measured costs."""
    return 100.0 * DEVICES * share_of_a_core(HZ, worst=worst)


def _start(target: str, port: int, *, live: bool) -> subprocess.Popen[bytes]:
    boards = () if live else ("--replay", str(RECORDING), "--devices", str(DEVICES))
    arguments = (
        *(*boards, "--hz", str(HZ)),
        *("--controller", target, "--insecure", "--port", str(port), "--node", "bench"),
    )
    return subprocess.Popen(
        [sys.executable, "-m", "telemetry.app.agent_command", *arguments],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )


def _follow(clock: SystemClock, agent: subprocess.Popen[bytes], seconds: int, port: int) -> int:
    """Scrape now and then; how often it worked.

    Raises:
        PermanentError: if the agent ended: there is nothing to measure then.
    """
    begin_ns = clock.monotonic_ns()
    scraped = 0
    for k in range(1, seconds + 1):
        clock.wait_until(begin_ns + k * NS_PER_SECOND)
        if k % SCRAPE_EVERY_SECONDS:
            continue
        if agent.poll() is not None:
            raise PermanentError(f"the agent ended with status {agent.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                scraped += b"wattpack_gpu_power_watts" in answer.read()
        except OSError:
            continue  # not listening yet; the count says so
    return scraped


def cpu_seconds(pid: int) -> float:
    """CPU time of a process in user and kernel mode since its start."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory_bytes(pid: int) -> int:
    """Largest resident set of a process since its start."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise PermanentError("the kernel tells no VmHWM")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
