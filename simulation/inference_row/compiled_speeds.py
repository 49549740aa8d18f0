"""Speeds of servers whose boards are held, compiled: as ``InferenceWork``, to the last bit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capacity.capacity_table import Floats, Integers, ProfileTable, throughput
from wattpack.compiled import compiled

Bools = NDArray[np.bool_]


class SpeedCurves(NamedTuple):
    """Capacity's curves of one GPU type, of prompts and of decode.

    Attributes:
        relative: Speed by share of the default limit on an even grid, (2, g).
        full_watts: Uncapped draw, (2,).
        full_speed: Relative speed at that, (2,).
        first_share: Of the grid.
        share_step: Of the grid.
        default_limit_watts: Of the type.
    """

    relative: Floats
    full_watts: Floats
    full_speed: Floats
    first_share: float
    share_step: float
    default_limit_watts: float

    @classmethod
    def of(cls, table: ProfileTable, kernels: Integers) -> SpeedCurves:
        """Of the first type of a table, in its classes of prompts and decode."""
        model = np.zeros(len(kernels), dtype=np.intp)
        full_watts = table.p50_watts[model, kernels]
        return cls(
            np.ascontiguousarray(table.throughput_grid[model, kernels]),
            full_watts,
            throughput(table, model, kernels, full_watts),
            float(table.grid[0]),
            float(table.grid[1] - table.grid[0]),
            float(table.default_limit_watts[0]),
        )


@compiled
def _speed(curves: SpeedCurves, kernel: int, drawn_share: float) -> float:
    values = curves.relative[kernel]
    watts = min(max(drawn_share, 0.0), 1.0) * curves.full_watts[kernel]
    fraction = watts / curves.default_limit_watts
    place = (fraction - curves.first_share) / curves.share_step
    place = min(max(place, 0.0), len(values) - 1.0)
    low = min(int(place), len(values) - 2)
    weight = place - low
    held = (1 - weight) * values[low] + weight * values[low + 1]
    return float(min(1.0, held / curves.full_speed[kernel]))


@compiled
def server_speeds(
    held: tuple[Floats, Floats, Bools],
    decode_clock_share: float,
    into: Floats,
    *fields: Any,  # noqa: ANN401  arrays and numbers
) -> None:
    """Speed over full speed of each server's prompts and decode, (2, n_servers).

    Args:
        held: Drawn shares, clock shares and who is alive, (n_gpus,) each.
        decode_clock_share: Share of decode that waits for the clock.
        into: What is returned.
        fields: Of ``SpeedCurves``.
    """
    curves = SpeedCurves(*fields)
    drawn_share, clock_share, alive = held
    each = len(drawn_share) // into.shape[1]
    for server in range(into.shape[1]):
        first = server * each
        drawn, clock, everyone = drawn_share[first], clock_share[first], alive[first]
        for i in range(first + 1, first + each):
            drawn = min(drawn, drawn_share[i])
            clock = min(clock, clock_share[i])
            everyone &= alive[i]
        if not everyone:
            into[0, server] = into[1, server] = 0.0
            continue
        into[0, server] = _speed(curves, 0, drawn) * clock
        decode = _speed(curves, 1, drawn)
        into[1, server] = decode / (1.0 - decode_clock_share + decode_clock_share / clock)
