"""Uplinks bear gangs by the hose model, and of all sets of racks the fastest is preferred."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.explain_truth import judged
from scheduler_plugin.app import plan_command
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.change_text import remedy_text
from scheduler_plugin.documents.changed_snapshot import apply_changes
from scheduler_plugin.documents.link_groups import LinkGroup, LinkPair
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, Snapshot, parse_snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects.admission import gate_patch
from scheduler_plugin.kube_objects.gang_flow import peak_flow_megabits
from scheduler_plugin.packing.greedy_orders import orders_of, pack
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.solve import SearchSettings, plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import Cluster, pod_object
from wattpack.errors import InputError

RACK = "rack"
DOCS = Path(__file__).parents[2] / "docs"


def racks(rooms: Sequence[Sequence[int]]) -> list[Node]:
    """Nodes by rack, each with so many GPUs."""
    return [
        node(f"r{r}-{n}", gpus, labels={RACK: f"r{r}"})
        for r, nodes in enumerate(rooms)
        for n, gpus in enumerate(nodes)
    ]


def sending(name: str, size: int, flow: int, **other: Any) -> tuple[Gang, tuple[Pod, ...]]:
    members = tuple(
        pod(f"{name}-{i}", 1, gang=name, peak_flow_megabits=flow, **other) for i in range(size)
    )
    return Gang(id=name, size=size), members


def linked(
    *parts: Any, groups: Sequence[LinkGroup] = (), pairs: Sequence[LinkPair] = ()
) -> Snapshot:
    links = {"link_label": RACK, "link_groups": tuple(groups), "link_pairs": tuple(pairs)}
    made = snapshot(*parts)
    fields = {name: getattr(made, name) for name in Snapshot.model_fields}
    return Snapshot(**fields | links)


def uplinks(*capacities: int | None) -> list[LinkGroup]:
    return [LinkGroup(name=f"r{r}", uplink_megabits=c) for r, c in enumerate(capacities)]


def racks_of(of: Snapshot) -> dict[str, str]:
    """Where each pod is that the plan places; the judge agrees with the plan."""
    made = plan(of, deadline_seconds=0.05)
    assert complaints(of, made) == ()
    return {one.uid: one.node.split("-")[0] for one in made.placements}


def load(counts: Sequence[int], flow: int) -> list[int]:
    return [flow * min(count, sum(counts) - count) for count in counts]


@examples(300)
@given(st.data())
def test_a_gang_starts_just_where_some_split_of_it_is_borne(data: st.DataObject) -> None:
    rooms = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=5), "GPUs of each rack")
    flow, their = data.draw(st.integers(1, 3), "flow"), data.draw(st.integers(1, 3), "their flow")
    steps = st.integers(0, 3).map(lambda members: members * flow)
    drawn = [data.draw(st.one_of(steps, st.none()), f"uplink {r}") for r in range(len(rooms))]
    capacity = list(drawn)
    # Nodes without the label share no uplink.
    if data.draw(st.booleans(), "a node without a rack"):
        rooms.append(data.draw(st.integers(1, 5), "GPUs of it"))
        capacity.append(None)
    running, free = list[Pod](), list(rooms)
    sides = {"g": [0] * len(rooms), "h": [0] * len(rooms)}
    for i in range(data.draw(st.integers(0, 3), "running")):
        r = data.draw(st.integers(0, len(rooms) - 1))
        name, sent = data.draw(st.sampled_from([("g", flow), ("h", their)]))
        running.append(bound(f"b{i}", f"r{r}-0", 1, gang=name, peak_flow_megabits=sent))
        sides[name][r] += 1
        free[r] -= 1
    size = data.draw(st.integers(2, max(2, sum(rooms))), "members")
    labelled = len(rooms) - (len(capacity) > len(drawn))
    nodes = racks([[room] for room in rooms])
    bare = [n.model_copy(update={"labels": {}}) for n in nodes[labelled:]]
    of = linked(
        *nodes[:labelled],
        *bare,
        *running,
        Gang(id="h", size=1),
        sending("g", size, flow),
        groups=uplinks(*drawn),
    )
    beside, before = load(sides["h"], their), load(sides["g"], flow)
    borne = any(
        sum(split) == size
        and all(
            most is None or after == had or after + other <= most
            for most, after, had, other in zip(
                capacity,
                load([a + b for a, b in zip(sides["g"], split, strict=True)], flow),
                before,
                beside,
                strict=True,
            )
        )
        for split in product(*(range(max(0, room) + 1) for room in free))
    )
    problem = compile_problem(of)
    packed = pack(problem, orders_of(problem)[0][0]).assignment
    assert sum(packed.values()) == (size if borne else 0)
    assert len(racks_of(of)) == (size if borne else 0)


@examples(60)
@given(seed=st.integers(0, 10**6), moves=st.booleans())
@example(5665, True)
def test_no_plan_among_gangs_spines_and_movable_pods_is_refused(seed: int, moves: bool) -> None:
    chance = random.Random(seed)
    count = chance.randint(2, 5)
    nodes = racks(
        [[chance.randint(1, 3) for _ in range(chance.randint(1, 2))] for _ in range(count)]
    )
    groups = [
        LinkGroup(name=f"r{r}", parent=f"s{r // 2}", uplink_megabits=chance.choice([None, 1, 3, 9]))
        for r in range(count)
    ] + [LinkGroup(name=f"s{s}", uplink_megabits=chance.randint(0, 6)) for s in range(3)]
    pairs = [
        LinkPair(one=f"r{a}", other=f"r{b}", megabits=chance.randint(1, 9))
        for a, b in combinations(range(count), 2)
        if chance.random() < 0.6
    ]
    running = [
        bound(f"b{i}", n.name, 1, priority=-1, move_seconds=60)
        for i, n in enumerate(nodes)
        if n.gpu_milli > 1000 and chance.random() < 0.5
    ]
    gangs = [
        sending(f"g{g}", chance.randint(2, 4), chance.randint(0, 3), priority=chance.randint(0, 1))
        for g in range(chance.randint(1, 4))
    ]
    of = linked(*nodes, *running, *gangs, groups=groups, pairs=pairs[: chance.choice([0, 9])])
    made = plan(of, deadline_seconds=0.05, settings=SearchSettings(moves=moves))
    assert made.refusals == ()
    assert complaints(of, made) == ()


@examples(60)
@given(
    speeds=st.lists(st.integers(1, 50), min_size=6, max_size=6, unique=True),
    delays=st.lists(st.integers(1, 3), min_size=6, max_size=6),
)
def test_a_gang_of_two_racks_takes_the_two_with_the_fastest_link(
    speeds: list[int], delays: list[int]
) -> None:
    pairs = [
        LinkPair(one=f"r{a}", other=f"r{b}", megabits=speed, latency_microseconds=delay)
        for (a, b), speed, delay in zip(combinations(range(4), 2), speeds, delays, strict=True)
    ]
    of = linked(*racks([[2], [2], [2], [2]]), sending("g", 4, 0), pairs=pairs)
    best = max(pairs, key=lambda pair: pair.megabits)
    assert set(racks_of(of).values()) == {best.one, best.other}


def test_of_equal_links_the_one_of_least_latency_is_taken_and_unmeasured_ones_come_last() -> None:
    pairs = [
        LinkPair(one="r0", other="r1", megabits=9, latency_microseconds=5),
        LinkPair(one="r1", other="r2", megabits=9, latency_microseconds=2),
    ]
    of = linked(*racks([[2], [2], [2]]), sending("g", 4, 0), pairs=pairs)
    assert set(racks_of(of).values()) == {"r1", "r2"}
    alone = linked(*racks([[2], [2], [1]]), sending("g", 3, 0), pairs=pairs[:1])
    assert set(racks_of(alone).values()) == {"r0", "r1"}


def test_one_rack_comes_before_two_and_the_faster_one_first() -> None:
    inside = [LinkPair(one=f"r{r}", other=f"r{r}", megabits=r + 1) for r in range(3)]
    of = linked(*racks([[4], [4], [4]]), sending("g", 4, 0), pairs=inside)
    assert set(racks_of(of).values()) == {"r2"}


def test_large_flows_of_two_gangs_do_not_share_an_uplink_beyond_what_it_carries() -> None:
    nodes = racks([[3], [3], [6]])
    both = [sending("g", 4, 100), sending("h", 4, 100)]
    wide = linked(*nodes, *both, groups=uplinks(200, 200, 200))
    assert len(racks_of(wide)) == 8
    narrow = linked(*nodes, *both, groups=uplinks(50, 50, 50))
    assert set(racks_of(narrow).values()) == {"r2"}
    assert len(racks_of(narrow)) == 4


def test_what_others_use_and_uplinks_above_racks_count() -> None:
    nodes = racks([[2], [2], [2], [2]])
    spines = [
        LinkGroup(name="a", uplink_megabits=150, used_megabits=100),
        LinkGroup(name="b", uplink_megabits=100),
        *(LinkGroup(name=f"r{r}", parent="ab"[r // 2], uplink_megabits=200) for r in range(4)),
    ]
    assert set(racks_of(linked(*nodes, sending("g", 3, 100), groups=spines)).values()) in (
        {"r0", "r1"},
        {"r2", "r3"},
    )
    assert racks_of(linked(*nodes, sending("g", 5, 100), groups=spines)) == {}
    wider = [g.model_copy(update={"used_megabits": 0}) for g in spines]
    assert len(racks_of(linked(*nodes, sending("g", 5, 100), groups=wider))) == 5


def test_a_required_topology_goes_before_links() -> None:
    nodes = [
        n.model_copy(update={"labels": {**n.labels, "zone": (n.name[1] in "01" and "x") or "y"}})
        for n in racks([[2], [2], [2], [2]])
    ]
    pairs = [
        LinkPair(one="r1", other="r2", megabits=9),
        LinkPair(one="r0", other="r1", megabits=2),
        LinkPair(one="r2", other="r3", megabits=3),
    ]
    gang, members = sending("g", 4, 0)
    inside = gang.model_copy(update={"topology_key": "zone", "topology_required": True})
    of = linked(*nodes, (inside, members), pairs=pairs)
    assert len({r in ("r0", "r1") for r in racks_of(of).values()}) == 1
    assert set(racks_of(linked(*nodes, (gang, members), pairs=pairs)).values()) == {"r1", "r2"}


def test_the_judge_counts_loads_on_its_own() -> None:
    nodes = racks([[2], [2]])
    free = linked(*nodes, sending("g", 4, 100))
    made = plan(free, deadline_seconds=0.05)
    assert len(made.placements) == 4
    for capacity, said in ((200, ()), (199, ("r0", "r1"))):
        tight = linked(*nodes, sending("g", 4, 100), groups=uplinks(capacity, capacity))
        told = complaints(tight, made.model_copy(update={"snapshot_digest": tight.digest()}))
        assert told == tuple(f"uplink of {r}: 200 of 199 megabits a second" for r in said)


def test_without_flows_or_pairs_nothing_is_counted() -> None:
    nodes = racks([[2], [2]])
    for of in (
        snapshot(*nodes, sending("g", 4, 100)),
        linked(*nodes, sending("g", 4, 0), groups=uplinks(1, 1)),
        linked(*nodes, sending("g", 4, 100), groups=uplinks(None)),
        linked(*nodes, pod("p", 1, peak_flow_megabits=100), groups=uplinks(1, 1)),
    ):
        assert compile_problem(of).linked is None


def test_who_waits_for_an_uplink_is_told_by_how_much_it_would_have_to_be_wider() -> None:
    of = linked(*racks([[3], [3]]), sending("g", 5, 100_000), groups=uplinks(120_000, None))
    entries = plan(of, deadline_seconds=0.05).pending
    assert {entry.reason for entry in entries} == {"UplinkFull"}
    assert entries[0].message == (
        "g: the uplink of r0 would carry 200 Gbit/s of it, 120 Gbit/s left"
    )
    assert remedy_text(entries[0], {}) == (
        "operator: would start if the uplink of r0 carried 80 Gbit/s more"
    )
    assert len(racks_of(apply_changes(of, entries[0].changes))) == 5


def test_what_asks_less_than_wider_uplinks_is_told_in_their_place() -> None:
    first, *others = racks([[3], [3], [5]])
    cordoned = others.pop().model_copy(update={"schedulable": False})
    of = linked(first, *others, cordoned, sending("g", 5, 100), groups=uplinks(10, 10, 10))
    entry = plan(of, deadline_seconds=0.05).pending[0]
    assert entry.reason == "UplinkFull"
    assert remedy_text(entry, {}) == "operator: would start if r2-0 were ready and not cordoned"


@examples(40)
@given(seed=st.integers(0, 10**6))
@example(10129)
def test_a_told_set_lets_the_gang_in_and_none_of_it_is_too_much(seed: int) -> None:
    chance = random.Random(seed)
    rooms = [chance.randint(1, 4) for _ in range(chance.randint(2, 4))]
    running = [
        bound(f"b{r}", f"r{r}-0", 1, priority=-1, move_seconds=60)
        for r in range(len(rooms))
        if chance.random() < 0.5
    ]
    size = chance.randint(2, max(2, sum(rooms) - len(running)))
    capacity = [chance.randint(0, 3) * 50 for _ in rooms]
    of = linked(
        *racks([[r] for r in rooms]), *running, sending("g", size, 100), groups=uplinks(*capacity)
    )
    made = plan(of, deadline_seconds=0.05)
    for entry in json.loads(made.model_dump_json())["pending"]:
        if entry["changes"]:
            found = judged(of, made, entry)
            assert (
                found.items()
                >= {"placed": True, "needed": True, "less": True, "alike": True}.items()
            )


@pytest.mark.parametrize(
    ("links", "field"),
    [
        ('"link_groups": [{"name": "a"}]', "link_label"),
        ('"link_label": "l", "link_groups": [{"name": "a"}, {"name": "a"}]', "link_groups.name"),
        ('"link_label": "l", "link_groups": [{"name": "a", "parent": "b"}]', "link_groups.parent"),
        ('"link_label": "l", "link_groups": [{"name": "a", "parent": "a"}]', "link_groups.parent"),
        (
            '"link_label": "l", "link_pairs": [{"one": "a", "other": "b", "megabits": 1},'
            ' {"one": "b", "other": "a", "megabits": 2}]',
            "link_pairs",
        ),
    ],
)
def test_links_that_contradict_themselves_are_refused_with_the_field(
    links: str, field: str
) -> None:
    with pytest.raises(InputError) as refused:
        parse_snapshot(f"{{{links}}}")
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("annotations", "megabits"),
    [
        ({}, 0),
        ({"peak-bandwidth": "200G"}, 200_000),
        ({"peak-bandwidth": "1"}, 1),
        ({"bytes-per-iteration": "12G", "iteration-seconds": "0.8"}, 120_000),
        ({"peak-bandwidth": "1M", "bytes-per-iteration": "x"}, 1),
    ],
)
def test_a_pod_states_its_peak_or_what_an_iteration_sends(
    annotations: dict[str, str], megabits: int
) -> None:
    named = {f"wattpack.io/gang-{name}": text for name, text in annotations.items()}
    assert peak_flow_megabits(pod_object("p", annotations=named)) == megabits


@pytest.mark.parametrize(
    ("annotations", "field"),
    [
        ({"peak-bandwidth": "fast"}, "peak-bandwidth"),
        ({"peak-bandwidth": "2E"}, "peak-bandwidth"),
        ({"bytes-per-iteration": "1G"}, "iteration-seconds"),
        ({"bytes-per-iteration": "1G", "iteration-seconds": "0"}, "iteration-seconds"),
        ({"bytes-per-iteration": "E", "iteration-seconds": "1"}, "bytes-per-iteration"),
    ],
)
def test_a_flow_that_cannot_be_read_is_refused_with_its_annotation(
    annotations: dict[str, str], field: str
) -> None:
    named = {f"wattpack.io/gang-{name}": text for name, text in annotations.items()}
    with pytest.raises(InputError) as refused:
        gate_patch(pod_object("p", annotations=named))
    assert refused.value.field == f"metadata.annotations.wattpack.io/gang-{field}"


def test_in_a_cluster_links_are_settings_and_a_gang_waits_for_its_uplink() -> None:
    links = {"label": RACK, "groups": [{"name": "r0", "uplink_megabits": 150_000}]}
    cluster = Cluster(links=links)
    for name in ("r0-0", "r1-0"):
        cluster.add_nodes(name, gpus=3, labels={RACK: name[:2]})
    for gang, size in (("g", 4), ("h", 4)):
        for i in range(size):
            annotations = {
                "wattpack.io/gang-size": str(size),
                "wattpack.io/gang-peak-bandwidth": "100G" if gang == "g" else "200G",
            }
            labels = {"wattpack.io/gang": gang}
            cluster.add(pod_object(f"{gang}{i}", labels=labels, annotations=annotations))
    result = cluster.loop.step()
    assert len(result.released) == 4
    assert {key.split("/")[1][0] for key in result.released} == {"g"}
    assert {reason for reason, _ in result.pending.values()} <= {"UplinkFull", "GangDoesNotFit"}


def test_a_snapshot_for_people_has_the_links_of_the_settings() -> None:
    links = {"label": RACK, "groups": [{"name": "r0", "uplink_megabits": 100}]}
    settings = PlacementSettings.model_validate({"links": links})
    cluster = Cluster()
    taken = plan_command.cluster_snapshot(cluster.api, cluster.clock, settings)
    assert taken.link_label == RACK
    assert [group.name for group in taken.link_groups] == ["r0"]


def test_settings_of_links_that_contradict_themselves_are_refused() -> None:
    for links, field in (
        ({"groups": [{"name": "a"}]}, "label"),
        ({"label": "l", "groups": [{"name": "a", "parent": "b"}]}, "groups.parent"),
    ):
        with pytest.raises(ValidationError, match=field):
            PlacementSettings(links=links)


def test_the_documented_example_says_what_its_page_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert plan_command.main(["--snapshot", str(DOCS / "examples/links.json")]) == 0
    printed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    page = (DOCS / "placement-links.md").read_text("utf-8").split("## Try it")[1]
    shown = {line.strip() for line in page.splitlines() if line.startswith("    ")}
    shown = {line for line in shown if not line.startswith("wattpack ")}
    assert len(shown) == 3
    assert shown <= printed
