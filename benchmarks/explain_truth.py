"""Is it true what waiting pods are told? The named changes are made and the planner asked again.

Random snapshots of nine kinds: full clusters, racks short of power, taints and selectors, several
GPU types, gangs, hosts short of CPU or memory, shares of boards, pods that mind others, and slow
neighbours. For each pod or gang that waits: with all of its changes, and everything else frozen,
the planner places it and the checker accepts that; without any one of them it is not placed; nor
with a watt, a core or a node less. The same of what operators alone could do instead. Who is told
that nothing helps fits nowhere even in an empty cluster, and who is left to the next plan is placed
by it. Time is CPU time of explaining alone at 1,000 nodes that are 95 % full, with 200 waiting pods
that all differ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks._explain_cases import KINDS, large_snapshot, random_snapshot
from benchmarks._explain_judge import (
    altered,
    fits_if_all_is_free,
    frozen,
    is_placed,
    less_of,
)
from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from scheduler_plugin.documents.changed_snapshot import apply_changes
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.explain.pending_remedies import explained
from scheduler_plugin.packing.greedy_orders import incumbent
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.solve import plan

NAME = "explain_truth"
SUMMARY = "are the changes that waiting pods are told sufficient, and each of them needed?"

CASES: Final = 40
"""Snapshots of each kind."""

LARGE: Final = (1000, 200)
QUICK_LARGE: Final = (200, 40)
REPEATS: Final = 5

TARGETS: Final = {
    "placed_share": Target(at_least=0.99),
    "needed_share": Target(at_least=0.95),
    "told_share": Target(at_least=0.95),
    "operator_placed_share": Target(at_least=0.99),
    "operator_needed_share": Target(at_least=0.95),
    "operator_asks_owners": Target(at_most=0),
    "applied_differently": Target(at_most=0),
    "cpu_milliseconds_1000_nodes_power": Target(at_most=300),
    "cpu_milliseconds_1000_nodes_full": Target(at_most=300),
}


def run(options: Options) -> Result:
    """Every kind, then the time that explaining takes."""
    each = 1 if options.quick else CASES
    rows = finished_rows(options, NAME, one_case, each * len(KINDS))
    nodes, waiting = QUICK_LARGE if options.quick else LARGE
    repeats = 2 if options.quick else REPEATS
    found = figures(rows)
    for name, power in (("power", True), ("full", False)):
        explaining, _ = milliseconds(nodes, waiting, power, repeats)
        found[f"cpu_milliseconds_{nodes}_nodes_{name}"] = explaining
        small, compiling = milliseconds(*QUICK_LARGE, power, repeats)
        found[f"explaining_over_compiling_ratio_{name}"] = small / compiling
    return Result(found, {} if options.quick else TARGETS)


def one_case(seed: int, number: int) -> Row:
    """Judges every entry of one plan."""
    kind = list(KINDS)[number % len(KINDS)]
    snapshot = random_snapshot(kind, seed * 100_000 + number // len(KINDS))
    made = plan(snapshot, deadline_seconds=1.0)
    row: dict[str, Any] = {"kind": kind, "entries": [], "instead": [], "kinds": []}
    for entry in _told(made):
        verdict = judged(snapshot, made, entry)
        row["entries"].append(verdict)
        row["kinds"] += sorted({change["kind"] for change in entry["changes"]})
        if entry["operator_changes"]:
            row["instead"].append(judged_instead(snapshot, made, entry))
    return row


def _told(made: Plan) -> list[dict[str, Any]]:
    """One entry for each pod, and one for each gang: that with the changes."""
    entries: dict[str, dict[str, Any]] = {}
    for pending in json.loads(made.model_dump_json())["pending"]:
        key = pending["gang"] or pending["uid"]
        if key not in entries or pending["changes"]:
            entries[key] = pending
    return list(entries.values())


def judged(snapshot: Snapshot, made: Plan, entry: dict[str, Any]) -> dict[str, Any]:
    """What is true of one entry."""
    plain = json.loads(snapshot.model_dump_json())
    changes = entry["changes"]
    base = frozen(plain, json.loads(made.model_dump_json()), entry)
    if entry["remedy"] == "next_plan":
        return {"remedy": "next_plan", "vain": not is_placed(base)}
    if not changes:
        return {"remedy": entry["remedy"], "vain": fits_if_all_is_free(plain, entry)}
    all_made = altered(base, changes)
    without = [
        not is_placed(altered(base, changes[:i] + changes[i + 1 :])) for i in range(len(changes))
    ]
    less = [
        not is_placed(altered(base, [*changes[:i], part, *changes[i + 1 :]]))
        for i, change in enumerate(changes)
        for part in less_of(change)
    ]
    return {
        "remedy": entry["remedy"],
        "placed": is_placed(all_made),
        "needed": all(without),
        "less": all(less),
        "changes": len(changes),
        "alike": applied_alike(base, made, entry, all_made),
    }


def judged_instead(snapshot: Snapshot, made: Plan, entry: dict[str, Any]) -> dict[str, bool]:
    """What is true of what operators alone could do, where the smallest set asks the owner."""
    plain = json.loads(snapshot.model_dump_json())
    base = frozen(plain, json.loads(made.model_dump_json()), entry)
    changes = entry["operator_changes"]
    return {
        "placed": is_placed(altered(base, changes)),
        "needed": not any(
            is_placed(altered(base, changes[:i] + changes[i + 1 :])) for i in range(len(changes))
        ),
        "asks_owner": any("waiting" in change for change in changes),
    }


def applied_alike(
    base: dict[str, Any], made: Plan, entry: dict[str, Any], all_made: dict[str, Any]
) -> bool:
    """Whether the product's own application gives what the judge's hands made."""
    (told,) = [p for p in made.pending if p.uid == entry["uid"]]
    product = apply_changes(Snapshot.model_validate_json(json.dumps(base)), told.changes)
    evicted = {change["uid"] for change in entry["changes"] if change["kind"] == "evict_pod"}
    theirs = Snapshot.model_validate_json(json.dumps(all_made))
    mine = tuple(pod for pod in product.pods if pod.uid not in evicted)
    nodes = [node.model_dump(exclude={"name", "labels"}) for node in theirs.nodes]
    return (
        mine == theirs.pods
        and product.domains == theirs.domains
        and sorted(map(str, nodes))
        == sorted(str(node.model_dump(exclude={"name", "labels"})) for node in product.nodes)
    )


def figures(rows: Rows) -> dict[str, float | int | str]:
    """Shares over all entries, and of each kind of snapshot."""
    found: dict[str, float | int | str] = {}
    every = [entry for row in rows for entry in row["entries"]]
    found |= _shares("", every)
    found |= _of_operators([verdict for row in rows for verdict in row["instead"]])
    for kind in KINDS:
        entries = [entry for row in rows if row["kind"] == kind for entry in row["entries"]]
        found |= {k: v for k, v in _shares(f"{kind}_", entries).items() if "share" in k}
    for change in sorted({kind for row in rows for kind in row["kinds"]}):
        found[f"told_{change}"] = sum(kind == change for row in rows for kind in row["kinds"])
    return found


def _of_operators(verdicts: Sequence[dict[str, bool]]) -> dict[str, float | int]:
    count = max(1, len(verdicts))
    return {
        "operator_sets": len(verdicts),
        "operator_placed_share": sum(verdict["placed"] for verdict in verdicts) / count,
        "operator_needed_share": sum(verdict["needed"] for verdict in verdicts) / count,
        "operator_asks_owners": sum(verdict["asks_owner"] for verdict in verdicts),
    }


def _shares(prefix: str, entries: Sequence[dict[str, Any]]) -> dict[str, float | int]:
    told = [entry for entry in entries if "placed" in entry]
    silent = [entry for entry in entries if "placed" not in entry]
    in_vain = sum(entry["vain"] for entry in silent)

    def share(key: str) -> float:
        return float(sum(entry[key] for entry in told)) / max(1, len(told))

    return {
        f"{prefix}entries": len(entries),
        f"{prefix}placed_share": share("placed"),
        f"{prefix}needed_share": share("needed"),
        f"{prefix}amounts_needed_share": share("less"),
        f"{prefix}told_share": len(told) / max(1, len(told) + in_vain),
        f"{prefix}said_in_vain": in_vain,
        f"{prefix}applied_differently": sum(not entry["alike"] for entry in told),
        f"{prefix}changes_mean": share("changes"),
    }


def milliseconds(nodes: int, waiting: int, power: bool, repeats: int) -> tuple[float, float]:
    """CPU times of explaining one plan and of compiling its snapshot, the least of some repeats."""
    snapshot = large_snapshot(nodes, waiting, bound_by_power=power, seed=1)
    problem = compile_problem(snapshot)
    assignment = incumbent(problem, lambda best: True)
    explaining = [_cpu_seconds(lambda: explained(problem, assignment)) for _ in range(repeats)]
    compiling = [_cpu_seconds(lambda: compile_problem(snapshot)) for _ in range(repeats)]
    return 1000.0 * min(explaining), 1000.0 * min(compiling)


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
