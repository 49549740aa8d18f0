"""What pods would rather have of others: it decides between places that are as good otherwise."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.objective_order import ObjectiveStage
from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.peer_groups import PeerGroups
from scheduler_plugin.kube_objects.wished_peers import MOST_WISHES
from scheduler_plugin.solve import SearchSettings, plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, gang, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import Cluster, pod_object
from wattpack.kube.port import JsonObject

WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}


def wish(near: bool = False, weight: int = 100, key: str = "zone", group: str = "g") -> PeerWish:
    return PeerWish(weight=weight, group=group, topology_key=key, near=near)


def like(uid: str, gpus: int = 1, **more: Any) -> Pod:
    return pod(uid, gpus, wished_groups=("g",), **more)


def zones(*sizes: int, gpus: int = 1) -> list[Any]:
    """So many nodes in each zone."""
    return [
        node(f"{zone}{i}", gpus, labels={"zone": zone})
        for zone, size in zip("abcd", sizes, strict=False)
        for i in range(size)
    ]


def placed(of: Snapshot, **settings: Any) -> dict[str, str]:
    made = plan(of, deadline_seconds=0.05, settings=SearchSettings(**settings))
    assert complaints(of, made) == ()
    return {one.uid: one.node for one in made.placements}


@examples(60)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    count=st.integers(1, 6),
    there=st.integers(0, 2),
)
def test_replicas_that_would_rather_be_apart_are_spread_as_evenly_as_there_is_room(
    sizes: list[int], count: int, there: int
) -> None:
    """Against every way to divide them among the zones."""
    running = [bound(f"r{i}", f"a{i}", wished_groups=("g",)) for i in range(min(there, sizes[0]))]
    waiting = [like(f"p{i}", peer_wishes=(wish(),)) for i in range(count)]
    at = placed(snapshot(*zones(*sizes), *running, *waiting))
    rooms = [sizes[0] - len(running), *sizes[1:]]
    assert len(at) == min(count, sum(rooms))
    reached = Counter(name[0] for name in at.values())

    def weight(taken: Counter[str] | dict[str, int]) -> int:
        held = {"a": len(running)}
        return sum(n * (n - 1 + held.get(zone, 0)) for zone, n in taken.items())

    splits = product(*(range(room + 1) for room in rooms))
    best = min(
        weight(dict(zip("abcd", split, strict=False))) for split in splits if sum(split) == len(at)
    )
    assert weight(reached) == best


def test_company_is_kept_where_it_costs_nothing() -> None:
    db = bound("db", "b0", wished_groups=("db",))
    near = pod("p", 8, peer_wishes=(wish(near=True, group="db"),))
    cluster = [*zones(2, 2, gpus=8), node("x", labels={"zone": "c"})]
    full = db.model_copy(update={"gpu_milli": 8000})
    assert placed(snapshot(*cluster, full, near)) == {"p": "b1"}
    assert placed(snapshot(*zones(2, 1, gpus=8), full, near)) == {"p": "a0"}


def test_the_heavier_of_two_wishes_is_followed_and_a_node_without_the_label_is_near_nobody() -> (
    None
):
    others = [bound(f"{z}r", f"{z}0", 8, wished_groups=(z,)) for z in "ab"]
    for heavy, light in ("ab", "ba"):
        wishes = (wish(True, 60, group=heavy), wish(True, 40, group=light))
        of = snapshot(node("0"), *zones(2, 2, gpus=8), *others, pod("p", 8, peer_wishes=wishes))
        assert placed(of) == {"p": f"{heavy}1"}


def test_wishes_strand_no_gpus_and_count_behind_every_stage() -> None:
    waiting = [like(f"p{i}", peer_wishes=(wish(),)) for i in range(2)]
    of = snapshot(*zones(1, 1, gpus=8), *waiting, pod("whole", 8))
    made = plan(of, deadline_seconds=0.05)
    assert made.pending == ()
    assert len({p.node for p in made.placements if p.uid != "whole"}) == 1
    assert len(made.objective) == 2 * len(made.tiers) + len(of.objective) + 1
    assert made.objective[-1] == -200
    assert ObjectiveStage.FRAGMENTATION in of.objective


def test_who_is_counted_by_a_wish_may_still_move() -> None:
    stays = bound("r", "a0", 1, wished_groups=("g",), move_seconds=60)
    waiting = pod("p", 8, peer_wishes=(wish(),), node_selector={"zone": "a"})
    of = snapshot(*zones(1, 1, gpus=8), stays, waiting)
    assert placed(of, moves=True) == {"p": "a0"}


def test_members_of_gangs_have_wishes_too() -> None:
    parts = gang("t", 4, 8, peer_wishes=(wish(group="t"),), wished_groups=("t",))
    at = placed(snapshot(*zones(4, 4, gpus=8), parts))
    assert Counter(name[0] for name in at.values()) == {"a": 2, "b": 2}


# In a cluster


def replica(name: str, **spec: Any) -> JsonObject:
    return pod_object(name, 8, labels={"app": "web"}, **spec)


def preferred(kind: str, weight: object = 50, **term: Any) -> JsonObject:
    rule = {"weight": weight, "podAffinityTerm": {"topologyKey": "zone"} | term}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [rule]}}


SOFT = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"} | WEB


@pytest.mark.parametrize(
    "spec",
    [{"topologySpreadConstraints": [SOFT]}, {"affinity": preferred("podAntiAffinity", **WEB)}],
)
def test_replicas_go_to_different_zones_and_none_waits_for_that(spec: JsonObject) -> None:
    cluster = Cluster()
    for name in ("a0", "a1", "a2", "b0"):
        cluster.add_nodes(name, labels={"zone": name[0]})
    for i in range(2):
        cluster.add(replica(f"p{i}", **spec))
    cluster.loop.step()
    cluster.bind()
    cluster.add(replica("p2", **spec))
    cluster.loop.step()
    pins = [pod_facts.pinned_node(cluster.pod(f"p{i}")) for i in range(3)]
    assert sorted(pin[0] for pin in pins) == ["a", "a", "b"]


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": preferred("podAffinity", 0, **WEB)},
        {"affinity": preferred("podAffinity", "many", **WEB)},
        {"affinity": preferred("podAffinity", topologyKey="", **WEB)},
        {
            "affinity": preferred(
                "podAffinity",
                labelSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]},
            )
        },
    ],
)
def test_a_wish_that_makes_no_sense_is_none(spec: JsonObject) -> None:
    mine = {**replica("p", **spec)}
    mine["metadata"]["uid"] = "p"
    assert PeerGroups([mine]).of_waiting(mine) == {}


def test_of_any_number_of_wishes_the_first_count() -> None:
    soft = preferred("podAffinity", **WEB)
    soft["podAffinity"] = {kind: rules * 300 for kind, rules in soft["podAffinity"].items()}
    mine = replica("p", affinity=soft)
    mine["metadata"]["uid"] = "p"
    assert len(PeerGroups([mine]).of_waiting(mine)["peer_wishes"]) == MOST_WISHES
