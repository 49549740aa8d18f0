"""How long the element-wise kernels of a decoder take: between measured sizes, by operation.

Times lie on a grid of tokens and widths. Between its points the logarithm of time is linear in the
logarithms of both; outside its widths the nearest one stands in with as many tokens as move the
same bytes. A GPU without such rows answers with streams of the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Elementwise, ElementwiseOp
from capacity.model.stream_times import Floats, StreamTimes


@dataclass(frozen=True, slots=True)
class _Curve:
    """Passes of one operation and width: tokens rising and seconds, both shape (n,)."""

    tokens: Floats
    seconds: Floats

    def log_seconds(self, tokens: float) -> float:
        """Beyond the most tokens time grows with them."""
        beyond = max(1.0, tokens / float(self.tokens[-1]))
        inside = np.interp(np.log(tokens), np.log(self.tokens), np.log(self.seconds))
        return float(inside) + float(np.log(beyond))


@dataclass(frozen=True, slots=True)
class ElementTimes:
    """Measured passes of one GPU.

    Attributes:
        curves: By operation, then by width in rising order.
        streams: What stands in for an operation without rows.
    """

    curves: Mapping[ElementwiseOp, Mapping[int, _Curve]]
    streams: StreamTimes

    @classmethod
    def from_rows(cls, rows: Iterable[MeasurementRow], streams: StreamTimes) -> Self:
        """The element-wise kernels among the rows; none at all is allowed."""
        seen: dict[ElementwiseOp, dict[int, dict[int, float]]] = {}
        for row in rows:
            kernel = row.kernel
            # A pass of two microseconds is not known within 1 %, and need not be.
            if isinstance(kernel, Elementwise) and not set(row.flags) - {"unstable_time"}:
                points = seen.setdefault(kernel.op, {}).setdefault(kernel.width, {})
                points[kernel.tokens] = row.latency.median_seconds
        curves = {
            op: {width: _curve(points) for width, points in sorted(widths.items())}
            for op, widths in seen.items()
        }
        return cls(curves, streams)

    def seconds_of(self, kernels: Sequence[Elementwise]) -> Floats:
        """One pass of each, shape (n_kernels,)."""
        return np.array([self._seconds(kernel) for kernel in kernels])

    def _seconds(self, kernel: Elementwise) -> float:
        curves = self.curves.get(kernel.op)
        if not curves:
            return float(self.streams.seconds_of([kernel])[0])
        widths = list(curves)
        below = max((w for w in widths if w <= kernel.width), default=widths[0])
        above = min((w for w in widths if w >= kernel.width), default=widths[-1])
        if below == above:  # a measured width, or outside of all
            same_bytes = kernel.tokens * kernel.width / below
            return float(np.exp(curves[below].log_seconds(max(1.0, same_bytes))))
        ends = [curves[width].log_seconds(kernel.tokens) for width in (below, above)]
        return float(np.exp(np.interp(np.log(kernel.width), np.log([below, above]), ends)))


def _curve(points: Mapping[int, float]) -> _Curve:
    tokens = sorted(points)
    return _Curve(np.array(tokens, dtype=np.float64), np.array([points[t] for t in tokens]))
