"""The process that goes through histories: an order on disk in, what was learned out.

python -m forecasting.app.rehearsal_child FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from forecasting.app.rehearsal_process import read_order, write_learned
from forecasting.engine_memory import EngineMemory
from forecasting.engine_rehearsal import gone_through
from forecasting.rehearsal_desk import RehearsalOrder
from forecasting.tiers.tier_sets import RIDGE_ALONE, TierSet, all_tiers
from wattpack.errors import WattpackError


def main(folder: Path) -> None:
    """Go through one history."""
    order, told = read_order(folder)
    tiers = RIDGE_ALONE if told["models"] == "ridge" else all_tiers(plug_ins=told["plugIns"])
    write_learned(folder, order.shape, learned_of(order, tiers))


def learned_of(order: RehearsalOrder, tiers: TierSet) -> EngineMemory:
    """What the order's histories teach; one that cannot be computed with teaches nothing."""
    try:
        return _learned(order, tiers)
    except (WattpackError, ArithmeticError, ValueError):
        good = [i for i in range(len(order.history.series)) if _teaches(order, i)]
        return _learned(_rows(order, good), tiers) if good else order.base


def _learned(order: RehearsalOrder, tiers: TierSet) -> EngineMemory:
    made = tiers.rehearsing(order.shape.horizon)
    return gone_through(order.shape, made, order.history, order.pools, order.base, order.beside)


def _teaches(order: RehearsalOrder, row: int) -> bool:
    """Whether one history can be gone through, by the lightest model."""
    try:
        _learned(_rows(order, [row]), RIDGE_ALONE)
    except (WattpackError, ArithmeticError, ValueError):
        return False
    return True


def _rows(order: RehearsalOrder, rows: Sequence[int]) -> RehearsalOrder:
    history = order.history
    names = [history.series[i] for i in rows]
    past = replace(history, series=names, values=history.values[list(rows)])
    return replace(order, history=past)


if __name__ == "__main__":
    os.nice(10)  # it must not take time from whoever decides within seconds
    main(Path(sys.argv[1]))
