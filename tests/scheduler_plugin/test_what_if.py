"""What a plan would be with other nodes or limits, and when a gang would start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._explain_cases import KINDS, random_snapshot
from scheduler_plugin.app import what_if_command
from scheduler_plugin.documents.mig_placement import MigPlacement
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import PodState, Snapshot
from scheduler_plugin.gang_start import (
    ExpectedWatts,
    Forecast,
    GangStart,
    expected_start,
    parse_forecast,
    with_expected_ends,
)
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import SearchSettings, plan
from scheduler_plugin.what_if import (
    AddedNodes,
    Comparison,
    FewerNodes,
    Question,
    altered,
    compared,
)
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from wattpack.errors import InputError


def planned(question: Snapshot) -> Plan:
    return plan(question, deadline_seconds=0)


def asked(before: Snapshot, **question: Any) -> Comparison:
    after = altered(before, Question(**question))
    made = planned(after)
    assert complaints(after, made) == ()
    return compared((before, planned(before)), (after, made))


def changes(comparison: Comparison) -> dict[str, tuple[str, str]]:
    return {one.uid: (one.before, one.after) for one in comparison.relocations}


ROW = (
    node("a", domain="row", idle_watts=300),
    node("b", domain="row", idle_watts=300),
    domain("row", 12_000, used=6_200),
)


def test_mig_instances_are_held_as_parts_of_their_boards() -> None:
    cut = [node(name, 1, mig_geometry="A100-40GB") for name in "ab"]
    runs = bound("p", "a", 0, mig_profiles={"3g.20gb": 1})
    told = asked(snapshot(*cut, runs, pod("q", 0, mig_profiles={"7g.40gb": 1})), drain=("b",))
    assert (told.held_before, told.held_after) == (1_428, 428)


def test_pods_of_a_drained_node_go_elsewhere_or_wait() -> None:
    before = snapshot(*ROW, bound("p", "a", 2), bound("q", "a", 6), bound("r", "b", 3))
    told = asked(before, drain=("a",))
    assert changes(told) in (
        {"p": ("a", "b"), "q": ("a", "")},
        {"p": ("a", "b")} | {"q": ("a", "")},
    )
    assert (told.waiting_before, told.waiting_after) == (0, 1)
    assert (told.gpu_milli_before, told.gpu_milli_after) == (16_000, 8_000)
    assert (told.held_before, told.held_after) == (11_000, 5_000)
    # p and q drew 5,600 W; p draws 1,400 W elsewhere.
    (row,) = told.domains
    assert (row.counted_before, row.counted_after) == (6_200, 6_200 - 5_600 + 1_400)


def test_nobody_is_told_that_a_drained_node_should_come_back() -> None:
    """Neither a pod nor a gang that would need just that node."""
    large = bound("large", "a", 8), bound("r", "b", 1)
    after = altered(snapshot(node("a"), node("b", 4), *large, gang("g", 2, gpus=4)),
                    Question(drain=("a",)))  # fmt: skip
    for leaving, kinds in ((frozenset(), {"return_node"}), (frozenset({"a"}), set())):
        settings = SearchSettings(leaving=leaving)
        waits = plan(after, deadline_seconds=0, settings=settings).pending
        assert {entry.uid for entry in waits} == {"large", "g-0", "g-1"}
        assert {c.kind for e in waits for c in e.changes} & {"return_node"} == kinds


def test_an_instance_of_a_drained_node_gets_a_place_elsewhere() -> None:
    cut = {"mig_geometry": "A100-40GB"}
    there = MigPlacement(profile="7g.40gb", board=3, start=0)
    runs = bound("b", "a", 0, mig_profiles={"7g.40gb": 1}, mig_placements=(there,))
    told = asked(snapshot(node("a", 4, **cut), node("b", 1, **cut), runs), drain=("a",))
    assert changes(told) == {"b": ("a", "b")}


def test_so_many_nodes_of_a_model_go_the_emptiest_first_below_a_domain() -> None:
    before = snapshot(
        domain("site", 50_000),
        domain("row", 20_000, parent="site"),
        *(node(name, domain="row", gpu_model="H200") for name in "abc"),
        node("d", domain="site", gpu_model="H200"),
        node("l", domain="row", gpu_model="L4"),
        bound("p", "a", 2),
        bound("q", "b", 4),
    )
    assert asked(before, fewer=(FewerNodes(count=2, model="H200", domain="row"),)).removed == (
        "a",
        "c",
    )
    assert asked(before, fewer=(FewerNodes(count=3, model="H200"),)).removed == ("a", "c", "d")
    with pytest.raises(InputError, match=r"--remove.*at most 3 nodes of H200 below row"):
        altered(before, Question(fewer=(FewerNodes(count=4, model="H200", domain="row"),)))
    with pytest.raises(InputError, match=r"--remove.*a power domain"):
        altered(before, Question(fewer=(FewerNodes(count=1, model="H200", domain="x"),)))
    with pytest.raises(InputError, match=r"--remove.*a GPU model: H200, L4"):
        altered(before, Question(fewer=(FewerNodes(count=1, model="H20"),)))


def test_a_removed_node_draws_nothing_any_more() -> None:
    (row,) = asked(snapshot(*ROW), remove=("a",)).domains
    assert row.counted_after == 6_200 - 300


def test_more_nodes_let_pods_in_as_far_as_the_row_feeds_them() -> None:
    before = snapshot(
        *ROW, bound("x", "a", 8), bound("y", "b", 8), *(pod(f"w{i}", 8) for i in "12")
    )
    told = asked(before, add=(AddedNodes(count=2, like="H200"),))
    # 12,000 - 6,200 W less 600 W of idle draw is room for no 5,600 W.
    assert told.waiting_after == 2
    told = asked(before, add=(AddedNodes(count=2, like="b"),), limits={"row": 12_400})
    assert (told.waiting_before, told.waiting_after) == (2, 1)
    assert {one.after for one in told.relocations} <= {"b+1", "b+2"}
    assert {d.name: d.limit_after for d in told.domains} == {"row": 12_400}


def test_nodes_may_come_below_another_domain() -> None:
    before = snapshot(
        *ROW, domain("other", 50_000), bound("x", "a", 8), bound("y", "b", 8), pod("w", 8)
    )
    after = altered(before, Question(add=(AddedNodes(count=1, like="a", domain="other"),)))
    assert {n.name: n.domain for n in after.nodes} == {"a": "row", "b": "row", "a+1": "other"}
    assert {d.name: d.used_watts for d in after.domains} == {"row": 6_200, "other": 300}
    assert planned(after).placements[0].node == "a+1"


@examples(24)
@given(st.sampled_from(list(KINDS)), st.integers(0, 10**6), st.integers(0, 5))
def test_no_pod_is_lost_and_both_plans_hold(kind: str, seed: int, which: int) -> None:
    before = random_snapshot(kind, seed)
    name = before.nodes[which % len(before.nodes)].name
    swapped = Question(remove=(name,), add=(AddedNodes(count=1, like=name),))
    after = altered(before, swapped if which % 2 else Question(drain=(name,)))
    assert [p.uid for p in after.pods] == [p.uid for p in before.pods]
    old, new = planned(before), planned(after)
    assert complaints(after, new) == ()
    told = compared((before, old), (after, new))
    ran = {p.uid for p in before.pods if p.node == name}
    assert ran <= {one.uid for one in told.relocations}
    assert told.waiting_after == len(new.pending)
    held = sum(p.gpu_milli for p in after.pods if p.node)
    by_uid = {p.uid: p.gpu_milli for p in after.pods}
    assert told.held_after == held + sum(by_uid[p.uid] for p in new.placements)
    if which % 2 == 0:
        assert not any(one.after == name for one in told.relocations)


def test_what_is_not_there_is_refused_by_its_flag() -> None:
    for question, flag in (
        (Question(drain=("x",)), "--drain"),
        (Question(remove=("x",)), "--remove"),
        (Question(add=(AddedNodes(count=1, like="B200"),)), "--add"),
        (Question(add=(AddedNodes(count=1, like="a", domain="x"),)), "--add"),
        (Question(limits={"x": 1}), "--limit"),
    ):
        with pytest.raises(InputError) as error:
            altered(snapshot(*ROW), question)
        assert error.value.field == flag


# When a gang would start


def ends(uid: str, on: str, gpus: int, seconds: int | None, **other: Any) -> Any:
    return bound(uid, on, gpus, expected_end_seconds=seconds, **other)


def start(question: Snapshot, forecast: Forecast | None = None, who: str = "g") -> GangStart:
    return expected_start(question, who, planned, forecast)


WAITS = (node("a"), node("b"), gang("g", 2))


def test_a_gang_starts_when_the_last_of_whom_it_waits_for_ends() -> None:
    parts = (ends("x", "a", 4, 100), ends("y", "a", 4, 50), ends("z", "b", 1, 70))
    found = start(snapshot(*WAITS, *parts))
    assert (found.start_seconds, set(found.nodes.values())) == (100, {"a", "b"})
    assert sorted(found.ended) == ["x", "y", "z"]
    assert found.cause is not None
    assert found.cause.reason == "GangDoesNotFit"
    assert start(snapshot(*WAITS)).start_seconds == 0


def test_nobody_knows_when_it_starts_if_nobody_knows_when_they_end() -> None:
    found = start(snapshot(*WAITS, ends("x", "a", 4, None), ends("z", "b", 1, 70)))
    assert (found.start_seconds, found.looked_until_seconds) == (None, 70)
    assert found.cause is not None
    assert found.cause.changes


def test_more_important_pods_go_first() -> None:
    rival = pod("rival", 8, priority=5)
    parts = (ends("x", "a", 8, 10), ends("z", "b", 8, 20), rival)
    assert start(snapshot(*WAITS, *parts)).start_seconds is None
    single = (node("a"), node("b"), *parts, pod("p", 8))
    assert start(snapshot(*single), who="team/p").start_seconds == 20


def test_a_gang_that_waits_for_power_starts_when_the_forecast_falls() -> None:
    parts = (node("a", domain="row"), domain("row", 10_000, used=9_000), gang("g", 2, gpus=4))
    falls = (ExpectedWatts(after_seconds=60, used_watts=7_000),
             ExpectedWatts(after_seconds=300, used_watts=4_400))  # fmt: skip
    assert start(snapshot(*parts), Forecast(domains={"row": falls})).start_seconds == 300
    draws = ends("x", "a", 0, None, milli_cpu=1)
    assert start(snapshot(*parts, draws), Forecast(ends={"x": 5})).start_seconds is None
    busy = bound("x", "a", 4)
    less = start(snapshot(node("a", 12, domain="row"), *parts[1:], busy), Forecast(ends={"x": 5}))
    assert less.start_seconds is None  # 9,000 less its 2,800 W leaves 3,800 W of 5,600
    enough = (domain("row", 12_000, used=9_000), parts[2])
    less = start(snapshot(node("a", 12, domain="row"), *enough, busy), Forecast(ends={"x": 5}))
    assert less.start_seconds == 5


def test_members_that_start_one_after_the_other_are_all_there_with_the_last() -> None:
    """As those of an elastic gang, who come after its least as room allows."""
    parts = (node("a"), node("b"), ends("x", "a", 8, 10), ends("y", "b", 8, 20), gang("g", 2))

    def one_by_one(state: Snapshot) -> Plan:
        waits = [p.uid for p in state.pods if not p.node]
        free = [n.name for n in state.nodes if all(p.node != n.name for p in state.pods)]
        placed = tuple(Placement(uid=u, node=n) for u, n in zip(waits[:1], free, strict=False))
        return Plan(snapshot_digest="", method="greedy", placements=placed)

    found = expected_start(snapshot(*parts), "g", one_by_one)
    assert (found.start_seconds, sorted(found.nodes.values())) == (20, ["a", "b"])


@pytest.mark.parametrize(
    ("who", "forecast", "field"),
    [
        ("nobody", Forecast(), "--start-of"),
        ("x", Forecast(), "--start-of"),
        ("g", Forecast(ends={"nobody": 1}), "forecast.ends"),
        ("g", Forecast(domains={"nowhere": ()}), "forecast.domains"),
    ],
)
def test_questions_about_nobody_are_refused(who: str, forecast: Forecast, field: str) -> None:
    with pytest.raises(InputError) as error:
        start(snapshot(*WAITS, bound("x", "a", 4)), forecast, who)
    assert error.value.field == field


def test_who_leaves_out_the_namespace_is_told_the_whole_name() -> None:
    asked = snapshot(node("a"), gang("team/gang/t", 2), pod("p", namespace="a", name="train"))
    for short, whole in (("t", "team/gang/t"), ("train", "a/train")):
        with pytest.raises(InputError, match=f"did you mean '{whole}'"):
            start(asked, Forecast(), short)


def test_a_forecast_that_cannot_be_read_names_its_field() -> None:
    with pytest.raises(InputError) as error:
        parse_forecast('{"ends": {"x": -1}}')
    assert "ends" in error.value.field


def test_ends_are_those_of_running_pods() -> None:
    question = with_expected_ends(snapshot(*WAITS, bound("x", "a", 4)), {"x": 30, "g-0": 5})
    assert {p.uid: p.expected_end_seconds for p in question.pods if p.expected_end_seconds} == {
        "x": 30
    }
    assert start(question).start_seconds == 30


# Command line


def test_people_read_what_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.json"
    parts = (bound("p", "a", 2), bound("q", "a", 6), bound("r", "b", 3))
    file.write_text(snapshot(*ROW, *parts).model_dump_json())
    assert what_if_command.main([str(file), "--drain", "a"]) == 0
    shown = capsys.readouterr().out
    assert "11 of 16 GPUs held before, 5 of 8 after; 0 pods waiting before, 1 after" in shown
    assert "team/p: a -> b" in shown
    assert "team/q: a -> waits" in shown
    assert "would start if 3 GPUs more were free on b" in shown
    assert "row: 6,200 of 12,000 W before, 2,000 of 12,000 W after" in shown
    assert what_if_command.main([str(file), "--limit", "row=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["api_version"] == "wattpack.io/what-if/v1"


def test_people_read_when_a_gang_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, forecast = tmp_path / "s.json", tmp_path / "f.json"
    file.write_text(snapshot(*WAITS, bound("x", "a", 4)).model_dump_json())
    forecast.write_text(json.dumps({"ends": {"x": 3600}}))
    assert what_if_command.main([str(file), "--start-of", "g", "--forecast", str(forecast)]) == 0
    shown = capsys.readouterr().out
    assert "g would start in 3,600 s; now it waits:" in shown
    assert "GangDoesNotFit: " in shown
    assert "1 running pods end before, the last of them team/x" in shown
    assert what_if_command.main([str(file), "--start-of", "g"]) == 0
    assert "nothing that is expected lets it start" in capsys.readouterr().out
    assert what_if_command.main([str(file), "--start-of", "g", "--add", "1:H200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["start_seconds"] == 0


def test_pods_that_wait_do_not_run_for_ever_in_a_what_if() -> None:
    after = altered(
        snapshot(*ROW, bound("p", "a", 2, expected_end_seconds=5)), Question(drain=("a",))
    )
    assert [(p.state, p.node) for p in after.pods] == [(PodState.PENDING, "")]
