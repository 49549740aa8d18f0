"""``wattpack bench``: measure what a GPU does with time and watts, kernel by kernel."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from actuator import ActuatorError
from capacity.app import bench_collect, bench_plot, bench_rank, bench_reports, bench_submit
from capacity.app.bench_backends import BACKENDS, IDLE_SECONDS, QUICK_IDLE_SECONDS, open_rig
from capacity.app.bench_import import add_import
from capacity.bench.bench_plan import FULL, bench_plan
from capacity.bench.bench_point import Section
from capacity.bench.bench_runner import BenchOutcome, run_bench
from capacity.bench.bench_runner import Progress as BenchProgress
from capacity.bench.fault_finder import find_faults
from capacity.bench.launch_bound import transition_batch
from capacity.bench.measurement_row import row_line
from capacity.bench.point_bench import BenchRig, BenchSettings
from capacity.bench.results_file import EarlierRun, ResultsFile, read_earlier_run
from capacity.bench.row_checks import roofs_unknown
from gpu.device import GpuError
from wattpack.errors import InputError, PermanentError
from wattpack.flags import output_file
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.units import require_number

SHOWN_FLAGGED: Final = 20
JOULES_PER_WATT_HOUR: Final = 3600.0


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack bench", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser(
        "run",
        help="measure one GPU of this machine",
        description="Measure one GPU. Settings of the board are read; only section caps has them "
        "written, by the actuator. Ctrl-C ends the run; the same command goes on where it ended.",
    )
    run.add_argument(
        "--out", type=output_file, required=True, help="results file, JSON Lines; resumed"
    )
    run.add_argument("--backend", choices=BACKENDS, default="torch", help="default: torch")
    run.add_argument("--gpu", type=int, default=0, help="NVML index (default 0)")
    run.add_argument("--quick", action="store_true", help="under 2 minutes: fewer points")
    run.add_argument(
        "--sections",
        default=",".join(FULL),
        help=f"comma-separated, of {', '.join(get_args(Section))} (default: a full run)",
    )
    run.add_argument("--seed", type=int, default=1, help="of order and operands (default 1)")
    run.add_argument("--tuning-cache", type=Path, help="winners of earlier tuning")
    run.add_argument(
        "--actuator", type=Path, metavar="SOCKET",
        help="the node's actuator, for section caps: limits and clock locks are held by leases of "
        "ten seconds and given back; without it every point is measured at the default limit",
    )  # fmt: skip
    run.add_argument("--allow-shared", action="store_true", help="measure beside other work")
    run.add_argument(
        "--print-rows", action="store_true", help="rows on standard output, no words: a pod's log"
    )
    run.set_defaults(act=_run)
    bench_rank.add_parser(verbs)
    _add_reports(verbs)
    add_import(verbs)
    return parser


def _add_reports(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = verbs.add_parser(
        "check",
        help="is anything wrong with the board that these rows were measured on?",
        description="Ends with 1 and the faults that were found: busy neighbour, clock lock, cap, "
        "MIG slice; also with 1 (roofs_unknown) for a type whose roofs are not known: a sound "
        "board's rows (--known) tell faults there, but nothing tells times that cannot be.",
    )
    check.add_argument("rows", type=Path, nargs="+", help="results files of one board")
    check.add_argument("--known", type=Path, help="rows of a sound board of the same type")
    check.set_defaults(act=bench_reports.check)
    profile = verbs.add_parser(
        "profile",
        help="a GPUProfile object from rows",
        description="Draws come from the rows, limits and cap curves from the shipped profile: "
        "the benchmark sets no caps.",
    )
    profile.add_argument("rows", type=Path, nargs="+", help="results files of one board")
    profile.add_argument("--gpu", help="profile to fill, refused if the rows are of another type")
    profile.add_argument("--json", action="store_true", help="JSON instead of YAML")
    profile.add_argument(
        "--allow-simulated", action="store_true",
        help="rows of the simulated backend, too; no part of wattpack reads the object then",
    )  # fmt: skip
    profile.set_defaults(act=bench_reports.profile)
    plot = verbs.add_parser("plot", help="roofline, power and cap curve as PNG (needs matplotlib)")
    plot.add_argument("rows", type=Path, nargs="+", help="results files of one type")
    plot.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    plot.set_defaults(act=bench_plot.plot)
    submit = verbs.add_parser(
        "submit",
        help="a Job on one whole GPU of each type of a cluster that has no GPUProfile object",
        description="Needs your own rights to list nodes and GPUProfiles and to create Jobs. The "
        "Job prints its rows: wattpack bench collect reads them back.",
    )
    submit.add_argument("--image", required=True, help="with wattpack, PyTorch and Triton")
    submit.add_argument("--namespace", default=SYSTEM_NAMESPACE, help="default: %(default)s")
    submit.add_argument("--quick", action="store_true", help="under 2 minutes: fewer points")
    submit.add_argument("--dry-run", action="store_true", help="print the Jobs as YAML")
    submit.add_argument("--kubeconfig", type=Path, help="default: the usual one")
    submit.set_defaults(act=bench_submit.submit)
    collect = verbs.add_parser(
        "collect",
        help="rows and GPUProfile objects of the Jobs that have ended",
        description="Needs your own rights to list Jobs and pods and to read their logs; --apply "
        "also to write GPUProfiles. Rows of a faulty board, or of another GPU than the Job asked "
        "for, are refused; ends with 1 if any were.",
    )
    collect.add_argument("--out", type=Path, required=True, help="folder for rows and profiles")
    collect.add_argument("--namespace", default=SYSTEM_NAMESPACE, help="default: %(default)s")
    collect.add_argument("--apply", action="store_true", help="write GPUProfile objects, too")
    collect.add_argument("--kubeconfig", type=Path, help="default: the usual one")
    collect.set_defaults(act=bench_collect.collect)


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 the board, its software or a check failed, 2 refused input."""
    args = build_parser().parse_args(argv)
    try:
        status: int = args.act(args)
        return status
    except InputError as error:
        print(f"wattpack bench: {error}", file=sys.stderr)
        return 2
    except (PermanentError, GpuError, ActuatorError) as error:
        print(f"wattpack bench: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    require_number("seed", args.seed, minimum=0, maximum=2**63)
    earlier = read_earlier_run(args.out)
    rig = open_rig(args)
    try:
        outcome = _measure(args, rig, earlier)
    finally:
        rig.backend.close()
    if args.print_rows:
        for row in outcome.rows:
            print(row_line(row))
    else:
        _summary(outcome)
        if rig.settings is None:
            print("  settings: default limit only, nobody to set caps or clock locks was named")
        for line in rig.remarks():
            print(f"  {line}")
    return 0


def _measure(args: argparse.Namespace, rig: BenchRig, earlier: EarlierRun) -> BenchOutcome:
    facts = replace(
        rig.backend.facts(),
        limit_watts=rig.state.default_limit_watts,
        max_clock_mhz=rig.state.max_clock_mhz,
    )
    points = bench_plan(facts, args.sections.split(","), quick=args.quick, seed=args.seed)
    settings = BenchSettings(
        run_id=uuid.uuid4().hex[:12],
        seed=args.seed,
        allow_shared=args.allow_shared,
        idle_seconds=QUICK_IDLE_SECONDS if args.quick else IDLE_SECONDS,
    )
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[remaining]}"), console=Console(file=sys.stderr),
        disable=args.print_rows,
    )  # fmt: skip
    if earlier.dropped and not args.print_rows:
        print(f"dropped a row that was cut off: {earlier.dropped}…", file=sys.stderr)
    with ResultsFile(args.out, earlier) as file, bar:
        task = bar.add_task("measuring", total=len(points), remaining="")

        def report(progress: BenchProgress) -> None:
            if progress.row is not None:
                file.append(progress.row)
            left = f"{progress.remaining_seconds:.0f} s left"
            name = progress.row.kernel.kernel_class if progress.row else progress.skipped
            bar.update(task, completed=progress.done, remaining=left, description=name[:40])

        return run_bench(
            points, rig, settings, known=earlier.rows, known_source=str(args.out), report=report
        )


def _summary(outcome: BenchOutcome) -> None:
    bad = [row for row in outcome.rows if not row.ok]
    print(
        f"{len(outcome.rows)} rows in {outcome.elapsed_seconds:.0f} s, {len(bad)} flagged, "
        f"{len(outcome.skipped)} skipped, drift {'YES' if outcome.drifted else 'no'}, "
        f"fingerprint {outcome.fingerprint[:16]}",
    )
    print(f"  cost: {_cost(outcome)}")
    batch = transition_batch(outcome.rows)
    if batch is not None:
        print(f"  launch-bound: a small stack waits for its host up to batch {batch:.0f}")
    for remark in outcome.gate.remarks:
        print(f"  gate: {remark}")
    for finding in find_faults(outcome.rows):
        print(f"  FAULT {finding.fault}: {finding.evidence}")
    if unknown := roofs_unknown(outcome.rows):
        print(f"  not judged: {unknown}")
    for row in bad[:SHOWN_FLAGGED]:
        print(f"  {row.kernel}: {', '.join(row.flags)}")
    if len(bad) > SHOWN_FLAGGED:
        print(f"  and {len(bad) - SHOWN_FLAGGED} more")
    for reason, count in Counter(outcome.skipped.values()).items():
        print(f"  skipped {count}: {reason}")


def _cost(outcome: BenchOutcome) -> str:
    """GPU-minutes and, where the board counts energy, watt-hours of this run."""
    minutes = f"{outcome.elapsed_seconds / 60:.1f} GPU-minutes"
    if outcome.energy_joules is None:
        return minutes
    return f"{minutes}, {outcome.energy_joules / JOULES_PER_WATT_HOUR:.1f} Wh"


if __name__ == "__main__":
    raise SystemExit(main())
