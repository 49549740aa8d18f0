"""Runs of the reference models over a set: refitted once a day of data, kept by what they rest on.

A reference has parameters from the end of a day of data and sees the ten days before each origin;
it never sees a bin behind it. Models whose library is not installed, or cannot be loaded, are
absent, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from benchmarks._kept_arrays import Arrays, digest_of, kept_arrays
from benchmarks.forecast_references import (
    boosted_reference,
    dynamo_references,
    mstl_reference,
    naive_references,
    statsmodels_references,
)
from benchmarks.forecast_scores import DECILES
from benchmarks.forecast_sets import DAY, HORIZON, Floats, ForecastSet
from wattpack.errors import InputError

__all__ = ["LEVELS", "POINTS", "QUANTILES", "is_present", "reference_points", "reference_quantiles"]

LEVELS: Final = DECILES

Told = Callable[[str], None]


class _Quantiles(Protocol):
    def fit(self, past: Floats) -> None: ...

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats: ...


class _Points(Protocol):
    def fit(self, past: Floats) -> None: ...

    def next(self, past: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A reference model.

    Attributes:
        make: A new one, a ``_Quantiles`` or a ``_Points``.
        libraries: It cannot do without.
        is_fitted_once: At the first origin, and never again.
    """

    make: Callable[[], Any]
    libraries: tuple[str, ...] = ()
    is_fitted_once: bool = False

    @property
    def module(self) -> str:
        """That it is in."""
        return str(self.make.__module__)


QUANTILES: Final = {
    "seasonal_naive": Kind(naive_references.SeasonalNaive),
    "last_value": Kind(naive_references.LastValue),
    "ets": Kind(statsmodels_references.SeasonalSmoothing, ("statsmodels",)),
    "autoreg": Kind(statsmodels_references.AutoRegressive, ("statsmodels",)),
    "lightgbm": Kind(boosted_reference.BoostedAlone, ("lightgbm",)),
    "mstl_autoets": Kind(mstl_reference.MstlAutoEts, ("statsforecast",)),
}
"""Models that answer with quantiles."""

POINTS: Final = {
    "dynamo_constant": Kind(dynamo_references.Constant),
    "dynamo_kalman": Kind(dynamo_references.Kalman),
    "dynamo_arima": Kind(dynamo_references.Arima, ("statsforecast",), is_fitted_once=True),
    "dynamo_prophet": Kind(dynamo_references.Prophet, ("prophet",)),
}
"""Models that answer with the next point."""


def is_present(name: str) -> bool:
    """Whether the libraries of a reference are installed and can be loaded."""
    kind = {**QUANTILES, **POINTS}[name]
    return all(map(_loads, kind.libraries))


def _loads(library: str) -> bool:
    try:
        import_module(library)
    except Exception:  # OSError where the system lacks what its binary is linked to
        return False
    return True


def reference_quantiles(
    name: str, given: ForecastSet, resume: Path | None = None, progress: Told | None = None
) -> Floats:
    """Over ``LEVELS``, shape (n_origins, n_series, HORIZON, n_levels).

    Raises:
        InputError: for a reference that is not there or answered no number.
    """

    def answer(model: _Quantiles, past: Floats) -> Floats:
        return model.quantiles(past, HORIZON, LEVELS)

    return _run(name, QUANTILES[name], given, answer, resume, progress)


def reference_points(
    name: str, given: ForecastSet, resume: Path | None = None, progress: Told | None = None
) -> Floats:
    """The next bin as each predictor sees it, shape (n_origins, n_series).

    Raises:
        InputError: as ``reference_quantiles``.
    """

    def answer(model: _Points, past: Floats) -> Floats:
        return model.next(past)

    return _run(name, POINTS[name], given, answer, resume, progress)


def _run(
    name: str,
    kind: Kind,
    given: ForecastSet,
    answer: Callable[[Any, Floats], Floats],
    resume: Path | None,
    progress: Told | None,
) -> Floats:
    """The answers at every origin, a file a fit."""
    if not is_present(name):
        raise InputError(name, f"{', '.join(kind.libraries)} that can be loaded")
    parts = []
    for cut, origins in _fits(given, kind).items():
        libraries = ("numpy", "scipy", *kind.libraries)
        digest = digest_of(kind.module, libraries, given.digest(), str((cut, origins, LEVELS)))

        def make(cut: int = cut, origins: Sequence[int] = origins) -> Arrays:
            model = kind.make()
            model.fit(given.training(cut))
            return {"answers": np.stack([answer(model, given.training(o)) for o in origins])}

        arrays, was_kept = kept_arrays(resume, f"{given.name}-{name}-{cut}", digest, make)
        if not was_kept and progress is not None:
            progress(f"{name} on {given.name}, fitted before bin {cut}: {len(origins)} origins")
        parts.append(arrays["answers"])
    answers: Floats = np.concatenate(parts)
    if not np.isfinite(answers).all():
        raise InputError(name, f"a finite answer for every series of {given.name}")
    return answers


def _fits(given: ForecastSet, kind: Kind) -> dict[int, tuple[int, ...]]:
    """Origins by the end of the data that the model was fitted on."""
    first = given.origins[0]
    if kind.is_fitted_once:
        return {first: given.origins}
    fits: dict[int, list[int]] = {}
    for origin in given.origins:
        fits.setdefault(first + (origin - first) // DAY * DAY, []).append(origin)
    return {cut: tuple(origins) for cut, origins in fits.items()}
