"""Breakers as thermal accumulators: heat 0 is a breaker that carries its rating, heat 1 a trip.

    r > 1:   dH/dt = 1 / t_trip(r)         r <= 1:   dH/dt = -H / cooling_seconds

The curves are of hot breakers, so heat 0 already holds the preload of a breaker at its rating.
Source: docs/power-control.md (thermal accumulator: heat carries over).
"""

from __future__ import annotations

import numpy as np

from controller.tick_values import PowerSettings
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.feasibility import LoadTree, survivable_watts

__all__ = [
    "advance_heat",
    "heat_limits",
    "must_brake",
    "predicted_heat",
    "survivable_for",
]


def heat_limits(load: LoadTree, settings: PowerSettings) -> FloatArray:
    """Highest predicted heat of each domain; lower for parents, for selectivity, (n_domains,)."""
    return np.where(load.has_children, settings.parent_heat, settings.brake_heat)


def survivable_for(
    load: LoadTree, heat: FloatArray, settings: PowerSettings, longer_seconds: float = 0.0
) -> FloatArray:
    """I2's limit on the worst case, to be survived for T_fault and so much more, (n_domains,)."""
    away_seconds = settings.fault_seconds + longer_seconds
    return survivable_watts(load, heat, away_seconds, heat_limits(load, settings))


def advance_heat(
    load: LoadTree, heat: FloatArray, draw_watts: FloatArray, seconds: float
) -> FloatArray:
    """Heat after the draw has lasted for so long, (n_domains,)."""
    ratio = draw_watts / load.rating_watts
    heated = heat + seconds / load.curves.trip_seconds(ratio)
    cooled = heat * np.exp(-seconds / load.tree.cooling_seconds)
    return np.asarray(np.where(ratio > 1.0, heated, cooled), dtype=np.float64)


def predicted_heat(
    load: LoadTree, heat: FloatArray, draw_watts: FloatArray, settings: PowerSettings
) -> FloatArray:
    """Heat if the present draw lasts for the whole fault time, (n_domains,)."""
    return advance_heat(load, heat, draw_watts, settings.fault_seconds)


def must_brake(
    load: LoadTree, heat: FloatArray, draw_watts: FloatArray, settings: PowerSettings
) -> BoolArray:
    """Whether a domain is so loaded that only the brake helps, (n_domains,).

    A hot breaker at or below its rating cools by itself, so it does not brake.
    """
    ratio = draw_watts / load.rating_watts
    too_much, over = ratio > load.tree.max_load_ratio, ratio > 1.0
    if not some(over):
        return np.asarray(too_much)
    hot = predicted_heat(load, heat, draw_watts, settings) > heat_limits(load, settings)
    return np.asarray(too_much | (hot & over))
