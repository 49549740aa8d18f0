"""A job moves to a better plan for what lasts and pays, never for a pause."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.training.replan import RESTART_SECONDS, ReplanRule, reshard_seconds
from capacity.training.training_job import ParallelLayout
from tests.capacity.training.training_builders import cluster, first, job, pricing
from wattpack.errors import InputError

PRICE = 40.0


def watched(seconds: float, share: float, target: str = "slow") -> ReplanRule:
    """The rule after losing this share of the time for so long, in ticks of five seconds."""
    rule = ReplanRule()
    for _ in range(int(seconds / 5)):
        rule = rule.after(5.0, target, 1.0, 1.0 - share)
    return rule


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.95])
def test_a_pause_shorter_than_the_move_never_moves_the_job(share: float) -> None:
    assert not watched(PRICE - 5, share).moves(PRICE)
    assert not watched(PRICE - 5, share).moves(PRICE, remaining_seconds=1e9)


def test_a_cap_of_two_minutes_is_a_pause() -> None:
    assert not watched(120, 0.2).moves(PRICE)


def test_a_move_longer_than_that_waits_for_its_own_length() -> None:
    assert not watched(600, 0.2).moves(600.0)


def test_what_lasts_and_pays_moves_it() -> None:
    assert watched(125, 0.2).moves(PRICE)


def test_a_loss_that_never_pays_the_way_there_and_back_does_not() -> None:
    assert not watched(3600, 0.01).moves(PRICE)
    assert watched(2 * PRICE / 0.01 + 5, 0.01).moves(PRICE)


def test_a_known_end_soon_keeps_the_job_where_it_is() -> None:
    assert not watched(125, 0.2).moves(PRICE, remaining_seconds=300)


def test_another_state_starts_the_count_again() -> None:
    assert not watched(200, 0.5).after(5.0, "other", 1.0, 0.5).moves(PRICE)


def test_the_best_plan_loses_nothing() -> None:
    assert not watched(7200, 0.0).moves(PRICE)
    assert watched(60, -0.2).lost_seconds == 0


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="step_seconds"):
        ReplanRule().after(5.0, "x", 0.0, 1.0)


def test_one_moved_layer_costs_a_restart_and_that_layer() -> None:
    links, layout = cluster(4, 1), ParallelLayout(pipeline=4)
    ranks = first(links, layout)
    prices = pricing(job(), links)
    even, moved = (prices.plan(layout, ranks, np.array(n)) for n in ([4, 4, 4, 4], [3, 5, 4, 4]))
    assert reshard_seconds(job(), even, even, links) == 0.0
    size = 14 * job().parameters_per_layer
    assert reshard_seconds(job(), even, moved, links) == pytest.approx(
        RESTART_SECONDS + size / 45e9
    )


def test_another_tensor_cut_fetches_everything() -> None:
    links = cluster(1, 4)
    prices = pricing(job(), links)
    one, two = ParallelLayout(tensor=4), ParallelLayout(tensor=2, pipeline=2)
    before = prices.plan(one, first(links, one), np.array([16]))
    after = prices.plan(two, first(links, two), np.array([8, 8]))
    size = 14 * 8 * job().parameters_per_layer / 2
    assert reshard_seconds(job(), before, after, links) == pytest.approx(
        RESTART_SECONDS + size / 370e9
    )
