"""What the benchmarks of kernel times share: the fixed hold-out, designs, errors, own rows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from capacity.bench.measurement_row import read_rows
from capacity.model.hold_outs import hold_out_folds
from capacity.model.kernel_features import kernel_group
from capacity.model.kernel_samples import Floats, TimeSamples, time_samples
from capacity.model.point_design import designed_points
from capacity.model.time_model import TimeModel, fit_time_model
from capacity.roofs import Roofs, require_roofs
from wattpack.errors import InputError

HELD_FOLD: Final = 0
GEMM_GROUP: Final = "gemm_16_bit"
LEAST_HELD_ROWS: Final = 10
"""Fewer rows of a measurements file say nothing about a fit."""


@dataclass(frozen=True)
class Split:
    """One GPU type's rows of one group: what may be learnt from, and what is only scored."""

    roofs: Roofs
    train: TimeSamples
    held: TimeSamples

    @classmethod
    def of(cls, samples: TimeSamples, group: str) -> Split:
        """The split that is fixed for all types: whole hold-out groups, by hash."""
        rows = [i for i, kernel in enumerate(samples.kernels) if kernel_group(kernel) == group]
        chosen = samples.take(rows)
        held = hold_out_folds(chosen.kernels) == HELD_FOLD
        return cls(
            require_roofs(samples.gpu),
            chosen.take(np.flatnonzero(~held)),
            chosen.take(np.flatnonzero(held)),
        )

    def designed(self, count: int) -> TimeSamples:
        """The training rows that the design asks to measure."""
        return self.train.take(designed_points(self.train.kernels, self.roofs, count))

    def nothing(self) -> TimeSamples:
        """No own row."""
        return self.train.take([])

    def error(self, own: TimeSamples, others: Iterable[TimeSamples] = ()) -> float:
        """Held-out MAPE in percent of the model that these rows give."""
        return self.error_of(fit_time_model(own, self.roofs, others))

    def error_of(self, model: TimeModel) -> float:
        """Held-out MAPE in percent."""
        return mape_percent(model.seconds(self.held.kernels), self.held.seconds)

    def random_errors(
        self, count: int, draws: int, seed: int, others: Iterable[TimeSamples] = ()
    ) -> Floats:
        """Held-out errors from rows drawn evenly, shape (draws,)."""
        draw = np.random.default_rng(seed)
        tables = tuple(others)
        picks = (draw.choice(len(self.train), count, replace=False) for _ in range(draws))
        return np.array([self.error(self.train.take(pick), tables) for pick in picks])


def splits(
    gpus: Sequence[str], read: Callable[[str], TimeSamples], group: str
) -> Mapping[str, Split]:
    """The split of each type's table."""
    return {gpu: Split.of(read(gpu), group) for gpu in gpus}


def others_of(
    tables: Mapping[str, Split], gpu: str, without: Sequence[str] = ()
) -> tuple[TimeSamples, ...]:
    """Training rows of all other types."""
    return tuple(s.train for name, s in tables.items() if name not in {gpu, *without})


def mape_percent(made: Floats, measured: Floats) -> float:
    """Mean absolute error in percent of the measured."""
    return float(np.mean(np.abs(made / measured - 1)) * 100)


def own_rows(arguments: Sequence[str]) -> TimeSamples | None:
    """The rows of ``--measurements FILE``, None without it.

    Raises:
        InputError: a file that cannot be read, or rows that make no sense.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks NAME", add_help=False)
    parser.add_argument(
        "--measurements", type=Path, help="also judge these rows, in the row schema of the bench"
    )
    file = parser.parse_args(list(arguments)).measurements
    if file is None:
        return None
    if not file.is_file():
        raise InputError("--measurements", "a file of measured rows", str(file))
    return time_samples(read_rows(file))


def own_split(samples: TimeSamples, group: str, least: int) -> Split:
    """The same fixed split of own rows.

    Raises:
        InputError: too few rows of the group on either side.
    """
    split = Split.of(samples, group)
    if len(split.train) < least or len(split.held) < LEAST_HELD_ROWS:
        counts = f"{len(split.train)} and {len(split.held)}"
        expected = f"at least {least} {group} rows to learn from and {LEAST_HELD_ROWS} held out"
        raise InputError("--measurements", expected, counts)
    return split


def rounded(figures: Mapping[str, float | int | str]) -> dict[str, float | int | str]:
    """Floats to four significant digits: the rest is noise."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in figures.items()
    }
