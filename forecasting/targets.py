"""What is to be forecast: the checked content of a DemandForecast object."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from forecasting.events.planned_event import PlannedEvent, events_of_spec
from forecasting.issued_forecast import ForecastKey
from forecasting.peak_quantiles import STATUS_LEVELS
from forecasting.power_forecast.domain_boards import DrawChange
from forecasting.power_forecast.present_rows import UNKNOWN_BOARDS, BoardWatts
from forecasting.power_forecast.work_watts import LoadLine
from forecasting.series_source import SeriesId, window_steps
from wattpack.api.demand_forecast import MAX_FORECAST_STEPS, DemandForecast
from wattpack.api.forecast_subject import ForecastTokenLengths
from wattpack.errors import InputError

TargetKey = ForecastKey


@dataclass(frozen=True, slots=True)
class LoadSource:
    """A load of a domain.

    Attributes:
        series: Its name in the history.
        workload: Of the pods that serve it.
        per_board: What one board serves at its default limit, in the series' unit.
        line: What it makes their boards draw; None as long as nobody found any.
        events: What is planned for it, as far as a target of the same namespace says so.
    """

    series: SeriesId
    workload: str
    per_board: float
    line: LoadLine | None = None
    events: tuple[PlannedEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Series of the lengths of a target's requests.

    Attributes:
        series: Their tokens a second.
        p99_series: Tokens that one request in a hundred exceeds; None for unknown.
        second_moment_series: Mean of the squared length; None for unknown.
    """

    series: SeriesId
    p99_series: SeriesId | None = None
    second_moment_series: SeriesId | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One series to forecast.

    Attributes:
        namespace: Of the object.
        name: Of the object.
        series: Name in the history or PromQL.
        kind: ``domain``, ``workload`` or ``series``; misses are pooled over one
            kind and namespace.
        horizon: Steps ahead.
        step_seconds: Width of a step.
        asked_levels: Levels whose paths go into the status.
        ceiling: What the series cannot exceed, or None.
        generation: The object's generation that this was read from.
        subject: The PowerDomain or workload by name; empty for a plain series.
        events: What is planned, and earlier events like it.
        boards: What stands below its PowerDomain, as far as somebody looked.
        above: The PowerDomains that feed its own, nearest first, as far as somebody looked.
        load: What tells its draw through the capacity model.
        held_series: Share of each bin in which caps held its work back.
        changes: Work that came to its domain, and went.
        tokens: How long its requests are; None for what is no stream of requests.
        ceiling_name: Whose the ceiling is; empty for that of whoever asks.
        n_paths: Joint paths that are wanted beside the quantiles, as many as any other target of
            the group; a status has no room for them.
        tells_tiers: Whether what each model says is wanted, too, as a backtest does.
    """

    namespace: str
    name: str
    series: SeriesId
    kind: str
    horizon: int
    step_seconds: int
    asked_levels: tuple[float, ...]
    ceiling: float | None
    generation: int
    subject: str = ""
    events: tuple[PlannedEvent, ...] = ()
    boards: BoardWatts = UNKNOWN_BOARDS
    above: tuple[str, ...] = ()
    load: tuple[LoadSource, ...] = ()
    held_series: SeriesId | None = None
    changes: tuple[DrawChange, ...] = ()
    tokens: TokenSource | None = None
    ceiling_name: str = ""
    n_paths: int = 0
    tells_tiers: bool = False

    def below(self, ceiling: float | None, name: str) -> Target:
        """The target with this ceiling where it has none that is as low.

        Args:
            ceiling: What its series cannot exceed, either; None for nothing.
            name: Whose it is, for people.
        """
        if ceiling is None or (self.ceiling is not None and self.ceiling <= ceiling):
            return self
        return replace(self, ceiling=ceiling, ceiling_name=name)

    @property
    def key(self) -> TargetKey:
        """Namespace and name."""
        return ForecastKey(self.namespace, self.name)

    @property
    def identity(self) -> SeriesId:
        """Under which a forecaster learns of it: two targets may share a series.

        Another series, other levels, steps or horizon under the same name are another identity:
        what was promised for one says nothing of the other.
        """
        asked = hashlib.sha256(repr((self.series, self.group)).encode("utf-8", "surrogatepass"))
        return SeriesId(f"{self.namespace}/{self.name}/{asked.hexdigest()[:12]}")

    @property
    def pool(self) -> tuple[str, str]:
        """With whose misses its own are pooled: nobody's series moves another namespace's."""
        return (self.namespace, self.kind)

    @property
    def levels(self) -> tuple[float, ...]:
        """All levels to compute, ascending: what every status carries, and what the spec asks."""
        return tuple(sorted({*self.asked_levels, *STATUS_LEVELS}))

    @property
    def group(self) -> tuple[int, int, tuple[float, ...]]:
        """Targets of one group are computed together."""
        return (self.step_seconds, self.horizon, self.levels)


def target_of(body: Mapping[str, Any]) -> Target:
    """The target in an object.

    Raises:
        InputError: naming the field, if the object or a level is not usable.
    """
    # The status is ours to write: what stands there now must not keep the target from being read.
    found = DemandForecast.read({key: part for key, part in body.items() if key != "status"})
    spec, metadata = found.spec, found.metadata
    kind, subject = "series", ""
    if spec.target.power_domain is not None:
        kind, subject = "domain", spec.target.power_domain
    elif spec.target.workload is not None:
        kind, subject = "workload", spec.target.workload
    series = {
        "spec.target.series": spec.target.series,
        "spec.heldSeries": spec.held_series or "",
        "spec.tokens.series": "" if spec.tokens is None else spec.tokens.series,
        "spec.tokens.p99Series": (spec.tokens.p99_series or "") if spec.tokens else "",
        "spec.tokens.secondMomentSeries": (
            (spec.tokens.second_moment_series or "") if spec.tokens else ""
        ),
        **{f"spec.load[{i}].series": one.series for i, one in enumerate(spec.load)},
    }
    for path, text in series.items():
        if "\x00" in text:
            raise InputError(path, "text without NUL", None, found.name)
    return Target(
        namespace=str(metadata.get("namespace", "")),
        name=found.name,
        series=SeriesId(spec.target.series),
        kind=kind,
        horizon=min(window_steps(spec.horizon_seconds, spec.step_seconds), MAX_FORECAST_STEPS),
        step_seconds=spec.step_seconds,
        asked_levels=tuple(spec.levels),
        ceiling=spec.ceiling_watts,
        generation=int(metadata.get("generation", 0)),
        subject=subject,
        events=events_of_spec(spec.events, found.name),
        load=tuple(LoadSource(SeriesId(o.series), o.workload, o.per_board) for o in spec.load),
        tokens=_tokens_of(spec.tokens),
        held_series=None if spec.held_series is None else SeriesId(spec.held_series),
    )


def _tokens_of(spec: ForecastTokenLengths | None) -> TokenSource | None:
    if spec is None:
        return None
    p99, square = (
        None if series is None else SeriesId(series)
        for series in (spec.p99_series, spec.second_moment_series)
    )
    return TokenSource(SeriesId(spec.series), p99, square)
