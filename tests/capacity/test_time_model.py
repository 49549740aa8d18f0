"""The time model on small data whose truth is known, and its parts against their oracles."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capacity.kernels import Attention, Collective, Gemm, Kernel, LaunchChain, MemoryStream
from capacity.model.conformal import ConformalScores, winkler_score
from capacity.model.few_shot import fit_few_shot
from capacity.model.hold_outs import hold_out_folds, hold_out_group
from capacity.model.kernel_features import kernel_table
from capacity.model.kernel_samples import Floats, TimeSamples
from capacity.model.neighbours import neighbourhood
from capacity.model.point_design import designed_points
from capacity.model.reference_kernels import reference_all_reduces, reference_gemms
from capacity.model.roofline import RooflineConstants, RoofTimes, fit_constants
from capacity.model.time_model import fit_time_model
from capacity.roofs import Roofs, require_roofs
from tests.capacity import time_features_oracle as oracle
from wattpack.errors import InputError

H200 = require_roofs("H200-SXM")
H100 = require_roofs("H100-SXM")
B200 = require_roofs("B200-SXM")
TRUTH = RooflineConstants(3e-6, 0.7, 0.8)

sizes = st.integers(1, 40_000)
gemms = st.builds(Gemm, sizes, sizes, sizes, st.sampled_from(["bf16", "fp8"]))


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    mask = draw(st.sampled_from(["causal", "full", "window", "document"]))
    kv_heads = draw(st.integers(1, 16))
    keys = draw(st.integers(1, 5_000))
    queries = keys if mask == "document" else draw(st.integers(1, keys))
    return Attention(
        phase=draw(st.sampled_from(["prefill", "decode"])),
        batch=draw(st.integers(1, 64)),
        query_tokens=queries,
        kv_tokens=keys,
        heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads,
        mask=mask,
        window=draw(st.integers(1, 6_000)) if mask == "window" else 0,
        documents=draw(st.integers(1, 8)) if mask == "document" else 1,
    )


def roofline_seconds(kernels: list[Gemm], roofs: Roofs) -> Floats:
    return TRUTH.seconds(kernel_table("gemm_16_bit", kernels, roofs).roofs)


def grid(count: int = 300, seed: int = 0) -> list[Gemm]:
    draw = np.random.default_rng(seed)
    logs = draw.uniform(np.log([1, 256, 256]), np.log([8192, 16384, 16384]), (count, 3))
    return [Gemm(*row) for row in np.exp(logs).astype(int).tolist()]


def samples(kernels: list[Gemm], roofs: Roofs, noise: float = 0.0, seed: int = 1) -> TimeSamples:
    """Times of a GPU that follows its roofline but for a wave that large n make partly idle."""
    bend = 0.2 * np.sin(np.log([k.n for k in kernels]))
    drift = np.random.default_rng(seed).normal(0.0, noise, len(kernels)) if noise else 0.0
    return TimeSamples(
        roofs.model, tuple(kernels), roofline_seconds(kernels, roofs) * np.exp(bend + drift)
    )


def error_of(made: Floats, measured: Floats) -> float:
    return float(np.mean(np.abs(made / measured - 1)))


@settings(max_examples=60, deadline=None)
@given(st.lists(gemms, min_size=1, max_size=4))
def test_the_features_of_products_are_those_of_the_plain_loop(kernels: list[Gemm]) -> None:
    for kernel in kernels:
        table = kernel_table("gemm_16_bit", [kernel], H200)
        compute, memory = oracle.gemm_roof_seconds(kernel, H200)
        np.testing.assert_allclose(table.roofs.compute_seconds, compute)
        np.testing.assert_allclose(table.roofs.memory_seconds, memory)
        np.testing.assert_allclose(table.smooth[0], oracle.gemm_smooth(kernel, H200), atol=1e-9)
    table = kernel_table("gemm_16_bit", kernels, H200)
    rows = [oracle.gemm_shape(kernel, H200) for kernel in kernels]
    np.testing.assert_allclose(table.shape, rows, rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(attentions(), min_size=1, max_size=4))
def test_the_features_of_attention_are_those_of_the_plain_loop(kernels: list[Attention]) -> None:
    table = kernel_table("attention_prefill", kernels, B200)
    rows = [oracle.attention_shape(kernel, B200) for kernel in kernels]
    np.testing.assert_allclose(table.shape, rows, rtol=1e-9, atol=1e-9)
    peak = [kernel.flops / B200.flops_per_second("bf16") for kernel in kernels]
    np.testing.assert_allclose(table.roofs.compute_seconds, peak)


def test_three_constants_are_found_again() -> None:
    kernels = grid()
    roofs = kernel_table("gemm_16_bit", kernels, H200).roofs
    found = fit_constants(roofs, TRUTH.seconds(roofs))
    np.testing.assert_allclose(found.logs(), TRUTH.logs(), atol=0.01)


def test_one_absurd_time_bends_no_constant() -> None:
    kernels = grid()
    roofs = kernel_table("gemm_16_bit", kernels, H200).roofs
    seconds = TRUTH.seconds(roofs)
    seconds[7] *= 100
    np.testing.assert_allclose(fit_constants(roofs, seconds).logs(), TRUTH.logs(), atol=0.02)


def test_a_process_goes_through_what_it_saw_and_forgets_far_away() -> None:
    points = np.linspace(0, 20, 30)[:, None]
    fitted = fit_few_shot(points, np.sin(points[:, 0] / 3))
    np.testing.assert_allclose(fitted.predict(points), np.sin(points[:, 0] / 3), atol=0.05)
    assert abs(fitted.predict(np.array([[1e3]]))[0]) < 1e-6
    near, far = fitted.deviation(np.array([[10.0], [1e3]]))
    assert near < far / 2


def test_leaving_one_out_in_closed_form_is_leaving_one_out() -> None:
    draw = np.random.default_rng(3)
    points, values = draw.normal(size=(12, 2)) * 4, draw.normal(size=12)
    fitted = fit_few_shot(points, values)
    for left in range(12):
        rest = np.arange(12) != left
        part = fitted.inverse
        # The inverse of a minor by the block formula, independent of the closed form's shortcut.
        covariance = np.linalg.inv(part)[np.ix_(rest, rest)]
        shared = np.linalg.inv(part)[left, rest]
        weights = np.linalg.solve(covariance, shared)
        spread = np.sqrt(fitted.variance * (np.linalg.inv(part)[left, left] - weights @ shared))
        error = values[left] - weights @ values[rest]
        assert fitted.scores()[left] == pytest.approx(error / spread, rel=1e-6)


def test_leaving_a_group_out_in_closed_form_is_leaving_it_out() -> None:
    draw = np.random.default_rng(4)
    points, values = draw.normal(size=(12, 2)) * 4, draw.normal(size=12)
    fitted, asked = fit_few_shot(points, values), draw.normal(size=(5, 2)) * 4
    kept = np.arange(12) >= 3
    part = fitted.without(np.arange(3))
    covariance = np.linalg.inv(fitted.inverse)[np.ix_(kept, kept)]
    weights = np.linalg.solve(covariance, values[kept])
    np.testing.assert_allclose(part.weights, weights, rtol=1e-6)
    np.testing.assert_allclose(part.inverse, np.linalg.inv(covariance), rtol=1e-6, atol=1e-9)
    nothing = fitted.without(np.arange(12))
    np.testing.assert_array_equal(nothing.predict(asked), 0)
    assert (nothing.deviation(asked) > part.deviation(asked)).all()


def test_ends_of_an_interval_miss_equally_often_where_errors_lean() -> None:
    draw = np.random.default_rng(5)
    errors, later = draw.exponential(size=400) - 0.2, draw.exponential(size=20_000) - 0.2
    below, above = ConformalScores.from_sided_errors(errors, 1.0).factors(0.9)
    assert np.mean(later < -below) == pytest.approx(0.05, abs=0.02)
    assert np.mean(later > above) == pytest.approx(0.05, abs=0.02)
    few = ConformalScores.from_sided_errors(errors[:20], 1.0)
    assert few.factors(0.95) == (few.factor(0.95),) * 2
    assert few.factors(0.99) is None


def test_few_own_rows_rank_the_rising_curve_that_is_answered() -> None:
    """A kernel's score is of its answer from a fit that never saw its layer."""
    own = samples(grid(60, seed=1), H200, 0.05)
    group = fit_time_model(own, H200).groups["gemm_16_bit"]
    kernel = own.kernels[0]
    rest = [i for i, k in enumerate(own.kernels) if {k.n, k.k} != {kernel.n, kernel.k}]
    held = [i for i in range(60) if i not in rest]
    smooth = group.layers.smooth.without(np.array(held))
    part = replace(group, layers=replace(group.layers, smooth=smooth))
    table = kernel_table("gemm_16_bit", [kernel], H200)
    spread = smooth.deviation(table.smooth_features(group.layers.constants))
    score = np.log(own.seconds[0] / part.seconds([kernel])) / spread
    assert np.abs(group.scores.signed - score).min() < 1e-9


def test_few_own_rows_correct_what_the_roofline_cannot_know() -> None:
    kernels, held = grid(60, seed=1), grid(200, seed=2)
    own, truth = samples(kernels, H200), samples(held, H200)
    model = fit_time_model(own, H200)
    alone = model.groups["gemm_16_bit"].layers.constants
    plain = alone.seconds(kernel_table("gemm_16_bit", held, H200).roofs)
    assert error_of(model.seconds(held), truth.seconds) < 0.5 * error_of(plain, truth.seconds)


def test_what_others_show_completes_fifteen_rows() -> None:
    own, truth = samples(grid(15, seed=1), H200), samples(grid(200, seed=2), H200)
    others = [samples(grid(600, seed=s), roofs) for s, roofs in ((3, H100), (4, B200))]
    alone = fit_time_model(own, H200).seconds(truth.kernels)
    helped = fit_time_model(own, H200, others).seconds(truth.kernels)
    assert error_of(helped, truth.seconds) < 0.6 * error_of(alone, truth.seconds)


def test_kernels_asked_in_order_of_size_are_told_what_forests_tell_each() -> None:
    others = tuple(samples(grid(400, seed=s), roofs) for s, roofs in ((3, H100), (4, B200)))
    nearby = neighbourhood("gemm_16_bit", H200, others)
    features = kernel_table("gemm_16_bit", grid(50), H200).tree_features(TRUTH)
    plain = sum(
        share * member.trees.forest.predict(features)
        for member, share in zip(nearby.members, nearby.shares, strict=True)
    )
    np.testing.assert_allclose(nearby.residuals(features), plain, rtol=1e-12)
    assert nearby.residuals(features[:0]).shape == (0,)


def test_a_type_that_nobody_measured_is_forecast_with_an_honest_width() -> None:
    others = [samples(grid(500, seed=s), r, 0.1) for s, r in ((3, H100), (4, B200), (5, H200))]
    nothing = TimeSamples("A100-SXM", (), np.zeros(0))
    model = fit_time_model(nothing, require_roofs("A100-SXM"), others)
    truth = samples(grid(300, seed=9), require_roofs("A100-SXM"), 0.1)
    low, high = model.interval(truth.kernels, 0.9)
    covered = np.mean((truth.seconds >= low) & (truth.seconds <= high))
    assert covered >= 0.85
    few = fit_time_model(samples(grid(60), H200, 0.02), H200, others)
    narrow = np.divide(*few.interval(truth.kernels, 0.9)[::-1])
    assert np.median(high / low) > np.median(narrow)


def test_an_interval_holds_as_often_as_it_says_with_many_rows() -> None:
    own = samples(grid(900, seed=1), H200, 0.1)
    truth = samples(grid(1_000, seed=2), H200, 0.1)
    model = fit_time_model(own, H200)
    for coverage in (0.5, 0.9):
        low, high = model.interval(truth.kernels, coverage)
        covered = np.mean((truth.seconds >= low) & (truth.seconds <= high))
        assert covered == pytest.approx(coverage, abs=0.04)


def test_too_few_scores_promise_nothing() -> None:
    scores = ConformalScores.from_errors(np.array([-0.3, 0.1, 0.2]))
    assert scores.factor(0.5) == pytest.approx(0.2)
    assert scores.factor(0.9) is None


def test_a_missed_interval_costs_by_how_far_it_missed() -> None:
    low, high, seen = np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([1.5, 2.5])
    assert winkler_score(low, high, seen, 0.9) == pytest.approx(1.0 + 0.5 * 20 / 2)


def test_streams_are_linear_in_bytes() -> None:
    kernels = [MemoryStream("copy", 2**n) for n in range(20, 32)]
    seconds = 4e-6 + np.array([k.bytes_moved for k in kernels]) / 4.2e12
    model = fit_time_model(TimeSamples("H200-SXM", tuple(kernels), seconds), H200)
    asked = [MemoryStream("triad", 3_000_000), MemoryStream("read", 2**33)]
    truth = 4e-6 + np.array([k.bytes_moved for k in asked]) / 4.2e12
    np.testing.assert_allclose(model.seconds(asked), truth, rtol=0.02)


def test_a_kernel_costs_the_same_whatever_is_asked_beside_it() -> None:
    own = samples(grid(60), H200)
    mixed = [*grid(3, seed=5)]
    model = fit_time_model(own, H200)
    together = model.seconds(mixed)
    np.testing.assert_allclose(together, [model.seconds([k])[0] for k in mixed])
    assert model.seconds([]).shape == (0,)


def test_the_same_rows_give_the_same_model() -> None:
    own, asked = samples(grid(500), H200, 0.1), grid(5, seed=8)
    first, second = (fit_time_model(own, H200).seconds(asked) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Gemm(8, 4096, 1024), "1024,4096"),
        (Gemm(9, 1024, 4096, "fp8"), "1024,4096"),
        (Attention("decode", 4, 1, 512, 32, 8), "32,8"),
        (Collective("all_reduce", 4096, 8), "4096"),
    ],
)
def test_kin_are_held_out_together(kernel: Kernel, expected: str) -> None:
    assert hold_out_group(kernel) == expected


def test_levels_of_hold_outs_are_independent() -> None:
    kernels = grid(4_000)
    outer, inner = hold_out_folds(kernels), hold_out_folds(kernels, level=1)
    assert np.mean(outer == 0) == pytest.approx(0.25, abs=0.03)
    assert np.mean(inner[outer == 0] == 0) == pytest.approx(0.25, abs=0.05)


def test_designed_points_beat_random_ones_on_the_measured_table() -> None:
    table = reference_gemms("A100-SXM").take(range(0, 9240, 7))
    folds = hold_out_folds(table.kernels)
    train, held = table.take(np.flatnonzero(folds != 0)), table.take(np.flatnonzero(folds == 0))
    roofs = require_roofs("A100-SXM")

    def error(rows: Floats) -> float:
        model = fit_time_model(train.take(rows), roofs)
        return error_of(model.seconds(held.kernels), held.seconds)

    draw = np.random.default_rng(0)
    random = [error(draw.choice(len(train), 30, replace=False)) for _ in range(6)]
    assert error(designed_points(train.kernels, roofs, 30)) < np.mean(random)


def test_shipped_tables_hold_positive_times_of_known_kernels() -> None:
    reduces = reference_all_reduces("H200-SXM")
    assert {k.gpus for k in reduces.kernels if isinstance(k, Collective)} == {2, 4, 8}


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda: fit_time_model(TimeSamples("H200-SXM", (), np.zeros(0)), H200), "own"),
        (lambda: TimeSamples("H200-SXM", (Gemm(1, 1, 1),), np.array([-1.0])), "seconds"),
        (lambda: TimeSamples("H200-SXM", (Gemm(1, 1, 1),), np.array([1.0, 2.0])), "seconds"),
        (lambda: reference_gemms("H900"), "table"),
        (lambda: designed_points([Gemm(1, 1, 1)], H200, 2), "count"),
        (lambda: ConformalScores(np.zeros(3)).factor(1.0), "coverage"),
        (
            lambda: fit_time_model(samples(grid(20), H200), H200).seconds(
                [LaunchChain(3, "eager")]
            ),
            "kernels[0]",
        ),
        (
            lambda: kernel_table("gemm_8_bit", [Gemm(1, 1, 1, "fp8")], require_roofs("A100-SXM")),
            "number_format",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(ask: object, field: str) -> None:
    assert callable(ask)
    with pytest.raises(InputError) as refused:
        ask()
    assert refused.value.field == field


def test_no_process_loads_scikit_learn_before_trees_are_grown() -> None:
    code = """
import importlib, pkgutil, sys
import actuator, capacity.model.time_model, controller, gpu, scheduler_plugin, telemetry
for package in (actuator, controller, scheduler_plugin, telemetry):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
sys.exit("sklearn" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_roof_times_are_summed_smoothly() -> None:
    roofs = RoofTimes(np.array([1.0, 1.0]), np.array([1e-9, 1.0]))
    one, both = RooflineConstants(1e-9, 1.0, 1.0).seconds(roofs)
    assert one == pytest.approx(1.0)
    assert 1.0 < both < 2.0


def test_every_number_format_has_its_group() -> None:
    table = kernel_table("gemm_8_bit", [Gemm(8, 128, 128, "fp8")], H200)
    wide = kernel_table("gemm_16_bit", [Gemm(8, 128, 128)], H200)
    assert table.roofs.compute_seconds[0] < wide.roofs.compute_seconds[0]
    assert table.roofs.memory_seconds[0] < wide.roofs.memory_seconds[0]
