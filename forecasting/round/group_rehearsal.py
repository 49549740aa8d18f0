"""Histories of newcomers are gone through, within the round or at a desk beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from forecasting.clean_history import clean
from forecasting.engine_rehearsal import rehearsal_base, rehearsed
from forecasting.forecast_engine import Engine
from forecasting.round.rehearsal_desk import RehearsalOrder
from forecasting.round.round_group import RoundGroup
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import History
from forecasting.tiers.roster import close_tiers

MAX_REHEARSED: Final = 500
"""New series rehearsed in one round; a rehearsal costs about 24 forecasts each."""


def rehearse_new(state: ForecasterState, engine: Engine, group: RoundGroup) -> ForecasterState:
    """Histories of those who are new are gone through, here or beside the rounds.

    Args:
        state: As it is.
        engine: Of the group; its memory learns.
        group: With the history as it was without what events did.
    """
    if state.desk is not None and state.desk.order is not None:
        return state
    rows = _with_a_past(state, group.history, group.shape.day_steps)[:MAX_REHEARSED]
    if not rows:
        return state
    new, shape = group.rows(rows), group.shape
    past = new.history
    if state.desk is not None:
        base = rehearsal_base(engine.memory)
        if state.desk.submit(RehearsalOrder(shape, past, group.pools, base, new.beside)):
            return state
        # The desk is free, so nothing can be begun: promises that are kept are their record.
        return replace(state, rehearsed=state.rehearsed | set(past.series))
    tiers = state.tiers.rehearsing(shape.horizon)
    try:
        engine.memory = rehearsed(shape, tiers, past, group.pools, engine.memory, new.beside)
    finally:
        close_tiers(tiers)
    return replace(state, rehearsed=state.rehearsed | set(past.series))


def _with_a_past(state: ForecasterState, history: History, day_steps: int) -> list[int]:
    """Rows that were not gone through and can be: a day is known, as models need.

    Who has less waits: an empty answer of a history that has just come back is no past.
    """
    new = [i for i, name in enumerate(history.series) if name not in state.rehearsed]
    if not new:
        return []
    length = clean(np.asarray(history.values[new], dtype=np.float64), day_steps).length
    return [i for i, bins in zip(new, length.tolist(), strict=True) if bins >= day_steps]
