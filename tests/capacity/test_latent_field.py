"""The likelihood against an oracle that maximises it by brute force, and against what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from capacity.model.latent_field import Floats, fit_latent_field, likeness
from wattpack.errors import InputError


def _covariance(left: Floats, right: Floats) -> Floats:
    return 1.0 + 0.5 * likeness(left, right, 0.7)


def _oracle(rows: Floats, values: Floats, noise: float, bound: list[bool]) -> Floats:
    """The posterior's mode, density by density from the definition, found without derivatives."""
    prior = np.array([[1 + 0.5 * math.exp(-((a - b) ** 2) / (2 * 0.49)) for b in rows[:, 0]]
                      for a in rows[:, 0]])  # fmt: skip
    precision = np.linalg.inv(prior)

    def unlikelihood(f: Floats) -> float:
        total = 0.5 * float(f @ precision @ f)
        for value, truth, censored in zip(values, f, bound, strict=True):
            z = (value - truth) / noise
            above = 0.5 * math.erfc(z / math.sqrt(2))
            total -= math.log(max(above, 1e-300)) if censored else -0.5 * z * z
        return total

    start = minimize(unlikelihood, values, method="Nelder-Mead", options={"maxiter": 20_000})
    return np.asarray(minimize(unlikelihood, start.x, options={"gtol": 1e-9}).x)


@pytest.mark.parametrize("bound", [[False] * 5, [False, True, False, True, True], [True] * 5])
def test_the_mode_is_where_brute_force_finds_it(bound: list[bool]) -> None:
    rows = np.array([[0.0], [0.4], [1.0], [1.3], [2.0]])
    values = np.array([0.2, 0.9, 0.6, 0.9, 0.9])
    field = fit_latent_field(_covariance, rows, values, 0.1, np.array(bound))
    assert field.mean(rows) == pytest.approx(_oracle(rows, values, 0.1, bound), abs=1e-3)


def test_without_censoring_it_is_plain_regression() -> None:
    rows, values = np.array([[0.0], [1.0], [3.0]]), np.array([1.0, -1.0, 2.0])
    at = np.array([[0.5], [2.0]])
    precision = np.linalg.inv(_covariance(rows, rows) + 0.04 * np.eye(3))
    cross = _covariance(at, rows)
    field = fit_latent_field(_covariance, rows, values, 0.2)
    assert field.mean(at) == pytest.approx(cross @ precision @ values)
    assert field.spread(at) ** 2 == pytest.approx(
        np.diag(_covariance(at, at) - cross @ precision @ cross.T)
    )


def test_values_held_at_a_limit_do_not_bend_the_line_behind_it() -> None:
    """Of y = x seen only up to 1, the censored fit follows the line; plain regression does not."""

    def line(left: Floats, right: Floats) -> Floats:
        return np.asarray(1 + left @ right.T)

    rows = np.linspace(0, 2, 21)[:, None]
    seen = np.minimum(rows[:, 0], 1.0)
    end = np.array([[2.0]])
    censored = fit_latent_field(line, rows, seen, 0.02, rows[:, 0] > 1.0)
    plain = fit_latent_field(line, rows, seen, 0.02)
    assert censored.mean(end)[0] == pytest.approx(2.0, abs=0.05)
    assert plain.mean(end)[0] < 1.4


def test_what_only_bounds_tell_is_less_certain() -> None:
    rows, values = np.array([[0.0], [0.2]]), np.array([1.0, 1.0])
    known = fit_latent_field(_covariance, rows, values, 0.05)
    bounded = fit_latent_field(_covariance, rows, values, 0.05, np.array([True, True]))
    assert np.all(bounded.spread(rows) > 2 * known.spread(rows))


@pytest.mark.parametrize("values", [np.array([]), np.array([np.nan])])
def test_nothing_to_learn_from_is_refused(values: Floats) -> None:
    with pytest.raises(InputError, match="values"):
        fit_latent_field(_covariance, values[:, None], values, 0.1)
