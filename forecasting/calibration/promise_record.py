"""How promises were kept: counts that anybody may check, live windows apart from rehearsed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from forecasting.calibration.stored_fields import Fields

Kind = Literal["live", "rehearsed"]
KINDS: Final[tuple[Kind, ...]] = ("live", "rehearsed")
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of windows and of the promises in them that were exceeded.

    Attributes:
        windows: Windows that are over, or broken already.
        violations: Of these, exceeded, one a level.
        reserved: Sum of what was promised, one a level, over windows that are over.
        realised: Sum of the realised peaks of the same windows.
    """

    windows: int
    violations: tuple[int, ...]
    reserved: tuple[float, ...]
    realised: float = 0.0

    @classmethod
    def new(cls, n_levels: int) -> Tally:
        """Nothing counted."""
        return cls(0, (0,) * n_levels, (0.0,) * n_levels)

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(
            self.windows + other.windows,
            tuple(a + b for a, b in zip(self.violations, other.violations, strict=True)),
            tuple(a + b for a, b in zip(self.reserved, other.reserved, strict=True)),
            self.realised + other.realised,
        )

    def reserve_ratios(self) -> tuple[float | None, ...]:
        """Reserved over realised, one a level; None while nothing was realised."""
        if self.realised <= 0:
            return (None,) * len(self.reserved)
        return tuple(total / self.realised for total in self.reserved)


@dataclass(frozen=True, slots=True)
class PromiseRecord:
    """What became of a class' or a series' promises.

    Attributes:
        levels: Quantile levels.
        live: Of windows that were forecast before they began.
        rehearsed: Of windows of the history, forecast afterwards with what was known before.
    """

    levels: tuple[float, ...]
    live: Tally
    rehearsed: Tally

    @classmethod
    def new(cls, levels: Sequence[float]) -> PromiseRecord:
        """Nothing counted."""
        known = tuple(float(level) for level in levels)
        return cls(known, Tally.new(len(known)), Tally.new(len(known)))

    def after(
        self,
        promised: Sequence[float],
        realised: float,
        kind: Kind,
        told: Sequence[bool] | None = None,
    ) -> PromiseRecord:
        """With one window that is over.

        Args:
            promised: What was published, one a level.
            realised: Its highest value; NaN counts nothing.
            kind: Live or rehearsed.
            told: Levels that were counted as broken while it was open.
        """
        if not np.isfinite(realised):
            return self
        early = told or (False,) * len(self.levels)
        broken = tuple(
            int(realised > q and not before) for q, before in zip(promised, early, strict=True)
        )
        # A window that broke early was counted as a window then.
        fresh = Tally(int(not any(early)), broken, tuple(map(float, promised)), float(realised))
        if kind == "rehearsed":
            return replace(self, rehearsed=self.rehearsed.plus(fresh))
        return replace(self, live=self.live.plus(fresh))

    def after_broken(self, levels: Sequence[bool], first: bool) -> PromiseRecord:
        """A live window that is still open has exceeded its promise: that counts at once.

        Args:
            levels: Which levels broke just now.
            first: Whether none of the window's levels broke before.
        """
        fresh = Tally(int(first), tuple(map(int, levels)), (0.0,) * len(self.levels))
        return replace(self, live=self.live.plus(fresh))

    @property
    def total(self) -> Tally:
        """Live and rehearsed windows together."""
        return self.live.plus(self.rehearsed)

    def coverage(self, kind: Kind | None = None) -> tuple[float | None, ...]:
        """Share of promises that were kept, one a level; None before the first window."""
        tally = self._tally(kind)
        if tally.windows == 0:
            return (None,) * len(self.levels)
        return tuple(1.0 - v / tally.windows for v in tally.violations)

    def to_json(self) -> dict[str, object]:
        """What ``from_json`` reads."""
        return {
            "version": VERSION,
            "levels": list(self.levels),
            "live": _tally_json(self.live),
            "rehearsed": _tally_json(self.rehearsed),
        }

    @classmethod
    def from_json(cls, document: object) -> PromiseRecord:
        """The record that was written.

        Raises:
            InputError: another version's, or damaged.
        """
        stored = Fields(document, "promiseRecord")
        stored.version(VERSION)
        levels = stored.numbers("levels", (None,))
        n_levels = len(levels)
        return cls(
            levels=tuple(levels.tolist()),
            live=_tally(stored.inner("live"), n_levels),
            rehearsed=_tally(stored.inner("rehearsed"), n_levels),
        )

    def _tally(self, kind: Kind | None) -> Tally:
        """Counts of one kind, or of both."""
        if kind is None:
            return self.total
        return self.live if kind == "live" else self.rehearsed


def _tally_json(tally: Tally) -> dict[str, object]:
    """A tally as plain numbers."""
    return {
        "windows": tally.windows,
        "violations": list(tally.violations),
        "reserved": list(tally.reserved),
        "realised": tally.realised,
    }


def _tally(stored: Fields, n_levels: int) -> Tally:
    """A tally that was written."""
    violations = stored.numbers("violations", (n_levels,))
    return Tally(
        windows=stored.whole("windows"),
        violations=tuple(int(v) for v in violations),
        reserved=tuple(stored.numbers("reserved", (n_levels,)).tolist()),
        realised=stored.number("realised"),
    )
