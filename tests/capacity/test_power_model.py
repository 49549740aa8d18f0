"""A board whose energies are planted: what it would draw is found, also where its limit hid it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from capacity.kernels import Gemm, Kernel
from capacity.model.kernel_samples import Floats, PowerSamples
from capacity.model.power_model import HELD_SHARE, fit_power_model
from capacity.roofs import require_roofs
from wattpack.errors import InputError

LIMIT = 700.0
H200 = require_roofs("H200-SXM")


def _products(count: int, seed: int) -> tuple[Gemm, ...]:
    draw = np.random.default_rng(seed)
    sizes = np.exp(draw.uniform(np.log([1, 512, 512]), np.log([8192, 16384, 16384]), (count, 3)))
    return tuple(Gemm(*(64 * max(1, round(size / 64)) for size in row)) for row in sizes)


def _seconds(kernels: Sequence[Kernel]) -> Floats:
    """A roofline without surprises."""
    compute = np.array([k.flops for k in kernels]) / (0.7 * H200.flops_per_second("bf16"))
    memory = np.array([k.bytes_moved for k in kernels]) / (0.85 * H200.bytes_per_second)
    return np.asarray(np.maximum(compute, memory) + 4e-6)


def _planted_watts(kernels: Sequence[Kernel]) -> Floats:
    """120 W, 0.9 pJ an operation and 80 pJ a byte: large products want 900 W of 700."""
    seconds = _seconds(kernels)
    flops = np.array([k.flops for k in kernels])
    moved = np.array([k.bytes_moved for k in kernels])
    return np.asarray(120 + (0.9e-12 * flops + 8e-11 * moved) / seconds)


def _measured(kernels: tuple[Gemm, ...], noise: float = 0.0, seed: int = 0) -> PowerSamples:
    spread = np.random.default_rng(seed).normal(1, noise, len(kernels))
    watts = np.minimum(_planted_watts(kernels) * spread, HELD_SHARE * LIMIT)
    return PowerSamples("H200-SXM", kernels, _seconds(kernels), watts, np.full(len(kernels), LIMIT))


def _error(predicted: Floats, kernels: Sequence[Kernel]) -> float:
    return float(np.abs(predicted / _planted_watts(kernels) - 1).mean())


def test_sixty_rows_tell_draws_below_the_limit_within_two_percent() -> None:
    unseen = [k for k in _products(200, 2) if _planted_watts([k])[0] < 0.95 * LIMIT]
    model = fit_power_model(_measured(_products(60, 1)), _seconds)
    assert len(unseen) > 50
    assert _error(model.draw_watts(unseen, LIMIT), unseen) < 0.02


def test_what_the_limit_hid_is_above_it_and_near_the_truth() -> None:
    hidden = [k for k in _products(200, 2) if _planted_watts([k])[0] > 1.05 * LIMIT]
    model = fit_power_model(_measured(_products(60, 1)), _seconds)
    uncapped = model.uncapped_watts(hidden)
    assert np.mean(uncapped > LIMIT) > 0.95
    assert _error(uncapped, hidden) < 0.15
    assert np.all(model.draw_watts(hidden, LIMIT) <= LIMIT)


def test_a_lower_limit_holds_more_and_none_draws_above_it() -> None:
    model = fit_power_model(_measured(_products(60, 1)), _seconds)
    kernels = _products(50, 3)
    low, high = model.draw_watts(kernels, 400.0), model.draw_watts(kernels, LIMIT)
    assert np.all(low <= high)
    assert np.all(low <= 400.0)


def test_bounds_hold_and_stay_below_the_limit() -> None:
    model = fit_power_model(_measured(_products(60, 1), noise=0.03), _seconds)
    unseen = _products(1000, 4)
    bound = model.bound_watts(unseen, LIMIT)
    measured = _measured(unseen, noise=0.03, seed=5).draw_watts
    assert np.mean(measured > bound) < 0.01
    assert np.mean(bound / measured - 1) < 0.12
    assert np.all(bound <= 1.01 * LIMIT)
    assert np.all(bound >= model.draw_watts(unseen, LIMIT))


def test_who_is_known_to_stay_below_is_expected_lower() -> None:
    model = fit_power_model(_measured(_products(60, 1)), _seconds)
    kernels = _products(50, 3)
    told = model.draw_below_watts(kernels, 665.0)
    assert np.all(told < 665.0)
    assert np.all(told <= model.uncapped_watts(kernels))


def test_another_type_teaches_what_own_rows_do_not_show() -> None:
    """Own rows are few; the other type has the same energies in shares of its own limit."""
    many = _measured(_products(150, 6))
    own, unseen = _measured(_products(6, 1)), _products(100, 2)
    alone = _error(fit_power_model(own, _seconds).uncapped_watts(unseen), unseen)
    taught = _error(fit_power_model(own, _seconds, [many]).uncapped_watts(unseen), unseen)
    assert taught < 0.8 * alone


def test_many_rows_grow_trees_that_catch_what_is_not_smooth() -> None:
    """Layers of one width draw a fifth less: no line in rates knows that."""
    kernels = _products(600, 7)
    table = _measured(kernels)
    odd = np.array([k.n % 256 == 0 for k in kernels])
    jagged = PowerSamples(
        table.gpu, kernels, table.seconds, table.draw_watts * np.where(odd, 0.8, 1.0),
        table.limit_watts,
    )  # fmt: skip
    model = fit_power_model(jagged, _seconds)
    unseen = _products(100, 8)
    truth = np.minimum(_planted_watts(unseen), HELD_SHARE * LIMIT)
    truth *= np.where([k.n % 256 == 0 for k in unseen], 0.8, 1.0)
    smooth = fit_power_model(jagged.take(list(range(0, 600, 2))), _seconds)
    error, plain = (
        float(np.abs(m.draw_watts(unseen, LIMIT) / truth - 1).mean()) for m in (model, smooth)
    )
    assert set(model.trees) == {"gemm_16_bit"}
    assert error < 0.8 * plain


@pytest.mark.parametrize("limit_watts", [float("nan"), 0.0, -700.0])
def test_a_limit_that_is_none_is_refused(limit_watts: float) -> None:
    model, kernels = fit_power_model(_measured(_products(20, 1)), _seconds), _products(2, 2)
    for ask in (model.draw_watts, model.draw_below_watts, model.bound_watts):
        with pytest.raises(InputError, match="limit_watts"):
            ask(kernels, limit_watts)


def test_no_rows_are_refused() -> None:
    with pytest.raises(InputError, match="own"):
        fit_power_model(_measured(_products(3, 1)).take([]), _seconds)
