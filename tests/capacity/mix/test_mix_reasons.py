"""What constraints cost, and which of them conflict."""

from __future__ import annotations

import dataclasses

import pytest

from capacity.mix.mix_conflict import plan_mix
from capacity.mix.mix_errors import InfeasibleMix
from capacity.mix.mix_explain import explain_mix
from capacity.mix.mix_problem import (
    Goal,
    MixLimits,
    MixPrices,
    MixProblem,
    Offer,
    PowerLimit,
    ServiceRate,
    Tier,
)
from tests.capacity.mix.mix_builders import bucket, offer, shape
from wattpack.clock import ManualClock


def case(budget_watts: float | None = None, **changed: object) -> MixProblem:
    """20 requests a second; X is cheap and hungry, Y dear and frugal."""
    problem = MixProblem(
        (bucket(requests_per_second=20.0),),
        (shape("X", {"chat": 10.0}), shape("Y", {"chat": 10.0}, cap_watts=300.0)),
        (offer("X", 1.0, gpus=10, domain="row"), offer("Y", 3.0, gpus=10, domain="row")),
        (PowerLimit("row", budget_watts=budget_watts),),
    )
    return dataclasses.replace(problem, **changed)  # type: ignore[arg-type]


def offers(x_gpus: int, y_gpus: int) -> tuple[Offer, Offer]:
    return (
        offer("X", 1.0, gpus=x_gpus, domain="row"),
        offer("Y", 3.0, gpus=y_gpus, domain="row"),
    )


def test_a_power_budget_costs_what_the_cheaper_plan_without_it_would_save() -> None:
    problem = case(budget_watts=1000.0)
    clock = ManualClock()
    explained = explain_mix(problem, plan_mix(problem, clock), clock)
    [cost] = explained.costs
    assert (cost.constraint, cost.gain) == ("power budget of row", pytest.approx(2.0))
    assert cost.least_gain == pytest.approx(2.0)
    assert explained.free == ("stock of x", "stock of y")


def test_the_dearest_constraint_is_named_first() -> None:
    rates = {"chat": ServiceRate(10.0, 9.0, 300.0)}
    problem = case(
        buckets=(bucket(requests_per_second=20.0, tier=Tier.HARD, minimum_replicas=5),),
        shapes=(shape("X", rates), shape("Y", rates)),
        offers=(offer("X", 1.0, gpus=1), offer("Y", 3.0, gpus=10)),
    )
    clock = ManualClock()
    explained = explain_mix(problem, plan_mix(problem, clock), clock)
    gains = {cost.constraint: round(cost.gain, 6) for cost in explained.costs}
    # Five on one X and four Y cost 13; five X, 5; three replicas, 7. Sure rates need only three.
    assert gains == {"stock of x": 8.0, "minimum replicas": 6.0}
    assert list(gains) == ["stock of x", "minimum replicas"]


def test_the_price_of_caution_is_told() -> None:
    problem = case(
        buckets=(bucket(requests_per_second=20.0, tier=Tier.HARD),),
        shapes=(shape("X", {"chat": ServiceRate(10.0, 8.0, 500.0)}),),
    )
    clock = ManualClock()
    [cost] = explain_mix(problem, plan_mix(problem, clock), clock).costs
    assert (cost.constraint, cost.gain) == ("lower rates", pytest.approx(1.0))


def test_what_would_be_served_on_top_is_told_where_the_goal_is_to_serve_the_most() -> None:
    problem = case(budget_watts=450.0, goal=Goal.MOST_REQUESTS)
    clock = ManualClock()
    solution = plan_mix(problem, clock)
    assert solution.served_fraction == pytest.approx(0.625)
    [cost] = explain_mix(problem, solution, clock).costs
    assert (cost.constraint, cost.gain) == ("power budget of row", pytest.approx(0.375))


def test_without_time_constraints_are_listed_as_not_asked() -> None:
    problem = case(budget_watts=1000.0)
    clock = ManualClock()
    explained = explain_mix(problem, plan_mix(problem, clock), clock, seconds=0.0)
    assert explained.costs == ()
    assert explained.unasked == ("stock of x", "stock of y", "power budget of row")


@pytest.mark.parametrize(
    ("problem", "constraints"),
    [
        (case(budget_watts=500.0), {"power budget of row"}),
        (case(offers=offers(x_gpus=1, y_gpus=0)), {"stock of x", "stock of y"}),
        (
            case(offers=offers(x_gpus=10, y_gpus=1), budget_watts=900.0),
            {"stock of y", "power budget of row"},
        ),
        (case(limits=MixLimits(dollars_per_hour=1.9)), {"dollars per hour"}),
        (
            case(limits=MixLimits(grams_per_hour=500.0), prices=MixPrices(grams_per_kwh=1000.0)),
            {"grams of CO2e per hour"},
        ),
    ],
)
def test_a_demand_that_cannot_be_met_names_the_smallest_conflict(
    problem: MixProblem, constraints: set[str]
) -> None:
    with pytest.raises(InfeasibleMix) as error:
        plan_mix(problem, ManualClock())
    assert set(error.value.constraints) == constraints
    assert error.value.is_smallest
    assert all(name in str(error.value) for name in constraints)


def test_a_smaller_conflict_is_found_where_leaving_out_in_order_ends_at_a_larger_one() -> None:
    """Budget and spending conflict (two at 700 W or four at 300 W); the stock does so alone."""
    problem = case(
        shapes=(shape("X", {"chat": 10.0}), shape("X", {"chat": 5.0}, cap_watts=300.0)),
        offers=(offer("X", 1.0, gpus=1, domain="row"),),
        domains=(PowerLimit("row", budget_watts=1250.0),),
        limits=MixLimits(dollars_per_hour=3.0),
    )
    with pytest.raises(InfeasibleMix) as error:
        plan_mix(problem, ManualClock())
    assert error.value.constraints == ("stock of x",)


def test_only_the_demands_of_the_conflict_are_named() -> None:
    problem = case(
        buckets=(bucket("small", 1.0), bucket("long", 5.0), bucket("none", 5.0)),
        shapes=(shape("X", {"small": 10.0, "long": 1.0, "none": 100.0}),),
        offers=(offer("X", 1.0, gpus=3),),
    )
    with pytest.raises(InfeasibleMix) as error:
        plan_mix(problem, ManualClock())
    assert (error.value.constraints, error.value.demands) == (("stock of x",), ("long",))


def test_a_bucket_that_no_replica_serves_is_named_without_a_constraint() -> None:
    problem = case(buckets=(bucket(), bucket("video", 1.0)))
    with pytest.raises(InfeasibleMix, match="what the offered replicas can do") as error:
        plan_mix(problem, ManualClock())
    assert error.value.demands == ("video",)
