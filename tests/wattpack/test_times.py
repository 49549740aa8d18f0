"""Times as text: one spelling in every object, and nothing read without a zone."""

from __future__ import annotations

import pytest

from controller.budget import parse_time
from telemetry.gpunode.gpunode_status import gpunode_status
from telemetry.node_state import NodeState
from wattpack.errors import InputError
from wattpack.times import parse_rfc3339, rfc3339, rfc3339_micro

WALL_NS = 1_700_000_000_123_456_789


def test_a_moment_has_one_spelling() -> None:
    assert rfc3339(WALL_NS) == "2023-11-14T22:13:20Z"
    assert rfc3339_micro(WALL_NS) == "2023-11-14T22:13:20.123456Z"
    node = NodeState(node="n", boot_id="", now_ns=0, samples=())
    status = gpunode_status(node, has_actuator=False, wall_time_ns=WALL_NS)
    assert status["conditions"][0]["lastTransitionTime"] == rfc3339(WALL_NS)
    assert round(parse_rfc3339(rfc3339(WALL_NS)).timestamp()) == 1_700_000_000


@pytest.mark.parametrize("text", ["", "now", "2023-11-14T22:13:20", "2023-11-14", "22:13"])
def test_a_time_without_a_zone_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rfc3339(text)


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20", "25:00", "noon"])
def test_a_budget_s_time_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InputError, match="start: expected an RFC 3339 time with its zone"):
        parse_time("start", text)
