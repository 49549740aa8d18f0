"""Whatever the snapshot: the checker agrees, nothing gets worse, nothing is over budget."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler_plugin.documents.node_rules import Taint, TaintEffect, Toleration
from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Gang, PodState, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import GIB, domain, node, pod

COMMON = examples(60, suppress_health_check=[HealthCheck.too_slow])
TAINT = Taint(key="dedicated", value="ml", effect=TaintEffect.NO_SCHEDULE)
TOLERATION = Toleration(key="dedicated", value="ml")


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    tree = [domain("site", draw(st.integers(0, 20_000)), used=draw(st.integers(0, 5_000)))]
    for i in range(draw(st.integers(0, 2))):
        tree.append(
            domain(
                f"row-{i}",
                draw(st.integers(0, 12_000)),
                used=draw(st.integers(0, 2_000)),
                parent="site",
                margin=draw(st.sampled_from([0, 0, 0, -1])),
            )
        )
    nodes = [
        node(
            f"n{i}",
            draw(st.sampled_from([0, 1, 4, 8])),
            gpu_model=draw(st.sampled_from(["H200", "A40"])),
            milli_cpu=draw(st.sampled_from([16_000, 64_000])),
            domain=draw(st.sampled_from(["", *[d.name for d in tree]])),
            taints=draw(st.sampled_from([(), (), (TAINT,)])),
            power_known=draw(st.sampled_from([True, True, True, False])),
            ready=draw(st.sampled_from([True, True, True, False])),
            pods=draw(st.sampled_from([2, 110])),
            class_watts_per_gpu=draw(st.sampled_from([{}, {"decode": 300}])),
        )
        for i in range(draw(st.integers(1, 5)))
    ]
    gangs = [Gang(id=f"g{i}", size=draw(st.integers(1, 4))) for i in range(2)]
    pods = []
    for i in range(draw(st.integers(0, 12))):
        state = draw(st.sampled_from([PodState.PENDING] * 4 + [PodState.BOUND, PodState.PROMISED]))
        placed = state in (PodState.BOUND, PodState.PROMISED)
        extra: dict[str, Any] = {"state": state}
        if placed:
            extra["node"] = draw(st.sampled_from(["gone", *[n.name for n in nodes]]))
        pods.append(
            pod(
                f"p{i:02d}",
                draw(st.sampled_from([0, 1, 2, 4, 8])),
                milli_cpu=draw(st.sampled_from([0, 2_000, 12_000])),
                memory_bytes=draw(st.sampled_from([0, GIB, 300 * GIB])),
                priority=draw(st.sampled_from([0, 0, 100])),
                gang=draw(st.sampled_from(["", "", "", "g0", "g1"])),
                gpu_models=draw(st.sampled_from([(), (), ("H200",), ("A40",)])),
                tolerations=draw(st.sampled_from([(), (TOLERATION,)])),
                kernel_class=draw(st.sampled_from(["", "decode"])),
                **extra,
            )
        )
    return Snapshot(nodes=tuple(nodes), pods=tuple(pods), gangs=tuple(gangs), domains=tuple(tree))


@COMMON
@given(snapshots())
def test_the_checker_accepts_every_plan_and_it_is_never_worse_than_greedy(s: Snapshot) -> None:
    greedy = plan(s, deadline_seconds=0.0)
    better = plan(s, deadline_seconds=0.2)
    assert complaints(s, greedy) == ()
    assert complaints(s, better) == ()
    assert not greedy.refusals
    assert not better.refusals
    assert better.objective >= greedy.objective


@COMMON
@given(snapshots())
def test_no_domain_is_over_budget_and_gangs_stay_whole(s: Snapshot) -> None:
    result = plan(s, deadline_seconds=0.1)
    nodes = {n.name: n for n in s.nodes}
    domains = {d.name: d for d in s.domains}
    added: Counter[str] = Counter()
    for placement in result.placements:
        name = nodes[placement.node].domain
        while name:
            added[name] += placement.watts
            name = domains[name].parent
    for name, watts in added.items():
        assert watts == 0 or watts + domains[name].used_watts <= domains[name].limit_watts
    outcomes: dict[str, set[bool]] = defaultdict(set)
    placed = {p.uid for p in result.placements}
    for one in s.pods:
        if one.gang and one.state is PodState.PENDING:
            outcomes[one.gang].add(one.uid in placed)
    assert all(len(seen) == 1 for seen in outcomes.values())


@COMMON
@given(snapshots())
def test_bounds_are_never_below_what_was_placed(s: Snapshot) -> None:
    best = plan(s, deadline_seconds=0.2)
    relaxed = plan(s, deadline_seconds=0.0)
    for reached, stated in zip(best.tiers, relaxed.tiers, strict=True):
        assert reached.cumulative_value <= stated.bound_value
    assert 0.0 <= best.gap <= 1.0


@COMMON
@given(snapshots())
def test_a_single_pod_left_waiting_fits_on_no_node(s: Snapshot) -> None:
    result = plan(s, deadline_seconds=0.05)
    nodes = {n.name: n for n in s.nodes}
    pods = {p.uid: p for p in s.pods}
    for waiting in result.pending:
        if waiting.gang:
            continue
        others = tuple(p for p in result.pending if p is not waiting)
        for name in nodes:
            one = pods[waiting.uid]
            watts = (
                one.gpu_milli
                // 1000
                * nodes[name].class_watts_per_gpu.get(one.kernel_class, nodes[name].watts_per_gpu)
            )
            more = (*result.placements, Placement(uid=one.uid, node=name, watts=watts))
            forged = result.model_copy(update={"placements": more, "pending": others})
            assert complaints(s, forged) != (), f"{one.uid} would fit on {name}"
