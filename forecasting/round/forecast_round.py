"""One round of the forecaster: history in, a status for every target out.

    targets ─► groups ─► histories ────► newcomers ───────► engine ─► answers
                         (round_reading)  (group_rehearsal)            (group_answers)

``step`` is all that a process, a backtest and a benchmark call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forecasting.round.group_answers import answers_of
from forecasting.round.patience import Patience
from forecasting.round.rehearsal_desk import taken_over
from forecasting.round.round_asides import AsideReader, asides_of
from forecasting.round.round_group import RoundGroup
from forecasting.round.round_reading import read_histories
from forecasting.round.round_state import ForecasterState, Group
from forecasting.round.target_forecast import TargetForecast
from forecasting.round.target_tree import with_planned_loads
from forecasting.series_source import SeriesId, SeriesSource, source_flags
from forecasting.targets import Target


def step(
    state: ForecasterState, now_seconds: float, source: SeriesSource, targets: Sequence[Target]
) -> tuple[ForecasterState, list[TargetForecast]]:
    """One round over all targets.

    Args:
        state: From the round before, used up by this one.
        now_seconds: Unix time; only whole bins before it are used.
        source: The history.
        targets: What to forecast; what was learned of others is dropped.

    Raises:
        WattpackError: if not one series could be read; the state before stays valid.
    """
    groups: dict[Group, list[Target]] = {}
    for target in with_planned_loads(targets):
        groups.setdefault(target.group, []).append(target)
    patience = Patience()
    read = [read_histories(source, now_seconds, members, patience) for members in groups.values()]
    if patience.last is not None and not patience.answers:
        raise patience.last
    done = frozenset() if state.desk is None else taken_over(state.desk, state.engines)
    for group in state.engines.keys() - groups.keys():
        state.engines[group].close()
    state = replace(
        state,
        engines={group: engine for group, engine in state.engines.items() if group in groups},
        rehearsed=(state.rehearsed | done) & {target.identity for target in targets},
    )
    answers: list[TargetForecast] = []
    reader = AsideReader(source)
    for members, (usable, history, failed) in zip(groups.values(), read, strict=True):
        answers += failed
        if usable:
            asides, missing = asides_of(reader, usable, history)
            pools = {member.identity: member.pool for member in members}
            state, made = answers_of(state, RoundGroup(usable, history, pools, asides))
            answers += [_with_flags_of(source, answer, missing) for answer in made]
    order = {target.key: i for i, target in enumerate(targets)}
    answers.sort(key=lambda answer: order[answer.target.key])
    return state, answers


def _with_flags_of(
    source: SeriesSource, answer: TargetForecast, missing: Mapping[SeriesId, tuple[str, ...]]
) -> TargetForecast:
    """The answer with what its source was short of; what draw and asides share is told once."""
    own = source_flags(source, answer.target.series)
    beside = missing.get(answer.target.identity, ())
    return replace(answer, source_flags=tuple(dict.fromkeys((*own, *beside))))
