"""What the console says of CapacityPlans, whatever the API server holds."""

from __future__ import annotations

from typing import Any

import pytest

from console.app.capacity_plan_source import CapacityPlanSource
from console.capacity_plan_rows import SHOWN_PLANS, capacity_view
from simulation.kube import EmbeddedKube
from tests.console.capacity_plans import plan
from wattpack.api import CapacityPlan
from wattpack.clock import ManualClock

RESOURCE = CapacityPlan.meta.resource


def rows(*bodies: dict[str, Any]) -> list[dict[str, Any]]:
    found = capacity_view(bodies)["plans"]
    assert isinstance(found, list)
    return found


def test_an_answer_is_shown_with_all_of_its_figures() -> None:
    (shown,) = rows(plan())
    assert shown["name"] == "team/chat"
    assert (shown["ready"], shown["reason"], shown["isOfThisSpec"]) == (True, "Solved", True)
    assert (shown["dollarsPerHour"], shown["powerWatts"], shown["budgetWatts"]) == (
        31.4, 9100, 12000,
    )  # fmt: skip
    assert sum(row["replicas"] * row["gpus"] for row in shown["replicas"]) == 16
    assert shown["constraintCosts"][0]["constraint"] == "stock of old-a100"
    assert shown["solvedMs"] > 0


def test_plans_without_an_answer_come_first_and_then_the_dearest() -> None:
    shown = rows(plan("cheap", costPerHour=1), plan("dear"), plan("sad", ready=False))
    assert [row["name"] for row in shown] == ["team/sad", "team/dear", "team/cheap"]
    assert "stock of h200" in shown[0]["message"]


def test_figures_of_an_earlier_spec_are_told() -> None:
    body = plan()
    body["metadata"]["generation"] = 2
    assert rows(body)[0]["isOfThisSpec"] is False


def test_a_plan_that_nobody_judged_waits_in_words() -> None:
    (shown,) = rows({**plan(), "status": {}})
    assert (shown["ready"], shown["dollarsPerHour"], shown["solvedMs"]) == (False, None, 0)
    assert "no process" in shown["message"]


@pytest.mark.parametrize(
    "broken",
    [
        {"spec": {}},
        {"spec": None},
        {"status": {"replicas": "many"}},
        {"status": {"costPerHour": "little"}},
        {"status": {"conditions": [{"type": "Ready"}]}},
    ],
)
def test_one_that_cannot_be_read_is_said_and_the_others_are_shown(broken: Any) -> None:
    shown = rows({**plan("odd"), **broken}, plan())
    assert [row["name"] for row in shown] == ["team/odd", "team/chat"]
    assert shown[0]["reason"] == "Unreadable"
    assert "expected" in shown[0]["message"]


def test_more_plans_than_a_page_holds_are_counted() -> None:
    view = capacity_view([plan(f"p{i}") for i in range(SHOWN_PLANS + 3)])
    assert view["more"] == 3


def test_plans_are_followed_and_only_those_of_visible_namespaces_are_shown() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    source = CapacityPlanSource(api, clock)
    assert source.ages()["capacity"].seconds is None
    source.pump()
    first, _ = source.view()
    api.create(RESOURCE, plan(), "team")
    source.pump()
    second, view = source.view()
    assert second > first
    assert view["plans"]
    assert source.view() == (second, view)
    assert source.namespaces() == {"team"}
    _, little = source.view(frozenset({"other"}))
    assert (little["plans"], little["hidden"]) == ([], 1)
    assert source.ages()["capacity"].seconds == 0.0
