"""The mix is the cheapest one that keeps every constraint, and the judge agrees."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from capacity.mix.mix_checker import complaints
from capacity.mix.mix_conflict import plan_mix
from capacity.mix.mix_errors import InfeasibleMix
from capacity.mix.mix_model import solve_mix
from capacity.mix.mix_problem import (
    Bucket,
    Goal,
    MixLimits,
    MixPrices,
    MixProblem,
    Offer,
    Phase,
    PowerLimit,
    ReplicaShape,
    ServiceRate,
    Tier,
)
from capacity.mix.mix_solution import MixSolution
from tests.capacity.mix.mix_builders import bucket, offer, shape, toy
from tests.capacity.mix.mix_oracle import least_dollars
from wattpack.clock import ManualClock
from wattpack.errors import InputError, PermanentError

PRICES = MixPrices(dollars_per_kwh=0.2, grams_per_kwh=400, dollars_per_tonne=100)


def planned(problem: MixProblem) -> MixSolution:
    """The plan, agreed to by the judge."""
    return plan_mix(problem, ManualClock(), seconds=20.0)


def counts(solution: MixSolution) -> dict[str, int]:
    return {row.shape: row.replicas for row in solution.replicas}


def test_the_toy_mix_costs_4_68_dollars_because_a_bucket_may_be_split() -> None:
    solution = planned(toy())
    assert solution.costs.total == pytest.approx(4.68)
    assert counts(solution) == {"A10G@300": 1, "A100@400": 1}
    assert solution.gap < 1e-9


@pytest.mark.parametrize("seed", range(24))
def test_no_combination_of_replicas_is_cheaper(seed: int) -> None:
    problem = small_case(random.Random(seed))
    best = least_dollars(problem)
    if best is None:
        with pytest.raises(InfeasibleMix):
            planned(problem)
    else:
        assert planned(problem).costs.total == pytest.approx(best, rel=1e-5)


def small_case(rng: random.Random) -> MixProblem:
    """Two types at two caps, two or three buckets, now and then one of each limit."""
    names = [f"b{i}" for i in range(rng.choice((2, 3)))]
    shapes = []
    for model in ("X", "Y"):
        full = {name: rng.uniform(1, 8) for name in names}
        for cap, slower in ((400.0, 1.0), (250.0, rng.uniform(0.6, 0.95))):
            rates = {
                name: ServiceRate(r * slower, r * slower * rng.uniform(0.8, 1.0), cap * 0.9)
                for name, r in full.items()
            }
            shapes.append(shape(model, rates, cap_watts=cap, idle_watts=70.0))
    maybe: Callable[[float], bool] = lambda chance: rng.random() < chance  # noqa: E731
    domain = PowerLimit(
        "row",
        breaker_watts=rng.uniform(900, 2500) if maybe(0.5) else None,
        budget_watts=rng.uniform(700, 2000) if maybe(0.5) else None,
    )
    return MixProblem(
        tuple(
            Bucket(
                name,
                rng.uniform(0.5, 6),
                tier=rng.choice(list(Tier)),
                minimum_replicas=rng.choice((1, 1, 2)),
                largest_spot_share=rng.choice((0.0, 0.5, 1.0)),
            )
            for name in names
        ),
        tuple(shapes),
        (
            offer("X", rng.uniform(1, 2), gpus=3, domain="row", is_spot=maybe(0.3)),
            offer("Y", rng.uniform(1, 4), gpus=3, domain="row" if maybe(0.5) else ""),
        ),
        (domain,),
        PRICES,
    )


def test_hard_tiers_count_on_the_lower_bound_and_best_effort_on_the_mean() -> None:
    rates = {"chat": ServiceRate(10.0, 6.0, 500.0)}
    for tier, replicas in ((Tier.HARD, 2), (Tier.BEST_EFFORT, 1)):
        problem = MixProblem((bucket(tier=tier),), (shape("X", rates),), (offer("X", 1.0),))
        assert counts(planned(problem)) == {"X@700": replicas}


def test_a_start_costs_what_its_boards_cost_until_it_works_unless_it_has_a_price() -> None:
    """Two boards for 900 s at 4 dollars an hour, over two hours; one replica runs."""

    def start(**prices: float) -> float:
        problem = MixProblem(
            (bucket(requests_per_second=30.0),),
            (shape("X", {"chat": 10.0}, gpus=2, start_seconds=900.0),),
            (offer("X", 4.0, running_replicas={"X@700": 1}),),
            prices=MixPrices(horizon_hours=2.0, **prices),
        )
        return planned(problem).costs.start

    assert start() == pytest.approx(2 * (900 / 3600 * 2 * 4.0) / 2)
    assert start(dollars_per_start=0.7) == pytest.approx(2 * 0.7 / 2)
    assert start(dollars_per_start=0.0) == 0.0


def test_boards_that_start_slowly_lose_to_dearer_ones_that_run() -> None:
    """Half an hour of start-up on a plan for one hour: 1.5 dollars against 1.2."""
    shapes = tuple(shape(t, {"chat": 10.0}, start_seconds=1800.0) for t in "XY")
    offers = (offer("X", 1.0), offer("Y", 1.2, running_replicas={"Y@700": 1}))
    for hours, best in ((1.0, "Y@700"), (24.0, "X@700")):
        prices = MixPrices(horizon_hours=hours)
        assert counts(planned(MixProblem((bucket(),), shapes, offers, prices=prices))) == {best: 1}


def test_a_replica_of_which_nothing_is_sure_serves_best_effort_alone() -> None:
    rates = {"chat": ServiceRate(10.0, 0.0, 500.0)}
    problem = MixProblem((bucket(),), (shape("X", rates),), (offer("X", 1.0),))
    assert counts(planned(problem)) == {"X@700": 1}
    with pytest.raises(InfeasibleMix) as caught:
        planned(dataclasses.replace(problem, buckets=(bucket(tier=Tier.HARD),)))
    assert caught.value.constraints == ("lower rates",)


def test_the_breaker_adds_p99s_and_the_budget_adds_means() -> None:
    """Two replicas at 700 W draw 2 x 550 W on average at this load, at worst 2 x 770 W."""
    one = MixProblem((bucket(requests_per_second=15.0),), (shape("X", {"chat": 10.0}),), ())
    for limit, is_possible in (
        (PowerLimit("row", budget_watts=1100.0), True),
        (PowerLimit("row", budget_watts=1099.0), False),
        (PowerLimit("row", breaker_watts=1540.0), True),
        (PowerLimit("row", breaker_watts=1539.0), False),
    ):
        problem = dataclasses.replace(
            one, offers=(offer("X", 1.0, gpus=2, domain="row"),), domains=(limit,)
        )
        if is_possible:
            assert planned(problem).mean_watts == pytest.approx(1100.0)
        else:
            with pytest.raises(InfeasibleMix):
                planned(problem)


def test_a_limit_above_counts_everything_below_it() -> None:
    problem = MixProblem(
        (bucket(requests_per_second=20.0),),
        (shape("X", {"chat": 10.0}), shape("Y", {"chat": 10.0}, cap_watts=400.0)),
        (offer("X", 1.0, domain="rack-1"), offer("Y", 5.0, domain="rack-2")),
        (
            PowerLimit("hall", breaker_watts=1300.0),
            PowerLimit("rack-1", "hall"),
            PowerLimit("rack-2", "hall"),
        ),
    )
    assert counts(planned(problem)) == {"X@700": 1, "Y@400": 1}


def test_a_lower_cap_is_chosen_when_the_budget_says_so() -> None:
    fast = shape("X", {"chat": 10.0}, cap_watts=700.0)
    frugal = shape("X", {"chat": 8.0}, cap_watts=400.0)
    free = MixProblem((bucket(requests_per_second=20.0),), (fast, frugal), (offer("X", 1.0),))
    assert counts(planned(free)) == {"X@700": 2}
    tight = dataclasses.replace(
        free,
        offers=(offer("X", 1.0, domain="row"),),
        domains=(PowerLimit("row", budget_watts=1100.0),),
    )
    assert counts(planned(tight)) == {"X@400": 3}


@pytest.mark.parametrize(
    ("prices", "wanted"),
    [
        (MixPrices(), "cheap"),
        (MixPrices(dollars_per_kwh=5.0), "frugal"),
        (MixPrices(grams_per_kwh=500, dollars_per_tonne=10_000), "frugal"),
    ],
)
def test_energy_and_carbon_prices_change_the_choice(prices: MixPrices, wanted: str) -> None:
    problem = MixProblem(
        (bucket(),),
        (
            shape("X", {"chat": 10.0}, cap_watts=700.0, name="cheap"),
            shape("Y", {"chat": 10.0}, cap_watts=300.0, name="frugal"),
        ),
        (offer("X", 1.0), offer("Y", 2.0)),
        prices=prices,
    )
    assert counts(planned(problem)) == {wanted: 1}


def test_spot_offers_take_no_more_than_their_share() -> None:
    problem = MixProblem(
        (bucket(requests_per_second=40.0, largest_spot_share=0.5),),
        (shape("X", {"chat": 10.0}),),
        (offer("X", 2.0), offer("X", 0.5, name="spot", is_spot=True)),
    )
    solution = planned(problem)
    assert {row.offer: row.replicas for row in solution.replicas} == {"x": 2, "spot": 2}


def test_a_bucket_with_a_minimum_is_not_on_one_replica() -> None:
    problem = MixProblem(
        (bucket(requests_per_second=1.0, minimum_replicas=3),),
        (shape("X", {"chat": 10.0}),),
        (offer("X", 1.0),),
    )
    assert counts(planned(problem)) == {"X@700": 3}


def test_a_start_that_costs_more_than_it_saves_is_not_made() -> None:
    def problem(dollars_per_start: float, horizon_hours: float) -> MixProblem:
        return MixProblem(
            (bucket(),),
            (shape("X", {"chat": 10.0}), shape("Y", {"chat": 10.0})),
            (offer("X", 2.0, running_replicas={"X@700": 1}), offer("Y", 1.5)),
            prices=MixPrices(dollars_per_start=dollars_per_start, horizon_hours=horizon_hours),
        )

    assert counts(planned(problem(1.0, 1.0))) == {"X@700": 1}
    assert counts(planned(problem(1.0, 24.0))) == {"Y@700": 1}


def test_a_change_of_cap_is_no_start() -> None:
    problem = MixProblem(
        (bucket(requests_per_second=5.0),),
        (shape("X", {"chat": 10.0}), shape("X", {"chat": 8.0}, cap_watts=400.0)),
        (offer("X", 1.0, running_replicas={"X@700": 1}),),
        prices=MixPrices(dollars_per_kwh=1.0, dollars_per_start=100.0),
    )
    solution = planned(problem)
    assert counts(solution) == {"X@400": 1}
    assert solution.costs.start == 0.0


@pytest.mark.parametrize(
    "limits", [MixLimits(dollars_per_hour=1.5), MixLimits(grams_per_hour=100.0)]
)
def test_what_may_be_spent_or_emitted_limits_the_plan(limits: MixLimits) -> None:
    problem = MixProblem(
        (bucket(requests_per_second=20.0),),
        (shape("X", {"chat": 10.0}),),
        (offer("X", 1.0, embodied_grams_per_gpu_hour=60.0),),
        limits=limits,
    )
    with pytest.raises(InfeasibleMix, match="per hour"):
        planned(problem)
    most = planned(dataclasses.replace(problem, goal=Goal.MOST_REQUESTS))
    assert most.served_fraction == pytest.approx(0.5)


CAPS = (700.0, 612.5, 525.0, 437.5, 350.0)


def at_any_cap(requests_per_second: float, dollars: float) -> MixProblem:
    """One type whose boards slow down a little with their cap."""
    shapes = tuple(
        shape("X", {"chat": 10.0 - k}, cap_watts=cap, idle_watts=70.0) for k, cap in enumerate(CAPS)
    )
    return MixProblem((bucket("chat", requests_per_second),), shapes, (offer("X", dollars),))


@pytest.mark.parametrize("requests_per_second", [1e-12, 1e-6, 1e-3])
def test_a_demand_that_hardly_loads_a_replica_still_gets_one(requests_per_second: float) -> None:
    """Less than the solver's tolerance of one replica is not nothing."""
    assert sum(counts(planned(at_any_cap(requests_per_second, 3.0))).values()) == 1


@pytest.mark.parametrize("goal", [Goal.LEAST_COST, Goal.MOST_REQUESTS])
def test_boards_that_cost_nothing_are_off_where_they_serve_nothing(goal: Goal) -> None:
    free = dataclasses.replace(at_any_cap(25.0, 0.0), goal=goal)
    solution = planned(free)
    assert {row.shape for row in solution.served} == set(counts(solution))
    assert sum(counts(solution).values()) <= 3 + len(solution.served) - 1
    one_more = tuple(
        dataclasses.replace(row, replicas=row.replicas + 1) for row in solution.replicas
    )
    told = complaints(free, broken(solution, replicas=one_more))
    assert any("are enough" in line for line in told)


PREFILL_KIND = {("chat", Phase.PREFILL): 20.0, ("chat", Phase.WHOLE): 5.0}
DECODE_KIND = {("chat", Phase.DECODE): 20.0, ("chat", Phase.WHOLE): 2.0}


def split_case(link_bytes_per_second: float, **more: object) -> MixProblem:
    """Two types that are each good at one phase, and a third that is good at whole requests."""
    asked = {"requests_per_second": 20.0, "kv_bytes_per_request": 1e9, **more}
    return MixProblem(
        (bucket(**asked),),  # type: ignore[arg-type]
        (
            shape("X", PREFILL_KIND, link_bytes_per_second=link_bytes_per_second),
            shape("Y", DECODE_KIND, link_bytes_per_second=link_bytes_per_second),
            shape("Z", {"chat": 10.0}),
        ),
        (offer("X", 3.0), offer("Y", 1.0), offer("Z", 2.5)),
    )


def test_phases_are_split_where_it_pays_and_not_over_a_tenth_of_the_link() -> None:
    assert counts(planned(split_case(50e9))) == {"X@700": 1, "Y@700": 1}
    slow = planned(split_case(5e9))
    assert {row.phase for row in slow.served} == {Phase.WHOLE}


def test_a_transfer_that_takes_too_long_turns_the_split_off() -> None:
    assert planned(split_case(50e9, longest_transfer_seconds=0.02)).costs.total == 4.0
    slow = planned(split_case(50e9, longest_transfer_seconds=0.019))
    assert {row.phase for row in slow.served} == {Phase.WHOLE}


def test_replicas_of_several_gpus_use_as_much_stock() -> None:
    problem = MixProblem(
        (bucket(requests_per_second=20.0),),
        (shape("X", {"chat": 10.0}, gpus=4),),
        (offer("X", 1.0, gpus=7),),
    )
    with pytest.raises(InfeasibleMix, match="stock of x"):
        planned(problem)
    assert planned(
        dataclasses.replace(problem, offers=(offer("X", 1.0, gpus=8),))
    ).costs.total == pytest.approx(8.0)


def broken(solution: MixSolution, **changed: object) -> MixSolution:
    return dataclasses.replace(solution, **changed)  # type: ignore[arg-type]


def test_the_judge_sees_every_kind_of_wrong_answer() -> None:
    problem = dataclasses.replace(toy(), prices=PRICES)
    good = planned(problem)
    first, second = good.replicas
    moved = (dataclasses.replace(good.served[0], share=good.served[0].share / 2), *good.served[1:])
    wrong = {
        "0 replicas": broken(good, replicas=(second,)),
        "is served": broken(good, served=moved),
        "not on offer": broken(good, replicas=(dataclasses.replace(first, offer="a100"), second)),
        "only": broken(good, served_fraction=0.5),
        "mean watts": broken(good, mean_watts=good.mean_watts - 1),
        "energy": broken(good, costs=dataclasses.replace(good.costs, energy=0.0)),
        "in stock": broken(good, replicas=(dataclasses.replace(first, replicas=101), second)),
    }
    assert complaints(problem, good) == ()
    for words, answer in wrong.items():
        assert any(words in line for line in complaints(problem, answer)), words


def test_the_judge_sees_limits_that_are_broken() -> None:
    """The same answer under limits that it does not keep."""
    problem = MixProblem(
        (bucket(requests_per_second=15.0, largest_spot_share=1.0),),
        (shape("X", {"chat": 10.0}),),
        (offer("X", 1.0, domain="row", is_spot=True, embodied_grams_per_gpu_hour=10.0),),
        (PowerLimit("row"),),
    )
    good = planned(problem)
    asked = problem.buckets[0]

    def asking(**changed: object) -> MixProblem:
        changed_bucket = dataclasses.replace(asked, **changed)  # type: ignore[arg-type]
        return dataclasses.replace(problem, buckets=(changed_bucket,))

    tighter = {
        "breaker": dataclasses.replace(problem, domains=(PowerLimit("row", "", 1500.0),)),
        "power budget": dataclasses.replace(
            problem, domains=(PowerLimit("row", budget_watts=1000.0),)
        ),
        "spot offers": asking(largest_spot_share=0.5),
        "carries": asking(minimum_replicas=4),
        "do the work": asking(requests_per_second=25.0),
        "dollars per hour": dataclasses.replace(problem, limits=MixLimits(dollars_per_hour=1.0)),
        "g per hour": dataclasses.replace(problem, limits=MixLimits(grams_per_hour=19.0)),
    }
    assert complaints(problem, good) == ()
    for words, question in tighter.items():
        assert any(words in line for line in complaints(question, good)), words


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: bucket(requests_per_second=0.0), "requestsPerSecond"),
        (lambda: bucket(requests_per_second=float("nan")), "requestsPerSecond"),
        (lambda: bucket(largest_spot_share=1.5), "largestSpotShare"),
        (lambda: ServiceRate(1.0, 1.1, 5.0), "lowerRequestsPerSecond"),
        (lambda: shape("X", {"chat": 1.0}, idle_watts=800.0), "p99Watts"),
        (lambda: offer("X", -1.0), "dollarsPerGpuHour"),
        (lambda: MixPrices(horizon_hours=0.0), "horizonHours"),
        (lambda: MixProblem((), (), ()), "buckets"),
        (lambda: MixProblem((bucket(), bucket()), (), ()), "buckets"),
        (lambda: MixProblem((bucket(),), (), (offer("X", 1.0, domain="row"),)), "domain"),
        (lambda: MixProblem((bucket(),), (shape("X", {"other": 1.0}),), ()), "other"),
        (
            lambda: MixProblem((bucket(),), (), (), (PowerLimit("a", "b"), PowerLimit("b", "a"))),
            "circle",
        ),
        (lambda: split_case(50e9, kv_bytes_per_request=0.0), "kvBytesPerRequest"),
    ],
)
def test_nonsense_is_refused_by_its_field(
    make: Callable[[], Bucket | Offer | ReplicaShape | MixProblem], names: str
) -> None:
    with pytest.raises(InputError, match=names):
        make()


def test_the_same_problem_has_the_same_answer() -> None:
    problem = small_case(random.Random(3))
    assert solve_mix(problem) == solve_mix(problem)


def test_a_plan_that_the_judge_refuses_is_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capacity.mix.mix_conflict.complaints", lambda *_: ("too hot",))
    with pytest.raises(PermanentError, match="too hot"):
        planned(toy())
