"""power_packing: a judge that finds what is planted, and arms that keep what they promise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks import power_packing
from benchmarks._openb_trace import IntArray, Kind
from benchmarks._power_arms import Placed
from benchmarks._power_cluster import TRAINS, Cluster, Task, budgets, cluster
from benchmarks._power_judge import judge
from benchmarks._power_twin import watch
from benchmarks.expected import outside, read_ranges
from benchmarks.runner import Options


@pytest.fixture(scope="module")
def made() -> Cluster:
    return cluster(1)


def lavish(made: Cluster) -> Mapping[str, IntArray]:
    return {level: watts * 10 for level, watts in budgets(made).items()}


def full(made: Cluster, node: int, work: str, cap_watts: float) -> list[Placed]:
    kind = Kind(0, 0, 1, 1000, ())
    return [Placed(Task(kind, work), node, cap_watts) for _ in range(made.nodes[node].boards)]


def test_the_judge_finds_an_exceeded_budget_and_an_overbooked_node(made: Cluster) -> None:
    node = next(i for i, n in enumerate(made.nodes) if n.model == "V100M16" and n.boards == 8)
    limits = dict(lavish(made))
    placed = full(made, node, TRAINS, 300.0)
    assert judge(made, limits, placed, 1, 0.4, 250).exceeded == {"node": 0, "rack": 0, "row": 0}
    # Eight boards draw about 235 W each: 139 W above idle are exceeded, a cap of 160 W holds them.
    base = int(made.base_watts[node])
    limits["node"] = limits["node"].copy()
    limits["node"][node] = base + 8 * (169 - 30)
    assert judge(made, limits, placed, 1, 0.4, 250).exceeded["node"] == 1
    capped = judge(made, limits, full(made, node, TRAINS, 160.0), 1, 0.4, 250)
    assert capped.exceeded["node"] == 0
    assert 4.0 < capped.work < 8.0
    assert judge(made, limits, [*placed, placed[0]], 1, 0.4, 250).overbooked == 1


def test_tasks_of_a_row_vary_together(made: Cluster) -> None:
    nodes = [i for i, n in enumerate(made.nodes) if made.row[i] == 0]
    placed = [p for i in nodes for p in full(made, i, TRAINS, 1000.0)]
    limits = dict(lavish(made))
    mean = judge(made, limits, placed, 1, 0.0, 500).mean_watts - made.base_watts.sum()
    above = int(made.base_watts[nodes].sum() + 1.05 * mean)
    limits["row"] = np.where(np.arange(len(limits["row"])) == 0, above, limits["row"])
    assert judge(made, limits, placed, 1, 0.0, 500).exceeded["row"] == 0
    assert judge(made, limits, placed, 1, 0.9, 500).exceeded["row"] == 1


def test_the_twin_sees_a_cap_act_and_a_budget_exceeded(made: Cluster) -> None:
    node = next(i for i, n in enumerate(made.nodes) if n.model == "V100M16" and n.boards == 8)
    limits = dict(lavish(made))
    limits["node"] = limits["node"].copy()
    limits["node"][node] = int(made.base_watts[node]) + 8 * (169 - 30)
    free = watch(made, limits, full(made, node, TRAINS, 300.0), 1, 30)
    assert free.exceeded == {"node": 1, "rack": 0, "row": 0}
    assert free.seconds_above > 15
    assert free.highest_share > 1.1
    capped = full(made, node, TRAINS, 160.0)
    held = watch(made, limits, capped, 1, 30)
    assert held.exceeded == {"node": 0, "rack": 0, "row": 0}
    assert (held.unseated, watch(made, limits, [*capped, capped[0]], 1, 1).unseated) == (0, 1)


def test_the_twin_sums_racks_and_rows(made: Cluster) -> None:
    # One task runs; hosts and idle boards alone are twice the budget of rack and row 3.
    node = next(i for i, n in enumerate(made.nodes) if n.boards and made.row[i] != 3)
    limits = dict(lavish(made))
    for level, number in (("rack", made.rack), ("row", made.row)):
        limits[level] = np.bincount(number, made.base_watts).astype(np.int64) * 2
        limits[level][3] //= 4
    seen = watch(made, limits, full(made, node, TRAINS, 1000.0)[:1], 1, 5)
    assert seen.exceeded == {"node": 0, "rack": 1, "row": 1}
    assert seen.highest_share == pytest.approx(2.0, rel=1e-3)


def test_a_quick_run_stays_within_its_ranges() -> None:
    figures = power_packing.run(Options(quick=True, progress=lambda _: None)).figures
    assert outside(read_ranges()["power_packing"], figures, quick=True) == {}
