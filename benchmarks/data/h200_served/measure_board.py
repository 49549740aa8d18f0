"""What one board draws and what asking it costs: GPM metrics, agent reads, products. Reads only.

    PYTHONPATH=. python benchmarks/data/h200_served/measure_board.py OUT gpm|agent|products

``gpm`` asks NVML's GPU performance metrics while idle, under large products and under a matrix
times one row, and what that costs. ``agent`` runs the agent's own sampler over one board that
answers as eight, idle and loaded. ``products`` runs 16-bit matrix products of layers that no
shipped row holds, each for ``PRODUCT_SECONDS``; ``sample_board.py`` writes power beside them.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

HERE = Path(__file__).parent
METRICS = {
    "graphics_util": 1, "sm_util": 2, "sm_occupancy": 3, "integer_util": 4, "any_tensor_util": 5,
    "hmma_tensor_util": 7, "dram_bw_util": 10, "fp32_util": 12, "fp16_util": 13,
    "pcie_tx_per_sec": 20, "pcie_rx_per_sec": 21, "nvlink_total_rx_per_sec": 60,
}  # fmt: skip
WINDOW_SECONDS = 1.0
COST_ROUNDS = 30
REST_SECONDS = 0.2
BOARDS = 8
AGENT_HZ = 5
AGENT_SECONDS = 30.0

LAYERS = (
    (5120, 8192), (25600, 5120), (5120, 25600), (7168, 5120), (3584, 18944), (37888, 3584),
    (6144, 16384), (12288, 3072), (2048, 7168), (20480, 2560),
)  # fmt: skip
"""(n, k): widths of Qwen3-32B, Qwen2.5-7B, Phi and others, none among the shipped rows' layers."""

TOKENS = (1, 4, 16, 48, 128, 384, 1536)
PRODUCT_SECONDS = 1.3
COLD_BYTES = 240e6
"""Operands in turn are four times the L2."""

MOST_COPIES = 48


def main() -> None:
    """The part that is asked for."""
    out, part = Path(sys.argv[1]), sys.argv[2]
    out.mkdir(parents=True, exist_ok=True)
    found = {"gpm": gpm, "agent": agent, "products": products}[part](out)
    (out / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)[:2500])


def gpm(_: Path) -> dict[str, Any]:
    """Whether the metrics are readable, what they say, and what they cost."""
    pynvml.nvmlInit()
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    told: dict[str, Any] = {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "board": pynvml.nvmlDeviceGetName(board),
        "vbios": pynvml.nvmlDeviceGetVbiosVersion(board),
        "limit_mw": pynvml.nvmlDeviceGetEnforcedPowerLimit(board),
        "uid": __import__("os").getuid(),
    }
    told["supported"] = attempt(lambda: pynvml.nvmlGpmQueryDeviceSupport(board).isSupportedDevice)
    told["streaming"] = attempt(
        lambda: (
            pynvml.nvmlGpmQueryIfStreamingEnabled(board)
            if hasattr(pynvml, "nvmlGpmQueryIfStreamingEnabled")
            else "not in this binding"
        )
    )
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    told["idle"] = window(board, first, second)
    import torch

    told["context"] = window(board, first, second)
    works = {"products": large_products(torch), "one_row": one_row(torch)}
    for name, work in works.items():
        told[name] = loaded(lambda: window(board, first, second), work, torch)
    told["cost_idle"] = costs(board, first, second)
    told["cost_loaded"] = loaded(lambda: costs(board, first, second), works["one_row"], torch)
    told["short_windows"] = loaded(
        lambda: {str(s): window(board, first, second, s) for s in (0.02, 0.1, 0.25)},
        works["products"], torch,
    )  # fmt: skip
    return told


def attempt(ask: Callable[[], Any]) -> Any:
    """The answer, or the error in words."""
    try:
        return ask()
    except pynvml.NVMLError as error:
        return f"{type(error).__name__}: {error}"


def window(board: Any, first: Any, second: Any, seconds: float = WINDOW_SECONDS) -> Any:
    """All metrics over some time."""

    def ask() -> dict[str, Any]:
        pynvml.nvmlGpmSampleGet(board, first)
        time.sleep(seconds)
        pynvml.nvmlGpmSampleGet(board, second)
        return metrics(first, second)

    return attempt(ask)


def metrics(first: Any, second: Any) -> dict[str, Any]:
    """Between two samples."""
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
    asked.sample1, asked.sample2 = first, second
    for place, metric in enumerate(METRICS.values()):
        asked.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    return {
        name: round(asked.metrics[i].value, 3)
        if asked.metrics[i].nvmlReturn == 0
        else f"code {asked.metrics[i].nvmlReturn}"
        for i, name in enumerate(METRICS)
    }


def costs(board: Any, first: Any, second: Any) -> Any:
    """CPU and wall microseconds of a sample, of its metrics, and of a power reading beside them."""
    ways: dict[str, Callable[[], Any]] = {
        "power fields": lambda: pynvml.nvmlDeviceGetFieldValues(board, [185, 186]),
        "gpm sample": lambda: pynvml.nvmlGpmSampleGet(board, second),
        "gpm metrics": lambda: metrics(first, second),
        "gpm sample and metrics": lambda: (
            pynvml.nvmlGpmSampleGet(board, second), metrics(first, second)
        ),
    }  # fmt: skip

    def ask() -> dict[str, Any]:
        pynvml.nvmlGpmSampleGet(board, first)
        return {name: cost(way) for name, way in ways.items()}

    return attempt(ask)


def cost(way: Callable[[], Any]) -> dict[str, float]:
    """After a rest, as an agent asks."""
    cpu, walls = 0, []
    for _ in range(COST_ROUNDS):
        time.sleep(REST_SECONDS)
        begin_cpu, begin = time.thread_time_ns(), time.perf_counter_ns()
        way()
        walls.append((time.perf_counter_ns() - begin) / 1000)
        cpu += time.thread_time_ns() - begin_cpu
    return {
        "cpu_us": round(cpu / COST_ROUNDS / 1000, 1),
        "wall_us": round(statistics.median(walls), 1),
        "wall_us_most": round(max(walls), 1),
    }


def large_products(torch: Any) -> Callable[[], None]:
    """8192 x 8192 products."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)


def one_row(torch: Any) -> Callable[[], None]:
    """One row times 4 GiB."""
    x = torch.randn(1, 32768, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(65536, 32768, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(x, w.T)


def loaded(ask: Callable[[], Any], work: Callable[[], None], torch: Any) -> Any:
    """The answer while the GPU works; a thread keeps it fed."""
    import threading

    ends = threading.Event()

    def feed() -> None:
        while not ends.is_set():
            for _ in range(8):
                work()
            torch.cuda.synchronize()

    thread = threading.Thread(target=feed)
    thread.start()
    time.sleep(1.5)
    answer = ask()
    ends.set()
    thread.join()
    return answer


def agent(_: Path) -> dict[str, Any]:
    """CPU seconds a second of the agent's sampler over eight boards' worth of real reads."""
    from gpu.device_reader import InlineReader
    from gpu.nvml.binding import LiveNvml
    from gpu.nvml.nvml_device import NvmlDriver
    from telemetry.sampler import Sampler

    live = LiveNvml()
    calls = [0]

    class Eight:
        """One board that answers as eight."""

        def call(self, name: str, index: int, *args: int) -> Any:
            """As NVML does."""
            calls[0] += 1
            if name == "nvmlDeviceGetCount":
                return BOARDS
            answer = live.call(name, min(index, 0), *args)
            return f"{answer}-{index}" if name == "nvmlDeviceGetUUID" else answer

        def close(self) -> None:
            """Nothing is held."""

    def share(seconds: float) -> dict[str, float]:
        sampler = Sampler(InlineReader(NvmlDriver(Eight()).devices()))
        for _ in range(AGENT_HZ):
            sampler.sample(time.monotonic_ns())
        calls[0] = 0
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        begin, rounds = time.monotonic(), round(seconds * AGENT_HZ)
        longest = 0.0
        for k in range(rounds):
            time.sleep(max(0.0, begin + k / AGENT_HZ - time.monotonic()))
            at = time.monotonic()
            sampler.sample(time.monotonic_ns())
            longest = max(longest, time.monotonic() - at)
        lasted = time.monotonic() - begin
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - used
        return {"cpu_percent_of_one_core": 100 * used / lasted, "calls_a_second": calls[0] / lasted,
                "longest_round_seconds": longest}  # fmt: skip

    told: dict[str, Any] = {"boards": BOARDS, "hz": AGENT_HZ, "seconds": AGENT_SECONDS}
    told["idle"] = share(AGENT_SECONDS)
    load = subprocess.Popen([sys.executable, "-c", LOAD])
    time.sleep(12.0)
    told["loaded"] = share(AGENT_SECONDS)
    load.terminate()
    load.wait()
    return told


LOAD = """
import torch
x = torch.randn(1, 32768, device="cuda", dtype=torch.bfloat16)
w = torch.randn(65536, 32768, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(50): torch.mm(x, w.T)
    torch.cuda.synchronize()
"""


def products(out: Path) -> list[dict[str, float]]:
    """Each shape in turn; power beside them."""
    import torch

    torch.manual_seed(2)
    sampler = subprocess.Popen(
        [sys.executable, str(HERE / "sample_board.py"), str(out / "products_power.csv")]
    )
    rows = []
    try:
        for n, k in LAYERS:
            for m in TOKENS:
                rows.append(product(torch, m, n, k))
            (out / "products.json").write_text(json.dumps(rows))
        time.sleep(1.5)
    finally:
        sampler.terminate()
        sampler.wait()
    return rows


def product(torch: Any, m: int, n: int, k: int) -> dict[str, float]:
    """Operands in turn so that none is in the L2; times of a recorded round, back to back."""
    copies = int(min(MOST_COPIES, max(1, COLD_BYTES / (2 * (m * k + n * k + m * n)))) + 1)
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    xs = [torch.randn(m, k, **kind) for _ in range(copies)]
    ws = [torch.randn(n, k, **kind).mul_(k**-0.5) for _ in range(copies)]
    ys = [torch.empty(m, n, **kind) for _ in range(copies)]

    def once() -> None:
        for x, w, y in zip(xs, ws, ys, strict=True):
            torch.mm(x, w.T, out=y)

    once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(max(1, 128 // copies)):
            once()
    runs = copies * max(1, 128 // copies)
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < PRODUCT_SECONDS:
        graph.replay()
        torch.cuda.synchronize()
        count += runs
    end = time.monotonic()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(3):
        graph.replay()
    last.record()
    last.synchronize()
    return {"m": m, "n": n, "k": k, "copies": copies, "begin": begin, "end": end,
            "wall_seconds": (end - begin) / count,
            "seconds": first.elapsed_time(last) / 1e3 / (3 * runs)}  # fmt: skip


if __name__ == "__main__":
    main()
