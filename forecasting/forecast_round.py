"""One round of the forecaster: history in, a status for every target out.

``step`` is a function of its arguments: it reads the history through the port and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forecasting.calibration import Calibration
from forecasting.events.round_events import RoundEvents
from forecasting.forecast_choice import DAY_SECONDS, Forecast, Method, forecast, level_index
from forecasting.rehearsal import realised_peaks, replay
from forecasting.series_source import Floats, History, SeriesId, SeriesSource, source_flags
from forecasting.targets import Target, TargetKey
from wattpack.errors import InputError, WattpackError

HISTORY_DAYS: Final = 10
"""Training window of every published figure of the ridge; longer did not help."""

MAX_REPLAYED: Final = 500
"""New series rehearsed in one round; a replay costs about 50 forecasts each."""

MOST_FAILURES_AT_FIRST: Final = 5
"""Failures after which a round is given up if nothing was read yet: the history is away."""

MOST_FAILURES: Final = 20
"""The same once something was read: a few heavy expressions must not end the others' round, and at
ten seconds each they may cost a third of it."""

Pool = tuple[str, str, int, int, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise whose window is not over.

    Attributes:
        until_seconds: End of the window, Unix time.
        peaks: Uncorrected peak quantiles, shape (n_levels,).
        promised: Corrected p99.
        scale: The level by which a miss is measured.
    """

    until_seconds: int
    peaks: Floats
    promised: float
    scale: float


@dataclass(frozen=True, slots=True)
class Record:
    """How often a target's p99 held: windows counted, and windows above it."""

    windows: int = 0
    violations: int = 0


@dataclass(frozen=True, slots=True)
class ForecasterState:
    """What one round hands to the next; losing it costs a replay, nothing else."""

    calibrations: Mapping[Pool, Calibration] = field(default_factory=dict)
    promises: Mapping[TargetKey, Promise] = field(default_factory=dict)
    records: Mapping[TargetKey, Record] = field(default_factory=dict)
    methods: Mapping[TargetKey, Method] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetForecast:
    """One target's answer.

    Attributes:
        target: What was asked.
        made: The forecast of its group.
        row: Its place there.
        peaks: Calibrated peak quantiles over ``target.levels``, shape (n_levels,).
        record: How its promises did, replay included.
        flags: What a user should know about it.
        error: Why there is no forecast, else None: an ``InputError`` is the target's own fault.
    """

    target: Target
    made: Forecast | None
    row: int
    peaks: Floats
    record: Record
    flags: tuple[str, ...] = ()
    error: WattpackError | None = None


def step(
    state: ForecasterState, now_seconds: float, source: SeriesSource, targets: Sequence[Target]
) -> tuple[ForecasterState, list[TargetForecast]]:
    """One round over all targets.

    Args:
        state: From the round before.
        now_seconds: Unix time; only whole bins before it are used.
        source: The history.
        targets: What to forecast; state of targets that are gone is dropped.

    Raises:
        WattpackError: if not one series could be read; the state before stays valid.
    """
    keys = {target.key for target in targets}
    state = replace(
        state,
        promises={k: v for k, v in state.promises.items() if k in keys},
        records={k: v for k, v in state.records.items() if k in keys},
        methods={k: v for k, v in state.methods.items() if k in keys},
    )
    groups: dict[object, list[Target]] = {}
    for target in targets:
        groups.setdefault(target.group, []).append(target)
    answers: list[TargetForecast] = []
    patience = Patience()
    for members in groups.values():
        until = _until(now_seconds, members[0].step_seconds)
        usable, history, failed = _history(source, until, members, patience)
        answers += failed
        if usable:
            state, made = _answer(state, usable, history, until)
            answers += [_with_flags_of(source, answer) for answer in made]
    if patience.last is not None and not patience.answers:
        raise patience.last
    order = {target.key: i for i, target in enumerate(targets)}
    answers.sort(key=lambda answer: order[answer.target.key])
    return state, answers


def _until(now_seconds: float, step_seconds: int) -> int:
    """End of the newest whole bin."""
    return int(now_seconds // step_seconds) * step_seconds


@dataclass(slots=True)
class Patience:
    """How long a round goes on asking a history that does not answer.

    Attributes:
        answers: Series that were read.
        in_a_row: Failures since the last answer that were not the series' own fault.
        last: The newest of them.
    """

    answers: int = 0
    in_a_row: int = 0
    last: WattpackError | None = None

    def answered(self) -> None:
        """A series was read."""
        self.answers += 1
        self.in_a_row = 0

    def failed(self, error: WattpackError) -> None:
        """The history did not give what a history gives."""
        self.last = error
        self.in_a_row += 1

    def spent(self) -> WattpackError | None:
        """Why not to ask any more this round; None while it is worth it."""
        limit = MOST_FAILURES if self.answers else MOST_FAILURES_AT_FIRST
        return self.last if self.in_a_row >= limit else None


def _history(
    source: SeriesSource, until: int, members: Sequence[Target], patience: Patience
) -> tuple[list[Target], Floats, list[TargetForecast]]:
    """Ten days of every member, each asked alone; the others come back with the reason."""
    step_seconds = members[0].step_seconds
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
    return usable, np.concatenate(rows) if rows else np.empty((0, 0)), failed


def _with_flags_of(source: SeriesSource, answer: TargetForecast) -> TargetForecast:
    """The answer with what its source was short of."""
    return replace(answer, flags=(*answer.flags, *source_flags(source, answer.target.series)))


def _answer(
    state: ForecasterState, members: Sequence[Target], history: Floats, until: int
) -> tuple[ForecasterState, list[TargetForecast]]:
    """The answers of one group; a history that cannot be computed with fails alone."""
    try:
        names, planned = [m.series for m in members], [m.events for m in members]
        events = RoundEvents.of(history, names, planned, until, members[0].step_seconds)
        learned = _rehearse(state, members, events.freed, until)
        return _forecast_group(_settle(learned, members, history, until), members, events, until)
    except (WattpackError, ArithmeticError, ValueError) as error:
        if len(members) == 1:
            return state, [_refused(members[0], _incalculable(error))]
    half = len(members) // 2
    state, first = _answer(state, members[:half], history[:half], until)
    state, second = _answer(state, members[half:], history[half:], until)
    return state, [*first, *second]


def _incalculable(error: Exception) -> InputError:
    return InputError("series", f"a history that can be computed with ({error})")


def _refused(target: Target, error: WattpackError) -> TargetForecast:
    """The answer for a target whose series cannot be read or forecast as it stands."""
    return TargetForecast(target, None, 0, np.empty(0), Record(), error=error)


def _rehearse(
    state: ForecasterState, members: Sequence[Target], history: Floats, until: int
) -> ForecasterState:
    """Replay the history of members seen for the first time."""
    new = [i for i, member in enumerate(members) if member.key not in state.methods][:MAX_REPLAYED]
    if not new:
        return state
    first = members[new[0]]
    learned = replay(
        History(_ids(members[i] for i in new), history[new], until, first.step_seconds),
        horizon=first.horizon, levels=first.levels,
    )  # fmt: skip
    top = level_index(first.levels, 0.99)
    calibrations, records = dict(state.calibrations), dict(state.records)
    for window in learned.scores:
        pools: dict[Pool, list[int]] = {}
        for j, i in enumerate(new):
            pools.setdefault(members[i].pool, []).append(j)
        for pool, places in pools.items():
            before = calibrations.get(pool, Calibration.new(first.levels))
            offset = before.offsets()[top]
            for j in places:
                if np.isfinite(window[j, top]):
                    key = members[new[j]].key
                    records[key] = _counted(records.get(key), bool(window[j, top] > offset + 1e-9))
            calibrations[pool] = before.after(window[places])
    methods = {members[i].key: method for i, method in zip(new, learned.methods, strict=True)}
    return replace(
        state, calibrations=calibrations, records=records, methods={**state.methods, **methods}
    )


def _settle(
    state: ForecasterState, members: Sequence[Target], history: Floats, until: int
) -> ForecasterState:
    """Compare finished windows with their promises."""
    promises, records = dict(state.promises), dict(state.records)
    scores: dict[Pool, list[Floats]] = {}
    for i, member in enumerate(members):
        promise = promises.get(member.key)
        if promise is None or promise.until_seconds > until:
            continue
        del promises[member.key]
        end = history.shape[1] - (until - promise.until_seconds) // member.step_seconds
        begin = end - member.horizon
        if begin < 0 or len(promise.peaks) != len(member.levels):
            continue
        peak = float(realised_peaks(history[i : i + 1, begin:end])[0])
        if np.isfinite(peak):
            scores.setdefault(member.pool, []).append((peak - promise.peaks) / promise.scale)
            missed = peak > promise.promised * (1 + 1e-9)
            records[member.key] = _counted(records.get(member.key), missed)
    calibrations = dict(state.calibrations)
    for pool, rows in scores.items():
        before = calibrations.get(pool, Calibration.new(pool[-1]))
        calibrations[pool] = before.after(np.array(rows))
    return replace(state, promises=promises, records=records, calibrations=calibrations)


def _forecast_group(
    state: ForecasterState, members: Sequence[Target], events: RoundEvents, until: int
) -> tuple[ForecasterState, list[TargetForecast]]:
    """Forecast, correct the peaks, and note promises where none is open."""
    first = members[0]
    ceilings = np.array([np.nan if m.ceiling is None else m.ceiling for m in members])
    made = forecast(
        History(_ids(members), events.freed, until, first.step_seconds),
        horizon=first.horizon, levels=first.levels, ceilings=ceilings,
        prefer={_id(m): state.methods[m.key] for m in members if m.key in state.methods},
    )  # fmt: skip
    made = events.on(made)
    promises = dict(state.promises)
    answers = []
    top = level_index(first.levels, 0.99)
    for i, member in enumerate(members):
        calibration = state.calibrations.get(member.pool, Calibration.new(member.levels))
        peaks = made.peaks[i]
        flags = made.flags[i]
        if made.methods[i] != "limit":
            peaks = np.maximum(peaks + calibration.offsets() * made.scale[i], 0.0)
            # Misses are pooled: another series' wild hour may not lift this one beyond its bound.
            if peaks[-1] > made.tops[i] and "extreme" not in flags:
                flags = (*flags, "extreme")
            peaks = np.maximum.accumulate(np.fmin(peaks, made.tops[i]))
            if member.key not in promises:
                end = until + member.horizon * member.step_seconds
                promise = Promise(end, made.peaks[i], float(peaks[top]), float(made.scale[i]))
                promises[member.key] = promise
        record = state.records.get(member.key, Record())
        if not (np.isfinite(peaks).all() and np.isfinite(made.quantiles[i]).all()):
            promises.pop(member.key, None)
            answers.append(_refused(member, _incalculable(ArithmeticError("no finite answer"))))
            continue
        answers.append(TargetForecast(member, made, i, peaks, record, flags))
    return replace(state, promises=promises), answers


def _counted(record: Record | None, missed: bool) -> Record:
    """One more window."""
    before = record or Record()
    return Record(before.windows + 1, before.violations + int(missed))


def _id(target: Target) -> SeriesId:
    """A name that is unique per target: two targets may share a series."""
    return SeriesId(f"{target.namespace}/{target.name}")


def _ids(targets: Iterable[Target]) -> list[SeriesId]:
    """Names of several targets."""
    return [_id(target) for target in targets]
