"""Policies over GPU models: what waiting pods are worth where, and where plans then put them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.packing.policy_values import (
    PolicyChoice,
    ThroughputPolicy,
    with_policy_values,
)
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, gang, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.errors import InputError

A100 = "NVIDIA-A100-SXM4-80GB"
MAX_MIN = PolicyChoice(ThroughputPolicy.MAX_MIN)


def two_types(gpus: int = 4) -> tuple[Node, Node]:
    return node("fast", gpus, gpu_model="A"), node("slow", gpus, gpu_model="B")


def pods_of(name: str, count: int, slow: int, **other: object) -> list[Pod]:
    values = {"A": 1000, "B": slow}
    return [pod(f"{name}{i}", gpu_model_values=values, **other) for i in range(count)]


def places(snap: Snapshot) -> Counter[tuple[str, str]]:
    return Counter((p.uid[0], p.node) for p in plan(snap).placements)


def test_max_min_shares_the_fast_model_that_speeds_alone_give_to_one_kind() -> None:
    snap = snapshot(*two_types(), *pods_of("x", 4, 400), *pods_of("y", 4, 500))
    assert places(snap) == {("x", "fast"): 4, ("y", "slow"): 4}
    fair = places(with_policy_values(snap, MAX_MIN))
    assert fair == {("x", "fast"): 2, ("x", "slow"): 2, ("y", "fast"): 2, ("y", "slow"): 2}


def test_cost_leaves_the_dear_model_to_who_gains_most_of_it() -> None:
    """A is faster for all, but dear: only x, ten times slower on B, is worth its price there."""
    snap = snapshot(*two_types(), *pods_of("x", 4, 100), *pods_of("y", 4, 500))
    choice = PolicyChoice(ThroughputPolicy.COST, {"A": 4.0, "B": 1.0})
    assert places(with_policy_values(snap, choice)) == {("x", "fast"): 4, ("y", "slow"): 4}
    room = snapshot(*two_types(8), *pods_of("x", 4, 100), *pods_of("y", 4, 500))
    assert places(room) == {("x", "fast"): 4, ("y", "fast"): 4}
    assert places(with_policy_values(room, choice)) == {("x", "fast"): 4, ("y", "slow"): 4}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 1000)), min_size=1, max_size=8),
    st.integers(0, 8),
    st.sampled_from([ThroughputPolicy.MAX_MIN, ThroughputPolicy.COST]),
)
@examples(40)
def test_a_policy_costs_no_placed_gpu_and_changes_values_alone(
    kinds: list[tuple[int, int]], taken: int, policy: ThroughputPolicy
) -> None:
    waiting = [
        pod(f"{i}-{n}", gpus, gpu_model_values={"A": 1000, "B": slow})
        for i, (gpus, slow) in enumerate(kinds)
        for n in range(2)
    ]
    snap = snapshot(*two_types(8), *waiting, pod("plain"), bound("b", "fast", taken))
    made = with_policy_values(snap, PolicyChoice(policy, {"A": 3.0, "B": 1.0}))
    same = {p.uid: p.model_copy(update={"gpu_model_values": {}}) for p in snap.pods}
    assert {p.uid: p.model_copy(update={"gpu_model_values": {}}) for p in made.pods} == same
    assert all(0 <= v <= 1000 for p in made.pods for v in p.gpu_model_values.values())
    placed = [sum(t.placed_value for t in plan(s).tiers) for s in (snap, made)]
    assert placed[1] == placed[0]


def test_a_gang_is_one_job_and_members_that_differ_keep_their_speeds() -> None:
    alike = gang("alike", 3, 1, gpu_model_values={"A": 1000, "B": 600})
    first, second = pods_of("m", 2, 300, gang="mixed")
    second = second.model_copy(update={"gpu_model_values": {"A": 1000, "B": 900}})
    mixed = (gang("mixed", 2)[0], (first, second))
    made = with_policy_values(snapshot(*two_types(8), alike, mixed), MAX_MIN)
    values = {p.uid: p.gpu_model_values for p in made.pods}
    assert len({tuple(values[f"alike-{i}"].items()) for i in range(3)}) == 1
    assert values["m0"] == first.gpu_model_values
    assert values["m1"] == second.gpu_model_values


def test_without_a_policy_free_gpus_or_speeds_nothing_changes() -> None:
    full = snapshot(node("n", 1, gpu_model="A"), bound("b", "n"), *pods_of("x", 2, 500))
    assert with_policy_values(full, MAX_MIN) is full
    plain = snapshot(*two_types(), pod("p"))
    assert with_policy_values(plain, MAX_MIN) is plain
    some = snapshot(*two_types(), *pods_of("x", 2, 500))
    assert with_policy_values(some, PolicyChoice()) is some


def test_cost_without_prices_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="gpu_prices"):
        PlacementSettings.load(environment={}, flags={"policy": "cost"})


def test_the_planning_loop_follows_the_policy_of_its_settings() -> None:
    """By speeds alone all of x is sent to the H200; shares by the policy send half of them."""

    def sent(policy: ThroughputPolicy) -> Counter[tuple[str, str]]:
        cluster = Cluster(policy=policy)
        cluster.add_nodes("fast", gpus=4)
        cluster.add_nodes("slow", gpus=4, labels={"nvidia.com/gpu.product": A100})
        for kind, slow in (("x", 0.4), ("y", 0.5)):
            speeds = {"wattpack.io/gpu-models": f"NVIDIA-H200=1,{A100}={slow}"}
            for i in range(4):
                cluster.add(pod_object(f"{kind}{i}", annotations=speeds))
        released = cluster.loop.step().released
        return Counter((key.removeprefix(f"{SPACE}/")[0], on) for key, on in released.items())

    assert sent(ThroughputPolicy.NONE) == {("x", "fast"): 4, ("y", "slow"): 4}
    assert set(sent(ThroughputPolicy.MAX_MIN).values()) == {2}
