"""Together or split: the best of what could be tried, within the budget, off on a slow link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capacity.language_models import find_language_model
from capacity.serving import split_plan
from capacity.serving.deployment import Deployment
from capacity.serving.request_mix import LatencyLimits, RequestBucket, RequestMix
from capacity.serving.split_plan import (
    ServerPlan,
    SplitAnswer,
    SplitQuestion,
    plan_split,
    server_kinds,
)
from wattpack.errors import InputError

LIMITS = LatencyLimits(0.5, 0.008)
LINK = 50e9


@pytest.fixture(scope="module")
def h200() -> Deployment:
    return Deployment(find_language_model("llama-3.1-8b"), "H200-SXM")


@pytest.fixture(scope="module")
def question(h200: Deployment) -> SplitQuestion:
    return SplitQuestion((h200,), 3, RequestMix.of(RequestBucket(4096, 64, 0.2)), LIMITS, LINK)


@pytest.fixture(scope="module")
def made(question: SplitQuestion) -> SplitAnswer:
    return plan_split(question)


def test_the_best_split_is_found_among_all(
    h200: Deployment, question: SplitQuestion, made: SplitAnswer
) -> None:
    every = [
        split_plan._largest(
            question, ServerPlan(h200, k, h200, 3 - k), made.split[0].requests_per_second
        )
        for k in (1, 2)
    ]
    best = max(one.requests_per_second for one in every if one)
    assert made.split[0].requests_per_second >= 0.97 * best
    assert made.together
    ratio = made.split[0].requests_per_second / made.together[0].requests_per_second
    assert made.gain == pytest.approx(ratio)
    assert made.gain > 1


def test_below_the_least_link_the_split_serves_less(
    question: SplitQuestion, made: SplitAnswer
) -> None:
    least = made.least_link_bytes_per_second
    assert least is not None
    assert 0 < least < LINK
    slow = plan_split(replace(question, link_bytes_per_second=least / 4))
    assert slow.gain < 1 < made.gain
    assert slow.least_link_bytes_per_second is None


def test_servers_together_may_cut_prompts_finer(made: SplitAnswer) -> None:
    # with an engine's default of 8,192 tokens an iteration decodes stall, and a split looks great
    best = made.together[0]
    assert best.plan.first.batching.token_budget < 8192


def test_limits_in_all_stay_within_the_budget(h200: Deployment, question: SplitQuestion) -> None:
    kinds = server_kinds([h200], [700.0, 350.0])
    made = plan_split(replace(question, kinds=kinds, budget_watts=1500.0))
    plans = [*made.together, *made.split]
    assert plans
    assert all(one.plan.limit_watts <= 1500 for one in plans)
    assert all(one.mean_watts <= one.plan.limit_watts for one in plans)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"servers": 1}, "servers"),
        ({"kinds": ()}, "kinds"),
        ({"budget_watts": 100.0}, "budget_watts"),
        ({"link_bytes_per_second": 0.0}, "link_bytes_per_second"),
        ({"requests": RequestMix.of(RequestBucket(10, 1))}, "output_tokens"),
    ],
)
def test_splits_that_cannot_be_planned_are_refused(
    question: SplitQuestion, changes: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as refused:
        replace(question, **changes)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_limits_are_taken_by_the_types_that_can(h200: Deployment) -> None:
    h100 = replace(h200, gpu="H100-SXM")
    kinds = server_kinds([h200, h100], [700.0, 400.0])
    assert [(one.gpu, one.limit) for one in kinds] == [
        ("H200-SXM", 700.0), ("H200-SXM", 400.0), ("H100-SXM", 700.0), ("H100-SXM", 400.0),
    ]  # fmt: skip
    for limits in ([5.0], [700.0, 5000.0]):
        with pytest.raises(InputError) as refused:
            server_kinds([h200], limits)
        assert refused.value.field == "limit_watts"
