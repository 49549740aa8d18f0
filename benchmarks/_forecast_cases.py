"""The sets that a forecast benchmark is asked for, with the ways in that all of them share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks._arguments import read_arguments
from benchmarks.forecast_references.refitted_daily import (
    LEVELS,
    is_present,
    reference_points,
    reference_quantiles,
)
from benchmarks.forecast_run import Published, published
from benchmarks.forecast_scores import Losses, losses
from benchmarks.forecast_sets import LATER, Floats, ForecastSet, clients, from_file, totals
from benchmarks.runner import Options, Target
from wattpack.errors import InputError

__all__ = ["KEPT_APART", "USAGE", "Case", "Figures", "absent", "cases", "targets_of"]

USAGE: Final = (
    "--data FILE (wide CSV: times ten minutes apart or closer, then a column a series), "
    "--confirmation"
)
KEPT_APART: Final = ("--confirmation",)
"""Whose result is scored once: it has a file of its own, which no plain run writes over."""

CHEAP: Final = ("seasonal_naive", "last_value", "autoreg", "dynamo_constant", "dynamo_kalman")
"""References of quick runs."""

EVERY_SERIES, EVERY_ORIGIN = 8, 5
"""Of the clients in quick runs; of the totals every series."""

Figures = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Case:
    """One set with what is asked about it.

    Attributes:
        given: Series and windows.
        options: Of the command line.
    """

    given: ForecastSet
    options: Options

    @property
    def name(self) -> str:
        """Of the set: what its figures begin with."""
        return self.given.name

    def ours(self) -> Published:
        """What the process published; in quick runs with the ridge as its only model."""
        return published(
            self.given,
            self.options.resume,
            self.options.progress,
            is_light=self.options.quick,
        )

    def references(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are installed, and in quick runs cheap."""
        wanted = [name for name in names if name in CHEAP or not self.options.quick]
        return tuple(name for name in wanted if is_present(name))

    def quantiles(self, name: str) -> Floats:
        """Deciles of a reference, shape (n_origins, n_series, HORIZON, 9)."""
        return reference_quantiles(name, self.given, self.options.resume, self.options.progress)

    def points(self, name: str) -> Floats:
        """A point predictor's next bins, shape (n_origins, n_series)."""
        return reference_points(name, self.given, self.options.resume, self.options.progress)

    def losses(self, name: str) -> Losses:
        """Of a reference."""
        return losses(self.quantiles(name), LEVELS, self.given.truth(), self.given.scales())


def cases(options: Options, name: str) -> list[Case]:
    """The judged sets, or the user's file; with ``--confirmation`` the second half of Helios alone.

    Raises:
        InputError: for arguments and files that cannot be used.
    """
    # A shortened --confirmation would be kept under the plain result's name.
    parser = argparse.ArgumentParser(
        prog=name, add_help=False, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--confirmation", action="store_true")
    given = read_arguments(parser, options.arguments, USAGE)
    if given.confirmation and (given.data is not None or options.quick):
        raise InputError("--confirmation", "a full run of the shipped sets", "--data or --quick")
    if given.data is not None:
        own = from_file(given.data)
        if own.left_out:
            options.progress(f"left out for their gaps: {', '.join(own.left_out)}")
        return [Case(own.sample(1, EVERY_ORIGIN) if options.quick else own, options)]
    sets = [clients(), totals()]
    if options.quick:
        sets = [clients().sample(EVERY_SERIES, EVERY_ORIGIN), totals().sample(1, EVERY_ORIGIN)]
    if given.confirmation:
        sets = [make() for make in LATER.values()]
    return [Case(found, options) for found in sets]


def targets_of(targets: dict[str, Target], figures: Figures) -> dict[str, Target]:
    """Those on figures that were made: a file of the user's has no bounds."""
    return {name: bound for name, bound in targets.items() if name in figures}


def absent(names: tuple[str, ...]) -> str:
    """References whose libraries are not installed, for people."""
    missing = [name for name in names if not is_present(name)]
    return ", ".join(missing) or "none"
