"""Power as load through the capacity model and a residual, as long as the load explains it.

    load ──► LoadLine ──► watts ─┬─► scaled to what was measured ──┐
    measured draw ───────────────┘                                 ├─► paths, cut at what caps hold
    draw - that = residual ──► its own joint paths ────────────────┘

The model's slope is corrected by one factor, since the mix of work is not known; what is left of
the draw (hosts, fans, other work) is a series of its own. Where load explains too little of how the
draw moves, the draw is forecast by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.series_source import Floats

LEAST_EXPLAINED: Final = 0.70
"""Of the draw's variance; below it power is forecast directly (assumed)."""

EXPLAINED_AGAIN: Final = 0.80
"""From it on load is trusted again; the distance keeps noise from switching. Assumed."""

FACTOR_RANGE: Final = (0.5, 2.0)
"""Of the correction; beyond it the model speaks of something else. Dynamo's planner bounds its own
so (powerplanner-design, 2026)."""

FEWEST_BINS: Final = 36
"""Six hours: fewer tell no slope."""


@dataclass(frozen=True, slots=True)
class LoadFit:
    """How well the load's watts tell the draw of recent bins.

    Attributes:
        factor: Measured over modelled watts, of what moves.
        explained: Share of the draw's variance, in [0, 1]; 0 where too little is known.
    """

    factor: float
    explained: float

    def is_trusted(self, *, was_trusted: bool) -> bool:
        """Whether load tells power now, with hysteresis."""
        return self.explained >= (LEAST_EXPLAINED if was_trusted else EXPLAINED_AGAIN)


def load_fit(draw_watts: Floats, load_watts: Floats) -> LoadFit:
    """The fit of recent bins.

    Args:
        draw_watts: Measured, (n_bins,); NaN for gaps and for bins that caps held.
        load_watts: What the capacity model makes of the load, the same shape.
    """
    known = np.isfinite(draw_watts) & np.isfinite(load_watts)
    if int(known.sum()) < FEWEST_BINS:
        return LoadFit(1.0, 0.0)
    draw = draw_watts[known] - draw_watts[known].mean()
    load = load_watts[known] - load_watts[known].mean()
    spread, whole = float(load @ load), float(draw @ draw)
    if spread <= 0 or whole <= 0:
        return LoadFit(1.0, 0.0)
    factor = float(np.clip(load @ draw / spread, *FACTOR_RANGE))
    left = draw - factor * load
    return LoadFit(factor, float(np.clip(1.0 - left @ left / whole, 0.0, 1.0)))


def residual_watts(draw_watts: Floats, load_watts: Floats, fit: LoadFit) -> Floats:
    """What the load does not tell of the draw, (n_bins,): hosts, fans, other work."""
    return np.asarray(draw_watts - fit.factor * load_watts)


def power_paths(
    load_watts: Floats, residual_paths: Floats, fit: LoadFit, ceiling_watts: float
) -> Floats:
    """Paths of a domain's draw: never negative, never above what caps enforce.

    Args:
        load_watts: Joint paths of what the model makes of each service's load,
            (n_services, n, horizon).
        residual_paths: Of the residual, path j of the same past hour, (n, horizon).
        fit: Of recent bins.
        ceiling_watts: Sum of caps and of what no cap holds, at most the rating.

    Returns:
        (n, horizon).
    """
    drawn = fit.factor * load_watts.sum(axis=0) + residual_paths
    return np.asarray(np.clip(drawn, 0.0, ceiling_watts))
