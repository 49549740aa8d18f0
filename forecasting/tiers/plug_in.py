"""Forecasters of other people behind the same interface: checked, and never trusted.

A package offers one by an entry point of the group ``wattpack.forecasters`` that names a callable
without arguments, which makes a ``forecasting.forecaster.Forecaster``. It runs in the forecaster's
own process with its rights; what it raises or answers costs only itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, Final

import numpy as np

from forecasting.forecast import LAST_DAY, LIMIT, checked_levels
from forecasting.forecaster import Forecaster, Provenance
from forecasting.series_source import Floats, History
from wattpack.errors import InputError
from wattpack.printable import printable

GROUP: Final = "wattpack.forecasters"

TAKEN: Final = frozenset({
    "boosted", "ridge", "smoothing", "last-value", LAST_DAY, LIMIT,
})  # fmt: skip
"""Names of what is here already: a stranger of that name would be taken for it."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODEL_LETTERS: Final = 128
"""What a status has room for."""

log = logging.getLogger(__name__)


class PlugIn:
    """A foreign forecaster whose every answer is looked at.

    What it raises becomes no answer until its next ``update``; rows that are not finite, negative
    or not sorted become NaN.

    Args:
        name: Of the entry point; its answers are judged by it.
        inner: The foreign one.

    Attributes:
        problem: What was wrong with its newest answer; empty if nothing was. Told in the log when
            it is another one than was told last.
    """

    def __init__(self, name: str, inner: Forecaster) -> None:
        self.problem = ""
        self._told = ""
        self._name = name
        self._inner = inner
        self._n_series = 0
        self._until_seconds = 0
        self._lost = True

    @property
    def provenance(self) -> Provenance:
        """Its name and version; times never later than the newest bin."""
        told = self._tried(lambda: self._bounded(self._inner.provenance))
        return told or Provenance(self._name, self._until_seconds, 0)

    def update(self, batch: History) -> None:
        """Hand over a copy of the batch; see ``Forecaster.update``."""
        self._n_series, self._until_seconds = len(batch.series), batch.until_seconds
        self.problem, self._lost = "", False
        own = History(
            tuple(batch.series), batch.values.copy(), batch.until_seconds, batch.step_seconds
        )
        self._tried(lambda: self._inner.update(own))
        self._lost = bool(self.problem)

    def quantiles(self, horizon: int, levels: Sequence[float]) -> Floats:
        """Step quantiles; see ``Forecaster.quantiles``."""
        n_levels = len(checked_levels(levels))
        shape = (self._n_series, _positive("horizon", horizon), n_levels)
        made = self._answer(lambda: self._inner.quantiles(horizon, tuple(levels)), shape)
        unsorted = np.array((np.diff(made, axis=2) < 0).any(axis=(1, 2)))
        return self._without(made, unsorted, "not sorted over levels")

    def paths(self, horizon: int, n: int) -> Floats:
        """Joint paths; see ``Forecaster.paths``."""
        shape = (self._n_series, _positive("n", n), _positive("horizon", horizon))
        return self._answer(lambda: self._inner.paths(horizon, n), shape)

    def peak_quantile(self, window: int, level: float) -> Floats:
        """Quantile of the window's highest bin; see ``Forecaster.peak_quantile``."""
        checked_levels((level,))
        _positive("window", window)
        return self._answer(lambda: self._inner.peak_quantile(window, level), (self._n_series,))

    def close(self) -> None:
        """End what it works at beside the calls, if it says how: ``close()``."""
        if hasattr(self._inner, "close"):
            self._tried(self._inner.close)

    def _bounded(self, told: Provenance) -> Provenance:
        """What it says of itself, in figures and words that a status can hold."""
        until = min(max(0, int(told.data_until_seconds)), self._until_seconds)
        return Provenance(
            model=f"{self._name}/{printable(str(told.model))}"[:_MODEL_LETTERS],
            data_until_seconds=until,
            fitted_until_seconds=min(max(0, int(told.fitted_until_seconds)), until),
        )

    def _answer(self, ask: Callable[[], Floats], shape: tuple[int, ...]) -> Floats:
        """What it answers, where it is sound; NaN elsewhere."""
        nothing = np.full(shape, np.nan)
        if self._lost:
            return nothing
        # A copy: it keeps no hold of what was looked at.
        told = self._tried(lambda: np.array(ask(), dtype=np.float64))
        if told is None:
            return nothing
        if told.shape != shape:
            self._tell(f"an answer of shape {told.shape}, not {shape}")
            return nothing
        flat = told.reshape(shape[0], -1)
        absent = np.isnan(flat).all(axis=1)
        told = self._without(told, ~absent & ~np.isfinite(flat).all(axis=1), "not finite")
        with np.errstate(invalid="ignore"):
            return self._without(told, np.array((flat < 0).any(axis=1)), "negative")

    def _without(self, made: Floats, bad: np.ndarray, why: str) -> Floats:
        if bad.any():
            self._tell(f"{int(bad.sum())} of {len(bad)} series {why}")
            made[bad] = np.nan
        return made

    def _tried(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401  whatever a stranger returns
        """What the call returns; None and a problem if it raises anything at all."""
        try:
            return call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # it ends by sys.exit, or panics in Rust
            self._tell(_words(error))
            return None

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            log.warning("plug-in %s: %s", self._name, problem)
        self.problem = self._told = problem


def load_plug_ins(
    names: Sequence[str], offered: Iterable[metadata.EntryPoint] | None = None
) -> tuple[list[PlugIn], Mapping[str, str]]:
    """The named plug-ins, and why others of them are absent.

    Args:
        names: Of entry points, as the settings list them: nothing foreign runs unasked.
        offered: Entry points; None looks at what is installed.
    """
    found = metadata.entry_points(group=GROUP) if offered is None and names else offered or ()
    points = {point.name: point for point in found}
    loaded, absent = [], {}
    for name in dict.fromkeys(names):
        if problem := _name_problem(name, points):
            absent[name] = problem
            continue
        try:
            loaded.append(PlugIn(name, points[name].load()()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            absent[name] = _words(error)
    return loaded, absent


def _name_problem(name: str, offered: Container[str]) -> str:
    """Why no plug-in of this name is looked for; empty if one is."""
    if name not in offered:
        return f"no installed package offers it (entry points of {GROUP})"
    if name in TAKEN or not _NAME.fullmatch(name):
        return "its name is no other model's, and has at most 64 letters, digits, dots and dashes"
    return ""


def _words(error: BaseException) -> str:
    """What was raised, in one short line; a stranger's error may fail at that, too."""
    kind = type(error).__name__
    try:
        return printable(f"{kind}: {error}"[:200])
    except Exception:
        return kind


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise InputError(name, "at least one", value)
    return value
