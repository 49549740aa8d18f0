"""At which power cap each kind of work runs on each GPU type: a price of a watt decides.

    price of a watt ──> of each offer the level with most speed less its watts' price
          ▲                                    │
          └── more work than at others? ── GPUs' worth of work that then finds GPUs and watts

Where power is plenty the price is 0 and everything runs uncapped. Where it binds, a cap that costs
a tenth of the speed and saves a fifth of the watts lets more work in than it takes. The price is
the one whose levels hold most work when all that waits flows in alike (``inflow.py``): a program
that chooses what to leave out finds a watt cheap, since it never serves the work that takes most
watts for its GPUs, but placement leaves out what comes late or matters less, whatever it draws.
The plan is then made with the watts of the chosen levels, and says which; the controller sets caps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.capped_watts import NO_CAP, CapOptions, cap_options, lowest_cap
from scheduler_plugin.packing.inflow import Inflow, inflow_of

__all__ = ["chosen_caps"]

FloatArray = npt.NDArray[np.float64]
MILLI: Final = 1000.0
MORE_WORK: Final = 1e-6
"""Relative: less is rounding, and the lower price stays."""
Chosen = dict[tuple[str, str], int]


class Level(NamedTuple):
    """A cap of the snapshot, or none.

    Attributes:
        cap_milli: Of the default limit.
        watts: What a GPU adds, AC above idle.
        speed: Relative to no cap, in (0, 1].
    """

    cap_milli: int
    watts: float
    speed: float


Offers = Mapping[tuple[str, str], Sequence[Level]]
"""By GPU model and kernel class; without a cap first."""


def chosen_caps(snapshot: Snapshot) -> Chosen:
    """Caps that pay at the price of a watt, by GPU model and kernel class.

    The count is of parts of pods and a guide; plans are checked against every domain. Pods that
    are bound count as what their domains use.

    Returns:
        Thousandths of the default limit; kinds of work that run without a cap are left out.
    """
    options = cap_options(snapshot)
    if not options:
        return {}
    inflow = inflow_of(snapshot)
    offers = _offers(inflow, options)
    best = _work(inflow, options, {})
    chosen: Chosen = {}
    if best >= inflow.work(np.zeros_like(inflow.full_watts), np.ones_like(inflow.full_watts)):
        return chosen
    for price in _prices(offers):
        levels = _levels_at(price, offers)
        work = _work(inflow, options, levels)
        if work > best * (1.0 + MORE_WORK):
            best, chosen = work, levels
    return chosen


def _offers(inflow: Inflow, options: CapOptions) -> Offers:
    """Levels of the work that waits where it may be capped, watts of its hungriest place."""
    full: dict[tuple[str, str], float] = {}
    for p, place in enumerate(inflow.places):
        for k, work in enumerate(inflow.works):
            key = (place.gpu_model, work.kernel_class)
            if key in options and inflow.allowed[k, p] and inflow.known[k, p]:
                full[key] = max(float(inflow.full_watts[k, p]), full.get(key, 0.0))
    return {
        key: (
            Level(NO_CAP, watts, 1.0),
            *(
                Level(o.cap_milli, watts * o.watts_milli / MILLI, o.speed_milli / MILLI)
                for o in options[key]
            ),
        )
        for key, watts in full.items()
    }


def _prices(offers: Offers) -> list[float]:
    """At which some offer's best level changes, from the lowest on."""
    found = {
        (high.speed - low.speed) / (high.watts - low.watts)
        for levels in offers.values()
        for number, high in enumerate(levels)
        for low in levels[number + 1 :]
        if high.watts > low.watts
    }
    # Just above: there the lower of two levels is the better one.
    return sorted(price * (1.0 + 1e-9) for price in found)


def _levels_at(price: float, offers: Offers) -> Chosen:
    """Of each offer the level with most speed less its watts' price; without a cap left out."""
    best = {
        key: max(levels, key=lambda level: (level.speed - price * level.watts, -level.watts))
        for key, levels in offers.items()
    }
    return {key: level.cap_milli for key, level in best.items() if level.cap_milli < NO_CAP}


def _work(inflow: Inflow, options: CapOptions, chosen: Chosen) -> float:
    """GPUs' worth of work that flows in with these caps."""
    models = sorted({place.gpu_model for place in inflow.places})
    watts, speed = np.ones((2, len(inflow.works), len(models)))
    for k, work in enumerate(inflow.works):
        for m, model in enumerate(models):
            key = (model, work.kernel_class)
            if work.least_cap_milli is None or key not in chosen:
                continue
            option = lowest_cap(options[key], max(chosen[key], work.least_cap_milli))
            if option is not None:
                watts[k, m], speed[k, m] = option.watts_milli / MILLI, option.speed_milli / MILLI
    held = inflow.known & np.array([place.caps_held for place in inflow.places], dtype=np.bool_)
    at = [models.index(place.gpu_model) for place in inflow.places]
    capped_watts = np.where(held, inflow.full_watts * watts[:, at], inflow.full_watts)
    return inflow.work(capped_watts, np.where(held, speed[:, at], 1.0))
