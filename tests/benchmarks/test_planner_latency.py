"""planner_latency: its clusters are as contended as it says, and its cycles are told apart."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks._latency_cases import contended
from benchmarks.planner_latency import Arm, of_arm
from scheduler_plugin.documents.snapshot import Snapshot


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    return contended(160, 40, seed=3, cycle=2)


def gpus(snapshot: Snapshot, *, bound: bool) -> int:
    return sum(p.gpu_milli for p in snapshot.pods if bool(p.node) == bound) // 1000


def test_it_is_95_percent_full_and_half_as_much_again_waits(cluster: Snapshot) -> None:
    total = sum(n.gpu_milli for n in cluster.nodes) // 1000
    free = total - gpus(cluster, bound=True)
    assert free == pytest.approx(0.05 * total, abs=8)
    assert gpus(cluster, bound=False) == pytest.approx(1.5 * free, abs=8)
    assert sum(not p.node for p in cluster.pods) == 40


def test_no_node_is_overfull_and_half_of_the_racks_bind(cluster: Snapshot) -> None:
    used, free_watts = Counter[str](), Counter[str]()
    for pod in cluster.pods:
        used[pod.node] += pod.gpu_milli // 1000
    assert max(used[n.name] for n in cluster.nodes) == 8
    for node in cluster.nodes:
        free_watts[node.domain] += (8 - used[node.name]) * node.watts_per_gpu
    racks = [d for d in cluster.domains if d.parent.startswith("row-")]
    binding = [d for d in racks if d.limit_watts - d.used_watts < free_watts[d.name]]
    assert len(binding) == sum(free_watts[d.name] > 0 for d in racks[1::2])


def test_the_next_cycle_shares_nine_pods_of_ten_and_none_that_waits(cluster: Snapshot) -> None:
    following = contended(160, 40, seed=3, cycle=3)
    before, after = ({p.uid for p in s.pods if p.node} for s in (cluster, following))
    assert 0.9 < len(before & after) / len(before) < 0.99
    assert not {p.uid for p in cluster.pods} & {p.uid for p in following.pods if not p.node}


def test_an_arm_plans_through_the_worker_and_says_what_it_took() -> None:
    found = of_arm(Arm("tiny", 40, 10, cycles=2, deadline_seconds=20.0), seed=1)
    assert found["tiny_workers_killed"] == 0
    assert found["tiny_placed_pods_mean"] > 0
    assert 0 < found["tiny_incumbent_seconds_p95"] < found["tiny_cycle_seconds_p95"] < 20.0
    assert found["tiny_worker_peak_mib"] > 50
