"""How long a planning cycle takes on a contended cluster, through the solver's own process.

Clusters of ``_latency_cases``: 95 % full with every bound pod in the snapshot, 1.5 times as many
GPUs asked for as are free, rack budgets that bind. A cycle is what the scheduler waits for: digest,
what changed, the child's answer by the default deadline, the checker. Wall seconds depend on what
else the machine does; CPU seconds and ratios less so.

And two texts of 10**6 pods, given to ``wattpack plan pods`` as a file and through a pipe: how soon
they are refused, and how much memory that takes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from benchmarks._arguments import read_arguments
from benchmarks._child import kept
from benchmarks._latency_cases import contended
from benchmarks.runner import Options, Result, Target
from scheduler_plugin.app.solver_process import ChildSettings, ProcessPlanner
from scheduler_plugin.documents.plan_document import PendingReason, Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.documents.snapshot_stream import SnapshotReceiver, SnapshotSender
from scheduler_plugin.solve import SearchSettings, plan
from wattpack.clock import SystemClock
from wattpack.flags import positive
from wattpack.scratch_folder import ScratchFolder

NAME: Final = "planner_latency"
SUMMARY: Final = "seconds, CPU and memory of a planning cycle at 1,000 and 5,000 nodes"
TAKES_ARGUMENTS: Final = True
USAGE: Final = "--cycles N"
MIB: Final = 1024 * 1024
HUGE_PODS: Final = 1_000_000
TARGETS: Final = {
    "small_cycle_seconds_p95": Target(at_most=1.0),
    "small_incumbent_seconds_p95": Target(at_most=0.1),
    "moving_cycle_seconds_p95": Target(at_most=1.0),
    "large_cycle_seconds_p95": Target(at_most=5.0),
    "workers_killed": Target(at_most=0),
    "worker_peak_mib": Target(at_most=1024),
    "huge_refused_seconds_max": Target(at_most=2.0),
    "huge_peak_mib_max": Target(at_most=256),
    "huge_not_refused": Target(at_most=0),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One cluster size.

    Attributes:
        servers: Of eight GPUs.
        waiting: Pods without a place.
        deadline_seconds: The product's default.
        moves: Whether bound pods that have a price may move, seven of ten with GPUs.
    """

    name: str
    servers: int
    waiting: int
    cycles: int
    deadline_seconds: float = 1.0
    moves: bool = False


def arms(options: Options) -> tuple[Arm, ...]:
    """The two sizes, and the small one where what runs may move."""
    small, moving, large = (5, 2, 2) if options.quick else (100, 30, 100)
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--cycles", type=positive)
    given = read_arguments(parser, options.arguments, "--cycles N, of each arm")
    if given.cycles is not None:
        small = moving = large = max(1, round(given.cycles))
    return (
        Arm("small", 1000, 200, small),
        Arm("moving", 1000, 200, moving, moves=True),
        Arm("large", 5000, 1000, large),
    )


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle took and gave."""

    seconds: float
    cpu_seconds: float
    incumbent_seconds: float
    placed: int
    unexplained: int
    without_remedy: int
    rounds: int


class _FirstPlan(Exception):
    """Ends an incumbent that is timed alone."""


def incumbent_cpu_seconds(arm: Arm, seed: int) -> float:
    """CPU of one process that does what both do until there is a plan, beside no other cycle."""
    sender, receiver = SnapshotSender(), SnapshotReceiver()
    receiver.follow(sender.change(contended(arm.servers, arm.waiting, seed, 0)))
    snapshot = contended(arm.servers, arm.waiting, seed, 1)

    def stop(first: Plan) -> None:
        raise _FirstPlan

    gc.collect()
    gc.disable()  # As the child does.
    began = time.process_time()
    try:
        received, digest = receiver.follow(sender.change(snapshot))
        settings = SearchSettings(moves=arm.moves)
        plan(received, deadline_seconds=0.0, settings=settings, digest=digest, on_plan=stop)
    except _FirstPlan:
        return time.process_time() - began
    finally:
        gc.enable()
    raise AssertionError("there was no first plan")


def one_cycle(planner: ProcessPlanner, snapshot: Snapshot, *, moves: bool) -> Cycle:
    """One question of the scheduler."""
    before = time.process_time() + _cpu_seconds(planner.child_pid)
    began = time.perf_counter()
    made = planner.plan(snapshot, moves=moves)
    seconds = time.perf_counter() - began
    cpu = time.process_time() + _cpu_seconds(planner.child_pid) - before
    late = sum(p.reason is PendingReason.NOT_EXPLAINED for p in made.pending)
    unlooked = sum(p.remedy == "late" for p in made.pending)
    placed, rounds = len(made.placements), made.statistics.rounds
    # A cycle to which no first plan came had one when the scheduler made it itself.
    first_seconds = planner.incumbent_seconds or seconds
    return Cycle(seconds, cpu, first_seconds, placed, late, unlooked, rounds)


def of_arm(arm: Arm, seed: int) -> dict[str, float | int]:
    """All cycles of one size through one process; its first cycle, which gets all pods, too."""
    # The first cycle is to be told with all of the start.
    child = ChildSettings(ready_seconds=60.0)
    planner = ProcessPlanner(SystemClock(), arm.deadline_seconds, seed, child=child)
    cycles: list[Cycle] = []
    try:
        for number in range(arm.cycles + 1):
            snapshot = contended(arm.servers, arm.waiting, seed, number)
            cycles.append(one_cycle(planner, snapshot, moves=arm.moves))
        peak = _status_mib(planner.child_pid, "VmHWM")
    finally:
        planner.close()
    first, rest = cycles[0], cycles[1:]
    seconds = [c.seconds for c in rest]
    return {
        f"{arm.name}_cycles": len(rest),
        f"{arm.name}_cycle_seconds_p50": _quantile(seconds, 0.5),
        f"{arm.name}_cycle_seconds_p95": _quantile(seconds, 0.95),
        f"{arm.name}_cycle_over_deadline_p95": _quantile(seconds, 0.95) / arm.deadline_seconds,
        f"{arm.name}_first_cycle_seconds": round(first.seconds, 3),
        f"{arm.name}_cycle_cpu_seconds_p95": _quantile([c.cpu_seconds for c in rest], 0.95),
        f"{arm.name}_incumbent_seconds_p50": _quantile([c.incumbent_seconds for c in rest], 0.5),
        f"{arm.name}_incumbent_seconds_p95": _quantile([c.incumbent_seconds for c in rest], 0.95),
        f"{arm.name}_incumbent_cpu_seconds": round(incumbent_cpu_seconds(arm, seed), 4),
        f"{arm.name}_placed_pods_mean": _mean([c.placed for c in rest]),
        f"{arm.name}_unexplained_pods_mean": _mean([c.unexplained for c in rest]),
        f"{arm.name}_without_remedy_pods_mean": _mean([c.without_remedy for c in rest]),
        f"{arm.name}_search_rounds_mean": _mean([c.rounds for c in rest]),
        f"{arm.name}_workers_killed": planner.failures,
        f"{arm.name}_late_answers": planner.late,
        f"{arm.name}_worker_peak_mib": peak,
    }


def _mean(values: list[int]) -> float:
    return round(float(np.mean(values)), 1)


def _quantile(values: list[float], level: float) -> float:
    return round(float(np.quantile(values, level)), 4)


def _cpu_seconds(pid: int | None) -> float:
    """Of a process so far; 0 before it is there."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / _TICKS_A_SECOND


_TICKS_A_SECOND: Final = 100
"""What Linux tells user space, whatever it counts itself."""


def _status_mib(pid: int | None, key: str) -> float:
    """A figure of ``/proc/PID/status`` in kB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024, 1)


def huge_texts(folder: Path) -> Mapping[str, Path]:
    """10**6 pods, as they are written with all that they have, and as short as they can be."""
    full = contended(8, 2, 1).pods[0].model_dump_json()
    files = {}
    for name, text in (("full", full), ("short", '{"uid":"00000000"}')):
        files[name] = folder / f"{name}.json"
        with files[name].open("w", encoding="utf-8") as file:
            file.write('{"pods":[')
            file.writelines(f"{text},\n" for _ in range(HUGE_PODS - 1))
            file.write(text + "]}")
    return files


_REFUSING: Final = """
import sys, time
from scheduler_plugin.app.plan_command import main
began = time.perf_counter()
status = main(["--snapshot", sys.argv[1]])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(status, time.perf_counter() - began, peak)
"""


def refused(file: Path, *, piped: bool) -> tuple[bool, float, float]:
    """Whether the command refused the text, after how many seconds, and its peak in MiB."""
    command = [sys.executable, "-c", _REFUSING, "-" if piped else str(file)]
    with contextlib.ExitStack() as stack:
        stdin: IO[bytes] | None = None
        if piped:
            writer = subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE)
            stdin = stack.enter_context(kept(writer)).stdout
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    status, seconds, peak_kib = done.stdout.split()[-3:]
    return status == "2" and "at most" in done.stderr, float(seconds), float(peak_kib) / 1024


def of_huge_texts() -> dict[str, float | int]:
    """Every text in both ways."""
    with ScratchFolder() as folder:
        files = huge_texts(folder).values()
        outcomes = [refused(file, piped=piped) for file in files for piped in (False, True)]
    return {
        "huge_texts": len(outcomes),
        "huge_not_refused": sum(not was_refused for was_refused, _, _ in outcomes),
        "huge_refused_seconds_max": round(max(seconds for _, seconds, _ in outcomes), 3),
        "huge_peak_mib_max": round(max(peak for _, _, peak in outcomes), 1),
    }


def run(options: Options) -> Result:
    """Both sizes and the huge texts."""
    figures: dict[str, float | int | str] = {}
    asked = arms(options)
    for arm in asked:
        found = of_arm(arm, options.seed)
        options.progress(f"{arm.name}: {found}")
        figures |= found
    killed = [figures[f"{arm.name}_workers_killed"] for arm in asked]
    peaks = [figures[f"{arm.name}_worker_peak_mib"] for arm in asked]
    figures["workers_killed"] = sum(int(each) for each in killed)
    figures["worker_peak_mib"] = max(float(each) for each in peaks)
    own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["parent_peak_mib"] = round(own_kib * 1024 / MIB, 1)
    large, small = (float(figures[f"{n}_incumbent_cpu_seconds"]) for n in ("large", "small"))
    figures["large_over_small_incumbent_cpu"] = round(large / small, 2)
    figures |= of_huge_texts()
    return Result(figures, TARGETS)
