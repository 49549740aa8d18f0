"""Joint paths keep the forecast's marginals and the ranks of past hours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from forecasting.peak_policy.coupling import couple, quantile_function, tie_order
from wattpack.errors import InputError

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
shapes = st.tuples(st.integers(1, 4), st.integers(1, 30), st.integers(1, 6))
seeds = st.integers(0, 2**32 - 1)


def any_forecast(seed: int, n_series: int, horizon: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.sort(draw.normal(size=(n_series, horizon, len(LEVELS))), axis=2)


@given(seeds, shapes, st.one_of(st.none(), st.integers(1, 70)))
def test_each_step_keeps_its_distribution_whatever_the_errors(
    seed: int, shape: tuple[int, int, int], n: int | None
) -> None:
    n_series, n_origins, horizon = shape
    quantiles = any_forecast(seed, n_series, horizon)
    draw = np.random.default_rng(seed + 1)
    errors = draw.integers(-2, 3, size=(n_series, n_origins, horizon)).astype(float)
    errors[draw.random(errors.shape) < 0.2] = np.nan

    paths = couple(quantiles, LEVELS, errors, n)

    count = n_origins if n is None else n
    at = (np.arange(count) + 0.5) / count
    expected = quantile_function(quantiles, LEVELS, at).transpose(0, 2, 1)
    assert np.allclose(np.sort(paths, axis=1), np.sort(expected, axis=1))


@given(seeds, shapes)
def test_path_j_has_the_ranks_of_origin_j(seed: int, shape: tuple[int, int, int]) -> None:
    n_series, n_origins, horizon = shape
    quantiles = any_forecast(seed, n_series, horizon)
    errors = np.random.default_rng(seed + 1).normal(size=(n_series, n_origins, horizon)) * 1e6

    paths = couple(quantiles, LEVELS, errors)

    for s in range(n_series):
        for k in range(horizon):
            for j in range(n_origins):
                rank = sum(errors[s, i, k] < errors[s, j, k] for i in range(n_origins))
                level = np.array([(rank + 0.5) / n_origins])
                value = quantile_function(quantiles[s, k], LEVELS, level)[0]
                assert paths[s, j, k] == pytest.approx(value)


def test_a_negative_zero_is_no_smaller_error_than_zero() -> None:
    errors = np.zeros((200, 2, 1))
    errors[:, 1] = -0.0
    quantiles = np.tile(np.array(LEVELS), (200, 1, 1))
    higher = couple(quantiles, LEVELS, errors).argmax(axis=1)
    assert 60 < np.sum(higher == 0) < 140


def test_equal_errors_of_two_idle_series_do_not_move_together() -> None:
    quantiles = np.tile(np.array(LEVELS), (2, 8, 1))
    paths = couple(quantiles, LEVELS, np.zeros((2, 400, 8)))
    correlation = np.corrcoef(paths[0].mean(axis=1), paths[1].mean(axis=1))[0, 1]
    assert abs(correlation) < 0.2


def test_fewer_paths_than_origins_are_of_the_newest_ones() -> None:
    quantiles = any_forecast(1, 2, 3)
    errors = np.random.default_rng(2).normal(size=(2, 50, 3))
    assert np.array_equal(
        couple(quantiles, LEVELS, errors, 20), couple(quantiles, LEVELS, errors[:, 30:])
    )


def test_the_answer_is_the_same_bit_for_bit() -> None:
    quantiles, errors = any_forecast(3, 700, 36), np.zeros((700, 30, 36))
    assert (
        couple(quantiles, LEVELS, errors).tobytes() == couple(quantiles, LEVELS, errors).tobytes()
    )


def test_series_coupled_part_by_part_get_the_paths_of_one_call() -> None:
    quantiles, errors = any_forecast(3, 90, 36), np.zeros((90, 30, 36))
    order, parts = tie_order(), [slice(0, 1), slice(1, 40), slice(40, 90)]
    made = [couple(quantiles[one], LEVELS, errors[one], 200, order) for one in parts]
    whole = couple(quantiles, LEVELS, errors, 200)
    assert np.concatenate(made).tobytes() == whole.tobytes()


def test_the_sum_of_series_with_common_shocks_keeps_its_tail() -> None:
    """The p99 of a sum: right on joint paths, too low if independent, too high as sum of p99s."""
    draw = np.random.default_rng(5)
    n_series, n_past, n_new, shares = 20, 400, 20_000, np.array([0.5, 0.5]) ** 0.5

    def errors_of(n: int) -> np.ndarray:
        common, own = draw.normal(size=(1, n)), draw.normal(size=(n_series, n))
        return shares[0] * common + shares[1] * own

    quantiles = np.tile(norm.ppf(LEVELS), (n_series, 1, 1))
    past = errors_of(n_past)
    joint = couple(quantiles, LEVELS, past[:, :, None])[:, :, 0].sum(axis=0)
    alone = np.array([draw.permutation(row) for row in past])
    apart = couple(quantiles, LEVELS, alone[:, :, None])[:, :, 0].sum(axis=0)
    truth = np.quantile(errors_of(n_new).sum(axis=0), 0.99)

    assert np.quantile(joint, 0.99) == pytest.approx(truth, rel=0.15)
    assert np.quantile(apart, 0.99) < 0.5 * truth
    assert n_series * norm.ppf(0.99) > 1.25 * truth


def test_quantiles_between_levels_are_linear_and_tails_exponential() -> None:
    quantiles = -np.log(1 - np.array([0.5, 0.9, 0.99]))  # the exponential distribution
    at = np.array([0.7, 0.95, 0.999])
    expected = [quantiles[:2].mean(), quantiles[1] + 5 / 9 * np.diff(quantiles)[1], np.log(1000)]
    assert np.allclose(quantile_function(quantiles, (0.5, 0.9, 0.99), at), expected)
    mirrored = quantile_function(-quantiles[::-1], (0.01, 0.1, 0.5), np.array([0.001]))
    assert np.allclose(mirrored, -np.log(1000))


@pytest.mark.parametrize(
    ("field", "levels", "shape", "n"),
    [
        ("levels", (0.5, 0.1), (1, 5, 2), None),
        ("levels", (0.1, 1.0), (1, 5, 2), None),
        ("levels", (0.1, 0.5, 0.9), (1, 5, 2), None),
        ("residual_paths", (0.1, 0.9), (1, 5, 3), None),
        ("residual_paths", (0.1, 0.9), (2, 5, 2), None),
        ("residual_paths", (0.1, 0.9), (1, 0, 2), None),
        ("n", (0.1, 0.9), (1, 5, 2), 0),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    field: str, levels: tuple[float, ...], shape: tuple[int, int, int], n: int | None
) -> None:
    with pytest.raises(InputError) as refusal:
        couple(np.zeros((1, 2, 2)), levels, np.zeros(shape), n)
    assert refusal.value.field == field
