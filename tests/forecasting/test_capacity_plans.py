"""CapacityPlans are answered on the embedded object store: when, with what, and what is said."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from capacity.mix.mix_answer import AnswerOptions
from capacity.mix.predicted_rates import BoardRate, RateQuestion
from capacity.profile_library import gpu_profile_object, shipped_library
from forecasting.app.plan_metrics import PlanMetrics
from forecasting.app.plan_thread import LOOK_SECONDS, RETRY_SECONDS, PlanSources, PlanThread
from forecasting.plan_due import LOWER_SECONDS
from forecasting.timed_predictor import PREDICTION_SECONDS
from simulation.kube import EmbeddedKube
from tests.forecasting.predictor import FlatPredictor
from wattpack.api import CapacityPlan, DemandForecast, GPUProfile
from wattpack.api.capacity_plan import PlanReason
from wattpack.clock import ManualClock
from wattpack.kube.informer import Informer
from wattpack.kube.port import InvalidError, JsonObject, Resource
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND

PLANS, FORECASTS = CapacityPlan.meta.resource, DemandForecast.meta.resource
PROFILES = GPUProfile.meta.resource
START_SECONDS = 10 * 86400
TEAM = "team"


def shape(name: str = "H200@700", per_second: float = 4.0, **more: Any) -> JsonObject:
    rates = {"chat": {"whole": {"requestsPerSecond": per_second, "busyWatts": 780}}}
    return {
        "name": name, "gpuModel": "H200-SXM", "capWatts": 700, "idleWatts": 150, "p99Watts": 900,
        "rates": rates, **more,
    }  # fmt: skip


def offer(**more: Any) -> JsonObject:
    return {
        "name": "h200", "gpuModel": "H200-SXM", "gpus": 16, "dollarsPerGpuHour": 3.5, **more,
    }  # fmt: skip


def spec(**more: Any) -> JsonObject:
    asked = [{"name": "chat", "requestsPerSecond": 12}]
    return {"buckets": asked, "shapes": [shape()], "offers": [offer()], **more}


class World:
    """The thread, what it follows, and a count of what it wrote and solved."""

    def __init__(self, predictor: FlatPredictor | None = None) -> None:
        self.clock = ManualClock(wall_offset_ns=START_SECONDS * NS_PER_SECOND)
        self.kube = EmbeddedKube(self.clock)
        kinds = (PLANS, FORECASTS, PROFILES)
        self.informers = {kind: Informer(self.kube, self.clock, kind) for kind in kinds}
        self.registry = CollectorRegistry()
        self.predictor = predictor
        self.strange: dict[str, JsonObject] = {}
        self.is_read = True
        self.thread = self.restarted()

    def restarted(self) -> PlanThread:
        """A forecaster that knows only what the objects say."""
        plans, *others = (informer.list for informer in self.informers.values())

        def as_stored() -> list[JsonObject]:
            """As another version's schema let them in: the store would refuse some of these."""
            return [
                {**body, "spec": self.strange.get(body["metadata"]["name"], body["spec"])}
                for body in plans()
            ]

        self.registry = CollectorRegistry()
        metrics = PlanMetrics(self.registry)
        self.thread = PlanThread(
            self.clock,
            self.kube,
            PlanSources(as_stored, *others, self.predictor, lambda: self.is_read),
            metrics,
            AnswerOptions(5.0),
        )
        return self.thread

    def put(self, resource: Resource, name: str, spec: JsonObject, namespace: str | None) -> None:
        body = {
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace or ""}, "spec": spec,
        }  # fmt: skip
        self.kube.create(resource, body, namespace)

    def ask(self, name: str = "next", **more: Any) -> None:
        self.put(PLANS, name, spec(**more), TEAM)

    def change(self, name: str = "next", **more: Any) -> None:
        body = self.kube.get(PLANS, name, TEAM)
        self.kube.replace(PLANS, {**body, "spec": spec(**more)}, TEAM)

    def expect_requests(self, p95: float, name: str = "rate", age_seconds: float = 0.0) -> None:
        """A forecast in requests per second, as the forecaster writes it."""
        now = self.clock.wall_time_ns() / NS_PER_SECOND - age_seconds
        values = {"p50": p95 / 2, "p95": p95, "p99": p95 * 2, "now": p95 / 2}
        if not any(b["metadata"]["name"] == name for b in self.kube.list(FORECASTS).items):
            self.put(FORECASTS, name, {"target": {"series": "rq", "unit": "rq/s"}}, TEAM)
        body = self.kube.get(FORECASTS, name, TEAM)
        status = issued(now, values, int(body["metadata"]["generation"]))
        self.kube.replace(FORECASTS, {**body, "status": status}, TEAM, subresource="status")

    def look(self, times: int = 1, seconds: float = 11.0) -> None:
        for _ in range(times):
            self.clock.advance_seconds(seconds)
            for informer in self.informers.values():
                informer.pump()
            self.thread.run_once()

    def status(self, name: str = "next") -> JsonObject:
        return dict(self.kube.get(PLANS, name, TEAM).get("status") or {})

    def said(self, name: str = "next") -> dict[str, tuple[str, str]]:
        return {c["type"]: (c["status"], c["reason"]) for c in self.status(name)["conditions"]}

    def words(self, name: str = "next", type: str = "Ready") -> str:
        (found,) = [c for c in self.status(name)["conditions"] if c["type"] == type]
        return str(found["message"])

    def solves(self) -> float:
        found = self.registry.collect()
        samples = (s for metric in found for s in metric.samples)
        return sum(s.value for s in samples if s.name == "wattpack_capacity_plan_solves_total")

    def version(self, name: str = "next") -> str:
        return str(self.kube.get(PLANS, name, TEAM)["metadata"]["resourceVersion"])


def issued(now: float, values: dict[str, float], generation: int) -> JsonObject:
    """A status that the book takes."""

    def at(seconds: float) -> str:
        return rfc3339(int(seconds * NS_PER_SECOND))

    return {
        "observedGeneration": generation, "issuedAt": at(now), "dataUntil": at(now),
        "validUntil": at(now + 3600), "windowStart": at(now), "method": "ridge",
        "fallback": False, **values,
        "quantiles": [
            {"level": level, "values": [values[key]] * 36}
            for level, key in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
        ],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Fresh", "message": "fresh",
             "observedGeneration": generation, "lastTransitionTime": at(now)},
            {"type": "Accepted", "status": "True", "reason": "Valid", "message": "fine",
             "observedGeneration": generation, "lastTransitionTime": at(now)},
        ],
    }  # fmt: skip


@pytest.fixture
def world() -> World:
    return World()


def test_a_look_comes_often_enough_for_ten_seconds() -> None:
    assert LOOK_SECONDS <= 5


def test_a_question_is_answered_with_figures_and_the_proof(world: World) -> None:
    world.ask(powerBudgetWatts=20000)
    world.look()
    status = world.status()
    assert world.said() == {"Accepted": ("True", "Valid"), "Ready": ("True", "Solved")}
    assert status["costPerHour"] == pytest.approx(10.5)
    assert status["replicas"] == [
        {"gpuModel": "H200-SXM", "capWatts": 700, "gpus": 1, "replicas": 3, "offer": "h200",
         "serves": ["chat 100.0%"]}
    ]  # fmt: skip
    assert status["demand"] == [{"bucket": "chat", "requestsPerSecond": 12}]
    assert (status["answeredGeneration"], status["ratesFrom"]) == (1, "Given")
    assert "proved to be within" in world.words()
    assert CapacityPlan.from_json(world.kube.get(PLANS, "next", TEAM))


def test_the_status_names_what_constraints_cost(world: World) -> None:
    cheap = offer(name="cheap", gpus=1, dollarsPerGpuHour=1.0)
    world.ask(offers=[cheap, offer()])
    world.look()
    (cost,) = world.status()["constraintCosts"]
    assert cost["constraint"] == "stock of cheap"
    assert cost["gain"] == pytest.approx(5.0)
    assert "stock of cheap" in world.words()


def test_an_answered_plan_is_neither_solved_nor_written_again(world: World) -> None:
    world.ask()
    world.look(2)
    version, solves = world.version(), world.solves()
    world.look(20)
    assert (world.version(), world.solves()) == (version, solves)
    assert solves == 1


def test_a_restarted_forecaster_leaves_an_answer_as_it_is(world: World) -> None:
    world.ask()
    world.look()
    before = world.status()
    world.restarted()
    world.look(3)
    assert world.status() == before
    assert world.solves() == 0


def test_a_changed_spec_is_solved_again(world: World) -> None:
    world.ask()
    world.look()
    world.change(offers=[offer(dollarsPerGpuHour=2.0)])
    world.look()
    assert world.status()["costPerHour"] == pytest.approx(6.0)
    assert world.status()["answeredGeneration"] == 2
    assert world.solves() == 2


def test_an_infeasible_demand_names_the_smallest_conflict_and_keeps_the_last_figures(
    world: World,
) -> None:
    world.ask()
    world.look()
    world.change(powerBudgetWatts=500, offers=[offer(gpus=100)])
    world.look()
    assert world.said() == {"Accepted": ("True", "Valid"), "Ready": ("False", "Infeasible")}
    assert "power budget of the plan" in world.words()
    assert "stock" not in world.words()
    assert world.status()["costPerHour"] == pytest.approx(10.5)
    assert (world.status()["observedGeneration"], world.status()["answeredGeneration"]) == (2, 1)
    solves = world.solves()
    world.look(5)
    assert world.solves() == solves
    world.look(1, RETRY_SECONDS + 1)
    assert world.solves() == solves + 1


def test_a_return_to_an_answered_question_needs_no_solve(world: World) -> None:
    world.ask()
    world.look()
    world.change(powerBudgetWatts=500)
    world.look()
    world.change()
    world.look()
    assert world.said()["Ready"] == ("True", "Solved")
    assert world.solves() == 2


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"powerBudgetWatts": "200 kW"}, "powerBudgetWatts"),
        ({"gpuModels": ["Voodoo 2"]}, "gpuModels"),
        ({"buckets": []}, "buckets"),
        ({"buckets": [{"name": "poems", "requestsPerSecond": 1}]}, "poems"),
        ({"offers": [offer(domain="nowhere")]}, "offers.h200.domain"),
        ({"graphs": [{"name": "agent", "calls": {"poems": 1}}]}, "graphs.agent.calls"),
        ({"offers": []}, "chat"),
        ({"goal": "mostRequests", "keepOwnedWithinCostRatio": 1.05}, "keepOwnedWithinCostRatio"),
        ({"domains": [{"name": "a", "parent": "a"}]}, "circle"),
        ({"offers": [offer(runningReplicas={"x": 5})]}, "runningReplicas"),
    ],
)
def test_a_spec_that_cannot_be_used_is_refused_by_its_field_and_others_are_answered(
    world: World, more: JsonObject, cause: str
) -> None:
    world.ask("good")
    world.ask("next")
    world.strange["next"] = spec(**more)
    world.look(2)
    assert world.said()["Accepted"] == ("False", "SpecRefused")
    assert cause in world.words(type="Accepted")
    assert world.said()["Ready"] == ("False", "SpecRefused")
    assert world.said("good")["Ready"] == ("True", "Solved")


def test_many_new_plans_are_judged_at_once_and_solved_one_a_look(world: World) -> None:
    for index in range(3):
        world.ask(f"p{index}")
    world.look()
    assert all(world.said(f"p{i}")["Accepted"] == ("True", "Valid") for i in range(3))
    assert world.solves() == 1
    world.look(2)
    assert all(world.said(f"p{i}")["Ready"][0] == "True" for i in range(3))


FORECAST_BUCKET: JsonObject = {
    "name": "chat", "requestsPerSecond": 2, "forecast": {"name": "rate"},
}  # fmt: skip
PREDICTED: JsonObject = {
    "buckets": [{"name": "chat", "requestsPerSecond": 12, "inputTokens": 800, "outputTokens": 200}],
    "shapes": [],
    "serving": {"languageModel": "llama-3.1-8b"},
}


class TestForecasts:
    """The demand comes from a forecast."""

    def test_the_forecast_is_planned_for_and_five_percent_are_the_same_demand(
        self, world: World
    ) -> None:
        world.expect_requests(20.0)
        world.ask(buckets=[FORECAST_BUCKET])
        world.look()
        assert world.status()["demand"] == [
            {
                "bucket": "chat",
                "requestsPerSecond": 20,
                "reason": "rate: 20 is exceeded in 5.00% of windows",
            }
        ]
        world.expect_requests(20.9)
        world.look()
        assert (world.solves(), world.status()["demand"][0]["requestsPerSecond"]) == (1, 20)
        world.expect_requests(21.2)
        world.look()
        assert (world.solves(), world.status()["demand"][0]["requestsPerSecond"]) == (2, 21.2)

    @pytest.mark.parametrize(
        ("asked", "rate"),
        [
            ({"level": "p50"}, 10.0),
            ({"level": "p99"}, 40.0),
            ({"risk": 0.05}, 20.0),
            ({"risk": 0.01}, 40.0),
            # GPUs for a request a second cost a third of what it earns: quantile 3/4 of the peak,
            # by an exponential tail between the median and the p95.
            (
                {"prices": {"capacity": 1, "unserved": 3}},
                10 + 10 * math.log(0.5 / 0.25) / math.log(0.5 / 0.05),
            ),
            # What is worth more than any forecast tells takes the highest level that there is.
            ({"prices": {"capacity": 1, "unserved": 10_000}}, 40.0),
        ],
    )
    def test_a_risk_or_prices_name_the_quantile(
        self, world: World, asked: JsonObject, rate: float
    ) -> None:
        world.expect_requests(20.0)
        world.ask(buckets=[FORECAST_BUCKET | {"forecast": {"name": "rate"} | asked}])
        world.look()
        found = world.status()["demand"][0]["requestsPerSecond"]
        assert found == pytest.approx(rate, rel=1e-4)

    def test_a_bucket_and_a_graph_may_take_different_quantiles_of_one_forecast(
        self, world: World
    ) -> None:
        world.expect_requests(20.0)
        bucket = FORECAST_BUCKET | {"forecast": {"name": "rate", "level": "p50"}}
        calls = {"name": "agent", "forecast": {"name": "rate", "risk": 0.01}, "calls": {"chat": 1}}
        world.ask(buckets=[bucket], graphs=[calls])
        world.look()
        told = world.status()["demand"][0]
        assert (told["bucket"], told["requestsPerSecond"]) == ("chat", 50)
        assert told["reason"] == (
            "rate: 10 is exceeded in 50.00% of windows; rate: 40 is exceeded in 1.00% of windows"
        )

    @pytest.mark.parametrize(("weight", "above", "below"), [(0.5, 14, 20), (1.0, 20, 40)])
    def test_who_fears_the_worst_windows_buys_more_of_what_is_dear_and_is_told_why(
        self, world: World, weight: float, above: float, below: float
    ) -> None:
        """The mean alone takes 13: quantile 3/4."""
        world.expect_requests(20.0)
        prices = {"capacity": 1, "unserved": 3, "tail": {"level": 0.9, "weight": weight}}
        world.ask(buckets=[FORECAST_BUCKET | {"forecast": {"name": "rate", "prices": prices}}])
        world.look()
        told = world.status()["demand"][0]
        assert above < told["requestsPerSecond"] < below
        assert f"the worst 10.00% counted {weight:.0%}" in told["reason"]

    @pytest.mark.parametrize(
        "tail", [{"level": 1.0, "weight": 0.5}, {"level": 0.9, "weight": 0.0}, {"level": 0.9}]
    )
    def test_a_tail_without_sense_is_refused(self, world: World, tail: JsonObject) -> None:
        prices = {"capacity": 1, "unserved": 3, "tail": tail}
        with pytest.raises(InvalidError, match="tail"):
            world.ask(buckets=[FORECAST_BUCKET | {"forecast": {"name": "rate", "prices": prices}}])

    def test_a_risk_and_prices_together_are_refused(self, world: World) -> None:
        both = {"name": "rate", "risk": 0.05, "prices": {"capacity": 1, "unserved": 3}}
        with pytest.raises(InvalidError, match="prices: expected none beside risk"):
            world.ask(buckets=[FORECAST_BUCKET | {"forecast": both}])

    def test_steps_below_five_percent_add_up(self, world: World) -> None:
        world.expect_requests(20.0)
        world.ask(buckets=[FORECAST_BUCKET])
        world.look()
        for rate in (20.5, 20.9, 21.3):
            world.expect_requests(rate)
            world.look()
        assert world.status()["demand"][0]["requestsPerSecond"] == 21.3

    def test_less_is_answered_so_often_and_more_at_once(self, world: World) -> None:
        """Whoever follows the mix buys and returns GPUs; a restart has no time of its own."""
        world.expect_requests(20.0)
        world.ask(buckets=[FORECAST_BUCKET])
        world.look()

        def planned(rate: float) -> float:
            world.expect_requests(rate)
            world.look(2)
            return float(world.status()["demand"][0]["requestsPerSecond"])

        assert planned(15.0) == 20.0
        assert world.said()["Ready"] == ("True", "Solved")
        world.restarted()
        assert planned(15.0) == 20.0
        assert planned(25.0) == 25.0
        assert planned(12.0) == 25.0
        world.clock.advance_seconds(LOWER_SECONDS)
        assert planned(12.0) == 12.0
        assert planned(11.0) == 12.0
        # What the spec itself asks is a question of its own.
        world.change(buckets=[{**FORECAST_BUCKET, "requestsPerSecond": 3}])
        assert planned(8.0) == 8.0

    def test_the_stated_rate_is_the_least(self, world: World) -> None:
        world.expect_requests(1.0)
        world.ask(buckets=[FORECAST_BUCKET])
        world.look()
        told = world.status()["demand"][0]
        assert told["requestsPerSecond"] == 2
        assert told["reason"] == "rate: 2 is stated, 1 is exceeded in 5.00% of windows"

    def test_without_the_forecast_the_stated_demand_is_planned_and_it_says_so(
        self, world: World
    ) -> None:
        world.ask(buckets=[FORECAST_BUCKET])
        world.look()
        assert world.said()["Ready"] == ("False", "ForecastUnfit")
        assert "there is no DemandForecast team/rate" in world.words()
        assert world.status()["demand"][0]["requestsPerSecond"] == 2

    def test_a_forecast_that_ages_leaves_the_last_plan(self, world: World) -> None:
        world.expect_requests(20.0)
        world.ask(buckets=[FORECAST_BUCKET])
        world.look()
        world.look(1, 4000)
        assert world.said()["Ready"] == ("False", "ForecastUnfit")
        assert "was valid until" in world.words()
        assert world.status()["demand"][0]["requestsPerSecond"] == 20
        world.expect_requests(20.1)
        world.look()
        assert world.said()["Ready"] == ("True", "Solved")
        assert world.solves() == 1


class TestPredictedRates:
    """No shape has rates: the serving model gives them."""

    def test_types_and_caps_come_from_the_profiles(self) -> None:
        world = World(FlatPredictor())
        world.ask(**PREDICTED)
        world.look()
        status = world.status()
        assert world.said()["Ready"][0] == "True"
        assert status["ratesFrom"] == "Predicted"
        assert status["countedRates"] == {
            "leastShare": 0.9, "mostShare": 0.9, "timeFactor": pytest.approx(1 / 0.9),
            "confidence": 0.95,
        }  # fmt: skip
        assert {row["gpuModel"] for row in status["replicas"]} == {"H200-SXM"}

    def test_a_changed_gpu_profile_is_solved_again_and_another_types_is_not(self) -> None:
        world = World(FlatPredictor())
        world.ask(**PREDICTED)
        world.look()
        other = gpu_profile_object(shipped_library().find("L40S"), "")["spec"]
        world.put(PROFILES, "l40s", {**other, "idleWatts": 40.0}, None)
        world.look()
        assert world.solves() == 1
        own = gpu_profile_object(shipped_library().find("H200-SXM"), "")["spec"]
        world.put(PROFILES, "h200", {**own, "idleWatts": 90.0}, None)
        world.look()
        assert world.solves() == 2

    def test_an_unknown_language_model_is_refused_by_its_field(self) -> None:
        world = World(FlatPredictor())
        world.ask(**{**PREDICTED, "serving": {"languageModel": "poet"}})
        world.look()
        assert world.said()["Accepted"] == ("False", "SpecRefused")
        assert "languageModel" in world.words()

    def test_a_bucket_without_sizes_is_told(self) -> None:
        world = World(FlatPredictor())
        world.ask(**{**PREDICTED, "buckets": [{"name": "chat", "requestsPerSecond": 12}]})
        world.look()
        assert world.said()["Ready"] == ("False", "RatesUnknown")
        assert "inputTokens" in world.words()


def test_metrics_say_how_long_a_plan_has_had_no_answer(world: World) -> None:
    world.ask("good")
    world.ask("next", powerBudgetWatts=100)
    world.look(10)
    text = generate_latest(world.registry).decode()

    def value(name: str, plan: str) -> float:
        start = f'wattpack_capacity_plan_{name}{{name="{plan}",namespace="team"}} '
        return float(next(x for x in text.splitlines() if x.startswith(start)).split()[-1])

    assert value("unanswered_seconds", "good") == 0.0
    assert value("unanswered_seconds", "next") >= 90.0
    assert value("cost_dollars_per_hour", "good") == pytest.approx(10.5)
    world.kube.delete(PLANS, "next", TEAM)
    world.look()
    assert 'name="next"' not in generate_latest(world.registry).decode()


def test_an_object_made_anew_is_told_as_the_first_was(world: World) -> None:
    world.ask()
    world.look()
    first = world.said()
    world.kube.delete(PLANS, "next", TEAM)
    world.ask()
    world.look()
    assert world.said() == first
    assert world.status()["costPerHour"] == pytest.approx(10.5)


def test_every_reason_is_one_of_the_enum(world: World) -> None:
    world.ask("good")
    world.ask("poor", powerBudgetWatts=100)
    world.look(3)
    reasons = {reason for name in ("good", "poor") for _, reason in world.said(name).values()}
    assert reasons <= {reason.value for reason in PlanReason}


def test_nothing_is_said_before_everything_was_read(world: World) -> None:
    world.expect_requests(20.0)
    world.ask(buckets=[FORECAST_BUCKET])
    world.look()
    before = world.status()
    world.restarted()
    world.is_read = False
    forecasts, world.informers[FORECASTS] = (
        world.informers[FORECASTS], Informer(world.kube, world.clock, FORECASTS),
    )  # fmt: skip
    world.restarted()
    world.clock.advance_seconds(11)
    world.thread.run_once()
    assert world.status() == before
    world.informers[FORECASTS] = forecasts
    world.restarted()
    world.is_read = True
    world.look()
    assert world.status() == before


def test_a_demand_that_moves_is_solved_without_a_moment_of_not_ready(world: World) -> None:
    world.expect_requests(20.0)
    world.ask(buckets=[FORECAST_BUCKET])
    world.look()
    changed = [c["lastTransitionTime"] for c in world.status()["conditions"]]
    world.expect_requests(30.0)
    world.look()
    assert world.status()["demand"][0]["requestsPerSecond"] == 30
    assert [c["lastTransitionTime"] for c in world.status()["conditions"]] == changed


class Broken(FlatPredictor):
    """Has a defect in one of its two questions."""

    def __init__(self, *, judges: bool) -> None:
        self.judges = judges

    def require(self, language_model: str, gpu_models: Iterable[str]) -> None:
        if not self.judges:
            raise RuntimeError("a defect")

    def rate(self, question: RateQuestion) -> BoardRate | None:
        raise ZeroDivisionError("a defect")


@pytest.mark.parametrize("judges", [True, False])
def test_a_defect_that_one_plan_meets_leaves_the_others_answered(judges: bool) -> None:
    world = World(Broken(judges=judges))
    world.ask("bad", **PREDICTED)
    world.ask("good")
    world.look(3)
    assert world.said("bad")["Ready"] == ("False", "SolverFailed")
    assert world.said("good")["Ready"] == ("True", "Solved")
    assert world.thread.failures == 0


class Slow(FlatPredictor):
    """Takes a minute for every rate that it has not told before."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.known: set[RateQuestion] = set()

    def rate(self, question: RateQuestion) -> BoardRate | None:
        if question not in self.known:
            self.clock.advance_seconds(60)
            self.known.add(question)
        return super().rate(question)


def test_predictions_end_in_time_and_the_next_try_goes_on_from_there() -> None:
    slow = Slow()
    world = World(slow)
    slow.clock = world.clock
    world.ask("endless", **PREDICTED)
    world.look()
    first = len(slow.known)
    assert first == PREDICTION_SECONDS / 60
    assert world.said("endless") == {
        "Accepted": ("True", "Valid"), "Ready": ("False", "OutOfTime"),
    }  # fmt: skip
    world.ask("good")
    world.look(2)
    assert world.said("good")["Ready"] == ("True", "Solved")
    assert len(slow.known) == first, "not tried again at once"
    world.look(4, seconds=RETRY_SECONDS + 1)
    assert world.said("endless")["Ready"][0] == "True"
    assert world.thread.failure() == ""


def test_plans_that_run_out_of_time_leave_a_turn_to_others() -> None:
    slow = Slow()
    world = World(slow)
    slow.clock = world.clock
    slow.known = Forgetful()
    for index in range(8):
        world.ask(f"endless{index}", **PREDICTED)
    world.look(8)
    world.ask("good")
    world.look(2)
    assert world.said("good")["Ready"] == ("True", "Solved")


class Forgetful(set[RateQuestion]):
    """Nothing is ever known."""

    def add(self, element: RateQuestion) -> None:
        pass


def test_a_status_of_another_version_is_no_obstacle(world: World) -> None:
    world.ask()
    world.look()
    said = world.status()
    conditions = [{**c, "reason": "Poetic"} for c in said["conditions"]]
    for status in ({**said, "conditions": conditions}, {"costPerHour": 3.0}):
        body = world.kube.get(PLANS, "next", TEAM)
        world.kube.replace(PLANS, {**body, "status": status}, TEAM, subresource="status")
        world.restarted()
        world.look(2)
        assert world.said()["Ready"] == ("True", "Solved")
        assert world.status()["costPerHour"] == pytest.approx(10.5)
