"""From what may be needed to an amount: by price, by risk, by the depth of the worst cases.

Needs are samples, one a joint path: the highest value of the path's window (``highest_within``), or
quantiles of a peak spread evenly over the levels. Sums over several series are made path by path
before, so that what rises together is added together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.decisions.decision import Decision
from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.units import require_number

_HALVINGS: Final = 100
"""Of an interval of floats: below its last digit, whatever its width."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a unit costs that is there unused, and one that is missing, in the same currency.

    With a capper behind the decision a missing watt costs the work that is slowed, times its
    priority's weight: it does not cost a breaker, which the power loop keeps by itself.
    """

    surplus: float
    shortfall: float

    def __post_init__(self) -> None:
        require_number("prices.surplus", self.surplus, minimum=0)
        require_number("prices.shortfall", self.shortfall, minimum=0)
        if self.surplus + self.shortfall == 0:
            raise InputError("prices", "one of them above 0", 0)

    @property
    def critical_level(self) -> float:
        """Quantile at which one unit more costs as much as it saves: the newsvendor's."""
        return self.shortfall / (self.surplus + self.shortfall)


@dataclass(frozen=True, slots=True)
class Tail:
    """How much the worst cases count beside the mean.

    Attributes:
        level: In [0, 1): the worst ``1 - level`` of the losses are looked at.
        weight: 0 is the mean alone, 1 the worst alone.
    """

    level: float
    weight: float

    def __post_init__(self) -> None:
        require_number("tail.level", self.level, minimum=0, maximum=1)
        if self.level == 1:
            raise InputError("tail.level", "a number below 1", self.level)
        require_number("tail.weight", self.weight, minimum=0, maximum=1)


def highest_within(paths: Floats, steps: int | None = None) -> Floats:
    """The highest of each path's first steps, shape (n,), of paths of shape (n, horizon).

    Raises:
        InputError: no path, a value that is not finite, more steps than there are.
    """
    values = np.asarray(paths, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape or not np.isfinite(values).all():
        raise InputError("paths", "finite values of shape (n, horizon)", values.shape)
    count = values.shape[1] if steps is None else steps
    if not 1 <= count <= values.shape[1]:
        raise InputError("steps", f"1 to {values.shape[1]}", steps)
    result: Floats = values[:, :count].max(axis=1)
    return result


def within_risk(needs: Floats, risk: float) -> Decision:
    """The least amount whose risk of being exceeded is at most ``risk``.

    Args:
        needs: Samples, shape (n,).
        risk: Highest probability that the need is above the amount.

    Raises:
        InputError: a risk outside 0 to 1, no sample.
    """
    ordered = _ordered(needs)
    kept = require_number("risk", risk, minimum=0, maximum=1)
    amount = _quantile(ordered, 1 - kept)
    missed = _share_above(ordered, amount)
    told = f"{amount:.6g} is exceeded on {missed:.2%} of the paths, at most {kept:.2%} are allowed"
    return Decision(amount, missed, "risk", told)


def least_priced_violations(needs: Floats, unit_price: float, violation_price: float) -> Decision:
    """The amount with the least ``unit_price * amount + violation_price * P(need > amount)``.

    For goals that count violations, whatever their depth: a minute beyond its objective is one
    minute. Where the need is uncertain it accepts more of them than where little buys safety.

    Args:
        needs: Samples, shape (n,), none negative.
        unit_price: Of one unit of the amount.
        violation_price: Of one violation.

    Raises:
        InputError: a negative price, no sample.
    """
    ordered = _ordered(needs)
    unit = require_number("unitPrice", unit_price, minimum=0)
    price = require_number("violationPrice", violation_price, minimum=0)
    # Between two samples the amount costs more and saves nothing, so only samples and 0 can win.
    amounts = np.concatenate([[min(0.0, float(ordered[0]))], ordered])
    above = 1 - np.searchsorted(ordered, amounts, side="right") / len(ordered)
    best = int(np.argmin(unit * amounts + price * above))
    amount, missed = float(amounts[best]), float(above[best])
    told = f"{amount:.6g} leaves {missed:.2%} of the paths short, which is cheaper than a unit more"
    return Decision(amount, missed, "cost", told)


def mean_and_tail(needs: Floats, prices: Prices, tail: Tail) -> Decision:
    """The amount with the least ``(1 - w) E[L] + w CVaR(L)`` of the newsvendor's loss L.

    CVaR at the tail's level is the mean of the worst of the losses (Rockafellar and Uryasev,
    "Optimization of Conditional Value-at-Risk", Journal of Risk 2000). The objective is convex in
    the amount, and a sort gives its slope, so no linear programme is needed.

    Args:
        needs: Samples, shape (n,).
        prices: Of a unit too much and of one missing.
        tail: Its level, and its weight w.

    Raises:
        InputError: no sample.
    """
    ordered = _ordered(needs)
    level, weight = tail.level, tail.weight
    low, high = float(ordered[0]), float(ordered[-1])
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        if _slope(ordered, middle, prices, level, weight) < 0:
            low = middle
        else:
            high = middle
    amount = high if _objective(ordered, high, prices, level, weight) <= _objective(
        ordered, low, prices, level, weight
    ) else low  # fmt: skip
    missed = _share_above(ordered, amount)
    told = (
        f"{amount:.6g} has the least mean loss with the worst {1 - level:.2%} counted {weight:.0%}"
    )
    return Decision(amount, missed, "tail", told)


def _objective(needs: Floats, amount: float, prices: Prices, level: float, weight: float) -> float:
    losses = _losses(needs, amount, prices)
    worst, share = _worst(losses, level)
    return float((1 - weight) * losses.mean() + weight * (losses[worst] @ share))


def _slope(needs: Floats, amount: float, prices: Prices, level: float, weight: float) -> float:
    """Of the objective to the right of ``amount``."""
    slopes = np.where(needs <= amount, prices.surplus, -prices.shortfall)
    losses = _losses(needs, amount, prices)
    worst, share = _worst(losses, level, slopes)
    return float((1 - weight) * slopes.mean() + weight * (slopes[worst] @ share))


def _losses(needs: Floats, amount: float, prices: Prices) -> Floats:
    over = amount - needs
    result: Floats = np.where(over >= 0, prices.surplus * over, -prices.shortfall * over)
    return result


def _worst(losses: Floats, level: float, ties: Floats | None = None) -> tuple[np.ndarray, Floats]:
    """Places of the worst losses, and the weight of each in their mean; of equal ones the steeper.

    The last of them may count in part: of ten samples the worst quarter is two and a half.
    """
    keys = (losses,) if ties is None else (ties, losses)
    order = np.lexsort(keys)[::-1]
    wanted = (1 - level) * len(losses)
    weights = np.clip(wanted - np.arange(len(losses)), 0.0, 1.0) / wanted
    kept = weights > 0
    return order[kept], weights[kept]


def _ordered(needs: Floats) -> Floats:
    values = np.sort(np.asarray(needs, dtype=np.float64), axis=None)
    if len(values) == 0 or not np.isfinite(values).all():
        raise InputError("needs", "at least one sample, all finite", values[-1:])
    return values


def _quantile(ordered: Floats, level: float) -> float:
    """The lowest sample that at least this share of the samples does not exceed."""
    # 1 - 0.05 is above 0.95 by a last digit, which is not to cost a sample.
    place = math.ceil(level * len(ordered) * (1 - 1e-12)) - 1
    return float(ordered[min(max(place, 0), len(ordered) - 1)])


def _share_above(ordered: Floats, amount: float) -> float:
    return 1 - float(np.searchsorted(ordered, amount, side="right")) / len(ordered)
