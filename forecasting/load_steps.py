"""Steps of domains whose load tells their draw: load forecast, through the model, and a residual.

    load watts of each service ─┐
    draw - factor · load ───────┴─► ridge ─► joint paths ─► draw, cut at the ceiling ─► steps

Others keep the direct forecast of their draw, which is made in any case: its losses go on being
counted, and load that stops telling loses its say at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.clean_history import clean
from forecasting.engine_question import Shape
from forecasting.past_changes import past_changes
from forecasting.peak_policy.coupling import PATHS, couple, step_quantiles
from forecasting.power_forecast.draw_aside import DrawAside, rows_of
from forecasting.power_forecast.load_power import LoadFit, power_paths, residual_watts
from forecasting.power_forecast.present_residual import on_present_residual
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.records import Records
from wattpack.errors import WattpackError

log = logging.getLogger(__name__)

BY_LOAD: Final = "by-load"
"""Flag of a domain whose steps are its load's, through the capacity model."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A domain whose load is believed."""

    row: int
    aside: DrawAside
    fit: LoadFit
    residual: Floats
    lift: float


class LoadSteps:
    """Remembers whose load it believed, so that noise does not switch.

    Args:
        shape: What is asked.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._model = Ridge(Records(), shape.horizon)
        self._believed: frozenset[SeriesId] = frozenset()

    def told(
        self, history: History, asides: Mapping[SeriesId, DrawAside], ceilings: Floats,
        steps: Floats,
    ) -> tuple[Floats, NDArray[np.bool_]]:  # fmt: skip
        """The steps, those of domains whose load tells their draw by their load.

        Args:
            history: What was wanted, as if the work that is there now had always been there
                (``demand_history``); NaN for gaps.
            asides: What is known beside the draws.
            ceilings: What each series cannot exceed, NaN for nothing.
            steps: Direct quantiles over ``shape.grid``, (n_series, horizon, n_levels).

        Returns:
            The steps, and which rows the load tells, (n_series,).
        """
        by_load = np.zeros(len(steps), dtype=np.bool_)
        told = self._trusted(history, asides)
        if not told:
            return steps, by_load
        made = steps.copy()
        try:
            joint = self._paths(history, told)
        except (WattpackError, ArithmeticError, ValueError) as error:
            # As a tier that fails: the direct steps stand, and the next round begins anew.
            log.warning("no load tells its steps this round: %s", error)
            self._model = Ridge(Records(), self._shape.horizon)
            return steps, by_load
        for one, paths in zip(told, joint, strict=True):
            if not np.isfinite(paths).all():
                continue
            ceiling = float(np.nan_to_num(ceilings[one.row], nan=np.inf))
            drawn = power_paths(paths[:-1], paths[-1] - one.lift, one.fit, ceiling)
            # Beyond the highest path a quantile goes on; what caps enforce it cannot pass.
            quantiles = step_quantiles(drawn[None], self._shape.grid)[0]
            made[one.row] = np.minimum(quantiles, ceiling)
            by_load[one.row] = True
        return made, by_load

    def _trusted(self, history: History, asides: Mapping[SeriesId, DrawAside]) -> list[_Told]:
        found, believed = [], set()
        for row, aside in rows_of(history.series, asides):
            name, draw = history.series[row], np.asarray(history.values[row], dtype=np.float64)
            draw, fit = on_present_residual(aside, draw, history.step_seconds)
            if not fit.is_trusted(was_trusted=name in self._believed):
                continue
            believed.add(name)
            rest = residual_watts(draw, aside.load_watts.sum(axis=0), fit)
            # Models know no negative series: the residual is lifted for them.
            lift = max(0.0, -float(np.nanmin(rest)))
            found.append(_Told(row, aside, fit, rest + lift, lift))
        self._believed = frozenset(believed)
        return found

    def _paths(self, history: History, told: list[_Told]) -> list[Floats]:
        """Joint paths of each domain's services and its residual, (n_services + 1, n, horizon)."""
        shape = self._shape
        rows = np.concatenate([np.vstack([one.aside.load_watts, one.residual]) for one in told])
        counts = [len(one.aside.load_watts) + 1 for one in told]
        names = [
            SeriesId(f"{history.series[one.row]}#{i}")
            for one, count in zip(told, counts, strict=True)
            for i in range(count)
        ]
        self._model.update(History(names, rows, history.until_seconds, history.step_seconds))
        steps = self._model.quantiles(shape.horizon, shape.grid)
        unknown = np.asarray(~np.isfinite(steps).all(axis=(1, 2)))
        cleaned = clean(rows, shape.day_steps)
        errors = past_changes(cleaned.filled, cleaned.length, shape.horizon, shape.day_steps, PATHS)
        paths = couple(np.where(unknown[:, None, None], 0.0, steps), shape.grid, errors, PATHS)
        paths[unknown] = np.nan
        return np.split(paths, np.cumsum(counts)[:-1])
