"""A slice of a production trace through the planner: real shapes, shares rounded up to GPUs."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from scheduler_plugin.documents.snapshot import Node, Pod, PowerDomain, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import domain

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "openb"
MIB = 1024**2
#: Assumed for this test: nobody published the draw of these boards.
WATTS_PER_GPU = 300


def rows(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / f"openb_{name}.csv.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def node_of(row: dict[str, str], below: str) -> Node:
    return Node(
        name=row["sn"],
        gpu_model=row["model"],
        gpu_milli=int(row["gpu"]) * 1000,
        milli_cpu=int(row["cpu_milli"]),
        memory_bytes=int(row["memory_mib"]) * MIB,
        domain=below,
        watts_per_gpu=WATTS_PER_GPU,
    )


def pod_of(row: dict[str, str]) -> Pod:
    return Pod(
        uid=row["name"],
        name=row["name"],
        gpu_milli=int(row["num_gpu"]) * 1000,
        milli_cpu=int(row["cpu_milli"]),
        memory_bytes=int(row["memory_mib"]) * MIB,
        gpu_models=tuple(row["gpu_spec"].split("|")) if row["gpu_spec"] else (),
        priority=100 if row["qos"] == "LS" else 0,
    )


def openb(n_nodes: int, n_pods: int, *domains: PowerDomain) -> Snapshot:
    step = 1213 // n_nodes
    names = [d.name for d in domains if d.parent or len(domains) == 1] or [""]
    nodes = rows("node_list_gpu_node")[::step][:n_nodes]
    return Snapshot(
        nodes=tuple(node_of(row, names[i % len(names)]) for i, row in enumerate(nodes)),
        pods=tuple(pod_of(row) for row in rows("pod_list_default")[:n_pods]),
        domains=domains,
    )


@pytest.mark.parametrize(("n_nodes", "n_pods"), [(100, 150), (60, 500)])
def test_a_slice_of_openb_is_placed_near_its_bound(n_nodes: int, n_pods: int) -> None:
    cluster = openb(n_nodes, n_pods)
    result = plan(cluster, deadline_seconds=0.3)
    assert complaints(cluster, result) == ()
    assert not result.refusals
    assert result.gap <= 0.05
    assert all(pending.message for pending in result.pending)


def test_power_budgets_bind_before_gpus_do() -> None:
    tree = (
        domain("site", 40_000),
        domain("row-1", 30_000, parent="site"),
        domain("row-2", 15_000, parent="site"),
    )
    cluster = openb(60, 400, *tree)
    result = plan(cluster, deadline_seconds=0.3)
    added = sum(p.watts for p in result.placements)
    assert 0.95 * 40_000 <= added <= 40_000
    assert {p.reason.value for p in result.pending} >= {"PowerDomainFull"}
    assert result.gap <= 0.05
