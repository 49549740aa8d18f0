"""Policies that scale without quantiles, by their published behaviour and their documented knobs.

- reactive: Kubernetes' HorizontalPodAutoscaler or KEDA on the request rate and the queue: replicas
  for the rate at a target utilisation, with a stabilisation window for scaling down (300 s by
  default) and the tolerance that both have had. Asked every minute with a metric of no age.
- dynamo: NVIDIA Dynamo's planner: the next interval's requests as a point (constant, Kalman of
  level and trend, ARIMA fitted once), divided by a replica's profiled rate, rounded up; the
  profile's derating is the knob. Its load-based correction may add what clears the queue.
- aws: EC2's predictive scaling: an hourly forecast of load by hour of day, renewed every six hours
  from at least a day of history, launched ahead by the scheduling buffer, at a target of its own
  (the capacity buffer is a share of the same); at least what target tracking asks for.
- keep_alive: replicas for the demand of now, each kept for a fixed time after it was last needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks._replica_fleet import Floats, Policy

DAY: Final = 1440
Knobs = npt.NDArray[np.float64]

UTILISATION: Final = tuple(np.arange(0.40, 1.051, 0.025).round(3))
KEPT_MINUTES: Final = (0, 1, 2, 3, 5, 8, 10, 15, 20, 30, 45, 60, 90, 120)


def _grid(*axes: Sequence[float]) -> Knobs:
    return np.array(list(itertools.product(*axes)), dtype=np.float64)


def _recent(rates: Floats, minute: int, width: int) -> float:
    """Mean of the last minutes; the first minute's own rate before there is one."""
    known = rates[max(0, minute - width) : minute]
    return float(known.mean()) if len(known) else float(rates[0])


class Held:
    """The highest wish of each setting's window: scaling down waits for all of it to agree."""

    def __init__(self, windows: Knobs) -> None:
        self._windows = windows.astype(np.intp)
        self._wishes = np.zeros((int(self._windows.max()) + 1, len(windows)))
        self._settings = np.arange(len(windows))

    def after(self, wish: Floats) -> Floats:
        """The wish of now, held."""
        self._wishes[1:] = self._wishes[:-1]
        self._wishes[0] = wish
        highest: Floats = np.maximum.accumulate(self._wishes, axis=0)
        held: Floats = highest[self._windows, self._settings]
        return held


def reactive(rates: Floats, replica_rate: float, sparse: int = 1) -> tuple[Knobs, Policy]:
    """Knobs: target utilisation, stabilisation (min), minutes of the metric, tolerance."""
    knobs = _grid(UTILISATION[::sparse], (0, 5, 10, 15, 30, 60), (1, 2, 3), (0.0, 0.1))
    held, last = Held(knobs[:, 1]), np.ones(len(knobs))

    def wish(minute: int, queued: Floats) -> Floats:
        nonlocal last
        means = np.array([_recent(rates, minute, width) for width in (1, 2, 3)])
        load = (means[knobs[:, 2].astype(np.intp) - 1] + queued / 60.0) / replica_rate
        ratio = load / knobs[:, 0] / last
        near = np.abs(ratio - 1) <= knobs[:, 3]
        raw = np.where(near, last, np.maximum(np.ceil(load / knobs[:, 0]), 1))
        last = held.after(raw)
        return last

    return knobs, wish


def keep_alive(rates: Floats, replica_rate: float) -> tuple[Knobs, Policy]:
    """Knob: minutes that a replica is kept."""
    knobs = _grid(KEPT_MINUTES)
    held = Held(knobs[:, 0])

    def wish(minute: int, queued: Floats) -> Floats:
        load = (_recent(rates, minute, 1) + queued / 60.0) / replica_rate
        return held.after(np.maximum(np.ceil(load), 1))

    return knobs, wish


# -- Dynamo ----------------------------------------------------------------------------------------


def dynamo(
    rates: Floats, replica_rate: float, fitted_minutes: int, sparse: int = 1
) -> tuple[Knobs, Policy]:
    """Knobs: predictor, interval (min), derating of the profile, load-based correction (0 or 1)."""
    intervals = (1, 3, 5)
    predictors = (constant, kalman, arima)
    knobs = _grid(range(3), intervals, UTILISATION[::sparse], (0, 1))
    told = {
        (float(p), float(width)): predictor(_means(rates, width), fitted_minutes // width)
        for p, predictor in enumerate(predictors)
        for width in intervals
    }
    replicas = np.ones(len(knobs))

    def wish(minute: int, queued: Floats) -> Floats:
        nonlocal replicas
        next_rate = np.array([told[p, w][int(minute // w)] for p, w in knobs[:, :2]])
        wanted = np.maximum(np.ceil(next_rate / (replica_rate * knobs[:, 2])), 1)
        replicas = np.where(minute % knobs[:, 1] == 0, wanted, replicas)
        clearing = np.ceil((_recent(rates, minute, 1) + queued / 60.0) / replica_rate)
        corrected = (knobs[:, 3] == 1) & (queued > 0)
        result: Floats = np.where(corrected, np.maximum(replicas, clearing), replicas)
        return result

    return knobs, wish


def _means(rates: Floats, width: int) -> Floats:
    whole = len(rates) // width * width
    result: Floats = rates[:whole].reshape(-1, width).mean(axis=1)
    return result


def constant(values: Floats, fitted: int) -> Floats:
    """The newest value, shape (n + 1,): place k is told from the values before it."""
    del fitted
    return np.concatenate([values[:1], values])


def kalman(values: Floats, fitted: int) -> Floats:
    """Level and trend (Dynamo's q 1.0 and 0.1, r 10.0), the newest value up to five points."""
    del fitted
    told, state, cover = [values[0]], np.array([values[0], 0.0]), np.eye(2)
    moves, noise = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([1.0, 0.1])
    for count, value in enumerate(values, start=1):
        state, cover = moves @ state, moves @ cover @ moves.T + noise
        gain = cover[:, 0] / (cover[0, 0] + 10.0)
        state = state + gain * (value - state[0])
        cover = cover - np.outer(gain, cover[0])
        told.append(max(0.0, float(state[0] + state[1])) if count >= 5 else float(value))
    return np.array(told)


def arima(values: Floats, fitted: int) -> Floats:
    """ARIMA(3, 1, 0), least squares on the first ``fitted`` values, then updated with each new one.

    The planner's automatic order is fitted once, too; on these series it ends at differences with
    a few lags.
    """
    changes = np.diff(values, prepend=values[0])
    lagged = np.stack([np.roll(changes, lag) for lag in (0, 1, 2)], axis=1)
    lagged[:2] = 0.0
    weights = np.linalg.lstsq(lagged[2 : fitted - 1], changes[3:fitted], rcond=None)[0]
    told = np.maximum(values + lagged @ weights, 0.0)
    return np.concatenate([values[:1], told])


# -- AWS -------------------------------------------------------------------------------------------


def aws(rates: Floats, replica_rate: float, sparse: int = 1) -> tuple[Knobs, Policy]:
    """Knobs: tracked utilisation, scheduling buffer (min), forecast's own, days, scale-in (min)."""
    knobs = _grid(UTILISATION[::sparse], (0, 5, 15), (0.7, 0.85, 1.0, 1.2), (3, 7), (5, 15))
    days = np.stack([hourly_forecast(rates, count) for count in (3, 7)])
    held, place = Held(knobs[:, 4]), (knobs[:, 3] == 7).astype(np.intp)
    buffers = knobs[:, 1].astype(np.intp)

    def wish(minute: int, queued: Floats) -> Floats:
        load = (_recent(rates, minute, 1) + queued / 60.0) / replica_rate
        tracked = held.after(np.ceil(load / knobs[:, 0]))
        ahead = np.minimum(minute + buffers, len(rates) - 1)
        forecast = np.maximum(days[place, minute], days[place, ahead])
        planned = np.ceil(forecast / (replica_rate * knobs[:, 2]))
        result: Floats = np.maximum(np.maximum(tracked, planned), 1)
        return result

    return knobs, wish


def hourly_forecast(rates: Floats, days: int) -> Floats:
    """Load by hour of day of the last days, renewed every six hours, by minute; 0 on day one."""
    hours = _means(rates, 60)
    told = np.zeros(len(hours))
    for hour in range(24, len(hours)):
        issued = hour - hour % 6
        seen = [hour - 24 * d for d in range(1, days + 1) if 0 <= hour - 24 * d < issued]
        told[hour] = hours[seen].mean() if seen else 0.0
    result: Floats = np.repeat(told, 60)
    return np.concatenate([result, np.zeros(len(rates) - len(result))])
