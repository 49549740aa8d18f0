"""What a DemandForecast says about itself beside its figures, read with suspicion.

Nothing is decided by it: it is shown. So a part that makes no sense is left out, and the forecast
stands without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from forecasting.told_time import told_seconds
from wattpack.errors import InputError
from wattpack.times import LAST_TIME_SECONDS
from wattpack.units import require_number

LONGEST_NAME: Final = 128
MOST_ENTRIES: Final = 16
_ANY_COUNT: Final = 2**53

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IssuedTier:
    """One of the models behind a forecast and its share of it."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class IssuedCalibration:
    """What the correction of the peaks rests on.

    Attributes:
        live_windows: Finished windows of promises that were really made, over the pool.
        rehearsed_windows: Windows of the history that were gone through afterwards.
        offset_p99: Added to the p99, in the series' unit; None if it is not said.
        updated_seconds: End of the newest window in it, Unix time.
    """

    live_windows: int
    rehearsed_windows: int
    offset_p99: float | None
    updated_seconds: float | None


@dataclass(frozen=True, slots=True)
class IssuedAccount:
    """How a forecast did so far, and what it was made of. None: it does not say.

    Attributes:
        windows: Finished windows that its p99 was held against, rehearsed ones included.
        violations: Of them, those whose peak was above it.
        violation_bound: Upper 95 % bound of the share above it.
        live_windows: Of the windows, those of promises that were really made; told with
            ``live_violations`` or not at all.
        live_violations: Of the live windows, those whose peak was above the p99.
        live_violation_bound: Upper 95 % bound of the share of live windows above it.
        reserve_ratio: Sum of promised p99 over sum of realised peaks.
        live_reserve_ratio: The same of live windows that are over.
        tiers: Heaviest first.
        model_version: Equal versions answer equally.
        fitted_until_seconds: End of the data that it was fitted on, Unix time.
        calibration: State of the peaks' correction.
        flags: What a user should know, one word each.
    """

    windows: int | None = None
    violations: int | None = None
    violation_bound: float | None = None
    live_windows: int | None = None
    live_violations: int | None = None
    live_violation_bound: float | None = None
    reserve_ratio: float | None = None
    live_reserve_ratio: float | None = None
    tiers: tuple[IssuedTier, ...] = ()
    model_version: str = ""
    fitted_until_seconds: float | None = None
    calibration: IssuedCalibration | None = None
    flags: tuple[str, ...] = ()

    def kept(self) -> str:
        """How often the p99 held, promises apart from rehearsals, in words."""
        windows, violations = self.windows or 0, self.violations or 0
        if not windows:
            return "no window is over yet"
        live, missed = self.live_windows, self.live_violations
        if live is None or missed is None:
            return f"{windows - violations} of {windows} kept"
        rehearsed = windows - live
        held = f"{rehearsed - violations + missed} of {rehearsed}"
        if not live:
            return f"no live window yet, {held} kept in rehearsal"
        told = f"{live - missed} of {live} kept live"
        return f"{told}, {held} in rehearsal" if rehearsed else told


def read_account(status: Mapping[str, Any]) -> IssuedAccount:
    """What the status says of itself; never an error, whatever it holds."""
    version = status.get("modelVersion")
    windows, violations = _count(status, "coverageN"), _count(status, "violations")
    live, missed = _live(status, windows or 0, violations or 0)
    bound = _number(status, "liveViolationBound95", maximum=1.0)
    return IssuedAccount(
        windows=windows,
        violations=violations,
        live_windows=live,
        live_violations=missed,
        live_violation_bound=bound if live else None,
        violation_bound=_number(status, "violationBound95", maximum=1.0),
        reserve_ratio=_number(status, "reserveRatio"),
        live_reserve_ratio=_number(status, "liveReserveRatio") if live else None,
        tiers=_each(status.get("tiers"), _tier),
        model_version=version[:LONGEST_NAME] if isinstance(version, str) else "",
        fitted_until_seconds=_time(status, "fittedUntil"),
        calibration=_calibration(status.get("calibration")),
        flags=_each(status.get("flags"), lambda flag: flag[:64] if isinstance(flag, str) else None),
    )


def _live(
    status: Mapping[str, Any], windows: int, violations: int
) -> tuple[int | None, int | None]:
    """Live windows and the missed ones of them; neither where they are no part of the total."""
    live, missed = _count(status, "liveWindows"), _count(status, "liveViolations")
    if live is None or missed is None:
        return None, None
    # What is left is rehearsed, and must make sense, too.
    is_part = missed <= live and 0 <= violations - missed <= windows - live
    return (live, missed) if is_part else (None, None)


def _tier(given: object) -> IssuedTier | None:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        return None
    weight = _number(given, "weight", maximum=1.0)
    return None if weight is None else IssuedTier(given["name"][:64], weight)


def _calibration(given: object) -> IssuedCalibration | None:
    if not isinstance(given, Mapping):
        return None
    return IssuedCalibration(
        live_windows=_count(given, "liveWindows") or 0,
        rehearsed_windows=_count(given, "rehearsedWindows") or 0,
        offset_p99=_number(given, "offsetP99", minimum=-1e15),
        updated_seconds=_time(given, "updatedAt"),
    )


def _each(given: object, read: Callable[[object], T | None]) -> tuple[T, ...]:
    """The entries that make sense, of the first sixteen."""
    entries = given if isinstance(given, list | tuple) else ()
    found = (read(entry) for entry in entries[:MOST_ENTRIES])
    return tuple(entry for entry in found if entry is not None)


def _number(
    given: Mapping[Any, Any], name: str, minimum: float = 0.0, maximum: float = 1e15
) -> float | None:
    try:
        return require_number(name, given.get(name), minimum=minimum, maximum=maximum)
    except InputError:
        return None


def _count(given: Mapping[Any, Any], name: str) -> int | None:
    value = given.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _ANY_COUNT
    return value if whole else None


def _time(given: Mapping[Any, Any], name: str) -> float | None:
    seconds = told_seconds(given.get(name))
    return seconds if seconds is not None and 0 <= seconds <= LAST_TIME_SECONDS else None
