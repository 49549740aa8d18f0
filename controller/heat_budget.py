"""Bands from a heat budget: how far above 1.00 a rise may end, because the breaker bears it.

A cap band of 1 - rise keeps the load below the rating whatever rises while caps react. A breaker
that is listed for 100 % and whose curve the site declares bears more: at the ratio r the time of
the reaction heats it by reaction / t_trip(r), by the lower edge of its hot curve. With a budget

    H + reaction / t_trip(r) <= budget      r >= 1        cap band = r - rise <= 0.99

A target is lifted up to 0.97, which is below the prior's own 0.9775: only a domain whose history
keeps more free than 3 % gets anything of that.

What one excursion spends is missing to the next until the breaker has cooled; at an empty budget
the bands are the ordinary ones. Where a budget in watts lies below the rating, crossing it is no
matter of heat, and nothing is spent. Off unless a domain declares ``heatBudgetRatio``.

Source: docs/adr/0033-heat-budget-and-reserve-feeds.md.
"""

from __future__ import annotations

import numpy as np

from controller.tick_values import PowerSettings
from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree

__all__ = ["HIGHEST_CAP_BAND", "HIGHEST_TARGET", "budgeted_band", "budgeted_target", "spare_share"]

HIGHEST_CAP_BAND = 0.99
HIGHEST_TARGET = 0.97
"""What a budget lifts a target to where a domain's history keeps more free than its prior does."""

_DETECTION_SECONDS = 1.0


def spare_share(
    load: LoadTree, heat: FloatArray, base_watts: FloatArray, settings: PowerSettings
) -> FloatArray:
    """How far above the rating a rise may end now, as share of it, (n_domains,).

    Args:
        load: Tree, curves, budgets.
        heat: Of each breaker now, (n_domains,).
        base_watts: What bands are shares of, (n_domains,).
        settings: Reaction time.
    """
    budget = load.tree.heat_budget
    if not some(budget):
        return np.zeros(len(load.tree))
    left = np.where(base_watts >= load.rating_watts, budget - heat, 0.0)
    reaction = _DETECTION_SECONDS + settings.reaction_seconds
    with np.errstate(divide="ignore"):
        needed_seconds = np.where(left > 0.0, reaction / np.maximum(left, 1e-12), np.inf)
    ratio = np.minimum(load.curves.ratio_borne_for(needed_seconds), load.tree.max_load_ratio)
    return np.asarray(np.maximum(ratio - 1.0, 0.0), dtype=np.float64)


def budgeted_band(cap_band: FloatArray, spare: FloatArray) -> FloatArray:
    """The cap band with what may end above the rating, as share of L, (n_domains,)."""
    return np.maximum(cap_band, np.minimum(cap_band + spare, HIGHEST_CAP_BAND))


def budgeted_target(target: FloatArray, spare: FloatArray) -> FloatArray:
    """The same for what caps aim at, (n_domains,)."""
    return np.maximum(target, np.minimum(target + spare, HIGHEST_TARGET))
