"""How long any kernel takes on a GPU type, from as few measured ones as there are.

::

    own rows ─► roofline: 3 constants ─┐
    other types' rows ─► residual trees ├─► own correction ─► seconds, conformal interval
                         (by kinship) ──┘   smooth up to 400 rows, trees above

Without own rows the datasheet and the kin decide, with the width that such forecasts earned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capacity.kernels import Kernel
from capacity.model.conformal import require_coverage
from capacity.model.group_time import GroupTime, fit_group_time
from capacity.model.kernel_features import kernel_group
from capacity.model.kernel_samples import TimeSamples
from capacity.roofs import Roofs
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Times at full clock on one GPU type; one model for each group of kernels."""

    gpu: str
    groups: Mapping[str, GroupTime]

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        """One run of each kernel, shape (n_kernels,).

        Raises:
            InputError: a kernel of a group that the fit had no rows of, on any type.
        """
        return self._by_group(kernels, lambda model, part: model.seconds(part))

    def interval(self, kernels: Sequence[Kernel], coverage: float) -> tuple[Floats, Floats]:
        """Bounds that hold the time of a new kernel with this probability, each (n_kernels,).

        Raises:
            InputError: as ``seconds``, or a coverage that is not between 0 and 1.
        """
        require_coverage(coverage)
        middle = self.seconds(kernels)
        reach = self._by_group(kernels, lambda model, part: model.log_reach(part, coverage), (2,))
        return middle * np.exp(-reach[:, 0]), middle * np.exp(reach[:, 1])

    def _by_group(
        self,
        kernels: Sequence[Kernel],
        ask: Callable[[GroupTime, Sequence[Kernel]], Floats],
        columns: tuple[int, ...] = (),
    ) -> Floats:
        made = np.empty((len(kernels), *columns))
        for group, rows in _rows_by_group(kernels).items():
            model = self.groups.get(group)
            if model is None:
                raise InputError(f"kernels[{rows[0]}]", f"one of {sorted(self.groups)}", group)
            part = kernels if len(rows) == len(kernels) else [kernels[row] for row in rows]
            made[rows] = ask(model, part)
        return made


def fit_time_model(own: TimeSamples, roofs: Roofs, others: Iterable[TimeSamples] = ()) -> TimeModel:
    """The model of one GPU type.

    Args:
        own: What was measured on it; may be empty, then the others alone decide.
        roofs: Its datasheet.
        others: Other types' times, for example ``shipped_times()``; a table of the same type
            counts as its nearest kin.

    Raises:
        InputError: no rows at all.
    """
    tables = tuple(others)
    mine = _rows_by_group(own.kernels)
    known = set(mine).union(*(_rows_by_group(table.kernels) for table in tables))
    if not known:
        raise InputError("own", "rows of this type, or of others", len(own))
    return TimeModel(
        roofs.model,
        {
            group: fit_group_time(group, own.take(mine.get(group, [])), roofs, tables)
            for group in sorted(known)
        },
    )


def _rows_by_group(kernels: Sequence[Kernel]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, kernel in enumerate(kernels):
        rows.setdefault(kernel_group(kernel), []).append(row)
    return rows
