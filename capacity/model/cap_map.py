"""What a power cap leaves of a job's speed and draw, on any GPU type, with few own points.

Speed follows a law with four parameters a type, shrunk to the mean over types so that one without
a sweep gets that mean, and a smooth residual in (cap / uncapped draw, uncapped draw / limit) that
types share in part::

    s      = (cap - floor) / (active - floor)
    speed  = 1 where cap >= active, else the smooth minimum of  s ** exponent  and  gain * s

A job's active phase draws more than its mean, so a cap just above the mean binds a little (jobs at
1.0 to 1.3 times their mean ran at 0.98). The power law is what voltage scaling leaves above the
lowest voltage, the line what is left below it, where only the clock can fall (on an A40 from three
quarters of the uncapped draw). The class of a kernel enters through its uncapped draw alone:
decode draws little, so few caps bind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.optimize import least_squares

from capacity.fitting.curves import SweepPoint
from capacity.model.latent_field import Floats, LatentField, fit_latent_field, likeness
from wattpack.errors import InputError
from wattpack.units import require_number

PRIOR: Final = np.array([0.3, -1.2, 0.0, 0.5, 0.1])
"""Floor over limit; log exponent, and its slope in the draw's share of the limit; log gain; share
of the head-room to the limit by which the active phase of a job draws more than its mean."""

PRIOR_SPREAD: Final = np.array([0.1, 0.5, 1.0, 0.5, 0.2])
TYPE_SPREAD: Final = np.array([0.1, 0.5, 1.0, 1.0, 0.02])
"""How far the mean over types may lie from the prior, and a type from the mean; the head-room is of
jobs, not of boards, so types share it."""

SPEED_NOISE: Final = 0.04
"""Of one job's speed around any smooth law: repeats of uncapped jobs differ by 2-3 %."""

LOW_CAP_WEIGHT: Final = 0.3
"""Of caps below half of the limit, below which nothing is operated (energy per work rises)."""

HELD: Final = 1.03
"""Draw over cap above which a board does not hold its cap (A40 at 100 W: up to 1.21)."""

CORNER: Final = 6.0
"""Sharpness of the smooth minimum."""

RESIDUAL_LIMIT: Final = 0.12
CORRECTION_SPREAD: Final = 0.5
OWN_POINT_NOISE: Final = 0.025

BATCH_SLOPE_SPREAD: Final = 0.5
"""Prior spread of what a doubled batch adds to the exponent (found: 0.15 to 0.17)."""

JOB_EXPONENT_SPREAD: Final = 0.15
"""Of a job's exponent around the line in its batch, beside the noise of its speeds."""

LEAST_TOLD: Final = 1e-4
"""Sum of squared log speeds below which a job's caps tell nothing about its exponent."""

NO_LINE: Final = 4.0
"""Log gain of a type without a sweep: where its lowest voltage lies nobody has shown, so it keeps
the power law down to its floor."""

LOWEST_CAP_SHARE: Final = 0.95
"""Highest floor over the lowest cap of the sweeps."""


@dataclass(frozen=True, slots=True)
class ResidualPrior:
    """How far and how smoothly speed and draw may leave their laws.

    Attributes:
        cap_scale: Length in cap over uncapped draw; ``draw_scale`` in uncapped draw over limit.
        shared: Correlation of two types' residuals.
        fade: Distance to cap = uncapped draw within which the residual of speed goes to 0.
    """

    spread: float = 0.03
    cap_scale: float = 0.1
    draw_scale: float = 0.1
    shared: float = 0.5
    noise: float = 0.05
    fade: float = 0.1

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Rows are (cap / uncapped, uncapped / limit, number of the type)."""
        scales = np.array([self.cap_scale, self.draw_scale])
        same = left[:, None, 2] == right[None, :, 2]
        likely = likeness(left[:, :2], right[:, :2], scales)
        return np.asarray(self.spread**2 * likely * np.where(same, 1.0, self.shared))

    def speed(self, left: Floats, right: Floats) -> Floats:
        """The residual of speed: none where the cap stops to bind."""
        a, b = (np.clip((1 - rows[:, 0]) / self.fade, 0, 1) for rows in (left, right))
        return np.asarray(a[:, None] * b[None, :] * self.covariance(left, right))

    def draw(self, left: Floats, right: Floats) -> Floats:
        """The residual of draw over a plane in log cap and draw share that types share mostly."""
        same = left[:, None, 2] == right[None, :, 2]
        planes = _plane(left) @ _plane(right).T * np.where(same, 1.0, 0.8) * 0.25
        return np.asarray(planes + self.covariance(left, right))


@dataclass(frozen=True, slots=True)
class CapMap:
    """Speed and draw under a cap; every array of shape (n,) or a number.

    Attributes:
        laws: Parameters by type, as ``PRIOR``.
        mean_law: Of a type that no sweep covers: the mean over types, without the line.
        batch_slope: What a doubled batch adds to the exponent of a network's jobs, on any type:
            larger batches wait less on the host and on memory, so a cap costs them more.
    """

    laws: dict[str, Floats]
    mean_law: Floats
    speed_field: LatentField
    draw_field: LatentField
    batch_slope: float

    def throughput(
        self,
        gpu: str,
        cap_watts: Floats | float,
        uncapped_watts: Floats | float,
        limit_watts: Floats | float,
        exponent: float = 1.0,
    ) -> Floats:
        """Speed relative to no cap, in (0, 1].

        Args:
            gpu: Type as the sweeps name it; another name gets the mean over types.
            uncapped_watts: What the job draws at the type's default limit.
            limit_watts: That limit.
            exponent: Of the whole answer, from ``exponent_of_own_points``.

        Raises:
            InputError: naming the watts that are not finite and above 0.
        """
        cap, uncapped, limit = _watts(cap_watts, uncapped_watts, limit_watts)
        law = law_speed(self.laws.get(gpu, self.mean_law), cap, uncapped, limit)
        residual = self.speed_field.mean(self._rows(gpu, cap, uncapped, limit))
        return np.asarray(np.minimum(1.0, law * np.exp(residual)) ** exponent)

    def draw_watts(
        self,
        gpu: str,
        cap_watts: Floats | float,
        uncapped_watts: Floats | float,
        limit_watts: Floats | float,
    ) -> Floats:
        """Mean draw under the cap: less than the cap for work that pauses, such as data loading."""
        cap, uncapped, limit = _watts(cap_watts, uncapped_watts, limit_watts)
        share = np.exp(self.draw_field.mean(self._rows(gpu, cap, uncapped, limit)))
        return np.asarray(uncapped * np.where(cap >= uncapped, 1.0, np.minimum(1.0, share)))

    def exponent_of_own_points(
        self, gpu: str, points: Sequence[SweepPoint], batch_ratio: float | None = None
    ) -> float:
        """The power of the map's answer that own points of one job ask for, shrunk towards 1.

        Args:
            batch_ratio: For another job of the same network: its batch size over that of the
                points' job. None for that job itself.

        Raises:
            InputError: a ratio that is not finite and above 0.
        """
        moved, apart = 0.0, 0.0
        if batch_ratio is not None:
            ratio = require_number("batch_ratio", batch_ratio, exclusive_minimum=0)
            moved, apart = self.batch_slope * float(np.log2(ratio)), JOB_EXPONENT_SPREAD
        binding = [point for point in points if point.x < 1]
        if not binding:
            return 1.0
        columns = np.array([(p.limit_watts, p.uncapped_watts, p.max_limit_watts) for p in binding])
        expected = np.log(self.throughput(gpu, *columns.T))
        measured = np.log([point.throughput for point in binding])
        information = float(expected @ expected) * (CORRECTION_SPREAD**2 + apart**2)
        surprise = float(expected @ (measured - expected)) * CORRECTION_SPREAD**2
        return max(0.0, 1 + surprise / (information + OWN_POINT_NOISE**2) + moved)

    def _rows(self, gpu: str, cap: Floats, uncapped: Floats, limit: Floats) -> Floats:
        kind = list(self.laws).index(gpu) if gpu in self.laws else -1
        return np.column_stack([cap / uncapped, uncapped / limit, np.full(len(cap), kind)])


def _watts(
    cap_watts: Floats | float, uncapped_watts: Floats | float, limit_watts: Floats | float
) -> tuple[Floats, Floats, Floats]:
    """The three as arrays of one shape."""
    named = {
        "cap_watts": cap_watts,
        "uncapped_watts": uncapped_watts,
        "limit_watts": limit_watts,
    }
    for name, values in named.items():
        if not np.all(np.isfinite(values) & (np.asarray(values) > 0)):
            raise InputError(name, "finite numbers above 0", values)
    cap, uncapped, limit = np.broadcast_arrays(*np.atleast_1d(*named.values()))
    return cap, uncapped, limit


def law_speed(law: Floats, cap: Floats, uncapped: Floats, limit: Floats) -> Floats:
    """The law alone: see the head of this module; above 1 never."""
    lowest_cap = 0.38 * limit
    floor = np.minimum(law[0] * limit, LOWEST_CAP_SHARE * lowest_cap)
    exponent = np.exp(law[1] + law[2] * (uncapped / limit - 0.75))
    gain = np.exp(law[3])
    active = uncapped + np.clip(law[4], 0.0, 1.0) * (limit - uncapped)
    s = np.clip((cap - floor) / np.maximum(active - floor, 1.0), 0.01, 1.0)
    blunt = (gain**-CORNER + 1.0) ** (1 / CORNER)
    bound = ((gain * s) ** -CORNER + s ** (-CORNER * exponent)) ** (-1 / CORNER) * blunt
    # Exactly 1 where nothing binds: the two factors' product may be the next smaller number.
    return np.asarray(np.where(s >= 1.0, 1.0, bound))


def fit_cap_map(points: Sequence[SweepPoint], residual: ResidualPrior | None = None) -> CapMap:
    """The map from power-limit sweeps; only points whose cap binds count.

    Raises:
        InputError: if no point binds.
    """
    binding = [point for point in points if point.x < 1]
    if not binding:
        raise InputError("points", "at least one whose cap is below its uncapped draw", len(points))
    prior = residual or ResidualPrior()
    types = sorted({point.gpu for point in binding})
    numbers = np.array([types.index(point.gpu) for point in binding])
    columns = np.array([(p.limit_watts, p.uncapped_watts, p.max_limit_watts) for p in binding]).T
    speed = np.log([point.throughput for point in binding])
    draw = np.log([point.draw for point in binding])
    mean_law, laws = _fit_laws(numbers, len(types), columns, speed, draw)
    mean_law[3] = NO_LINE
    expected = np.log([law_speed(laws[t], *columns[:, [i]])[0] for i, t in enumerate(numbers)])
    left = np.clip(speed - expected, -RESIDUAL_LIMIT, RESIDUAL_LIMIT)
    rows = np.column_stack([columns[0] / columns[1], columns[1] / columns[2], numbers])
    cap_map = CapMap(
        dict(zip(types, laws, strict=True)),
        mean_law,
        fit_latent_field(prior.speed, rows, left, prior.noise),
        fit_latent_field(prior.draw, rows, draw, SPEED_NOISE),
        0.0,
    )
    return replace(cap_map, batch_slope=_batch_slope(cap_map, binding))


def _batch_slope(cap_map: CapMap, points: Sequence[SweepPoint]) -> float:
    """What a doubled batch adds to a job's exponent, between jobs of one network on one type."""
    networks: dict[tuple[str, str], dict[tuple[float, float], list[SweepPoint]]] = {}
    for point in points:
        if point.limit_watts >= 0.5 * point.max_limit_watts:
            jobs = networks.setdefault((point.gpu, point.job), {})
            jobs.setdefault((point.batch_size, point.uncapped_watts), []).append(point)
    agreed, known = 0.0, BATCH_SLOPE_SPREAD**-2
    for (gpu, _), jobs in networks.items():
        rows = []
        for (batch, uncapped), mine in jobs.items():
            cap = np.array([point.limit_watts for point in mine])
            expected = np.log(cap_map.throughput(gpu, cap, uncapped, mine[0].max_limit_watts))
            measured = np.log([point.throughput for point in mine])
            told = float(expected @ expected)
            if told > LEAST_TOLD:
                noise = JOB_EXPONENT_SPREAD**2 + OWN_POINT_NOISE**2 / told
                rows.append((np.log2(batch), float(expected @ measured) / told, 1 / noise))
        if rows:
            batches, exponents, weights = np.array(rows).T
            apart = batches - np.average(batches, weights=weights)
            agreed += float(weights @ (apart * exponents))
            known += float(weights @ apart**2)
    return agreed / known


def _fit_laws(
    numbers: Floats, types: int, columns: Floats, speed: Floats, draw: Floats
) -> tuple[Floats, Floats]:
    """The mean law and each type's, the most likely under the hierarchical prior."""
    cap, uncapped, limit = columns
    held = np.exp(draw) * uncapped < HELD * cap
    weight = np.where(cap < 0.5 * limit, LOW_CAP_WEIGHT, 1.0)[held] / SPEED_NOISE
    size = len(PRIOR)

    def misfit(flat: Floats) -> Floats:
        mean, laws = flat[:size], flat[size:].reshape(types, size)
        parts = [(mean - PRIOR) / PRIOR_SPREAD, ((laws - mean) / TYPE_SPREAD).ravel()]
        for kind in range(types):
            mine = held & (numbers == kind)
            expected = law_speed(laws[kind], cap[mine], uncapped[mine], limit[mine])
            parts.append((np.log(expected) - speed[mine]) * weight[mine[held]])
        # Outliers (one slow uncapped run makes a whole job look fast) count linearly.
        miss = np.concatenate(parts[2:])
        robust = np.sign(miss) * np.sqrt(2 * (np.sqrt(1 + miss**2) - 1))
        return np.concatenate([*parts[:2], robust])

    found = np.asarray(least_squares(misfit, np.tile(PRIOR, types + 1)).x)
    return found[:size], found[size:].reshape(types, size)


def _plane(rows: Floats) -> Floats:
    cap, draw = np.log(np.minimum(rows[:, 0], 1.0)), rows[:, 1] - 0.75
    return np.column_stack([np.ones(len(rows)), draw, cap, draw * cap])
