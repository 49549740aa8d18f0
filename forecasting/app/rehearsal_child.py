"""The process that goes through histories: an order on disk in, what was learned out.

python -m forecasting.app.rehearsal_child FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from forecasting.app.model_choice import tier_set
from forecasting.app.rehearsal_process import read_order, write_learned
from forecasting.engine_memory import EngineMemory
from forecasting.engine_rehearsal import gone_through
from forecasting.round.each_alone import INCALCULABLE, culprits
from forecasting.round.rehearsal_desk import RehearsalOrder
from forecasting.tiers.roster import close_tiers
from forecasting.tiers.tier_sets import RIDGE_ALONE, TierSet


def main(folder: Path) -> None:
    """Go through one history."""
    order, told = read_order(folder)
    tiers = tier_set(told["models"], told["plugIns"])
    write_learned(folder, order.shape, learned_of(order, tiers))


def learned_of(order: RehearsalOrder, tiers: TierSet) -> EngineMemory:
    """What the order's histories teach; one that cannot be computed with teaches nothing."""
    try:
        return _learned(order, tiers)
    except INCALCULABLE:
        count = len(order.history.series)
        failed = culprits(count, lambda i: _learned(_rows(order, [i]), RIDGE_ALONE))
        good = [i for i in range(count) if i not in failed]
        return _learned(_rows(order, good), tiers) if good else order.base


def _learned(order: RehearsalOrder, tiers: TierSet) -> EngineMemory:
    made = tiers.rehearsing(order.shape.horizon)
    try:
        return gone_through(order.shape, made, order.history, order.pools, order.base, order.beside)
    finally:
        close_tiers(made)


def _rows(order: RehearsalOrder, kept: Sequence[int]) -> RehearsalOrder:
    return replace(order, history=order.history.rows(kept))


if __name__ == "__main__":
    os.nice(10)  # it must not take time from whoever decides within seconds
    main(Path(sys.argv[1]))
