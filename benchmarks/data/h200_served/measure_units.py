"""What GPM tells of kinds of work on one board, by the product's own reader. Reads only.

    PYTHONPATH=. python benchmarks/data/h200_served/measure_units.py OUT

Eight layers of an 8-billion-parameter decoder with random weights decode (from CUDA graphs, or
launched one by one), prefill 4,096 tokens, or take turns; beside them products, copies, tiny
kernels and an LSTM. Each runs for 4 s; metrics are of the last 2 s.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpu.nvml import gpm
from gpu.nvml.binding import LiveNvml
from gpu.nvml.calls import GPM_METRICS

Work = Callable[[], Any]
WIDTH, HEADS, SHARED, HEAD, INNER = 4096, 32, 8, 128, 14336
MIXTURES = (0.1, 0.3, 0.5)
BOARD = {"device": "cuda", "dtype": torch.bfloat16}
KEPT: list[Any] = []
"""What graphs read: without it the first run ended in a segmentation fault."""


def layers() -> list[tuple[Any, ...]]:
    """Weights of eight layers."""
    shapes = (
        (WIDTH + 2 * SHARED * HEAD, WIDTH),
        (WIDTH, WIDTH),
        (2 * INNER, WIDTH),
        (WIDTH, INNER),
    )
    return [tuple(torch.randn(*shape, **BOARD) * 0.01 for shape in shapes) for _ in range(8)]


def forward(weights: list[tuple[Any, ...]], x: Any, cache: tuple[Any, Any] | None) -> Any:
    """All layers, over a cache of one step's requests or over one prompt."""
    attend = torch.nn.functional.scaled_dot_product_attention
    for qkv, out, up, down in weights:
        h, n = x @ qkv.t(), len(x)
        if cache is not None:
            q = h[:, :WIDTH].reshape(n, HEADS, 1, HEAD)
            a = attend(q, *cache, enable_gqa=True).reshape(n, WIDTH)
        else:
            parts = h.split((WIDTH, SHARED * HEAD, SHARED * HEAD), dim=1)
            q, k, v = (part.reshape(1, n, -1, HEAD).transpose(1, 2) for part in parts)
            a = attend(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(n, WIDTH)
        x = x + a @ out.t()
        u = x @ up.t()
        x = x + (torch.nn.functional.silu(u[:, :INNER]) * u[:, INNER:]) @ down.t()
    return x


def decode(weights: list[tuple[Any, ...]], batch: int, context: int = 2048) -> Work:
    """One step of a batch."""
    x = torch.randn(batch, WIDTH, **BOARD)
    k, v = (torch.randn(batch, SHARED, context, HEAD, **BOARD) for _ in range(2))
    return lambda: forward(weights, x, (k, v))


def graphed(work: Work) -> Work:
    """The same from a CUDA graph."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        KEPT.append(work())
    KEPT.extend((work, graph))
    replay: Work = graph.replay
    return replay


def seconds_of(work: Work) -> float:
    """Of one run."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / 5


def in_turns(first: Work, second: Work, share: float) -> Work:
    """The first for a share of the time."""
    often = max(1, round((1 - share) / share * seconds_of(first) / seconds_of(second)))

    def both() -> None:
        first()
        for _ in range(often):
            second()

    return both


def works() -> dict[str, Work]:
    """Every kind by its name."""
    weights = layers()
    prompt = torch.randn(4096, WIDTH, **BOARD)
    a, b = (torch.randn(8192, 8192, **BOARD) for _ in range(2))
    matrix, row = torch.randn(16384, 131072, **BOARD), torch.randn(131072, 1, **BOARD)
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target, small = torch.empty_like(source), torch.ones(1000, device="cuda")
    lstm, steps = torch.nn.LSTM(256, 256).to("cuda"), torch.randn(1000, 1, 256, device="cuda")

    def prefill() -> Any:
        return forward(weights, prompt, None)

    graphs = {f"decode_{n}": graphed(decode(weights, n)) for n in (1, 8, 16, 32, 64)}
    return {
        "products": lambda: a @ b,
        "prefill": prefill,
        "one_row": lambda: matrix @ row,
        "copy": lambda: target.copy_(source),
        **graphs,
        "decode_256": graphed(decode(weights, 256, 512)),
        "decode_1_eager": decode(weights, 1),
        "decode_16_eager": decode(weights, 16),
        **{f"mixed_{s}": in_turns(prefill, graphs["decode_16"], s) for s in MIXTURES},
        "launches": lambda: [small.mul_(1.0001) for _ in range(100)],
        "chain_graph": graphed(lambda: [small.mul_(1.0001) for _ in range(1000)][-1]),
        "lstm": lambda: lstm(steps),
    }


def run(work: Work, seconds: float) -> None:
    """For some time, at most 50 ms ahead of the board."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.05:
            work()
        torch.cuda.synchronize()


def look(nvml: LiveNvml, found: dict[str, float]) -> None:
    """Two samples 2 s apart, and what NVML tells beside them."""
    time.sleep(1.0)
    begin = time.thread_time_ns()
    nvml.call(GPM_METRICS, 0, *gpm.METRICS)
    found["cost_us"] = (time.thread_time_ns() - begin) / 1000
    rates = []
    for _ in range(20):
        time.sleep(0.1)
        rates.append(nvml.call("nvmlDeviceGetUtilizationRates", 0))
    rows = nvml.call(GPM_METRICS, 0, *gpm.METRICS)
    found.update({gpm.METRICS[int(metric)]: round(value / 100, 4) for metric, _, value in rows})
    for name, rate in (("utilisation", "gpu"), ("memory_utilisation", "memory")):
        found[name] = sum(r[rate] for r in rates) / len(rates) / 100
    found["watts"] = nvml.call("nvmlDeviceGetPowerUsage", 0) / 1000
    found["sm_mhz"] = nvml.call("nvmlDeviceGetClockInfo", 0, 1)


def main(out: Path) -> None:
    """Measure every kind and write them down."""
    nvml = LiveNvml()
    told: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for name, work in works().items():
            run(work, 0.5)
            told[name] = {}
            watch = threading.Thread(target=look, args=(nvml, told[name]))
            watch.start()
            run(work, 3.6)
            watch.join()
    board = nvml.call("nvmlDeviceGetName", 0)
    text = json.dumps({"board": board, "works": told}, indent=1)
    (out / "units.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
