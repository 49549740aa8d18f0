"""Snapshots with parts of boards, changed at random: a typed error, or a plan that is right."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.snapshot import Gang, PodState, Snapshot, parse_snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.search import SearchSettings
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


def anything(seed: int) -> Snapshot:
    """Nodes, running pods that may not have room at all, gangs and single pods of every kind."""
    draw = random.Random(seed)
    profiles = ["1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.6gb"]

    def asked() -> dict[str, Any]:
        kind = draw.randrange(4)
        if kind == 0:
            return {"gpu_milli": draw.choice([100, 250, 300, 400, 500, 600, 700, 900])}
        if kind == 1:
            return {"gpu_milli": 1000 * draw.randint(0, 3)}
        return {"gpu_milli": 0, "mig_profiles": {draw.choice(profiles): draw.randint(1, 3)}}

    parts: list[Any] = [domain("d", draw.choice([1_000, 5_000, 10**6]))]
    names = [f"n{i}" for i in range(draw.randint(1, 5))]
    for name in names:
        geometry = draw.choice(["", "", "A100-40GB", "A30-24GB"])
        cpus = draw.choice([4_000, 100_000])
        parts.append(
            node(name, draw.randint(0, 4), milli_cpu=cpus, mig_geometry=geometry, domain="d")
        )
    for i in range(draw.randint(0, 8)):
        where = {"state": draw.choice([PodState.BOUND, PodState.PROMISED])}
        where |= {"node": draw.choice(names), "move_seconds": draw.choice([None, 5, 50])}
        parts.append(pod(f"r{i}", milli_cpu=1_000, **where, **asked()))
    for i in range(draw.randint(0, 2)):
        size, one, other = draw.randint(1, 4), asked(), asked()
        members = [pod(f"g{i}-{k}", gang=f"g{i}", **(other if k else one)) for k in range(size)]
        parts.append((Gang(id=f"g{i}", size=size), tuple(members)))
    for i in range(draw.randint(0, 10)):
        parts.append(pod(f"p{i}", milli_cpu=1_000, priority=draw.choice([0, 0, 5]), **asked()))
    return snapshot(*parts)


@examples(100)
@given(st.integers(0, 10**9), st.booleans())
def test_whatever_runs_and_waits_is_planned_right(seed: int, moves: bool) -> None:
    s = anything(seed)
    made = plan(s, deadline_seconds=0.2, settings=SearchSettings(moves=moves))
    assert made.refusals == ()
    assert complaints(s, made) == ()
    assert all(tier.cumulative_value <= tier.bound_value for tier in made.tiers)
