"""What a board draws while it runs a kernel: without a limit, held at one, and at most.

Draw is a share of the type's default limit. Its parts are energies: what the board takes whatever
it does, per operation and per byte (linear in the achieved rates, and in their roots, since both
saturate), and a smooth residual in the rates, the time and the fit of the kernel's tiles, which
other types share in part. A draw at the limit is censored: it says "at least so much", so large
products do not teach that nothing draws more than the limit. Above ``MOST_FIELD_ROWS`` own rows of
a group, trees learn what the smooth part leaves.

Rates are those of full clock: times come from the time model, also where the row's own is longer
because the board was held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from capacity.kernels import Elementwise, Kernel
from capacity.model import standard_normal
from capacity.model.hold_outs import FOLDS, hold_out_folds
from capacity.model.kernel_features import kernel_group, kernel_table
from capacity.model.kernel_samples import PowerSamples
from capacity.model.latent_field import (
    Bools,
    Floats,
    LatentField,
    fit_latent_field,
    likeness,
)
from capacity.model.residual_trees import ResidualTrees, grow_trees
from capacity.roofs import Roofs, require_roofs
from wattpack.errors import InputError
from wattpack.units import require_number

SecondsOf = Callable[[Sequence[Kernel]], Floats]

CENSORED_SHARE: Final = 0.97
"""Draws from this share of the limit only tell "at least"; boards that are held average 0.985."""

HELD_SHARE: Final = 0.985
"""Mean draw over limit of throttled rows (H200 kernel tables 0.986; own H200 0.988, H100 0.994)."""

MOST_HELD_SHARE: Final = 1.01
"""99.9 % of the rows at the limit in the kernel tables average at most 1.008 of it."""

NOISE: Final = 0.045
"""Of one reading, as a share of it: two boards of one type differ by 4 % in draw."""

PLANE_SPREAD: Final = 0.5
RESIDUAL_SPREAD: Final = 0.15
SHARED: Final = 0.5
"""Prior standard deviations as shares of the limit, and the correlation between types."""

MOST_FIELD_ROWS: Final = 400
MOST_OTHER_ROWS: Final = 200
TREES: Final = 200

LEAST_SHARE: Final = 0.1
"""Of the limit: an idle board with a context (own H200 114 W of 700)."""

CALIBRATION_LEVEL: Final = 3
"""Of the split by which tails are learned: independent of the benchmarks' own."""

CLASSES: Final = ("gemm", "attention_prefill", "attention_decode", "bandwidth")
RIM: Final = 1.07
"""Waves that one wave of tiles may exceed: libraries leave few multiprocessors out or split."""


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Draws on one GPU type; arrays of shape (n_kernels,) in watts.

    Attributes:
        field: Share of ``default_limit_watts`` that kernels would draw without a limit.
        trees: What the field leaves, by kernel group.
        tails: Errors of readings over their predicted spread, of rows that the fit had not seen and
            that no limit held, in rising order.
    """

    gpu: str
    roofs: Roofs
    default_limit_watts: float
    seconds_of: SecondsOf
    field: LatentField
    trees: Mapping[str, ResidualTrees]
    tails: Floats

    def uncapped_watts(self, kernels: Sequence[Kernel]) -> Floats:
        """Mean draw if no limit held the board: may lie above any limit."""
        rows = _features(kernels, self.seconds_of(kernels), self.roofs, 0)
        share = self.field.mean(rows)
        for group, mine in _by_group(kernels).items():
            if group in self.trees:
                table = kernel_table(group, [kernels[i] for i in mine], self.roofs)
                share[mine] += self.trees[group].predict(table.shape)
        return np.asarray(np.maximum(share, LEAST_SHARE) * self.default_limit_watts)

    def draw_watts(self, kernels: Sequence[Kernel], limit_watts: float) -> Floats:
        """Expected draw under a limit: a board that is held averages a little less than the limit.

        The mean of what may be held and may not, given how uncertain the uncapped draw is.
        """
        require_number("limit_watts", limit_watts, exclusive_minimum=0)
        middle, spread = self.uncapped_watts(kernels), self._spread_watts(kernels)
        room = (HELD_SHARE * limit_watts - middle) / spread
        return np.asarray(
            middle + spread * (room * standard_normal.above(room) - standard_normal.density(room))
        )

    def draw_below_watts(self, kernels: Sequence[Kernel], limit_watts: float) -> Floats:
        """Expected draw of kernels of which it is known that they stay below ``limit_watts``."""
        require_number("limit_watts", limit_watts, exclusive_minimum=0)
        middle, spread = self.uncapped_watts(kernels), self._spread_watts(kernels)
        room = (limit_watts - middle) / spread
        return np.asarray(middle - spread * standard_normal.hazard_below(room))

    def bound_watts(
        self, kernels: Sequence[Kernel], limit_watts: float, probability: float = 0.99
    ) -> Floats:
        """What the mean draw exceeds with at most 1 - probability, up to a board held at its limit.

        A board regulates its mean, not each second: shorter peaks are the regulator's to say.
        """
        require_number("limit_watts", limit_watts, exclusive_minimum=0)
        # Split-conformal rank; with too few rows for the probability, the worst of them. Fitted
        # spreads are never trusted to be wider than a normal distribution's.
        rank = int(np.ceil(probability * (len(self.tails) + 1))) - 1
        seen = float(self.tails[min(rank, len(self.tails) - 1)]) if len(self.tails) else 0.0
        reach = max(seen, standard_normal.quantile(probability)) * self._spread_watts(kernels)
        most = MOST_HELD_SHARE * limit_watts
        return np.asarray(np.minimum(self.uncapped_watts(kernels) + reach, most))

    def errors(self, samples: PowerSamples) -> Floats:
        """Measured above predicted draw, over the predicted spread of a reading."""
        expected = self.uncapped_watts(samples.kernels)
        return np.asarray((samples.draw_watts - expected) / self._spread_watts(samples.kernels))

    def _spread_watts(self, kernels: Sequence[Kernel]) -> Floats:
        """Of a reading around the prediction."""
        rows = _features(kernels, self.seconds_of(kernels), self.roofs, 0)
        treed = np.array([kernel_group(kernel) in self.trees for kernel in kernels])
        unknown = np.where(treed, 0.0, self.field.spread(rows)) * self.default_limit_watts
        return np.asarray(np.hypot(unknown, NOISE * self.uncapped_watts(kernels)))


def fit_power_model(
    own: PowerSamples, seconds_of: SecondsOf, others: Sequence[PowerSamples] = ()
) -> PowerModel:
    """The model of one GPU type.

    Args:
        own: Its rows, under its default limit.
        seconds_of: Times at full clock, for example ``TimeModel.seconds``.
        others: Other types' rows, for the residual that types share.

    Raises:
        InputError: no own row.
    """
    if not len(own):
        raise InputError("own", "at least one row with power", 0)
    return replace(_fitted(own, seconds_of, others), tails=_tails(own, seconds_of, others))


def _fitted(own: PowerSamples, seconds_of: SecondsOf, others: Sequence[PowerSamples]) -> PowerModel:
    """The model without its tails."""
    roofs = require_roofs(own.gpu)
    limit = float(own.limit_watts.max())
    seconds = seconds_of(own.kernels)
    few = _evenly(len(own), MOST_FIELD_ROWS)
    rows, shares, bounds = _observations(own.take(few), seconds[few], roofs, 0, limit)
    for kind, table in enumerate(others, start=1):
        some = table.take(_evenly(len(table), MOST_OTHER_ROWS))
        more = _observations(
            some, some.seconds, require_roofs(some.gpu), kind, float(some.limit_watts.max())
        )
        rows, shares = np.concatenate([rows, more[0]]), np.concatenate([shares, more[1]])
        bounds = np.concatenate([bounds, more[2]])
    field = fit_latent_field(_covariance, rows, shares, NOISE * shares, bounds)
    trees = _trees(own, seconds, roofs, limit, field)
    return PowerModel(own.gpu, roofs, limit, seconds_of, field, trees, np.zeros(0))


def _tails(own: PowerSamples, seconds_of: SecondsOf, others: Sequence[PowerSamples]) -> Floats:
    """Errors over spreads of folds that a fit had not seen; one fold where rows are many."""
    folds = hold_out_folds(own.kernels, CALIBRATION_LEVEL)
    found = [np.zeros(0)]
    for fold in range(1 if len(own) > MOST_FIELD_ROWS else FOLDS):
        free = own.draw_watts < CENSORED_SHARE * own.limit_watts
        unseen, rest = np.flatnonzero((folds == fold) & free), np.flatnonzero(folds != fold)
        if len(unseen) and len(rest):
            model, part = _fitted(own.take(rest), seconds_of, others), own.take(unseen)
            found.append(model.errors(part))
    return np.sort(np.concatenate(found))


def _trees(
    own: PowerSamples, seconds: Floats, roofs: Roofs, limit: float, field: LatentField
) -> dict[str, ResidualTrees]:
    """Forests of the groups with many rows; a censored row asks for no more than its bound."""
    grown = {}
    for group, mine in _by_group(own.kernels).items():
        if len(mine) <= MOST_FIELD_ROWS:
            continue
        part = own.take(mine)
        rows, shares, bounds = _observations(part, seconds[mine], roofs, 0, limit)
        smooth = field.mean(rows)
        left = np.where(bounds, np.maximum(shares - smooth, 0.0), shares - smooth)
        table = kernel_table(group, part.kernels, roofs)
        grown[group] = grow_trees(table.shape, left, TREES, smallest_leaf=1)
    return grown


def _observations(
    samples: PowerSamples, seconds: Floats, roofs: Roofs, kind: int, limit: float
) -> tuple[Floats, Floats, Bools]:
    """Features, shares of the limit, and whether each share is only a bound."""
    bounds = samples.draw_watts >= CENSORED_SHARE * samples.limit_watts
    return _features(samples.kernels, seconds, roofs, kind), samples.draw_watts / limit, bounds


PLANE: Final = 5
"""Columns of ``_features`` that draw is linear in; then come the residual's, then the type."""


def _features(kernels: Sequence[Kernel], seconds: Floats, roofs: Roofs, kind: int) -> Floats:
    """Rates as shares of the roofs and what else moves a draw, shape (n_kernels, 16)."""
    flops = np.array([kernel.flops for kernel in kernels]) / seconds
    moved = np.array([kernel.bytes_moved for kernel in kernels]) / seconds
    formats = [getattr(kernel, "number_format", "bf16") for kernel in kernels]
    peaks = np.array([roofs.flops_per_second(name) or np.inf for name in formats])
    compute, memory = flops / peaks, moved / roofs.bytes_per_second
    m, n = (np.array([getattr(k, name, 0) for k in kernels], dtype=np.float64) for name in "mn")
    waves = np.ceil(m / 128) * np.ceil(n / 256) / roofs.multiprocessors
    # A product of one wave has nothing to hide its first loads and last stores behind; one whose
    # rows are no multiple of a tile runs other kernels, which draw more.
    single = np.where(m > 0, 1 / np.maximum(np.ceil(waves / RIM), 1.0), 0.0)
    odd = ((m > 32) & (m % 64 > 0)).astype(np.float64)
    classes = np.array([[float(_power_class(k) == name) for name in CLASSES] for k in kernels])
    narrow = np.array([float(name == "fp8") for name in formats])
    plane = [np.ones(len(kernels)), compute, memory, np.sqrt(compute), np.sqrt(memory)]
    logs = [0.5 * np.log(compute + 0.003), 0.5 * np.log(memory + 0.02), 0.5 * np.log(seconds)]
    return np.column_stack(
        [*plane, *logs, single, 0.4 * odd, classes, narrow, np.full(len(kernels), kind)]
    )


def _power_class(kernel: Kernel) -> str:
    """Element-wise work draws what a stream of its rate draws."""
    return "bandwidth" if isinstance(kernel, Elementwise) else kernel.kernel_class


def _covariance(left: Floats, right: Floats) -> Floats:
    """Prior covariance of shares between rows of ``_features``."""
    same = np.where(left[:, None, -1] == right[None, :, -1], 1.0, SHARED)
    planes = left[:, :PLANE] @ right[:, :PLANE].T * PLANE_SPREAD**2
    smooth = likeness(left[:, PLANE:-1], right[:, PLANE:-1], 1.0) * RESIDUAL_SPREAD**2
    return np.asarray(same * (planes + smooth))


def _by_group(kernels: Sequence[Kernel]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for index, kernel in enumerate(kernels):
        rows.setdefault(kernel_group(kernel), []).append(index)
    return rows


def _evenly(rows: int, most: int) -> list[int]:
    """At most so many indices, spread over all."""
    return sorted(set(np.linspace(0, rows - 1, min(rows, most)).round().astype(int).tolist()))
