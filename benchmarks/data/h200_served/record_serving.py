r"""Serve recorded arrivals on this machine's GPU and write what each request met. Reads only.

    PYTHONPATH=. python benchmarks/data/h200_served/record_serving.py REQUESTS.json OUT \
        --until-seconds 560

``REQUESTS.json`` holds runs by name, each with its length and its requests (arrival seconds, prompt
tokens, output tokens). The server is the shape of Llama-3.1-8B with random weights in 16 bits on
one GPU. Beside each run ``sample_board.py`` writes power. Then decodes alone by batch, each for
``DECODE_SECONDS``. No limit, clock or mode is changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks._continuous_batcher import Batcher, Iteration, Served

HERE = Path(__file__).parent
CACHE_PLACES = 420_000
"""Of an H200's memory; an H100's holds about 350,000."""

REST_SECONDS = 3.0
IDLE_SECONDS = 8.0
DECODE_SECONDS = 2.5
DECODE_CONTEXT = 1024
DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PROMPT_TOKENS = (2048, 1024, 512, 256, 128, 64)
PROMPT_REST_SECONDS = 1.5
MIXTURES = (
    (0, ((0, 2048),)), (0, ((4096, 2048),)), (0, ((0, 1024),) * 2), (0, ((0, 256),) * 8),
    (8, ((0, 2040),)), (32, ((0, 2016),)), (32, ((0, 504),) * 4), (0, ((0, 512),)),
    (8, ((0, 504),)), (32, ((0, 480),)), (0, ((0, 64),)), (32, ((0, 32),)),
)  # fmt: skip
"""Decodes, and of each prompt the tokens before and those of this iteration."""

MIXTURE_CONTEXT = 1500
MIXTURE_SECONDS = 0.6
MIXTURE_REST_SECONDS = 0.7
PROFILED = 4
"""Iterations."""

RESERVE_SECONDS = 5.0


def main() -> None:
    """All runs that fit in the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--until-seconds", type=float, default=560.0)
    parser.add_argument("--cache-places", type=int, default=CACHE_PLACES)
    parser.add_argument("--kernels", action="store_true", help="their times, by PyTorch's profiler")
    options = parser.parse_args()
    until = time.monotonic() + options.until_seconds
    options.out.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"marks": {}, "runs": {}}
    sampler = subprocess.Popen(
        [sys.executable, str(HERE / "sample_board.py"), str(options.out / "power.csv")]
    )
    try:
        mark(told, "idle")
        time.sleep(IDLE_SECONDS)
        mark(told, "loading")
        decoder = open_decoder(told, options.cache_places)
        mark(told, "context")
        time.sleep(IDLE_SECONDS)
        for name, run in json.loads(options.requests.read_text())["runs"].items():
            if time.monotonic() + run["seconds"] + RESERVE_SECONDS > until:
                print(f"{name}: no time left", flush=True)
                continue
            told["runs"][name] = serve(decoder, run)
            save(told, options.out)
            time.sleep(REST_SECONDS)
        told["decodes"] = decodes_alone(decoder, until)
        told["prompts"] = prompts_alone(decoder, until)
        save(told, options.out)
        told["mixtures"] = mixtures_alone(decoder, until)
        save(told, options.out)
        if options.kernels:
            told["kernels"] = kernels_alone(decoder, until)
        mark(told, "end")
        time.sleep(1.5)
        save(told, options.out)
    finally:
        sampler.terminate()
        sampler.wait()


def mark(told: dict[str, Any], name: str) -> None:
    """Remember when something began."""
    told["marks"][name] = time.monotonic()
    print(f"{time.monotonic():.1f} {name}", flush=True)


def save(told: dict[str, Any], out: Path) -> None:
    """Everything so far."""
    (out / "served.json").write_text(json.dumps(told))


def open_decoder(told: dict[str, Any], places: int) -> Any:
    """Weights, a check against a plain decoder, then every kernel once."""
    import torch

    from capacity.bench.decoder_shapes import STEP_MODELS, DecoderShape
    from capacity.torch_backend.served_check import worst_error
    from capacity.torch_backend.served_decoder import PromptPart, ServedDecoder

    cuda = torch.device("cuda", 0)
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    small = ServedDecoder(DecoderShape(3, 1024, 8, 2, 128, 2048, 4096), 4000, cuda, torch.bfloat16)
    told["gpu_uuid_hash"] = board_hash(torch)
    told["torch"], told["gpu"] = torch.__version__, torch.cuda.get_device_name(0)
    told["error_launched"] = worst_error(small)
    small.record(4)
    small.record_pieces(256)
    told["error_recorded"] = worst_error(small)
    print("errors", told["error_launched"], told["error_recorded"], flush=True)
    del small
    decoder = ServedDecoder(STEP_MODELS["8b"], places, cuda, torch.bfloat16)
    told["tuned"] = decoder.tune(32, 1300, event_seconds)
    print(told["tuned"], flush=True)
    for tokens in (17, 100, 300, 513, 1000, 1536, 2000, 2048):
        for before in (0, 700):
            decoder.run([], [PromptPart(0, before, tokens)])
    from capacity.torch_backend.served_decoder import Decode

    for batch in (*range(1, 40, 2), 48, 64, 100, 128, 200, 256):
        decoder.run([Decode(5000 * (i % 60), 700 + i) for i in range(batch)],
                    [PromptPart(places - 20_000, 0, 200)])  # fmt: skip
    decoder.record(256)
    decoder.record_pieces(2048)
    torch.cuda.synchronize()
    told["memory_bytes"] = torch.cuda.memory_allocated()
    return decoder


def board_hash(torch: Any) -> str:
    """Tells boards apart, no more; as in measured rows."""
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def event_seconds(work: Any) -> float:
    """Median seconds of one run."""
    import torch

    work()
    found = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            work()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e4)
    return float(sorted(found)[2])


def serve(decoder: Any, run: dict[str, Any]) -> dict[str, Any]:
    """One run: requests come at their times; it ends when its time is over."""
    batcher = Batcher(decoder.places - 1)
    coming = deque(
        Served(number, float(at), max(1, int(prompt)), max(1, int(output)))
        for number, (at, prompt, output) in enumerate(run["requests"])
    )
    finished: list[Served] = []
    log: list[tuple[float, float, int, int]] = []
    begin = time.monotonic()
    now = 0.0
    while now < run["seconds"]:
        while coming and coming[0].arrived_seconds <= now:
            batcher.waiting.append(coming.popleft())
        if not batcher.busy:
            wait = coming[0].arrived_seconds if coming else run["seconds"]
            time.sleep(max(0.0, min(wait, run["seconds"]) - now) + 1e-5)
            now = time.monotonic() - begin
            continue
        iteration = batcher.next()
        execute(decoder, iteration)
        ended = time.monotonic() - begin
        log.append((ended, ended - now, len(iteration.decodes), iteration.prompt_tokens))
        finished += batcher.done(iteration, ended)
        now = ended
    left = len(batcher.decoding) + len(batcher.filling) + len(batcher.waiting)
    print(f"  {len(finished)} finished, {left} left, {len(log)} iterations", flush=True)
    return {
        "begin": begin,
        "seconds": run["seconds"],
        "requests": [
            [one.number, round(one.first_seconds, 5), round(one.last_seconds, 5)]
            for one in finished
        ],
        "iterations": [[round(a, 5), round(b, 6), c, d] for a, b, c, d in log],
    }


def execute(decoder: Any, iteration: Iteration) -> None:
    """Run it; each decode adds a token behind what its request has."""
    decoder.run(
        [(one.start, one.prompt_tokens + one.made) for one in iteration.decodes],
        [(chunk.request.start, chunk.request.filled, chunk.tokens) for chunk in iteration.chunks],
    )


def decodes_alone(decoder: Any, until: float) -> list[dict[str, float]]:
    """Iterations of equal decodes, back to back."""
    rows = []
    apart = min(1600, (decoder.places - DECODE_CONTEXT - 1) // max(DECODE_BATCHES))
    for batch in DECODE_BATCHES:
        if time.monotonic() + DECODE_SECONDS + RESERVE_SECONDS > until:
            break
        decodes = [(i * apart, DECODE_CONTEXT) for i in range(batch)]
        begin, count = time.monotonic(), 0
        while time.monotonic() - begin < DECODE_SECONDS:
            decoder.run(decodes, [])
            count += 1
        end = time.monotonic()
        rows.append({"batch": batch, "context": DECODE_CONTEXT, "begin": begin, "end": end,
                     "seconds": (end - begin) / count})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def prompts_alone(decoder: Any, until: float) -> list[dict[str, Any]]:
    """Iterations of one prompt each, back to back after a rest; the first are not held back."""
    rows = []
    for tokens in PROMPT_TOKENS:
        if time.monotonic() + DECODE_SECONDS + REST_SECONDS + RESERVE_SECONDS > until:
            break
        time.sleep(PROMPT_REST_SECONDS)
        begin, ends = time.monotonic(), []
        while time.monotonic() - begin < DECODE_SECONDS:
            decoder.run([], [(0, 0, tokens)])
            ends.append(time.monotonic() - begin)
        rows.append({"tokens": tokens, "begin": begin, "ends": [round(end, 6) for end in ends]})
        print(tokens, ends[:3], len(ends), flush=True)
    return rows


def mixtures_alone(decoder: Any, until: float) -> list[dict[str, Any]]:
    """Iterations of decodes and prompts, back to back after a rest; the first are not held back."""
    rows = []
    for batch, prompts in MIXTURES:
        if time.monotonic() + MIXTURE_SECONDS + REST_SECONDS + RESERVE_SECONDS > until:
            break
        decodes, parts = mixture(batch, prompts)
        time.sleep(MIXTURE_REST_SECONDS)
        begin, ends = time.monotonic(), []
        while time.monotonic() - begin < MIXTURE_SECONDS:
            decoder.run(decodes, parts)
            ends.append(time.monotonic() - begin)
        rows.append({"batch": batch, "context": MIXTURE_CONTEXT, "prompts": prompts,
                     "begin": begin, "ends": [round(end, 6) for end in ends]})  # fmt: skip
        print(batch, prompts, ends[:3], len(ends), flush=True)
    return rows


def mixture(batch: int, prompts: tuple[tuple[int, int], ...]) -> tuple[list[Any], list[Any]]:
    """Decodes and parts of prompts, each in a range of the cache of its own."""
    return (
        [(100_000 + 2000 * i, MIXTURE_CONTEXT) for i in range(batch)],
        [(10_000 * i, before, tokens) for i, (before, tokens) in enumerate(prompts)],
    )


def kernels_alone(decoder: Any, until: float) -> list[dict[str, Any]]:
    """Microseconds of each kernel in an iteration, and of the iteration beside the profiler."""
    from torch.profiler import ProfilerActivity, profile

    rows = []
    for batch, prompts in MIXTURES:
        if time.monotonic() + REST_SECONDS + RESERVE_SECONDS > until:
            break
        decodes, parts = mixture(batch, prompts)
        time.sleep(MIXTURE_REST_SECONDS)
        decoder.run(decodes, parts)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            begin = time.monotonic()
            for _ in range(PROFILED):
                decoder.run(decodes, parts)
            took = (time.monotonic() - begin) / PROFILED
        kernels = {
            one.key[:120]: [one.count / PROFILED, one.self_device_time_total / PROFILED]
            for one in found.key_averages()
            if one.self_device_time_total > 0
        }
        rows.append({"batch": batch, "prompts": prompts, "seconds": took, "kernels": kernels})
        print(batch, prompts, round(took, 5), len(kernels), flush=True)
    return rows


if __name__ == "__main__":
    main()
