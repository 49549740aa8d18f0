"""``wattpack bench rank``: other people's kernels against the tuned library, cheats refused."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.bench.bench_identity import BenchIdentity
from capacity.bench.measurement_row import Latency, MeasurementRow, row_line
from capacity.kernels import NumberFormat
from capacity.numpy_backend import HostMeter
from capacity.ranking.kernel_host import KernelHost
from capacity.ranking.kernel_judge import KernelJudge
from capacity.ranking.kernel_ranking import RankedKernel, rank
from capacity.ranking.kernel_source import KernelSource
from capacity.ranking.kernel_verdict import Verdict
from capacity.ranking.rank_shapes import AXES, ON_GPU, ON_PROCESSOR, ranked_tasks
from capacity.ranking.ranked_task import RankedTask, TaskName
from capacity.ranking.trial_timing import TrialRule
from capacity.ranking_process.find_kernel import find_kernels, still_as_read
from capacity.ranking_process.numpy_host import NumpyHost
from gpu.board_meter import BoardState
from gpu.nvml.nvml_meter import open_meter
from wattpack.clock import SystemClock
from wattpack.errors import InputError, PermanentError
from wattpack.flags import output_file

FORMATS: Final = ("bf16", "fp16", "fp32")
NS: Final = 1e-9
STARTED_AHEAD: Final = 8


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """``bench rank``."""
    parser = verbs.add_parser(
        "rank",
        help="rank other people's kernels against the tuned library; cheats are refused",
        description="Each kernel runs in a process of its own and is believed nothing. It takes "
        "the task's operands and returns the result, or takes one argument more and writes into "
        "it. A refused kernel is a result: exit status 0, with its reason. The kernel's code runs "
        "with your rights: its process is bounded in time and memory, it is no sandbox.",
    )
    parser.add_argument("--task", choices=get_args(TaskName), required=True)
    parser.add_argument(
        "--kernel", action="append", required=True, metavar="MODULE:FUNCTION",
        help="or FILE.py:FUNCTION, or a folder of modules with a function kernel; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--shapes",
        help="comma-separated: " + "; ".join(f"{task} {axes}" for task, axes in AXES.items()),
    )
    parser.add_argument("--backend", choices=("torch", "numpy"), default="torch")
    parser.add_argument("--gpu", type=int, default=0, help="NVML index (default 0)")
    parser.add_argument(
        "--format", choices=FORMATS, help="default: bf16 on a GPU, fp32 (only) on a processor"
    )
    parser.add_argument("--rows", type=output_file, help="write a row a timed shape, JSON Lines")
    parser.add_argument("--json", action="store_true", help="verdicts as JSON on standard output")
    parser.set_defaults(act=_rank)


def _rank(args: argparse.Namespace) -> int:
    on_gpu = args.backend == "torch"
    number_format: NumberFormat = args.format or ("bf16" if on_gpu else "fp32")
    if args.task == "bandwidth":
        number_format = "fp32"
    defaults = ON_GPU if on_gpu else ON_PROCESSOR
    tasks = ranked_tasks(args.task, args.shapes or defaults[args.task], number_format)
    sources = [source for spec in args.kernel for source in find_kernels(spec)]
    if len({(source.module, source.function) for source in sources}) < len(sources):
        raise InputError("--kernel", "each kernel once", args.kernel)
    host, state = _open(args)
    known = host.baselines(tasks[0])
    try:
        host.start_ahead(min(len(known) + len(sources), STARTED_AHEAD))
        baselines = _try_all(host, known, tasks)
        kernels = _try_all(host, sources, tasks)
    finally:
        host.close()
    lines = rank(baselines, kernels)
    minutes = sum(verdict.device_minutes for verdict in (*baselines, *kernels))
    if args.rows:
        _write_rows(args.rows, lines, tasks, host, state)
    if args.json:
        print(json.dumps({
            "task": args.task, "device": host.facts().product, "software": host.facts().software,
            "device_minutes": round(minutes, 4), "kernels": [line.as_dict() for line in lines],
        }, indent=2, allow_nan=False))  # fmt: skip
    else:
        _show(lines, tasks, minutes)
    return 0


def _open(args: argparse.Namespace) -> tuple[KernelHost, BoardState]:
    """The host and its board.

    Raises:
        PermanentError: if the backend's software is not installed.
        GpuError: if the board cannot be opened.
    """
    if args.backend == "numpy":
        return NumpyHost(SystemClock()), HostMeter().state()
    state = open_meter(args.gpu).state()
    try:
        from capacity.torch_backend.ranked_host import TorchHost
    except ImportError as error:
        raise PermanentError(
            f"backend torch needs PyTorch ({error.name} is not installed); "
            "`--backend numpy` ranks kernels of numpy"
        ) from error
    return TorchHost(f"cuda:{args.gpu}", SystemClock()), state


def _try_all(
    host: KernelHost, sources: Sequence[KernelSource], tasks: Sequence[RankedTask]
) -> list[Verdict]:
    """Each by a judge of its own, so that no two kernels see the same operands."""
    verdicts: list[Verdict] = []
    for source in sources:
        print(f"trying {source.name}", file=sys.stderr, flush=True)
        judge = KernelJudge(host, TrialRule())
        if not verdicts:
            for task in tasks:
                judge.require_telling(task)
        verdict = judge.try_kernel(source, tasks)
        if not still_as_read(source):
            raise PermanentError(f"{source.name} changed while kernels were tried: start again")
        verdicts.append(verdict)
    return verdicts


def _show(lines: Sequence[RankedKernel], tasks: Sequence[RankedTask], minutes: float) -> None:
    table = Table(title="times as fast as the best baseline of each shape")
    for heading in ("kernel", "speed", *(task.describe() for task in tasks), "remarks"):
        table.add_column(heading, overflow="fold")  # a path is cut nowhere
    for line in lines:
        verdict = line.verdict
        name = escape(f"{verdict.kernel} (baseline)" if line.baseline else verdict.kernel)
        if verdict.refused:
            blank = [""] * len(tasks)
            table.add_row(name, "refused", *blank, escape(f"{verdict.reason}: {verdict.evidence}"))
            continue
        times = [
            f"{speed:.2f} ({shape.timings[0].median_seconds * 1e6:.1f} us, "
            f"{shape.timings[0].cache_state})"
            for speed, shape in zip(line.by_shape, verdict.shapes, strict=True)
        ]
        table.add_row(name, f"{line.speed:.2f}", *times, ", ".join(line.doubts))
    Console().print(table)
    print(f"{minutes:.2f} device-minutes")


def _write_rows(
    path: Path, lines: Sequence[RankedKernel], tasks: Sequence[RankedTask], host: KernelHost,
    state: BoardState,
) -> None:  # fmt: skip
    now = datetime.fromtimestamp(SystemClock().wall_time_ns() * NS, UTC).isoformat()
    run = uuid.uuid4().hex[:12]
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            identity = _identity(run, line.verdict, host, state)
            for task, shape in zip(tasks, line.verdict.shapes, strict=False):
                for timing in () if line.verdict.refused else shape.timings:
                    row = MeasurementRow(
                        identity=identity, section="ranking", kernel=task.kernel,
                        cache_state=timing.cache_state, timing_mode="continuous",
                        implementation=line.verdict.kernel, data_distribution="normal, 1/4 others",
                        latency=Latency(
                            timing.median_seconds, timing.p10_seconds, timing.p90_seconds,
                            timing.relative_std, timing.runs,
                        ),
                        power=None, sm_clock_mhz=None, temperature_start_celsius=None,
                        temperature_end_celsius=None, throttle_reasons=0, started_at=now,
                        flags=("unstable_time",) if "unstable_time" in line.doubts else (),
                    )  # fmt: skip
                    file.write(row_line(row) + "\n")


def _identity(run: str, verdict: Verdict, host: KernelHost, state: BoardState) -> BenchIdentity:
    facts = host.facts()
    return BenchIdentity(
        run_id=run,
        gpu_product=state.product,
        gpu_uuid_hash=hashlib.sha256(state.uuid.encode()).hexdigest()[:16],
        architecture=facts.architecture,
        vbios=state.vbios,
        driver=state.driver,
        cuda="",
        torch=facts.software,
        image_digest="",
        kernel_source_sha256=verdict.source_sha256,
        power_limit_watts=state.power_limit_watts,
    )
