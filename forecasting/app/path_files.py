"""``--paths`` of ``wattpack forecast``: joint sample paths, in JSON and in files for others.

CSV, Parquet    path, time, one column a series: a row for each step of each path
npz             paths (series, path, step) with the names, the first step and what made them
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from forecasting.files.parquet_table import path_table, require_arrow
from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.flags import output_file, write_output
from wattpack.times import parse_rfc3339, rfc3339
from wattpack.units import seconds_to_ns

MOST_PATHS: Final = 10_000
MOST_VALUES: Final = 20_000_000
"""Of all series together: 160 MB here, and some 300 MB as text."""

SUFFIXES: Final = (".csv", ".parquet", ".npz")
KEYS: Final = ("path", "time")
"""Columns of a table before those of the series."""

DIGITS: Final = 12
"""Significant ones: parts of a tree of thousands still add up to a millionth."""


@dataclass(frozen=True, slots=True)
class SeriesPaths:
    """The paths of one series.

    Attributes:
        values: Shape (n_paths, horizon), in the unit of the series.
        adds_up: Whether they were moved so that the parts of a power tree add up.
    """

    values: Floats
    adds_up: bool


@dataclass(frozen=True, slots=True)
class ToldPaths:
    """The paths of a series with what it said of itself.

    Attributes:
        series: Its name.
        status: Of its forecast.
        step_seconds: Width of a step.
        paths: Of it.
    """

    series: str
    status: dict[str, Any]
    step_seconds: int
    paths: SeriesPaths

    @property
    def is_calibrated(self) -> bool:
        """Whether the steps that they follow are corrected by windows that are over."""
        return not {"uncalibrated", "no-history"} & set(self.status["flags"])

    def to_json(self) -> dict[str, Any]:
        """As a mapping that JSON can hold."""
        return {
            "windowStart": self.status["windowStart"],
            "stepSeconds": self.step_seconds,
            "calibrated": self.is_calibrated,
            "addsUp": self.paths.adds_up,
            "values": [[_short(value) for value in path] for path in self.paths.values.tolist()],
        }


def add_path_flags(parser: argparse.ArgumentParser) -> None:
    """``--paths`` and ``--paths-file``."""
    parser.add_argument(
        "--paths", type=int, metavar="N",
        help=f"also N joint sample paths of all series, at most {MOST_PATHS:,}: path j is the same "
        "past hour in each, so sums over series are right; with --json or --paths-file",
    )  # fmt: skip
    parser.add_argument(
        "--paths-file", type=_paths_file, metavar="FILE",
        help="write them into FILE.csv, FILE.parquet or FILE.npz",
    )  # fmt: skip


def _paths_file(text: str) -> Path:
    if Path(text).suffix.lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(
            f"expected a name that ends in .csv, .parquet or .npz, got {text!r}"
        )
    return output_file(text)


def asked_paths(args: argparse.Namespace, names: Sequence[str], horizon: int) -> int:
    """How many paths the flags ask for, 0 for none.

    Args:
        args: The command line.
        names: Of all series that are asked for.
        horizon: Steps of the window.

    Raises:
        InputError: a file without paths, paths for nobody, too few or too many of them, a library
            or a format that cannot hold them.
    """
    n: int | None = args.paths
    if n is None:
        if args.paths_file is not None:
            raise InputError("paths-file", "--paths beside it", str(args.paths_file))
        return 0
    if not 1 <= n <= MOST_PATHS:
        raise InputError("paths", f"1 to {MOST_PATHS}", n)
    if n * len(names) * horizon > MOST_VALUES:
        wanted = f"at most {MOST_VALUES} values of {len(names)} series and {horizon} steps"
        raise InputError("paths", wanted, n * len(names) * horizon)
    if args.paths_file is None and not args.json:
        raise InputError("paths", "--json or --paths-file beside it", n)
    if args.paths_file is not None and args.paths_file.suffix.lower() != ".npz":
        for name in set(KEYS) & set(names):
            raise InputError(
                "paths-file", f"an .npz file for a series called {name!r}", str(args.paths_file)
            )
        if args.paths_file.suffix.lower() == ".parquet":
            require_arrow(str(args.paths_file))
    return n


def write_paths(file: Path, told: Sequence[ToldPaths]) -> None:
    """The paths are in the file, all of them or none.

    Args:
        file: Its ending says the format.
        told: Of every series with a forecast, at least one; of one window.

    Raises:
        InputError: of no series.
        PermanentError: where it was writable before the run and is not any more.
    """
    if not told:
        raise InputError("paths", "a series with a forecast", 0)
    match file.suffix.lower():
        case ".npz":
            write_output(file, _archive(told))
        case ".parquet":
            write_output(file, path_table(*_columns(told)))
        case _:
            write_output(file, _table(told))


def _columns(told: Sequence[ToldPaths]) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Path and time (Unix seconds) of each row, and each series' values, (n_paths * horizon,)."""
    first, (n, horizon) = told[0], told[0].paths.values.shape
    start = parse_rfc3339(first.status["windowStart"]).timestamp()
    times = start + first.step_seconds * np.arange(horizon, dtype=np.float64)
    path = np.repeat(np.arange(n, dtype=np.float64), horizon)
    return path, np.tile(times, n), {one.series: one.paths.values.ravel() for one in told}


def _table(told: Sequence[ToldPaths]) -> str:
    path, seconds, values = _columns(told)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((*KEYS, *values))
    of_steps = {at: rfc3339(seconds_to_ns(at)) for at in dict.fromkeys(seconds.tolist())}
    rows = np.stack(list(values.values()), axis=1)
    for number, at, row in zip(path.tolist(), seconds.tolist(), rows, strict=True):
        lines.writerow((int(number), of_steps[at], *(f"{v:.{DIGITS}g}" for v in row.tolist())))
    return text.getvalue()


def _archive(told: Sequence[ToldPaths]) -> bytes:
    """An npz whose bytes are the same for the same paths."""
    first, made = told[0], io.BytesIO()
    np.savez(
        made,
        series=np.array([one.series for one in told]),
        paths=np.stack([one.paths.values for one in told]),
        window_start_seconds=np.array(parse_rfc3339(first.status["windowStart"]).timestamp()),
        step_seconds=np.array(first.step_seconds),
        calibrated=np.array([one.is_calibrated for one in told]),
        adds_up=np.array([one.paths.adds_up for one in told]),
        model_versions=np.array([str(one.status.get("modelVersion", "")) for one in told]),
        data_until=np.array([str(one.status.get("dataUntil", "")) for one in told]),
    )
    return made.getvalue()


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
