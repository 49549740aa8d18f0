"""``wattpack bench``: measure what this GPU does with time and watts, kernel by kernel."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from capacity.bench.bench_plan import FULL, Section, bench_plan
from capacity.bench.bench_runner import BenchOutcome, BenchRig, BenchSettings, run_bench
from capacity.bench.bench_runner import Progress as BenchProgress
from capacity.bench.measurement_row import MeasurementRow, read_rows, row_line
from capacity.bench.ports import KernelBackend
from gpu.device import GpuError
from gpu.nvml.nvml_meter import open_meter
from wattpack.clock import Clock, SystemClock
from wattpack.errors import InputError, PermanentError

TUNING_BUDGET_SECONDS = 60.0


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack bench", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="measure one GPU of this machine")
    run.add_argument("--out", type=Path, required=True, help="results file, JSON Lines; resumed")
    run.add_argument("--backend", choices=("torch",), default="torch")
    run.add_argument("--gpu", type=int, default=0, help="NVML index (default 0)")
    run.add_argument("--quick", action="store_true", help="under 2 minutes: fewer points")
    run.add_argument(
        "--sections",
        default=",".join(FULL),
        help=f"comma-separated, of {', '.join(get_args(Section))} (default: a full run)",
    )
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--tuning-cache", type=Path, help="winners of earlier tuning")
    run.add_argument("--allow-shared", action="store_true", help="measure beside other work")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark: 0 measured, 1 the board or its software failed, 2 refused input."""
    args = build_parser().parse_args(argv)
    clock = SystemClock()
    try:
        known = read_rows(args.out) if args.out.exists() else []
        outcome = _measure(args, clock, known)
    except InputError as error:
        print(f"wattpack bench: {error}", file=sys.stderr)
        return 2
    except (PermanentError, GpuError) as error:
        print(f"wattpack bench: {error}", file=sys.stderr)
        return 1
    _summary(outcome)
    return 0


def _measure(args: argparse.Namespace, clock: Clock, known: list[MeasurementRow]) -> BenchOutcome:
    meter = open_meter(args.gpu)
    state = meter.state()  # before this process is itself one of those that hold the GPU
    backend = _backend(args, clock)
    sections: list[Section] = args.sections.split(",")
    points = bench_plan(backend.facts(), sections, quick=args.quick, seed=args.seed)
    settings = BenchSettings(
        run_id=uuid.uuid4().hex[:12], seed=args.seed, allow_shared=args.allow_shared
    )
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[remaining]}"), console=console,
    )  # fmt: skip
    with args.out.open("a", encoding="utf-8") as file, bar:
        task = bar.add_task("measuring", total=len(points), remaining="")

        def report(progress: BenchProgress) -> None:
            _write(file, progress.row)
            left = f"{progress.remaining_seconds:.0f} s left"
            name = progress.row.kernel.kernel_class if progress.row else progress.skipped
            bar.update(task, completed=progress.done, remaining=left, description=name[:40])

        try:
            rig = BenchRig(backend, meter, clock, state)
            return run_bench(points, rig, settings, known=known, report=report)
        finally:
            backend.close()


def _backend(args: argparse.Namespace, clock: Clock) -> KernelBackend:
    from capacity.torch_backend import open_torch_backend
    from capacity.torch_backend.tuning import TunedConfigs

    tuned = TunedConfigs(clock, TUNING_BUDGET_SECONDS, args.tuning_cache)
    return open_torch_backend(args.gpu, tuned, clock)


def _write(file: TextIO, row: MeasurementRow | None) -> None:
    if row is not None:
        file.write(row_line(row) + "\n")
        file.flush()


def _summary(outcome: BenchOutcome) -> None:
    bad = [row for row in outcome.rows if not row.ok]
    print(
        f"{len(outcome.rows)} rows in {outcome.elapsed_seconds:.0f} s, {len(bad)} flagged, "
        f"{len(outcome.skipped)} skipped, drift {'YES' if outcome.drifted else 'no'}, "
        f"fingerprint {outcome.fingerprint[:16]}"
    )
    for row in bad:
        print(f"  {row.kernel}: {', '.join(row.flags)}")
    for key, reason in outcome.skipped.items():
        print(f"  skipped {key}: {reason}")


if __name__ == "__main__":
    raise SystemExit(main())
