"""Plans that place as much are compared by the stages that somebody named, in that order.

The judge tries every assignment of a tiny cluster and compares them by figures of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Preference,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.documents.objective_order import ObjectiveStage, objective_order
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot, parse_snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.packing.priced_nodes import ObjectiveChoice, with_objective
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import GIB, bound, domain, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import Cluster, pod_object
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

MODELS = ("H100", "H200")
LINEAR = ("disruption", "worth", "preference", "watts", "cost", "carbon")
OPENED_WATTS = 100
Where = Mapping[str, str]
"""Nodes by uid of the pods that have one."""


def ordered(of: Snapshot, *names: str) -> Snapshot:
    return of.model_copy(update={"objective": objective_order(names)})


SOFT = Taint(key="spot", effect=TaintEffect.PREFER_NO_SCHEDULE)
BEARS_SOFT = Toleration(key="spot", operator="Exists")


def wish(zone: str, weight: int) -> Preference:
    """To be in a zone."""
    rule = Requirement(key="zone", operator="In", values=(zone,))
    return Preference(weight=weight, term=NodeTerm(match_expressions=(rule,)))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to three nodes and four pods; GPUs alone are short."""
    nodes = [
        node(
            f"n{i}",
            draw(st.integers(1, 4)),
            gpu_model=draw(st.sampled_from(MODELS)),
            watts_per_gpu=draw(st.sampled_from((300, 700))),
            gpu_hour_cost_milli=draw(st.sampled_from((1000, 1500, 4000))),
            carbon_grams_per_kwh=draw(st.sampled_from((30, 400))),
            labels={"zone": draw(st.sampled_from("ab"))},
            taints=draw(st.sampled_from(((), (SOFT,)))),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    values = st.sampled_from(({}, {"H100": 500, "H200": 1000}, {"H100": 1000}))
    one_wish = st.builds(wish, st.sampled_from("ab"), st.sampled_from((1, 40, 100)))
    wishes = st.lists(one_wish, max_size=2).map(tuple)
    pods = [
        pod(
            f"p{i}",
            draw(st.integers(1, 3)),
            priority=draw(st.sampled_from((0, 5))),
            gpu_model_values=draw(values),
            preferences=draw(wishes),
            tolerations=draw(st.sampled_from(((), (BEARS_SOFT,)))),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    if draw(st.booleans()):
        nodes[0] = nodes[0].model_copy(update={"gpu_milli": nodes[0].gpu_milli + 1000})
        pods.append(bound("r", "n0", 1))
    return snapshot(*nodes, *pods)


def possible(of: Snapshot) -> Iterator[Where]:
    waiting = [p for p in of.pods if not p.node]
    for nodes in product(("", *(n.name for n in of.nodes)), repeat=len(waiting)):
        where = {p.uid: n for p, n in zip(waiting, nodes, strict=True) if n}
        if all(left >= 0 for left in gpus_left(of, where).values()):
            yield where


def gpus_left(of: Snapshot, where: Where) -> dict[str, int]:
    left = {n.name: n.gpu_milli for n in of.nodes}
    for p in of.pods:
        at = p.node or where.get(p.uid, "")
        if at:
            left[at] -= p.gpu_milli
    return left


def figures(of: Snapshot, where: Where) -> dict[str, int]:
    """Each stage as it is compared: larger is better. Nobody moves."""
    nodes = {n.name: n for n in of.nodes}
    placed = [(p, nodes[where[p.uid]]) for p in of.pods if p.uid in where]
    busy = {p.node for p in of.pods if p.node}
    opened = {n.name for _, n in placed} - busy
    return {
        "disruption": 0,
        "worth": sum(
            p.gpu_model_values.get(n.gpu_model, 0) * p.gpu_milli // 1000 for p, n in placed
        ),
        "preference": -sum(unmet(p, n) - min(unmet(p, m) for m in of.nodes) for p, n in placed),
        "watts": -sum(watts(p, n) for p, n in placed) - OPENED_WATTS * len(opened),
        "cost": -sum(n.gpu_hour_cost_milli * p.gpu_milli // 1000 for p, n in placed),
        "carbon": -sum(watts(p, n) * n.carbon_grams_per_kwh for p, n in placed),
        "fragmentation": -fragmentation(of, where),
    }


def unmet(of: Pod, on: Node) -> int:
    """Weights of wishes that the node is not, and of taints that the pod would rather not bear."""
    wishes = sum(p.weight for p in of.preferences if not wished(p, on))
    return wishes + 100 * (SOFT in on.taints and BEARS_SOFT not in of.tolerations)


def wished(preference: Preference, on: Node) -> bool:
    (rule,) = preference.term.match_expressions
    return on.labels["zone"] in rule.values


def watts(of: Pod, on: Node) -> int:
    return on.watts_per_gpu * of.gpu_milli // 1000


def fragmentation(of: Snapshot, where: Where) -> int:
    """Tenths of GPUs that the expected demand cannot use, by its definition: one pod at a time."""
    gpus = sum(n.gpu_milli for n in of.nodes) // 1000
    per_gpu = [sum(n.milli_cpu for n in of.nodes) // gpus]
    per_gpu += [sum(n.memory_bytes for n in of.nodes) // gpus]
    expected = [(p.gpu_milli // 1000, p.milli_cpu, p.memory_bytes) for p in of.pods]
    largest = max(n.gpu_milli for n in of.nodes) // 1000
    expected += [(k, k * per_gpu[0], k * per_gpu[1]) for k in (1, 2, 4, 8) if k <= largest]
    total = 0.0
    for at in of.nodes:
        there = [p for p in of.pods if at.name in (p.node, where.get(p.uid))]
        free = at.gpu_milli // 1000 - sum(p.gpu_milli for p in there) // 1000
        cpu = at.milli_cpu - sum(p.milli_cpu for p in there)
        memory = at.memory_bytes - sum(p.memory_bytes for p in there)
        stuck = [ask for ask in expected if ask[0] > free or ask[1] > cpu or ask[2] > memory]
        total += free * len(stuck) / len(expected)
    return round(10 * total)


def placed_by_tier(of: Snapshot, where: Where) -> tuple[int, ...]:
    tiers = sorted({p.priority for p in of.pods if not p.node}, reverse=True)
    return tuple(
        sum(p.gpu_milli for p in of.pods if p.uid in where and p.priority == tier) for tier in tiers
    )


def compared(of: Snapshot, where: Where) -> tuple[int, ...]:
    by_name = figures(of, where)
    return (*placed_by_tier(of, where), *(by_name[stage] for stage in of.objective))


def places(made: Plan) -> Where:
    return {one.uid: one.node for one in made.placements}


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.permutations(LINEAR))
def test_no_assignment_of_a_tiny_cluster_is_better_in_any_order(
    of: Snapshot, order: list[str]
) -> None:
    of = ordered(of, *order)
    made = plan(of)
    best = max(compared(of, where) for where in possible(of))
    assert compared(of, places(made)) == best


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.permutations((*LINEAR, "fragmentation")))
def test_a_plan_states_what_it_is_compared_by(of: Snapshot, order: list[str]) -> None:
    of = ordered(of, *order)
    made = plan(of)
    by_name = figures(of, places(made))
    behind = made.objective[-len(order) :]
    named = dict(zip(order, behind, strict=True))
    # A half is rounded down here and up there by what floats add up to.
    assert abs(named.pop("fragmentation") - by_name.pop("fragmentation")) <= 1
    assert named == by_name
    assert made.objective[: -len(order) : 2] == placed_by_tier(of, places(made))


def two_kinds() -> Snapshot:
    """A cheap and dirty node that a pod fills in part, and a dear and clean one that it fills."""
    cheap = node("cheap", 4, gpu_hour_cost_milli=1000, carbon_grams_per_kwh=700)
    clean = node(
        "clean",
        2,
        milli_cpu=48_000,
        memory_bytes=512 * GIB,
        gpu_hour_cost_milli=3000,
        carbon_grams_per_kwh=20,
    )
    return snapshot(cheap, clean, pod("p", 2))


@pytest.mark.parametrize(
    ("first", "goes_to"), [("cost", "cheap"), ("carbon", "clean"), ("fragmentation", "clean")]
)
def test_what_is_named_first_decides(first: str, goes_to: str) -> None:
    behind = [name for name in ("cost", "carbon", "fragmentation") if name != first]
    for rest in permutations(behind):
        made = plan(ordered(two_kinds(), "disruption", first, *rest))
        assert places(made) == {"p": goes_to}


def test_places_do_not_become_fewer_since_they_are_dear() -> None:
    cheap = node("cheap", 2, gpu_hour_cost_milli=1)
    dear = node("dear", 4, gpu_hour_cost_milli=9000)
    made = plan(ordered(snapshot(cheap, dear, pod("p", 2), pod("q", 4)), "cost", "disruption"))
    assert places(made) == {"p": "cheap", "q": "dear"}


def test_equal_nodes_of_a_large_cluster_differ_by_their_price() -> None:
    nodes = [node(f"n{i:03}", 8, gpu_hour_cost_milli=2000 - i) for i in range(120)]
    pods = [pod(f"p{i}", 8) for i in range(20)]
    made = plan(ordered(snapshot(*nodes, *pods), "disruption", "fragmentation", "cost"))
    assert set(places(made).values()) == {f"n{i:03}" for i in range(100, 120)}


@pytest.mark.parametrize(
    ("names", "field"),
    [
        (["disruption", "speed"], "objective.1"),
        (["disruption", "cost", "cost"], "objective"),
        (["cost"], "objective"),
        ([], "objective"),
    ],
)
def test_an_order_that_is_none_is_refused_by_name(names: list[str], field: str) -> None:
    with pytest.raises(InputError) as refused:
        objective_order(names)
    assert refused.value.field == field
    text = ordered(two_kinds(), "disruption").model_dump(mode="json") | {"objective": names}
    with pytest.raises(InputError) as refused:
        parse_snapshot(json.dumps(text))
    assert refused.value.field == field
    with pytest.raises(InputError, match="objective"):
        PlacementSettings.load(environment={}, flags={"objective": names})


@pytest.mark.parametrize(
    ("stage", "needed"), [("cost", "gpu_prices"), ("carbon", "carbon_grams_per_kwh")]
)
def test_a_stage_without_figures_is_refused(stage: str, needed: str) -> None:
    with pytest.raises(InputError, match=needed):
        PlacementSettings.load(environment={}, flags={"objective": ["disruption", stage]})


def test_nodes_get_prices_by_model_and_carbon_by_the_nearest_domain() -> None:
    of = snapshot(
        domain("site", 10**6),
        domain("row", 10**6, parent="site"),
        domain("solar", 10**6, parent="site"),
        node("a", gpu_model="H100", domain="row"),
        node("b", gpu_model="NVIDIA A100", domain="solar"),
        node("c"),
    )
    order: tuple[Any, ...] = tuple(ObjectiveStage)
    choice = ObjectiveChoice(order, {"h100": 2.5, "nvidia-a100": 1.2}, {"site": 300, "solar": 20})
    figured = with_objective(of, choice)
    assert figured.objective == order
    assert [(n.gpu_hour_cost_milli, n.carbon_grams_per_kwh) for n in figured.nodes] == [
        (2500, 300),
        (1200, 20),
        (2500, 300),
    ]
    assert with_objective(of, ObjectiveChoice()) is of


def test_the_planning_loop_compares_by_its_settings() -> None:
    def goes_to(**settings: object) -> str:
        cluster = Cluster(**settings)
        cluster.add_nodes("a-dear", gpus=4)
        cluster.add_nodes("b-cheap", gpus=4, labels={"nvidia.com/gpu.product": "NVIDIA-A100"})
        cluster.add(pod_object("p"))
        (node_name,) = cluster.loop.step().released.values()
        return node_name

    prices = {"NVIDIA-H200": 3.8, "NVIDIA-A100": 1.4}
    by_cost = ("disruption", "fragmentation", "cost")
    assert goes_to(gpu_prices=prices) == "a-dear"
    assert goes_to(gpu_prices=prices, objective=by_cost) == "b-cheap"


def preferring(name: str, *, node_label: str, gpus: int = 4) -> JsonObject:
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_label]}
    term = {"weight": 1, "preference": {"matchExpressions": [rule]}}
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    return pod_object(name, gpus, affinity={"nodeAffinity": {kind: [term]}})


def test_a_pod_goes_where_it_prefers_to_be_while_there_is_room() -> None:
    cluster = Cluster()
    cluster.add_nodes("a", "b")
    for i in range(3):
        cluster.add(preferring(f"p{i}", node_label="b"))
    cluster.loop.step()
    where = sorted(pod_facts.pinned_node(cluster.pod(f"p{i}")) for i in range(3))
    assert where == ["a", "b", "b"], "a wish keeps nobody waiting"


def test_a_pod_keeps_off_soft_taints_while_there_is_room() -> None:
    cluster = Cluster()
    cluster.add_nodes("a", taints=[{"key": "spot", "effect": "PreferNoSchedule"}])
    cluster.add_nodes("b")
    for name in ("p", "q", "r"):
        cluster.add(pod_object(name, 4))
    bears = [{"key": "spot", "operator": "Exists"}]
    cluster.add(pod_object("s", 4, tolerations=bears))
    cluster.loop.step()
    where = {name: pod_facts.pinned_node(cluster.pod(name)) for name in "pqrs"}
    assert where["s"] == "a"
    assert sorted(where.values()) == ["a", "a", "b", "b"]


def test_pods_without_gpus_have_wishes_too() -> None:
    of = snapshot(
        node("a", 0, labels={"zone": "a"}),
        node("b", 0, labels={"zone": "b"}),
        pod("p", 0, preferences=(wish("b", 1),)),
    )
    assert places(plan(of)) == {"p": "b"}
