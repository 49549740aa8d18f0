"""One round of the forecaster: history in, a status for every target out.

``step`` reads the history through the port and hands every group of targets to its engine.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forecasting.calibration.promise_record import PromiseRecord
from forecasting.clean_history import clean
from forecasting.engine_memory import RECORDED_LEVEL, Pool
from forecasting.engine_question import Beside, Question, Shape
from forecasting.engine_rehearsal import rehearsal_base, rehearsed
from forecasting.events.round_events import RoundEvents
from forecasting.forecast import LIMIT, Forecast
from forecasting.forecast_engine import Engine
from forecasting.patience import Patience
from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.rehearsal_desk import RehearsalDesk, RehearsalOrder, taken_over
from forecasting.round_asides import ASIDE_AWAY, AsideReader, asides_of
from forecasting.series_source import (
    DAY_SECONDS,
    Floats,
    History,
    SeriesId,
    SeriesSource,
    source_flags,
)
from forecasting.targets import Target
from forecasting.tiers.records import HISTORY_DAYS
from forecasting.tiers.tier_sets import RIDGE_ALONE, TierSet
from wattpack.errors import InputError, TransientError, WattpackError

MAX_REHEARSED: Final = 500
"""New series rehearsed in one round; a rehearsal costs about 24 forecasts each."""

REHEARSING: Final = "rehearsing"
"""Flag of a target whose history is still gone through: it has no record yet."""

Group = tuple[int, int, tuple[float, ...]]
"""Width of a step, steps, levels: what is computed together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForecasterState:
    """What one round hands to the next; losing it costs a rehearsal, nothing else.

    Attributes:
        tiers: The models to be made.
        engines: By group. Engines change: a state is used up by the round that it is given to.
        rehearsed: Identities of targets whose history has been gone through.
        desk: Where that is done beside the rounds; None does it within them.
    """

    tiers: TierSet = RIDGE_ALONE
    engines: Mapping[Group, Engine] = field(default_factory=dict)
    rehearsed: frozenset[SeriesId] = frozenset()
    desk: RehearsalDesk | None = None

    @property
    def records(self) -> dict[SeriesId, PromiseRecord]:
        """How the promises to every target did."""
        return {k: v for e in self.engines.values() for k, v in e.memory.records.items()}

    def close(self) -> None:
        """End what models work at beside the rounds."""
        for engine in self.engines.values():
            engine.close()


@dataclass(frozen=True, slots=True)
class TargetForecast:
    """One target's answer.

    Attributes:
        target: What was asked.
        made: The forecast of its group; None without an answer.
        row: Its place there.
        record: How its promises did, rehearsed ones included.
        error: Why there is no forecast, else None: an ``InputError`` is the target's own fault.
        source_flags: What its source was short of.
        pool_live_windows: Finished windows of promises that were made to its pool.
        pool_rehearsed_windows: Those of its pool that were gone through afterwards.
        awaits_record: Whether its history, of a day at least, is still to be gone through.
    """

    target: Target
    made: Forecast | None
    row: int = 0
    record: PromiseRecord = field(default_factory=lambda: PromiseRecord.new((RECORDED_LEVEL,)))
    error: WattpackError | None = None
    source_flags: tuple[str, ...] = ()
    pool_live_windows: int = 0
    pool_rehearsed_windows: int = 0
    awaits_record: bool = False

    @property
    def peaks(self) -> Floats:
        """Peak quantiles over ``target.levels``, shape (n_levels,)."""
        return np.empty(0) if self.made is None else self.made.peaks[self.row]

    @property
    def flags(self) -> tuple[str, ...]:
        """What a user should know about it."""
        if self.made is None:
            return self.source_flags
        own = self.made.flags[self.row]
        if self.awaits_record:
            own = (*own, REHEARSING)
        return (*own, *self.source_flags)


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
    for target in targets:
        groups.setdefault(target.group, []).append(target)
    patience = Patience()
    read = [_read(source, now_seconds, members, patience) for members in groups.values()]
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
            asides, away = asides_of(reader, usable, history)
            pools = {_id(member): _pool(member) for member in members}
            state, made = _answer(state, pools, usable, history, asides)
            answers += [_with_flags_of(source, answer, away) for answer in made]
    order = {target.key: i for i, target in enumerate(targets)}
    answers.sort(key=lambda answer: order[answer.target.key])
    return state, answers


def _read(
    source: SeriesSource, now_seconds: float, members: Sequence[Target], patience: Patience
) -> tuple[list[Target], History, list[TargetForecast]]:
    """Ten days of every member, each asked alone; the others come back with the reason."""
    step_seconds = members[0].step_seconds
    until = int(now_seconds // step_seconds) * step_seconds
    start = until - HISTORY_DAYS * DAY_SECONDS // step_seconds * step_seconds
    rows: list[Floats] = []
    usable, failed = [], []
    for member in members:
        if (why := patience.spent()) is not None:
            failed.append(_refused(member, why))
            continue
        try:
            row = source.fetch([member.series], start, until, step_seconds)
        except InputError as error:
            failed.append(_refused(member, error))
        except WattpackError as error:
            patience.failed(error)
            failed.append(_refused(member, error))
        else:
            patience.answered()
            rows.append(row)
            usable.append(member)
    values = np.concatenate(rows) if rows else np.empty((0, (until - start) // step_seconds))
    return usable, History([_id(m) for m in usable], values, until, step_seconds), failed


def _answer(
    state: ForecasterState,
    pools: Mapping[SeriesId, Pool],
    members: Sequence[Target],
    history: History,
    asides: Mapping[SeriesId, DrawAside],
) -> tuple[ForecasterState, list[TargetForecast]]:
    """The answers of one group; members that it cannot compute with fail alone.

    Args:
        state: As it is.
        pools: Of the whole group: who was not read this time is remembered all the same.
        members: Who was read.
        history: Of these.
        asides: What goes with the draw of some of them.
    """
    group = members[0].group
    try:
        if group not in state.engines:
            engine = Engine(Shape(*group), state.tiers.live(group[1]))
            state = replace(state, engines={**state.engines, group: engine})
        return _answered(state, pools, members, history, asides)
    except (WattpackError, ArithmeticError, ValueError) as error:
        log.warning("a group of %d forecasts failed: %s", len(members), error)
        together = TransientError(f"{len(members)} forecasts failed together: {error}")
        culprits = _culprits(state, members, history, asides)
    good = [i for i in range(len(members)) if i not in culprits]
    refused = [_refused(members[i], why) for i, why in culprits.items()]
    if not good or not culprits:
        # Where each alone can be computed with, it is nobody's fault: what was said last ages.
        return state, refused or [_refused(member, together) for member in members]
    rest = replace(history, series=[history.series[i] for i in good], values=history.values[good])
    state, made = _answered(state, pools, [members[i] for i in good], rest, asides)
    return state, [*made, *refused]


def _answered(
    state: ForecasterState,
    pools: Mapping[SeriesId, Pool],
    members: Sequence[Target],
    history: History,
    asides: Mapping[SeriesId, DrawAside],
) -> tuple[ForecasterState, list[TargetForecast]]:
    """Rehearse who is new, or have it done, then ask the group's engine."""
    group = members[0].group
    shape = Shape(*group)
    engine = state.engines.get(group) or Engine(shape, state.tiers.live(shape.horizon))
    events = RoundEvents.of(
        history.values, [m.series for m in members], [m.events for m in members],
        history.until_seconds, history.step_seconds,
    )  # fmt: skip
    freed = replace(history, values=events.freed)
    state = _rehearse(state, engine, pools, members, freed, asides)
    ceilings = np.array([np.nan if m.ceiling is None else m.ceiling for m in members])
    made = engine.issue(
        Question(
            history, pools, ceilings, events,
            {_id(m): m.boards for m in members}, Beside(parents_of(members), asides),
        )
    )  # fmt: skip
    memory = engine.memory
    live, rehearsals = Counter[Pool](), Counter[Pool]()
    for name, record in memory.records.items():
        live[pools[name]] += record.live.windows
        rehearsals[pools[name]] += record.rehearsed.windows
    answers = [
        TargetForecast(
            member, made, i, memory.record(_id(member)),
            pool_live_windows=live[_pool(member)], pool_rehearsed_windows=rehearsals[_pool(member)],
            awaits_record=_id(member) not in state.rehearsed and made.methods[i] != LIMIT,
        )
        for i, member in enumerate(members)
    ]  # fmt: skip
    return replace(state, engines={**state.engines, group: engine}), answers


def _rehearse(
    state: ForecasterState,
    engine: Engine,
    pools: Mapping[SeriesId, Pool],
    members: Sequence[Target],
    history: History,
    asides: Mapping[SeriesId, DrawAside],
) -> ForecasterState:
    """Histories of those who are new are gone through, here or beside the rounds.

    Args:
        state: As it is.
        engine: Of the members; its memory learns.
        pools: Of the whole group.
        members: One group.
        history: Of the members, without what events did.
        asides: What goes with the draw of some of them.
    """
    if state.desk is not None and state.desk.order is not None:
        return state
    shape = Shape(*members[0].group)
    new = _with_a_past(state, history, shape.day_steps)[:MAX_REHEARSED]
    if not new:
        return state
    past = replace(history, series=[history.series[i] for i in new], values=history.values[new])
    known = {name: asides[name] for name in past.series if name in asides}
    beside = Beside(parents_of([members[i] for i in new]), known)
    if state.desk is not None:
        base = rehearsal_base(engine.memory)
        if state.desk.submit(RehearsalOrder(shape, past, pools, base, beside)):
            return state
        # The desk is free, so nothing can be begun: promises that are kept are their record.
        return replace(state, rehearsed=state.rehearsed | set(past.series))
    tiers = state.tiers.rehearsing(shape.horizon)
    engine.memory = rehearsed(shape, tiers, past, pools, engine.memory, beside)
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


def _culprits(
    state: ForecasterState,
    members: Sequence[Target],
    history: History,
    asides: Mapping[SeriesId, DrawAside],
) -> dict[int, WattpackError]:
    """Which members cannot be computed with, each tried alone.

    With the lightest models: others cost only themselves when they fail, and would begin fits.
    """
    found: dict[int, WattpackError] = {}
    # Who is tried alone needs no record where others get theirs beside the rounds.
    known = frozenset() if state.desk is None else frozenset(history.series)
    alone = ForecasterState(RIDGE_ALONE, rehearsed=known)
    for i, member in enumerate(members):
        row = replace(history, series=[history.series[i]], values=history.values[i : i + 1])
        try:
            _answered(alone, {_id(member): _pool(member)}, [member], row, asides)
        except (WattpackError, ArithmeticError, ValueError) as error:
            found[i] = _incalculable(error)
    return found


def parents_of(members: Sequence[Target]) -> dict[SeriesId, SeriesId]:
    """Of each domain's series that of the nearest domain above it which is forecast, too.

    Within a namespace, as pools are; of several series for one domain the first by name stands in
    the tree.
    """
    domains = {
        (member.namespace, member.subject): member
        for member in sorted(members, key=lambda m: m.name, reverse=True)
        if member.kind == "domain"
    }
    found = {}
    for (namespace, _), member in domains.items():
        wholes = (domains.get((namespace, name)) for name in member.above)
        whole = next((one for one in wholes if one is not None and one is not member), None)
        if whole is not None:
            found[_id(member)] = _id(whole)
    return found


def _pool(target: Target) -> Pool:
    """Whose misses are pooled: nobody's series moves another namespace's."""
    return (target.namespace, target.kind)


def _with_flags_of(
    source: SeriesSource, answer: TargetForecast, away: Set[SeriesId]
) -> TargetForecast:
    """The answer with what its source was short of."""
    flags = tuple(source_flags(source, answer.target.series))
    if _id(answer.target) in away:
        flags = (*flags, ASIDE_AWAY)
    return replace(answer, source_flags=flags)


def _incalculable(error: Exception) -> InputError:
    return InputError("series", f"a history that can be computed with ({error})")


def _refused(target: Target, error: WattpackError) -> TargetForecast:
    """The answer for a target whose series cannot be read or forecast as it stands."""
    return TargetForecast(target, None, error=error)


def _id(target: Target) -> SeriesId:
    return target.identity
