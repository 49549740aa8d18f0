"""Rows of files that somebody gives, and the naive references that a model has to beat."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capacity.bench.measurement_row import MeasurementRow

Floats = npt.NDArray[np.float64]

UNTOUCHED = 0.95
"""Share of the limit below which a row's draw is the work's own and not the regulator's."""


USAGE = "--measurements FILE…"


def measurement_files(arguments: Sequence[str], summary: str) -> list[Path]:
    """The files after ``--measurements``, none if it is not given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=summary)
    parser.add_argument("--measurements", type=Path, nargs="+", default=[], metavar="FILE")
    return list(parser.parse_args(list(arguments)).measurements)


def mean_error(predicted: Floats, measured: Floats) -> float:
    """Mean absolute relative error; NaN for nothing."""
    return float(np.mean(np.abs(predicted / measured - 1))) if measured.size else float("nan")


def best_constant_error(measured: Floats) -> float:
    """The least error that one constant has in hindsight: the best is one of the values."""
    return min(
        (mean_error(np.full_like(measured, value), measured) for value in measured),
        default=float("nan"),
    )


def line_error(x: Floats, measured: Floats) -> float:
    """The least error that a straight line in ``x`` has in hindsight (reweighted least squares)."""
    if measured.size < 3:
        return float("nan")
    columns = np.column_stack([np.ones_like(x), x])
    weight = 1 / measured
    line = np.zeros(2)
    for _ in range(50):
        root = np.sqrt(weight)[:, None]
        line = np.linalg.lstsq(root * columns, root[:, 0] * measured, rcond=None)[0]
        weight = 1 / (measured * np.maximum(np.abs(columns @ line - measured), 1e-3))
    return mean_error(columns @ line, measured)


def untouched(row: MeasurementRow) -> bool:
    """Whether the row's draw lies below 95 % of the limit."""
    limit = row.identity.power_limit_watts
    return row.power is not None and row.power.mean_watts < UNTOUCHED * limit
