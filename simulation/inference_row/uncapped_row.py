"""The row without any limit: its power over days, and the marks that a row is known by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.client_arrivals import (
    DAY_SECONDS,
    ClientArrivals,
    RowRequests,
)
from simulation.inference_row.compiled_servers import fastest_servers
from simulation.inference_row.row_power import (
    GPUS_PER_SERVER,
    ServerPower,
    ServersAround,
)

Floats = NDArray[np.float64]

READING_SECONDS = 2.0
"""Of the published row's meter."""

LEAD_SECONDS = 1800.0
"""A day begins empty, so long before it is counted."""

STEP_SECONDS = 1.0
STEPS_AT_A_TIME = 600


@dataclass(frozen=True, slots=True)
class RowMarks:
    """What is published of the row, as shares of its rating.

    Attributes:
        peak: Highest reading.
        mean: Of all readings.
        trough: Lowest mean over ten minutes.
        rise_2_seconds: Largest rise from one reading to the next.
        rise_40_seconds: Largest rise within 40 s.
    """

    peak: float
    mean: float
    trough: float
    rise_2_seconds: float
    rise_40_seconds: float


def uncapped_days(
    arrivals: ClientArrivals,
    days: Sequence[int],
    power: ServerPower,
    hours: tuple[float, float] = (0.0, 24.0),
) -> Floats:
    """Row power over rating in readings of 2 s, (days, readings).

    Days are independent rows side by side: each starts empty half an hour before ``hours``, so that
    day 0 has no midnight.

    Args:
        arrivals: Of the row.
        days: Which.
        power: The servers.
        hours: Of each day.
    """
    n = len(arrivals.class_of_server)
    begin, end = hours[0] * 3600.0 - LEAD_SECONDS, hours[1] * 3600.0
    parts = []
    for row, day in enumerate(days):
        part = arrivals.between(day * DAY_SECONDS + begin, day * DAY_SECONDS + end)
        since = part.arrival_seconds - day * DAY_SECONDS
        parts.append((since, part.of_class, part.prompt_tokens, part.output_tokens,
                      part.server + row * n))  # fmt: skip
    side_by_side = RowRequests(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    servers = fastest_servers(side_by_side, n * len(days), begin, arrivals.times)
    around = ServersAround(power, np.zeros(n * len(days)))
    steps = round((end - begin) / STEP_SECONDS)
    rows = np.empty((len(days), steps))
    for first in range(0, steps, STEPS_AT_A_TIME):
        count = min(STEPS_AT_A_TIME, steps - first)
        boards = servers.full_speed_watts(count, STEP_SECONDS)
        for i in range(count):
            watts = around.step(GPUS_PER_SERVER * boards[i], STEP_SECONDS)
            rows[:, first + i] = watts.reshape(len(days), n).sum(axis=1)
    kept = rows[:, round(LEAD_SECONDS / STEP_SECONDS) :] / power.row_rating_watts
    each = round(READING_SECONDS / STEP_SECONDS)
    whole = kept.shape[1] // each * each
    return np.asarray(kept[:, :whole].reshape(len(days), -1, each).mean(axis=2))


def marks(readings: Floats) -> RowMarks:
    """The marks of readings of 2 s, (days, readings); rises do not cross days."""
    rise, longest = 0.0, round(40.0 / READING_SECONDS)
    rises = []
    for lag in range(1, longest + 1):
        rise = max(rise, float((readings[:, lag:] - readings[:, :-lag]).max()))
        rises.append(rise)
    each = round(600.0 / READING_SECONDS)
    whole = readings.shape[1] // each * each
    smooth = readings[:, :whole].reshape(len(readings), -1, each).mean(axis=2)
    return RowMarks(
        peak=float(readings.max()),
        mean=float(readings.mean()),
        trough=float(smooth.min()),
        rise_2_seconds=rises[0],
        rise_40_seconds=rises[-1],
    )
