"""How few moves would do for what the planner places: `python -m benchmarks._priority_floor`.

An exact model of its own, from the instance alone: every ReplicaSet's pods by node, at least as
many placed of each priority as the plan has, the fewest running pods that leave their node. What it
proves is the least for any planner that places as much. For larger clusters there is a bound.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from typing import Final, NamedTuple

from ortools.sat.python import cp_model

from benchmarks._priority_arms import Job, case_of, one_solve
from benchmarks._priority_bound import leaving_bound
from benchmarks._priority_instances import COMBINATIONS, Case

__all__ = ["Floor", "least_leaving", "main"]

EXACT_NODES: Final = 8
"""With more the exact model proves nothing within a minute."""
_USEFUL: Final = (cp_model.OPTIMAL, cp_model.FEASIBLE)


class Floor(NamedTuple):
    """Running pods that leave their node: the fewest found, None for no plan, and a lower bound."""

    least: int | None
    bound: int


def least_leaving(case: Case, counts: tuple[int, ...], seconds: float) -> Floor:
    """The fewest running pods that leave their node where so many of each priority are placed.

    Args:
        case: With where pods run.
        counts: Placed pods of each priority, the most important first.
        seconds: Of wall time for the proof.
    """
    instance, model = case.instance, cp_model.CpModel()
    ask = {pod.replica_set: pod for pod in instance.pods}
    size = Counter(pod.replica_set for pod in instance.pods)
    runs = Counter((instance.pods[pod].replica_set, node) for pod, node in case.start.items())
    nodes = range(instance.nodes)
    at = {(r, n): model.new_int_var(0, size[r], "") for r in size for n in nodes}
    gone = {key: model.new_int_var(0, count, "") for key, count in runs.items()}
    for key, count in runs.items():
        model.add(gone[key] >= count - at[key])
    for r, count in size.items():
        model.add(sum(at[r, n] for n in nodes) <= count)
    for n in nodes:
        model.add(sum(ask[r].milli_cpu * at[r, n] for r in size) <= instance.node_milli_cpu)
        model.add(sum(ask[r].memory_bytes * at[r, n] for r in size) <= instance.node_memory_bytes)
    for priority, count in zip(instance.priorities, counts, strict=True):
        some = [r for r in size if ask[r].priority == priority]
        model.add(sum(at[r, n] for r in some for n in nodes) >= count)
    model.minimize(sum(gone.values()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    found = solver.solve(model) in _USEFUL
    bound = max(0, round(solver.best_objective_bound))
    return Floor(round(solver.objective_value) if found else None, bound)


def main() -> None:
    """One line an instance that has moves: who leaves in the plan, the least, and its bound."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8], help="of the instances")
    parser.add_argument("--seconds", type=float, default=40.0, help="for each proof")
    options = parser.parse_args()
    shares: list[tuple[float, float]] = []
    for number, cell in enumerate(COMBINATIONS):
        if cell.nodes not in options.nodes:
            continue
        row = one_solve(Job("with_moves", 1.0, True, options.seed, number))
        leave, case = row["moved"] + row["evicted"], case_of(options.seed, number)
        floor = Floor(leave, leave)
        if leave:
            floor = _floor(case, tuple(row["counts"]), leave, options.seconds)
            print(f"{cell}: {leave} of {len(case.start)} leave, {floor}", flush=True)
        shares.append((leave / len(case.start), floor.bound / len(case.start)))
    ours, least = (statistics.median(each) for each in zip(*shares, strict=True))
    print(f"{len(shares)} instances: {ours:.2%} leave at the median, no plan has below {least:.2%}")


def _floor(case: Case, counts: tuple[int, ...], leave: int, seconds: float) -> Floor:
    """The bound, and the exact model where the plan has more and the cluster is small."""
    bound = leaving_bound(case, counts, seconds)
    if bound >= leave:
        return Floor(leave, bound)
    if case.instance.nodes > EXACT_NODES:
        return Floor(None, bound)
    exact = least_leaving(case, counts, seconds)
    return exact._replace(bound=max(bound, exact.bound))


if __name__ == "__main__":
    main()
