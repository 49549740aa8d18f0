"""Who has just written a checkpoint loses little by a move, and is moved rather than others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.kube_objects.checkpoint_age import (
    LAST_CHECKPOINT_ANNOTATION,
    checkpoint_age_seconds,
)
from tests.scheduler_plugin.moving_cluster import MovingCluster
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND

TRAINS = {"wattpack.io/workload": "train-data-parallel"}
NOW = 1_800_000_000


def saved(text: object) -> dict[str, Any]:
    return {"metadata": {"annotations": {LAST_CHECKPOINT_ANNOTATION: text}}}


@given(st.integers(0, 30 * 86400))
def test_an_age_is_rounded_up_by_half_at_most(age: int) -> None:
    told = checkpoint_age_seconds(saved(rfc3339((NOW - age) * NS_PER_SECOND)), NOW)
    assert told is not None
    assert age <= told <= max(60, 1.5 * age)


def test_few_ages_differ() -> None:
    day = (rfc3339((NOW - age) * NS_PER_SECOND) for age in range(0, 86400, 7))
    assert len({checkpoint_age_seconds(saved(text), NOW) for text in day}) == 22


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-23T10:00:00", 7, None, "9" * 5000])
def test_what_is_no_time_says_nothing(text: object) -> None:
    assert checkpoint_age_seconds(saved(text), NOW) is None


def test_a_checkpoint_of_long_ago_says_nothing_and_one_to_come_costs_nothing_more() -> None:
    assert checkpoint_age_seconds(saved("1970-01-01T00:00:00Z"), NOW) is None
    assert checkpoint_age_seconds(saved("0001-01-01T00:00:00+14:00"), NOW) is None
    assert checkpoint_age_seconds(saved("9999-12-31T23:59:59Z"), NOW) == 60


@pytest.mark.parametrize("fresh", ["x", "y"])
def test_who_saved_its_work_just_now_makes_room(fresh: str) -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a", "b")
    wall_ns = cluster.clock.wall_time_ns()
    ages = {"x": 1700, "y": 1700} | {fresh: 20}
    for owner, node in (("x", "a"), ("y", "b")):
        when = rfc3339(wall_ns - ages[owner] * NS_PER_SECOND)
        marks = {LAST_CHECKPOINT_ANNOTATION: when}
        cluster.run_on(owner, node, 4, labels=TRAINS, annotations=marks)
    cluster.own("wants", 8)
    cluster.turns(45)
    assert cluster.where("wants") == [{"x": "a", "y": "b"}[fresh]]
    assert len(cluster.kube.evictions) == 1
