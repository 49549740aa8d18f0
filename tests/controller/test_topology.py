"""From objects to arrays, and what is refused on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.pod_works import KnownWork
from capacity.gpu_profile import GpuProfile
from capacity.profile_library import shipped_library
from controller.acceptance import Acceptance, Site, accept
from controller.membership import require_per_gpu_watts
from controller.step import carry_over, initial_state, step
from controller.tick_values import Tick, Topology
from controller.topology import (
    GpuSpec,
    NodeSpec,
    PodSpec,
    build_topology,
)
from tests.controller.builders import SETTINGS, make_observations, seconds
from wattpack.api import PowerDomain, PowerPolicy, WorkloadProfile
from wattpack.api.inventory import WorkloadProfileSpec
from wattpack.errors import InputError, SafetyError

MODEL = "H200-SXM"


def running(result: Acceptance) -> Topology:
    """The topology, which is there once a domain was accepted."""
    assert result.topology is not None
    return result.topology


def make_domain(name: str, parent: str | None = None, **spec: Any) -> PowerDomain:
    full = {
        "ratingWatts": 60_000.0,
        "loadDeclaredComplete": True,
        "enforcement": "Enforce",
        "nonGpuPerNode": {"worstWatts": 2000.0, "idleWatts": 700.0},
        **({"parent": parent} if parent else {}),
        **spec,
    }
    body = {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": name},
        "spec": full,
    }
    return PowerDomain.from_json(body)


def make_policy(name: str, priority: int, **spec: Any) -> PowerPolicy:
    body = {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerPolicy",
        "metadata": {"name": name},
        "spec": {"priority": priority, **spec},
    }
    return PowerPolicy.from_json(body)


def make_node(name: str, rack: str = "a", **changes: Any) -> NodeSpec:
    limits = {"min_limit_watts": 200.0, "default_limit_watts": 700.0, "max_limit_watts": 700.0}
    gpu = {"model": MODEL, **limits, "max_clock_mhz": 1980, **changes}
    gpus = tuple(GpuSpec(uuid=f"{name}-{i}", **gpu) for i in range(8))
    return NodeSpec(name, gpus, {"rack": rack}, host_unit=True)


def profiles() -> dict[str, GpuProfile]:
    profile = shipped_library().find(MODEL)
    return {MODEL: profile}


def rack(name: str, parent: str | None = "row", **spec: Any) -> PowerDomain:
    return make_domain(f"rack-{name}", parent, members={"nodeSelector": {"rack": name}}, **spec)


def test_nodes_gpus_and_policies_become_arrays() -> None:
    domains = [make_domain("row"), rack("a"), rack("b")]
    policies = [
        make_policy("serving", 100, selector={"priorityClasses": ["high"]}, floorFraction=0.7),
        make_policy("batch", -10, selector={"namespaces": ["batch"]}, requestFraction=0.8),
    ]
    nodes = [make_node("n0"), make_node("n1", "b"), make_node("stranger", "z")]
    pods = [
        PodSpec("web", "p", ("n0-0", "n0-1"), priority_class="high"),
        PodSpec("batch", "q", ("n0-1", "n1-0")),
    ]
    topology = build_topology(domains, policies, nodes, pods, profiles())
    assert topology.node_names == ("n0", "n1")
    assert topology.priority[0] == 100
    assert topology.floor_watts[0] == pytest.approx(490.0)
    assert topology.request_watts[8] == pytest.approx(560.0)
    # Without work nobody is important: the lowest priority that any policy names.
    assert topology.priority[-1] == -10
    assert topology.floor_watts[-1] == pytest.approx(profiles()[MODEL].knee_watts)
    # GPU n0-1 is shared: its highest tenant's class, and the gang of that cap.
    assert topology.priority[1] == 100
    assert topology.gang[0] >= 0
    assert np.all(topology.guaranteed_watts <= topology.floor_watts)
    # 2,000 W were declared AC at the breaker.
    assert topology.node_worst_watts[0] / 0.94 == pytest.approx(2000.0)


def test_i5_gangs_that_share_a_board_are_one_gang_of_the_highest_class() -> None:
    policies = [
        make_policy("serving", 100, selector={"priorityClasses": ["high"]}),
        make_policy("batch", 0, selector={"priorityClasses": ["low"]}),
    ]
    pods = [
        PodSpec("web", "a", ("n0-0", "n0-1"), priority_class="low"),
        PodSpec("web", "b", ("n0-2", "n0-3"), priority_class="low"),
        PodSpec("web", "c", ("n0-1", "n0-2"), priority_class="high"),
        PodSpec("web", "d", ("n0-4", "n0-5"), priority_class="low"),
    ]
    topology = build_topology([rack("a", None)], policies, [make_node("n0")], pods, profiles())
    assert len(set(topology.gang[:4])) == 1
    assert topology.gang[4] == topology.gang[5] not in (topology.gang[0], -1)
    assert topology.priority[:4].tolist() == [100] * 4
    assert topology.priority[4:6].tolist() == [0] * 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "Unheard-Of"}, "model"),
        ({"default_limit_watts": 5600.0}, "default_limit_watts"),
        ({"max_limit_watts": 700_000.0}, "max_limit_watts"),
        ({"min_limit_watts": 0.0}, "min_limit_watts"),
        ({"min_limit_watts": float("nan")}, "min_limit_watts"),
        ({"default_limit_watts": 150.0}, "default_limit_watts"),
    ],
)
def test_i8_suspicious_boards_are_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        build_topology([rack("a", parent=None)], [], [make_node("n", **change)], [], profiles())


def test_i8_milliwatts_and_node_totals_say_what_they_look_like() -> None:
    with pytest.raises(InputError, match="milliwatts"):
        require_per_gpu_watts("capWatts", 400_000.0, 700.0)
    with pytest.raises(InputError, match="one GPU"):
        require_per_gpu_watts("capWatts", 4_000.0, 700.0)
    assert require_per_gpu_watts("capWatts", 400.0, 700.0) == 400.0


def test_a_node_in_two_branches_is_refused() -> None:
    twin = make_domain("twin", "row", members={"nodeNames": ["n0"]})
    with pytest.raises(InputError, match="node n0"):
        build_topology([make_domain("row"), rack("a"), twin], [], [make_node("n0")], [], profiles())


def test_a_node_named_at_two_levels_hangs_below_the_deeper() -> None:
    row = make_domain("row", members={"nodeNames": ["n0"]})
    topology = build_topology([row, rack("a")], [], [make_node("n0")], [], profiles())
    assert topology.tree.names[topology.domain_of_node[0]] == "rack-a"


def test_a_node_that_moved_into_two_branches_stops_no_other_and_counts_once() -> None:
    side = make_domain("rack-b", "row", members={"nodeSelector": {"side": "b"}})
    domains = [make_domain("row"), rack("a"), side]
    torn = replace(make_node("n0"), labels={"rack": "a", "side": "b"})
    result = accept(domains, domains, Site([], [torn, make_node("n1")], [], profiles()))
    assert running(result).node_names == ("n0", "n1")
    assert [running(result).tree.names[d] for d in running(result).domain_of_node] == [
        "rack-a",
        "rack-a",
    ]


def test_i1_a_change_that_breaks_it_is_not_accepted_and_the_old_spec_runs() -> None:
    old = [make_domain("row"), rack("a")]
    new = [make_domain("row", ratingWatts=50_000.0), rack("a", ratingWatts=3000.0)]
    nodes = [make_node("n0"), make_node("n1")]
    result = accept(old, new, Site([], nodes, [], profiles()))
    assert result.refusals["rack-a"].reason == "BreaksI1"
    assert "rack-a" in result.refusals["rack-a"].message
    assert list(running(result).tree.rating_watts) == [50_000.0, 60_000.0]


def test_i1_nodes_that_arrived_cannot_be_refused() -> None:
    domains = [make_domain("row"), rack("a")]
    nodes = [make_node(f"n{i}") for i in range(30)]
    with pytest.raises(SafetyError, match="I1"):
        build_topology(domains, [], nodes, [], profiles())
    result = accept(domains, domains, Site([], nodes, [], profiles()))
    assert running(result).n_nodes == 30
    assert np.all(running(result).guaranteed_watts == 200.0)


def overfull_beside_a_healthy_rack() -> tuple[list[PowerDomain], list[NodeSpec]]:
    """Rack a got more servers than it can ever bear; the row and rack b are fine."""
    domains = [make_domain("row", ratingWatts=1e6), rack("a"), rack("b")]
    return domains, [*[make_node(f"n{i}") for i in range(30)], make_node("m", "b")]


def test_i1_an_overfull_rack_lowers_no_healthy_one() -> None:
    domains, nodes = overfull_beside_a_healthy_rack()
    result = accept(domains, domains, Site([], nodes, [], profiles()))
    caps = running(result).guaranteed_watts
    healthy = build_topology(domains, [], nodes[-1:], [], profiles()).guaranteed_watts
    assert np.all(caps[: 30 * 8] == 200.0)
    assert caps[-8:].tolist() == healthy.tolist()


def test_beside_an_overfull_rack_other_changes_are_still_accepted() -> None:
    domains, nodes = overfull_beside_a_healthy_rack()
    window = {"start": "01:00", "end": "02:00", "budgetWatts": 9_000.0}
    wanted = [*domains[:2], rack("b", budgets=[window])]
    result = accept(domains, wanted, Site([], nodes, [], profiles()))
    assert result.refusals == {}
    assert result.domains[-1].spec.budgets[0].budget_watts == 9_000.0


@pytest.mark.parametrize(("watts", "is_refused"), [(59_000.0, True), (61_000.0, False)])
def test_i1_an_overfull_rack_takes_what_helps_it_and_nothing_that_makes_it_worse(
    watts: float, is_refused: bool
) -> None:
    domains, nodes = overfull_beside_a_healthy_rack()
    wanted = [domains[0], rack("a", ratingWatts=watts), domains[2]]
    result = accept(domains, wanted, Site([], nodes, [], profiles()))
    assert (set(result.refusals) == {"rack-a"}) is is_refused


def test_a_node_in_two_branches_keeps_no_other_change_from_being_accepted() -> None:
    side = make_domain("rack-b", "row", members={"nodeSelector": {"side": "b"}})
    domains = [make_domain("row"), rack("a"), side]
    torn = replace(make_node("n0"), labels={"rack": "a", "side": "b"})
    wanted = [make_domain("row", ratingWatts=59_000.0), *domains[1:]]
    result = accept(domains, wanted, Site([], [torn], [], profiles()))
    assert result.refusals == {}
    assert running(result).tree.rating_watts[0] == 59_000.0


@pytest.mark.parametrize(
    "missing", [{"loadDeclaredComplete": False}, {"nonGpuPerNode": {"worstWatts": 0.0}}]
)
def test_i10_enforce_is_refused_until_every_load_is_declared(missing: dict[str, Any]) -> None:
    watching = rack("a", parent=None, enforcement="DryRun")
    wanted = rack("a", parent=None, **missing)
    result = accept([watching], [wanted], Site([], [make_node("n0")], [], profiles()))
    assert result.refusals["rack-a"].reason == "LoadNotDeclared"
    assert not running(result).tree.enforce.any()


def test_a_removed_domain_is_gone_and_without_any_there_is_no_topology() -> None:
    result = accept(
        [make_domain("row"), rack("a")], [make_domain("row")], Site([], [], [], profiles())
    )
    assert running(result).tree.names == ("row",)
    assert accept([], [], Site([], [], [], profiles())).topology is None
    with pytest.raises(InputError, match="PowerDomain"):
        build_topology([], [], [], [], profiles())


def test_parents_in_a_circle_are_refused_by_name_though_nothing_else_is_there() -> None:
    circle = [make_domain("a", "b"), make_domain("b", "a")]
    result = accept([], circle, Site([], [make_node("n0")], [], profiles()))
    assert set(result.refusals) == {"a", "b"}
    assert result.domains == ()


def test_a_tree_without_servers_ticks_and_takes_its_first_ones_over() -> None:
    domains = [make_domain("row"), rack("a")]
    empty = build_topology(domains, [], [], [], profiles())
    state = initial_state(empty, SETTINGS)
    for tick in range(3):
        observed = make_observations(empty, seconds(tick))
        state, commands, _ = step(Tick(empty, observed, SETTINGS, seconds(tick)), state)
    assert commands.send.size == 0
    nodes = [make_node("n0"), NodeSpec("cpu-only", (), {"rack": "a"}, host_unit=True)]
    grown = build_topology(domains, [], nodes, [], profiles())
    state = carry_over(state, empty, grown)
    for tick in range(3, 60):
        observed = make_observations(grown, seconds(tick))
        state, commands, _ = step(Tick(grown, observed, SETTINGS, seconds(tick)), state)
    assert np.all(commands.cap_watts == 700.0)


def test_a_watt_is_worth_what_the_work_on_its_board_makes_of_it() -> None:
    def of(name: str, **shares: float) -> KnownWork:
        spec = WorkloadProfileSpec(kind="Serving", kernel_mix=shares)
        return KnownWork(name, None, WorkloadProfile(metadata={"name": name}, spec=spec))

    pods = [
        PodSpec("team", "hot", ("n0-0",), work=of("hot", prefill=1.0)),
        PodSpec("team", "mixed", ("n0-1",), work=of("mixed", prefill=0.3, decode=0.7)),
        PodSpec("team", "cool", ("n0-2",), work=of("cool", decode=1.0)),
        PodSpec(
            "team", "entry", ("n0-3",), work=KnownWork("e", shipped_catalogue()["decoder-decode"])
        ),
        PodSpec("team", "nobody-knows", ("n0-4",)),
        PodSpec("team", "of-a-class-that-the-type-lacks", ("n0-5",), work=of("x", magic=1.0)),
        PodSpec("team", "shares", ("n0-6",), work=of("cool", decode=1.0)),
        PodSpec("team", "shares-too", ("n0-6",), work=of("hot", prefill=1.0)),
    ]
    topology = build_topology(
        [make_domain("row"), rack("a")], [], [make_node("n0")], pods, profiles()
    )
    hot, mixed, cool, entry, *unknown, shared, free = topology.value_per_watt.tolist()
    assert hot > mixed > cool > 0
    assert entry > 0
    assert unknown == [free, free]
    assert shared == hot
