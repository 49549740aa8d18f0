"""What the planner promises, case by case."""

from __future__ import annotations

import pytest

from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.documents.plan_document import PendingReason, Plan
from scheduler_plugin.documents.snapshot import PodState, Snapshot
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import GIB, bound, domain, gang, node, pod, snapshot


def where(result: Plan) -> dict[str, str]:
    return {p.uid: p.node for p in result.placements}


def why(result: Plan) -> dict[str, str]:
    return {p.uid: p.reason.value for p in result.pending}


def test_a_pod_goes_to_the_node_that_it_fills_best() -> None:
    result = plan(snapshot(node("a"), node("b"), bound("x", "b", 6), pod("p", 2)))
    assert where(result) == {"p": "b"}
    assert result.gap == 0.0


def test_a_pod_without_gpus_avoids_nodes_whose_gpus_it_would_strand() -> None:
    result = plan(snapshot(node("a"), node("cpu", 0, gpu_model=""), pod("p", 0)))
    assert where(result) == {"p": "cpu"}


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (pod("p", gpu_models=("B200",)), PendingReason.NO_GPU_MODEL),
        (pod("p", node_selector={"zone": "x"}), PendingReason.NODE_AFFINITY),
        (pod("p", 9), PendingReason.LARGER_THAN_ANY_NODE),
        (pod("p", 3), PendingReason.INSUFFICIENT_GPUS),
        (pod("p", milli_cpu=90_000), PendingReason.INSUFFICIENT_CPU),
        (pod("p", memory_bytes=1020 * GIB), PendingReason.INSUFFICIENT_MEMORY),
        (pod("p", excluded_nodes=("a",)), PendingReason.QUARANTINED),
    ],
)
def test_a_pod_left_out_says_which_constraint_binds(one: object, reason: PendingReason) -> None:
    filler = bound("x", "a", 6, milli_cpu=10_000, memory_bytes=8 * GIB)
    result = plan(snapshot(node("a"), filler, one))  # type: ignore[arg-type]
    assert why(result) == {"p": reason.value}
    assert result.pending[0].message


def test_a_full_power_domain_is_named_with_its_figures() -> None:
    parts = (
        domain("site", 100_000),
        domain("row-1", 10_000, used=8_900, parent="site"),
        node("a", domain="row-1"),
        pod("p", 4, expected_watts_per_gpu=600),
    )
    result = plan(snapshot(*parts))
    assert result.pending[0].reason is PendingReason.POWER_DOMAIN_FULL
    assert result.pending[0].message == "row-1 needs 2,400 W, 1,100 W left"


def test_all_domains_that_are_short_above_a_node_are_named_the_tightest_first() -> None:
    parts = (
        domain("site", 100_000, used=98_000),
        domain("row-1", 10_000, used=8_900, parent="site"),
        node("a", domain="row-1"),
        pod("p", 4, expected_watts_per_gpu=600),
    )
    message = "row-1 needs 2,400 W, 1,100 W left; site needs 2,400 W, 2,000 W left"
    assert plan(snapshot(*parts)).pending[0].message == message


def test_every_ancestor_limits_what_is_placed_below_it() -> None:
    parts = [domain("site", 2_000), domain("r1", 9_000, parent="site")]
    parts += [domain("r2", 9_000, parent="site")]
    nodes = [node("a", domain="r1"), node("b", domain="r2")]
    result = plan(snapshot(*parts, *nodes, *[pod(f"p{i}") for i in range(4)]))
    assert len(result.placements) == 2
    assert sum(p.watts for p in result.placements) <= 2_000


def test_watts_of_promised_pods_count_beside_the_forecast() -> None:
    promised = pod("q", state=PodState.PROMISED, node="a")
    result = plan(snapshot(domain("d", 1_400), node("a", domain="d"), promised, pod("p"), pod("r")))
    assert len(result.placements) == 1


def test_nothing_is_added_where_guaranteed_caps_do_not_fit() -> None:
    tree = (domain("d", 10**6, margin=-1), node("a", domain="d"))
    result = plan(snapshot(*tree, pod("p")))
    assert why(result) == {"p": "GuaranteedCapsInfeasible"}


def test_known_kernel_classes_use_their_own_watts() -> None:
    tree = (domain("d", 1_000), node("a", domain="d", class_watts_per_gpu={"decode": 250}))
    result = plan(snapshot(*tree, *[pod(f"p{i}", kernel_class="decode") for i in range(6)]))
    assert len(result.placements) == 4


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    assert len(plan(snapshot(*nodes, gang("g", 3))).placements) == 3
    result = plan(snapshot(*nodes, node("n3"), bound("b", "n3"), gang("g", 4)))
    assert result.placements == ()
    assert {p.reason for p in result.pending} == {PendingReason.GANG_DOES_NOT_FIT}
    assert result.pending[0].message.startswith("g: 3 of 4 members fit; next member: needs 8 GPUs")


def test_a_gang_that_an_empty_cluster_could_not_hold_is_told_so() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    result = plan(snapshot(*nodes, gang("g", 4)))
    assert {p.reason for p in result.pending} == {PendingReason.GANG_EXCEEDS_CLUSTER}
    assert result.pending[0].message.startswith("g: the cluster has room for 3 of 4 such members")


def test_a_gang_that_does_not_fit_leaves_its_room_to_others() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    result = plan(snapshot(*nodes, gang("g", 4, priority=10), pod("p", 8)))
    assert list(where(result)) == ["p"]


def test_absent_members_of_a_gang_get_a_place_too() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    result = plan(snapshot(*nodes, gang("g", 3, existing=1)))
    assert set(where(result)) == {"g-0", "g-1", "g-2"}


def test_a_gang_with_members_that_nobody_described_waits() -> None:
    declared, members = gang("g", 3)
    result = plan(snapshot(*[node(f"n{i}") for i in range(3)], declared, *members[:2]))
    assert why(result) == {"g-0": "GangIncomplete", "g-1": "GangIncomplete"}


def test_the_higher_priority_is_served_first() -> None:
    result = plan(snapshot(node("a"), pod("low", 8), pod("high", 8, priority=5)))
    assert where(result) == {"high": "a"}
    assert [(t.priority, t.placed_value) for t in result.tiers] == [(5, 8000), (0, 0)]


def test_taints_need_tolerations_unless_they_only_prefer() -> None:
    blocking = Taint(key="wattpack.io/uncontrolled", effect=TaintEffect.NO_SCHEDULE)
    mild = Taint(key="wattpack.io/warm", effect=TaintEffect.PREFER_NO_SCHEDULE)
    assert why(plan(snapshot(node("a", taints=(blocking,)), pod("p")))) == {
        "p": "TaintNotTolerated"
    }
    assert where(plan(snapshot(node("a", taints=(mild,)), pod("p")))) == {"p": "a"}
    tolerating = pod("p", tolerations=(Toleration(key=blocking.key, operator="Exists"),))
    assert where(plan(snapshot(node("a", taints=(blocking,)), tolerating))) == {"p": "a"}


@pytest.mark.parametrize("state", ["ready", "schedulable", "disrupted"])
def test_unready_cordoned_and_disrupted_nodes_get_nothing(state: str) -> None:
    result = plan(snapshot(node("a", **{state: state == "disrupted"}), pod("p")))
    assert why(result) == {"p": "NoReadyNode"}


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (("gen", "In", ("9", "10")), True),
        (("gen", "NotIn", ("9",)), False),
        (("absent", "NotIn", ("9",)), True),
        (("gen", "Exists", ()), True),
        (("gen", "DoesNotExist", ()), False),
        (("gen", "Gt", ("8",)), True),
        (("gen", "Lt", ("9",)), False),
        (("gen", "Gt", ("many",)), False),
    ],
)
def test_affinity_operators_follow_core_v1(
    rule: tuple[str, str, tuple[str, ...]], matches: bool
) -> None:
    key, operator, values = rule
    requirement = Requirement.model_validate({"key": key, "operator": operator, "values": values})
    term = NodeTerm(match_expressions=(requirement,))
    one = pod("p", required_terms=(NodeTerm(), term))
    assert bool(where(plan(snapshot(node("a", labels={"gen": "9"}), one)))) is matches


def harder_than_greedy() -> Snapshot:
    """GPUs alone would fit anywhere, CPU decides: three threes fill three nodes to the last core.

    Every greedy order strands CPU; an exact search finds the threes.
    """
    sizes = (22, 22, 31, 23, 51, 19, 46, 28, 46)
    nodes = [node(f"n{i}", 8) for i in range(3)]
    pods = [pod(f"p{i}", 2, milli_cpu=1_000 * size) for i, size in enumerate(sizes)]
    return snapshot(*nodes, *pods)


def test_cp_sat_places_what_greedy_leaves_out_and_proves_it() -> None:
    greedy = plan(harder_than_greedy(), deadline_seconds=0.0)
    better = plan(harder_than_greedy(), deadline_seconds=2.0)
    assert len(greedy.placements) < 9
    assert greedy.gap > 0
    assert len(better.placements) == 9
    assert better.method == "cp_sat"
    assert better.gap == 0.0


def test_the_same_seed_gives_the_same_plan() -> None:
    first = plan(harder_than_greedy(), deadline_seconds=2.0, seed=3)
    assert plan(harder_than_greedy(), deadline_seconds=2.0, seed=3) == first


def test_a_gang_is_kept_whole_by_the_exact_search_too() -> None:
    """Power for four GPUs: the gang of two pairs or singles, never half a gang."""
    tree = (domain("d", 2_800), node("a", 4, domain="d"), node("b", 4, domain="d"))
    result = plan(snapshot(*tree, gang("g", 3, 2), pod("s1", 1), pod("s2", 2)))
    gang_pods = {uid for uid in where(result) if uid.startswith("g-")}
    assert gang_pods in (set(), {"g-0", "g-1", "g-2"})
    assert sum(p.watts for p in result.placements) <= 2_800


def test_an_empty_cluster_and_an_empty_queue_are_plans_too() -> None:
    assert plan(snapshot()).placements == ()
    assert plan(snapshot(node("a"))).pending == ()
    assert why(plan(snapshot(pod("p")))) == {"p": "NoNodes"}


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_no_number_of_pods_without_gpus_outweighs_a_gpu_of_their_priority(seconds: float) -> None:
    hosts = [pod(f"h{i:02d}", 0, milli_cpu=8_000) for i in range(12)]
    made = plan(
        snapshot(node("a", 8), *hosts, pod("g", 1, milli_cpu=90_000)), deadline_seconds=seconds
    )
    assert [one.uid for one in made.placements] == ["g"]
    more_important = [one.model_copy(update={"priority": 1}) for one in hosts]
    made = plan(
        snapshot(node("a", 8), *more_important, pod("g", 1, milli_cpu=90_000)),
        deadline_seconds=seconds,
    )
    assert len(made.placements) == 12
    assert "g" not in where(made)
