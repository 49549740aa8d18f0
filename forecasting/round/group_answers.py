"""The answers of one group: its newcomers are rehearsed, then its engine is asked.

What cannot be computed with costs only itself: where a group fails, each member is tried alone and
the others are asked again.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

import numpy as np

from forecasting.engine_memory import Pool
from forecasting.engine_question import Question
from forecasting.events.round_events import RoundEvents
from forecasting.forecast import LIMIT
from forecasting.forecast_engine import Engine
from forecasting.round.each_alone import INCALCULABLE, culprits
from forecasting.round.group_events import with_planned_events
from forecasting.round.group_rehearsal import rehearse_new
from forecasting.round.round_group import RoundGroup
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.tiers.tier_sets import RIDGE_ALONE
from wattpack.errors import InputError, TransientError, WattpackError

log = logging.getLogger(__name__)


def answers_of(
    state: ForecasterState, group: RoundGroup
) -> tuple[ForecasterState, list[TargetForecast]]:
    """The answers of one group; members that it cannot be computed with fail alone."""
    members, key = group.members, group.members[0].group
    try:
        if key not in state.engines:
            engine = Engine(group.shape, state.tiers.live(group.shape.horizon))
            state = replace(state, engines={**state.engines, key: engine})
        return _answered(state, group)
    except INCALCULABLE as error:
        log.warning("a group of %d forecasts failed: %s", len(members), error)
        together = TransientError(f"{len(members)} forecasts failed together: {error}")
        failed = _refused_alone(state, group)
    good = [i for i in range(len(members)) if i not in failed]
    refused = [TargetForecast.refused(members[i], why) for i, why in failed.items()]
    if not good or not failed:
        # Where each alone can be computed with, it is nobody's fault: what was said last ages.
        return state, refused or [TargetForecast.refused(one, together) for one in members]
    state, made = _answered(state, group.rows(good))
    return state, [*made, *refused]


def _answered(
    state: ForecasterState, group: RoundGroup
) -> tuple[ForecasterState, list[TargetForecast]]:
    """Rehearse who is new, or have it done, then ask the group's engine."""
    members, history, key = group.members, group.history, group.members[0].group
    engine = state.engines.get(key) or Engine(group.shape, state.tiers.live(group.shape.horizon))
    group, planned = with_planned_events(group)
    series = [m.series for m in members]
    events = RoundEvents.of(history, series, planned, group.beside.parents)
    freed = replace(history, values=events.freed)
    state = rehearse_new(state, engine, replace(group, history=freed))
    ceilings = np.array([np.nan if m.ceiling is None else m.ceiling for m in members])
    boards = {member.identity: member.boards for member in members}
    asked = Question(
        history, group.pools, ceilings, events, boards, group.beside,
        n_paths=max(member.n_paths for member in members),
        tells_tiers=any(member.tells_tiers for member in members),
    )  # fmt: skip
    made = engine.issue(asked)
    memory = engine.memory
    live, rehearsals = Counter[Pool](), Counter[Pool]()
    for name, record in memory.records.items():
        live[group.pools[name]] += record.live.windows
        rehearsals[group.pools[name]] += record.rehearsed.windows
    answers = [
        TargetForecast(
            member, made, i, memory.record(member.identity),
            pool_live_windows=live[member.pool], pool_rehearsed_windows=rehearsals[member.pool],
            awaits_record=member.identity not in state.rehearsed and made.methods[i] != LIMIT,
            events=events.known[i],
        )
        for i, member in enumerate(members)
    ]  # fmt: skip
    return replace(state, engines={**state.engines, key: engine}), answers


def _refused_alone(state: ForecasterState, group: RoundGroup) -> dict[int, WattpackError]:
    """Which members cannot be computed with, each tried alone by the lightest model.

    Others cost only themselves when they fail, and would begin fits.
    """
    # Who is tried alone needs no record where others get theirs beside the rounds.
    known = frozenset() if state.desk is None else frozenset(group.history.series)
    alone = ForecasterState(RIDGE_ALONE, rehearsed=known)
    failed = culprits(len(group.members), lambda i: _answered(alone, group.alone(i)))
    return {
        i: InputError("series", f"a history that can be computed with ({error})")
        for i, error in failed.items()
    }
