"""Snapshots with parts of boards, changed at random: a typed error, or a plan that is right."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.checker import complaints
from scheduler_plugin.search import SearchSettings
from scheduler_plugin.snapshot import PodState, Snapshot, parse_snapshot
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from tests.scheduler_plugin.test_planner_mig import cut, runs
from wattpack.errors import InputError

GOOD: dict[str, Any] = json.loads(
    snapshot(
        domain("d", 5_000),
        node("m", 2, mig_geometry="A100-40GB", domain="d"),
        node("n", 2, domain="d"),
        runs("r0", "m", ("2g.10gb", 1, 2), move_seconds=5),
        pod("r1", gpu_milli=600, state=PodState.BOUND, node="n", gpu_boards=(1,), move_seconds=5),
        pod("r2", 1, state=PodState.BOUND, node="m", gpu_boards=(0,), move_seconds=5),
        cut("w0", "1g.5gb", "3g.20gb"),
        pod("w1", gpu_milli=500),
        pod("w2", 1, drawn_milli=143),
    ).model_dump_json()
)
NUMBER = st.integers(-2, 9) | st.sampled_from([500, 999, 1000, 1001, 3000, 2**45, 2**63, -(10**9)])
NAME = st.sampled_from(["1g.5gb", "1g.5gb+me", "7g.40gb", "4g.24gb", "9g.9gb", "", "1g.10gb"])
PLACE = st.fixed_dictionaries({"profile": NAME, "board": NUMBER, "start": NUMBER})
ODD = st.sampled_from([None, True, "", [], {}, 0.5])
CHANGES = st.one_of(
    st.tuples(st.just("pods"), st.just("gpu_milli"), NUMBER | ODD),
    st.tuples(st.just("pods"), st.just("drawn_milli"), NUMBER | ODD),
    st.tuples(st.just("pods"), st.just("gpu_boards"), st.lists(NUMBER, max_size=3) | ODD),
    st.tuples(st.just("pods"), st.just("mig_profiles"), st.dictionaries(NAME, NUMBER) | ODD),
    st.tuples(st.just("pods"), st.just("mig_placements"), st.lists(PLACE, max_size=3) | ODD),
    st.tuples(st.just("pods"), st.just("node"), st.sampled_from(["m", "n", "gone", ""])),
    st.tuples(st.just("nodes"), st.just("gpu_milli"), NUMBER | ODD),
    st.tuples(
        st.just("nodes"), st.just("mig_geometry"), st.sampled_from(["A30-24GB", "X", ""]) | ODD
    ),
)


def read(text: str) -> Snapshot | str:
    """The snapshot, or the field that was refused."""
    try:
        return parse_snapshot(text)
    except InputError as error:
        return error.field


@examples(250)
@given(st.lists(st.tuples(st.integers(0, 5), CHANGES), min_size=1, max_size=3), st.booleans())
def test_what_is_not_refused_by_its_field_is_planned_right(
    changes: list[tuple[int, tuple[str, str, Any]]], moves: bool
) -> None:
    document = json.loads(json.dumps(GOOD))
    for number, (kind, field, value) in changes:
        document[kind][number % len(document[kind])][field] = value
    s = read(json.dumps(document))
    if isinstance(s, str):
        assert s.split(".")[0] in ("pods", "nodes")
        return
    made = plan(s, deadline_seconds=0.1, settings=SearchSettings(moves=moves))
    assert made.refusals == ()
    assert complaints(s, made) == ()
    assert all(tier.cumulative_value <= tier.bound_value for tier in made.tiers)
