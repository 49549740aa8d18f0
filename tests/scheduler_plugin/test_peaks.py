"""Bound pods of a domain by the 99th percentile of their sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.kube_objects.peak_coincidence import (
    BoardDraw,
    pods_p99_watts,
    sum_p99_watts,
)
from tests.examples import examples
from tests.scheduler_plugin.placement_cluster import (
    Cluster,
    domain_object,
    pod_object,
    profile_object,
)
from wattpack.api import PowerDomain


@given(st.lists(st.tuples(st.floats(10, 700), st.floats(0, 1)), min_size=1, max_size=40))
@examples(60)
def test_pods_of_one_domain_count_like_the_closed_form_for_kinds(
    pods: list[tuple[float, float]],
) -> None:
    p95 = [watts for watts, _ in pods]
    assert pods_p99_watts(p95, [0.0] * len(pods)) == pytest.approx(sum(p95))
    spreads = [part * watts / 1.6449 for watts, part in pods]
    kinds = [
        BoardDraw(max(0.0, watts - 1.6449 * spread), watts, 1 / len(pods))
        for watts, spread in zip(p95, spreads, strict=True)
    ]
    said = sum_p99_watts(kinds, len(pods))
    assert pods_p99_watts(p95, spreads) == pytest.approx(said, rel=1e-6)


def released(bound: int, peaks: str) -> int:
    """Pods let in where the sum of 95th percentiles of those bound leaves room for two."""
    cluster = Cluster(peaks=peaks)
    cluster.add_nodes("n1", "n2", "n3")
    cluster.add(profile_object())
    cluster.add_accepted(domain_object("row", 20_000, ["n1", "n2", "n3"]))
    decode = {"wattpack.io/kernel-class": "decode"}
    for i in range(bound):
        cluster.add(pod_object(f"b{i}", annotations=decode))
    cluster.loop.step()
    cluster.bind()
    # Idle boards (70 W), and the work of each pod (300 W above that), through supplies of 0.94.
    row = 24 * 70 / 0.94 + (bound + 2) * 320 + 60
    cluster.set_status(PowerDomain, "row", capBandWatts=row)
    for i in range(4):
        cluster.add(pod_object(f"w{i}", annotations=decode))
    return len(cluster.loop.step().released)


def test_many_pods_leave_more_room_and_few_less_than_the_sum_of_their_peaks() -> None:
    """Decode here: median 70 W, which is idle, and 95th percentile 370 W, all of it spread."""
    assert released(16, "sum") == 2
    assert released(16, "p99") == 3  # 16 together: 4,778 W in place of 5,120 W
    assert released(2, "sum") == 2
    assert released(2, "p99") == 1  # 2 together: 755 W in place of 640 W
