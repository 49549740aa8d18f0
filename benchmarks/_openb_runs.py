"""One run of ``openb``: a policy on the sample of one trace and seed, judged, and kept."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks._openb_judge import Batch, Verdict, judge
from benchmarks._openb_policies import Policy, Told
from benchmarks._openb_trace import (
    DATA,
    MILLI_PER_GPU,
    NODES,
    FloatArray,
    Sample,
    Trace,
    openb_nodes,
    read_trace,
    sample,
    shipped_trace,
)
from benchmarks._rests_on import rests_on_digest
from wattpack.errors import InputError

Row = dict[str, Any]

MARKS: Final = (100, 130)  # percent of the cluster's GPUs that tasks have asked for
PERCENT: Final = range(MARKS[-1] + 1)
_FAULTS_TOLD: Final = 3


class Arm(NamedTuple):
    """A policy of the benchmark.

    Attributes:
        module: Where its class lies; it is imported for a run only.
        at_once: It is told all tasks up to a mark as one batch, each mark anew; else one by one.
        may_move: It may move tasks, and bind late what waits.
        slow: A run takes a minute or so; it runs all seeds on one trace only.
    """

    module: str
    policy: str
    at_once: bool = False
    may_move: bool = False
    slow: bool = False

    def make(self, told: Told) -> Policy:
        """The policy before its first task."""
        made: Callable[[Told], Policy] = getattr(
            importlib.import_module(f"benchmarks.{self.module}"), self.policy
        )
        return made(told)


ARMS: Final = {
    "random": Arm("_openb_policies", "RandomFit"),
    "best_fit": Arm("_openb_policies", "BestFit"),
    "fgd": Arm("_openb_fgd", "Fgd"),
    "ours_online": Arm("_openb_planner", "PlannerOneByOne"),
    "ours_batch": Arm("_openb_planner", "PlannerAtOnce", at_once=True, slow=True),
    "ours_moves": Arm("_openb_planner", "PlannerWithMoves", may_move=True, slow=True),
}


class Case(NamedTuple):
    """A run; ``file`` is a trace of one's own."""

    arm: str
    trace: str
    seed: int
    file: Path | None = None


def case_row(case: Case) -> Row:
    """Run a case."""
    trace = shipped_trace(case.trace) if case.file is None else read_trace(case.file, case.trace)
    row = one_run(ARMS[case.arm], trace, case.seed)
    return {"arm": case.arm, "trace": case.trace, "seed": case.seed} | row


class KeptRows:
    """Finished cases, a file each; without a folder nothing is kept.

    Raises:
        InputError: for a folder that cannot be made.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError("--resume", "a folder to write to", str(folder)) from error

    def of(self, case: Case) -> Row | None:
        """Its row, if it has been run by the same code on the same data."""
        if self._folder is None or not (file := self._folder / _name(case)).exists():
            return None
        row: Row = json.loads(file.read_text(encoding="utf-8"))
        return row

    def keep(self, case: Case, row: Row) -> None:
        """Whole or not at all."""
        if self._folder is not None:
            half = self._folder / f"{_name(case)}.part"
            half.write_text(json.dumps(row) + "\n", encoding="utf-8")
            half.rename(self._folder / _name(case))


def _name(case: Case) -> str:
    """With a digest of what the run rests on: the policy's code, the harness, the trace."""
    rests_on = hashlib.sha256()
    for module in (ARMS[case.arm].module, "_openb_runs"):
        rests_on.update(rests_on_digest(f"benchmarks.{module}").encode())
    list_of_tasks = case.file or DATA / f"openb_pod_list_{case.trace}.csv.gz"
    for file in (DATA / NODES, list_of_tasks):
        rests_on.update(file.read_bytes())
    return f"openb-{case.arm}-{case.trace}-{case.seed}-{rests_on.hexdigest()[:12]}.json"


def one_run(arm: Arm, trace: Trace, seed: int) -> Row:
    """Figures of one sample under a policy."""
    nodes = openb_nodes()
    drawn = sample(trace, seed, nodes)
    mix = np.bincount(trace.kind_of, minlength=len(trace.kinds))
    told = Told(nodes, trace.kinds, mix, drawn.node_rank, seed)
    asked = np.array([kind.gpu_milli for kind in trace.kinds])
    total_milli = MILLI_PER_GPU * sum(node.boards for node in nodes)
    arrived = 100.0 * np.cumsum(asked[drawn.arrivals]) / total_milli
    began = time.perf_counter()
    if arm.at_once:
        row = _at_once(arm, told, drawn, arrived, total_milli)
    else:
        row = _one_by_one(arm, told, drawn, arrived, total_milli)
    return row | {
        "arrivals": len(drawn.arrivals),
        "arrived_percent": float(arrived[-1]),
        "wall_seconds": time.perf_counter() - began,
    }


def _one_by_one(arm: Arm, told: Told, drawn: Sample, arrived: FloatArray, total_milli: int) -> Row:
    began = time.process_time()
    policy = arm.make(told)
    batches = [
        Batch(i, list(policy.arrive((kind,)))) for i, kind in enumerate(drawn.arrivals.tolist(), 1)
    ]
    seconds = time.process_time() - began
    verdict = _judged(arm, told, drawn, batches)
    curve = published_curve(arrived, 100.0 * np.array(verdict.gpu_milli) / total_milli)
    return {
        "at": {str(mark): curve[mark] for mark in MARKS},
        "curve": curve,
        "policy_cpu_seconds": seconds,
        **_counts(verdict),
    }


def _at_once(arm: Arm, told: Told, drawn: Sample, arrived: FloatArray, total_milli: int) -> Row:
    """A batch for each mark: everything that has come by then."""
    at: dict[str, float] = {}
    seconds, faults, row = 0.0, 0, {}
    for mark in MARKS:
        count = int(np.searchsorted(arrived, mark, side="right"))
        if mark == MARKS[-1]:
            count = len(arrived)  # the last task may lie a few boards beyond
        began = time.process_time()
        policy = arm.make(told)
        bindings = list(policy.arrive(tuple(drawn.arrivals[:count].tolist())))
        seconds += time.process_time() - began
        verdict = _judged(arm, told, drawn, [Batch(count, bindings)])
        at[str(mark)] = 100.0 * verdict.gpu_milli[-1] / total_milli
        row = _counts(verdict)
        faults += len(verdict.faults)
    return row | {"at": at, "curve": None, "policy_cpu_seconds": seconds, "faults": faults}


def _judged(arm: Arm, told: Told, drawn: Sample, batches: list[Batch]) -> Verdict:
    arrivals = [told.kinds[kind] for kind in drawn.arrivals]
    return judge(told.nodes, arrivals, batches, may_move=arm.may_move)


def _counts(verdict: Verdict) -> Row:
    return {
        "placed": verdict.placed,
        "moves": verdict.moves,
        "moved": verdict.moved,
        "late": verdict.late,
        "faults": len(verdict.faults),
        "first_faults": verdict.faults[:_FAULTS_TOLD],
    }


def published_curve(arrived: FloatArray, allocated: FloatArray) -> list[float | None]:
    """Allocation at each whole percent of arrivals, as published: a mean over all tasks near it.

    Tasks count to the whole percent next to what has arrived with them; where there is none, those
    within a percent do. ``merge_alloc_discrete.py`` of the artefact rounds twice, so does this.
    """
    near, value = np.round(arrived), np.round(allocated, 2)
    curve: list[float | None] = []
    for percent in PERCENT:
        inside = near == percent
        if not inside.any():
            inside = (near >= percent - 1) & (near <= percent + 1)
        curve.append(round(float(value[inside].mean()), 2) if inside.any() else None)
    return curve
