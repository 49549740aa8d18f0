"""Which GPU type suits which work: policies against optima by hand, plans that follow them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_plugin.kube_objects.pods import gpu_model_values, gpu_models
from scheduler_plugin.packing.throughput_policies import (
    Work,
    due_models,
    least_cost_shares,
    max_min_shares,
    round_values,
    rounds_waited,
)
from scheduler_plugin.solve import SearchSettings, plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import node, pod, snapshot
from wattpack.errors import InputError

TWO_TYPES = {"fast": 1, "slow": 1}


# -- policies --------------------------------------------------------------------------------------


def test_work_that_gains_little_gives_the_fast_gpu_up() -> None:
    # Gavel's own example, 2.1: both get more than an equal share of both types would give.
    works = [Work("gains", 1, {"fast": 4.0, "slow": 1.0}), Work("same", 1, {"fast": 1, "slow": 1})]
    shares = max_min_shares(works, TWO_TYPES)
    assert shares[0, 0] > 0.6
    speeds = (shares * [[4.0, 1.0], [1.0, 1.0]]).sum(axis=1)
    assert speeds / [2.5, 1.0] == pytest.approx([4 / 3.5, 1.0], abs=0.01) or speeds[1] == 1.0


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.integers(1, 9), min_size=2, max_size=2)),
        min_size=2,
        max_size=3,
    )
)
@example([(2, [1, 1]), (2, [1, 4])])  # The solver goes beyond a limit by 2e-9 here.
@examples(8)
def test_no_grid_of_shares_is_fairer(drawn: list[tuple[int, list[int]]]) -> None:
    gpus = {"a": 2, "b": 1}
    works = [Work(f"w{i}", n, {"a": s[0], "b": s[1]}) for i, (n, s) in enumerate(drawn)]

    def smallest(shares: np.ndarray) -> float:
        equal = [(2 * s[0] + s[1]) / 3 for _, s in drawn]
        return min(
            float(row @ s) / e * n for row, (n, s), e in zip(shares, drawn, equal, strict=True)
        )

    found = max_min_shares(works, gpus)
    _holds(found, works, gpus)
    steps = [i / 3 for i in range(4)]
    rows = [np.array([a, b]) for a in steps for b in steps if a + b <= 1]
    needs = [work.gpus for work in works]
    for first in rows:
        for second in rows:
            rest = [np.zeros(2)] if len(works) == 2 else []
            for third in rest or rows:
                grid = np.array([first, second, third][: len(works)])
                if bool(((grid * np.array(needs)[:, None]).sum(axis=0) <= [2, 1]).all()):
                    assert smallest(grid) <= smallest(found) + 1e-6


def test_the_cheapest_type_that_is_fast_enough_is_taken() -> None:
    price = {"fast": 4.0, "slow": 1.0}
    needs = Work("needs", 1, {"fast": 3.0, "slow": 1.0}, least_speed=2.0)
    shares = least_cost_shares([needs], TWO_TYPES, price)
    # All of the time on either: 2 = 3 f + 1 s with f + s = 1, since slow work is cheaper.
    assert shares == pytest.approx(np.array([[0.5, 0.5]]))
    frugal = Work("frugal", 1, {"fast": 3.0, "slow": 1.0}, least_speed=0.5)
    assert least_cost_shares([frugal], TWO_TYPES, price) == pytest.approx(np.array([[0.0, 0.5]]))


def _holds(shares: np.ndarray, works: list[Work], gpus: dict[str, int]) -> None:
    assert bool((shares >= 0).all())
    assert bool((shares.sum(axis=1) <= 1 + 1e-9).all())
    used = (shares * np.array([work.gpus for work in works])[:, None]).sum(axis=0)
    assert bool((used <= np.array(list(gpus.values())) + 1e-9).all())


@pytest.mark.parametrize(
    ("work", "field"),
    [
        (lambda: Work("w", 0, {"fast": 1.0}), "w.gpus"),
        (lambda: Work("w", 1, {"fast": float("nan")}), "w.speeds.fast"),
        (lambda: max_min_shares([Work("w", 1, {"other": 1.0})], TWO_TYPES), "w.speeds"),
        (lambda: max_min_shares([Work("w", 1, {"fast": 1.0})], {}), "gpus"),
        (
            lambda: least_cost_shares(
                [Work("w", 1, {"fast": 1.0}, least_speed=2.0)],
                TWO_TYPES,
                {"fast": 1.0, "slow": 1.0},
            ),
            "w.least_speed",
        ),
        (
            lambda: least_cost_shares(
                [Work(n, 2, {"fast": 1.0}, least_speed=1.0) for n in "ab"],
                TWO_TYPES,
                {"fast": 1.0, "slow": 1.0},
            ),
            "works",
        ),
    ],
)
def test_nonsense_is_refused_by_its_field(work: object, field: str) -> None:
    assert callable(work)
    with pytest.raises(InputError) as refused:
        work()
    assert refused.value.field == field


def test_rounds_that_were_not_given_stay_owed() -> None:
    shares = np.array([[0.25, 0.5]])
    values = round_values(shares, np.array([[0, 2]]), 6)
    assert values.tolist() == [[1500, 1000]]
    assert rounds_waited(values[0], 0.75) == 3
    assert due_models(values[0], ("a", "b")) == ("a", "b")
    early = round_values(0.8 * shares, np.array([[0, 1]]), 1)
    assert early.tolist() == [[200, 0]]
    assert due_models(early[0], ("a", "b")) == ()


# -- plans -----------------------------------------------------------------------------------------


def test_who_gains_most_gets_the_fast_gpu() -> None:
    # By name and size nothing tells the pods apart: only what the models are worth to them.
    nodes = node("n0", 1, gpu_model="K80"), node("n1", 1, gpu_model="V100")
    for gains, same in (("a", "b"), ("b", "a")):
        pods = (
            pod(gains, gpu_model_values={"V100": 1000, "K80": 90}),
            pod(same, gpu_model_values={"V100": 1000, "K80": 700}),
        )
        made = plan(snapshot(*nodes, *pods))
        # The worth of both ways is 1,700 and 1,090.
        assert {p.uid: p.node for p in made.placements} == {gains: "n1", same: "n0"}


def test_gpus_placed_come_before_what_models_are_worth() -> None:
    # The small pod would rather have the only node that holds the large one.
    nodes = node("big", 8, gpu_model="V100"), node("small", 1, gpu_model="K80")
    wishes = pod("wishes", 1, gpu_model_values={"V100": 1000})
    made = plan(snapshot(*nodes, wishes, pod("large", 8)))
    assert {p.uid: p.node for p in made.placements} == {"wishes": "small", "large": "big"}


@given(st.data())
@examples(40)
def test_values_never_cost_a_gpu_of_the_greedy_plan(data: st.DataObject) -> None:
    nodes = [
        node(f"n{i}", data.draw(st.sampled_from([1, 2, 4, 8])), gpu_model=f"m{i % 2}")
        for i in range(data.draw(st.integers(1, 4)))
    ]
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 4, 8]), max_size=8))
    values = data.draw(st.lists(st.integers(0, 1000), min_size=16, max_size=16))
    plain = [pod(f"p{i}", size) for i, size in enumerate(sizes)]
    valued = [
        p.model_copy(update={"gpu_model_values": {"m0": values[2 * i], "m1": values[2 * i + 1]}})
        for i, p in enumerate(plain)
    ]
    settings = SearchSettings()
    without = plan(snapshot(*nodes, *plain), deadline_seconds=0.0, settings=settings)
    with_values = plan(snapshot(*nodes, *valued), deadline_seconds=0.0, settings=settings)
    assert [t.placed_value for t in with_values.tiers] >= [t.placed_value for t in without.tiers]
    assert with_values.refusals == ()


# -- the annotation --------------------------------------------------------------------------------


def _annotated(text: str) -> dict[str, object]:
    return {"metadata": {"name": "p", "annotations": {"wattpack.io/gpu-models": text}}, "spec": {}}


def test_speeds_stand_behind_the_names_of_models() -> None:
    body = _annotated("H200-SXM=2.5, A100-SXM = 1")
    assert gpu_models(body) == ("A100-SXM", "H200-SXM")
    assert gpu_model_values(body) == {"H200-SXM": 1000, "A100-SXM": 400}
    assert gpu_model_values(_annotated("H200-SXM,A100-SXM")) == {}


@pytest.mark.parametrize("text", ["A=1,B", "A=0", "A=-1", "A=nan", "A=inf", "A=fast"])
def test_a_speed_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        gpu_model_values(_annotated(text))
    assert refused.value.field == "metadata.annotations.wattpack.io/gpu-models"
