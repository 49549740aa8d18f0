"""A CapacityPlan is solved for answers as long as a forecast tells, and steadily so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from capacity.mix.predicted_rates import BoardRate, RateQuestion
from forecasting.plan_due import LOWER_SECONDS
from tests.forecasting.predictor import FlatPredictor
from tests.forecasting.test_capacity_plans import (
    FORECASTS,
    PREDICTED,
    TEAM,
    World,
    offer,
    shape,
    spec,
)
from wattpack.api.capacity_plan import CapacityPlan
from wattpack.errors import InputError
from wattpack.kube.port import InvalidError, JsonObject


class ByLength(FlatPredictor):
    """Answers twice as long are served half as often."""

    def rate(self, question: RateQuestion) -> BoardRate | None:
        made, shorter = super().rate(question), 200.0 / question.output_tokens
        if made is None:
            return None
        mean, lower = made.requests_per_second, made.lower_requests_per_second
        return BoardRate(mean * shorter, lower * shorter, made.board_watts)


class Lengths(World):
    """A forecast of requests that tells how long they are, and a plan that asks for it."""

    def __init__(self, **asked: Any) -> None:
        super().__init__(ByLength())
        self.expect(None)
        self.ask(**PREDICTED | {"buckets": [_bucket(**asked)], "offers": [offer(gpus=64)]})

    def expect(self, mean: float | None, requests: float = 20.0) -> None:
        self.expect_requests(requests)
        body = self.kube.get(FORECASTS, "rate", TEAM)
        if mean is not None:
            tokens = {"mean": mean, "secondMoment": 2 * mean**2, "requestP99": 5 * mean}
            body["status"]["tokens"] = tokens | {"p50": 1.0, "p95": 2.0, "p99": 3.0}
        self.kube.replace(FORECASTS, body, TEAM, subresource="status")

    def planned(self, mean: float | None, requests: float = 20.0) -> int:
        """Tokens of an answer that are planned for once this is expected."""
        self.expect(mean, requests)
        self.look(2)
        return int(self.status()["demand"][0]["outputTokens"])

    def cost(self) -> float:
        return float(self.status()["costPerHour"])


def _bucket(**asked: Any) -> JsonObject:
    forecast = {"name": "rate", "tellsOutputTokens": True} | asked
    return {**PREDICTED["buckets"][0], "forecast": forecast}


def test_answers_twice_as_long_are_bought_for_at_the_same_requests() -> None:
    world = Lengths()
    assert world.planned(None) == 200
    reason = world.status()["demand"][0]["reason"]
    assert reason.endswith("; 200 tokens an answer, as stated: rate tells none")
    before = world.cost()
    assert world.planned(400.4) == 400
    told = world.status()["demand"][0]
    assert told["requestsPerSecond"] == 20
    assert told["reason"] == (
        "rate: 20 is exceeded in 5.00% of windows; 400 tokens an answer, as rate tells"
    )
    assert world.cost() == pytest.approx(2 * before, rel=0.15)
    assert world.said()["Ready"][0] == "True"


def test_a_mean_that_hardly_moves_solves_nothing_also_after_a_restart() -> None:
    world = Lengths()
    assert world.planned(400.0) == 400
    solves = world.solves()
    for mean in (404.0, 396.0, 419.0, 381.0):
        assert world.planned(mean) == 400
    assert world.solves() == solves
    world.restarted()
    assert world.planned(415.0) == 400
    assert world.solves() == 0
    assert world.planned(421.0) == 421
    assert world.solves() == 1


def test_longer_answers_are_planned_for_at_once_and_shorter_ones_so_often() -> None:
    world = Lengths()
    assert world.planned(400.0) == 400
    assert world.planned(200.0) == 400
    # More requests are answered at once, for lengths as they were planned.
    assert world.planned(200.0, requests=30.0) == 400
    assert world.status()["demand"][0]["requestsPerSecond"] == 30
    world.clock.advance_seconds(LOWER_SECONDS)
    assert world.planned(200.0, requests=30.0) == 200
    assert world.planned(500.0, requests=30.0) == 500


def test_lengths_that_are_told_no_more_stay_as_planned() -> None:
    world = Lengths()
    assert world.planned(400.0) == 400
    solves = world.solves()
    world.clock.advance_seconds(LOWER_SECONDS)
    assert world.planned(None) == 400
    assert world.solves() == solves
    world.kube.delete(FORECASTS, "rate", TEAM)
    world.look(2)
    assert world.said()["Ready"] == ("False", "ForecastUnfit")
    assert world.status()["demand"][0]["outputTokens"] == 400
    assert world.solves() == solves
    # What was planned for another question says nothing of this one.
    world.expect(None)
    world.change(**PREDICTED | {"buckets": [_bucket(level="p50")]})
    world.look(2)
    assert world.status()["demand"][0]["outputTokens"] == 200


@pytest.mark.parametrize("mean", [0.0, -3.0, float("inf"), "many", None])
def test_a_length_without_sense_leaves_the_stated_one(mean: object) -> None:
    world = Lengths()
    body = world.kube.get(FORECASTS, "rate", TEAM)
    strange = {**body, "status": {**body["status"], "tokens": {"mean": mean}}}
    world.thread._sources = replace(world.thread._sources, forecasts=lambda: [strange])
    world.look(2)
    assert world.status()["demand"][0]["outputTokens"] == 200


def test_who_does_not_ask_is_planned_as_stated() -> None:
    world = Lengths(tellsOutputTokens=False)
    world.expect(400.0)
    world.look(2)
    assert "outputTokens" not in world.status()["demand"][0]
    solves = world.solves()
    world.expect(800.0)
    world.look(2)
    assert world.solves() == solves


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"buckets": [{**_bucket(), "outputTokens": None}]},
            "outputTokens: expected a value",
        ),
        ({"serving": None, "shapes": [shape()]}, "serving: expected a model"),
        (
            {"graphs": [{"name": "a", "calls": {"chat": 1}, "forecast": _bucket()["forecast"]}]},
            "forecast.tellsOutputTokens: expected false",
        ),
        ({"buckets": [_bucket(tellsOutputTokens="often")]}, "tellsOutputTokens"),
    ],
)
def test_lengths_that_nothing_could_follow_are_refused_by_name(more: JsonObject, told: str) -> None:
    asked = _without_none(spec(**{**PREDICTED, "buckets": [_bucket()], **more}))
    body = {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "CapacityPlan",
        "metadata": {"name": "next", "namespace": TEAM}, "spec": asked,
    }  # fmt: skip
    with pytest.raises(InputError, match=told):
        CapacityPlan.from_json(body)
    with pytest.raises(InvalidError, match=told):
        World().ask(**asked)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value
