"""Forecasts of one power tree in a round: leaves add up to parents, quantiles do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.domains.round_tree import RoundTree
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.round.target_tree import parents_of
from forecasting.series_source import Floats, SeriesId
from forecasting.targets import Target

DAY = 144
LEVELS = (0.5, 0.9, 0.99)
NOW = 6 * 86400.0
ABOVE = {
    "row": (),
    "pdu-a": ("row",),
    "pdu-b": ("row",),
    "rack-1": ("pdu-a", "row"),
    "rack-2": ("pdu-a", "row"),
    "rack-3": ("pdu-b", "row"),
}


def targets(*domains: str, horizon: int = 36) -> list[Target]:
    return [
        Target(
            "ns", f"of-{d}", SeriesId(d), "domain", horizon, 600, LEVELS, None, 1,
            subject=d, above=ABOVE[d],
        )
        for d in domains
    ]  # fmt: skip


def world(
    seed: int, *, hosts: float = 500.0, common: float = 0.7, days: int = 6
) -> dict[str, Floats]:
    """Racks that share shocks; what feeds them draws their sum and its own."""
    random = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    shared = np.convolve(random.normal(0, 1, len(t)), np.ones(6) / 6, mode="same")
    racks = {
        f"rack-{i}": np.maximum(
            3000.0 * i
            + 800 * np.sin(2 * np.pi * (t / DAY + random.random()))
            + 600 * (common * shared + (1 - common) * random.normal(0, 1, len(t))),
            100.0,
        )
        for i in (1, 2, 3)
    }
    own = {name: np.abs(random.normal(hosts, hosts / 10, len(t))) for name in ("a", "b", "row")}
    a = racks["rack-1"] + racks["rack-2"] + own["a"]
    b = racks["rack-3"] + own["b"]
    return {**racks, "pdu-a": a, "pdu-b": b, "row": a + b + own["row"]}


def answers(values: dict[str, Floats], asked: list[Target]) -> list[TargetForecast]:
    return step(ForecasterState(), NOW, MemorySource(values), asked)[1]


def off(made: Floats, parents: np.ndarray) -> float:
    """Largest difference between a parent and its leaves, as a share."""
    worst = 0.0
    for node in range(len(parents)):
        leaves, waiting = [], [node]
        while waiting:
            below = np.flatnonzero(parents == (here := waiting.pop()))
            waiting += below.tolist()
            leaves += [] if len(below) else [here]
        gap = np.abs(made[node] - made[leaves].sum(axis=0))
        worst = max(worst, float((gap / np.maximum(made[node], 1.0)).max()))
    return worst


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    asked=st.lists(st.sampled_from(sorted(ABOVE)), min_size=2, unique=True),
    hosts=st.sampled_from([0.0, 500.0]),
)
def test_leaves_add_up_to_their_parents_on_every_path(
    seed: int, asked: list[str], hosts: float
) -> None:
    made = answers(world(seed, hosts=hosts), targets(*asked))
    assert all(a.made is not None and np.isfinite(a.made.quantiles).all() for a in made)
    related = any(set(ABOVE[d]) & set(asked) for d in asked)
    forecast = made[0].made
    assert forecast is not None
    assert (forecast.coherent is not None) == related
    if forecast.coherent is not None:
        values = forecast.coherent.values
        assert off(values, forecast.coherent.tree.parents) < 1e-6
        assert values.min() >= 0
        assert values.shape[1:] == (200, 36)


def test_a_parents_quantiles_are_those_of_its_paths_and_no_sums_of_its_parts() -> None:
    names = ["pdu-a", "rack-1", "rack-2"]
    values = world(3, hosts=0.0, common=0.0)
    made = answers(values, targets(*names))
    forecast = made[0].made
    assert forecast is not None
    assert forecast.coherent is not None
    p99 = {n: forecast.quantiles[i, :, -1] for i, n in enumerate(names)}
    sums = p99["rack-1"] + p99["rack-2"]
    # Errors of racks that have nothing in common cancel in part.
    assert np.mean(p99["pdu-a"] < sums) > 0.9
    paths = forecast.coherent.values[0]
    middle = np.median(paths, axis=0)
    assert forecast.quantiles[0, :, 0] == pytest.approx(middle, rel=0.05)


def test_calibration_sees_what_reconciling_did_to_a_level() -> None:
    """The record of a parent is that of its reconciled promises."""
    made = answers(world(5), targets("row", "pdu-a", "pdu-b"))
    assert all(a.record.rehearsed.windows >= 7 for a in made)


@pytest.mark.parametrize("seed", [1, 2])
def test_calibrated_parents_keep_their_coverage_and_lose_no_sharpness(seed: int) -> None:
    values, asked = world(seed, days=12), targets(*ABOVE)
    parents = [i for i, name in enumerate(ABOVE) if not name.startswith("rack")]

    def judged(of_tree: bool) -> tuple[Floats, float]:
        """Shares of steps below the quantiles, and the mean pinball loss, of the parents."""
        these = asked if of_tree else [replace(one, above=()) for one in asked]
        state, shares, losses = ForecasterState(), [], []
        for origin in range(8 * DAY, 12 * DAY - 36, 36):
            known = MemorySource({name: row[:origin] for name, row in values.items()})
            state, made = step(state, origin * 600.0, known, these)
            for i in parents:
                answer = made[i]
                assert answer.made is not None
                quantiles, levels = answer.made.quantiles[answer.row], answer.made.levels
                came = values[asked[i].subject][origin : origin + 36, None]
                miss, level = came - quantiles, np.array(levels)
                shares.append((miss <= 0).mean(axis=0))
                losses.append(np.maximum(level * miss, (level - 1) * miss).mean())
        return np.mean(shares, axis=0), float(np.mean(losses))

    (coverage, loss), (_, plain) = judged(True), judged(False)
    assert np.abs(coverage - [0.5, 0.9, 0.95, 0.99]) == pytest.approx(0, abs=0.06)
    assert coverage[-1] > 0.97
    assert loss < 1.02 * plain


def test_without_a_tree_nothing_changes_to_the_last_bit() -> None:
    values, names = world(7), ("row", "pdu-a")
    alone = [replace(t, above=()) for t in targets(*names)]
    strangers = [replace(t, above=("elsewhere",)) for t in targets(*names)]
    one, other = answers(values, alone), answers(values, strangers)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.made is not None
        assert theirs.made is not None
        assert mine.made.coherent is None
        assert mine.made.quantiles.tobytes() == theirs.made.quantiles.tobytes()


def test_the_nearest_domain_above_that_is_forecast_is_the_parent_within_a_namespace() -> None:
    asked = targets("row", "rack-1", "pdu-b", "rack-3")
    elsewhere = replace(asked[1], namespace="other", name="x")
    twice = replace(asked[1], name="zz")
    row, rack_1, pdu_b, rack_3 = (one.identity for one in asked)
    assert parents_of([*asked, elsewhere, twice]) == {rack_1: row, pdu_b: row, rack_3: pdu_b}


def tree(values: dict[str, Floats]) -> RoundTree | None:
    names = [SeriesId(n) for n in values]
    parents = {SeriesId("l"): SeriesId("whole"), SeriesId("r"): SeriesId("whole")}
    return RoundTree.of(names, parents, np.array(list(values.values())), DAY)


def test_an_own_part_is_what_the_parent_draws_beyond_its_children() -> None:
    left, right = np.full(2 * DAY, 40.0), np.full(2 * DAY, 50.0)
    more = tree({"l": left, "whole": np.full(2 * DAY, 100.0), "r": right})
    assert more is not None
    assert more.tree.names == ("l", "whole", "r", "whole (own)")
    assert more.history == pytest.approx(np.full((1, 2 * DAY), 10.0))
    exact = tree({"l": left, "whole": left + right, "r": right})
    assert exact is not None
    assert exact.tree.names == ("l", "whole", "r")


def test_children_that_draw_more_than_their_parent_are_not_its_parts() -> None:
    left, right = np.full(DAY, 80.0), np.full(DAY, 50.0)
    assert tree({"l": left, "whole": np.full(DAY, 100.0), "r": right}) is None


def test_a_domain_without_history_takes_what_the_others_leave_and_publishes_no_forecast() -> None:
    values = world(9)
    del values["rack-2"]
    made = answers(values, targets("pdu-a", "rack-1", "rack-2"))
    whole, known, unknown = made
    assert unknown.made is not None
    assert unknown.made.methods[unknown.row] == "limit"
    assert "no-history" in unknown.flags
    for answer in (whole, known):
        assert answer.made is not None
        assert answer.made.methods[answer.row] == "ridge"
        assert np.all(answer.peaks > 0)


def test_a_total_that_another_model_tells_meets_its_parts_between_both() -> None:
    names = [SeriesId(name) for name in ("row", "rack-1", "rack-2")]
    random = np.random.default_rng(4)
    shared = random.normal(0.0, 300.0, (200, 1)) + np.zeros((200, 36))
    racks = 20_000.0 + shared + random.normal(0.0, 30.0, (2, 200, 36))
    paths = np.concatenate([racks.sum(axis=0, keepdims=True) - 18_000.0, racks])
    values = np.stack([np.full(DAY, 40_000.0), np.full(DAY, 20_000.0), np.full(DAY, 20_000.0)])
    tree = RoundTree.of(names, dict.fromkeys(names[1:], names[0]), values, DAY)
    assert tree is not None
    known, by_load = np.ones(3, dtype=np.bool_), np.array([True, False, False])
    own = np.empty((0, 200, 36))
    made = tree.coherent(paths, own, known, tree.spread(paths, own, known, by_load))
    assert 22_000.0 < np.median(made[0]) < 40_000.0
    assert made[1:].sum(axis=0) == pytest.approx(made[0])
    together = tree.coherent(paths, own, known, tree.spread(paths, own, known, ~known))
    assert np.median(together[0]) < 22_000.0
