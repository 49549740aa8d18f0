"""How long a pass over memory takes: from the cache while it fits, from the memory beyond.

Element-wise work of a step (norms, rotation, gates) is a stream whose arrays the neighbouring
kernels left in the L2 cache, so small passes are read from warm rows and large ones from cold.
Between the measured sizes time is interpolated in logarithms; beyond the largest the measured
bandwidth goes on. The smallest pass holds what a launch inside a graph costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Elementwise, MemoryStream
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Measured passes of one GPU.

    Attributes:
        bytes_moved: Rising, shape (n,).
        seconds: Of one pass, shape (n,).
    """

    bytes_moved: Floats
    seconds: Floats

    @classmethod
    def from_rows(cls, rows: Iterable[MeasurementRow]) -> Self:
        """The copies among the rows; reads and triads differ from them by a few per cent.

        Raises:
            InputError: fewer than two sizes.
        """
        times: dict[float, list[float]] = {}
        for row in rows:
            kernel = row.kernel
            if isinstance(kernel, MemoryStream) and kernel.pattern == "copy" and row.ok:
                times.setdefault(kernel.bytes_moved, []).append(row.latency.median_seconds)
        if len(times) < 2:
            raise InputError("bandwidth", "copies of at least two sizes", len(times))
        sizes = sorted(times)
        return cls(np.array(sizes), np.array([np.median(times[size]) for size in sizes]))

    def seconds_of(self, streams: Sequence[MemoryStream | Elementwise]) -> Floats:
        """One pass of each, shape (n_streams,)."""
        moved = np.array([stream.bytes_moved for stream in streams])
        inside = np.interp(np.log(moved), np.log(self.bytes_moved), np.log(self.seconds))
        beyond = np.maximum(1.0, moved / self.bytes_moved[-1])
        return np.asarray(np.exp(inside) * beyond)
