"""The judge of scaling policies: a queue, replicas that take minutes to start, and what both cost.

Minute steps. Requests wait in one queue and are served at the rate of the working replicas; those
that would wait longer than three minutes have gone. A minute violates the objective when whoever
comes at its end waits for more than ten seconds (assumed). Every replica costs from its order on;
replicas that are not wanted any more go at once, those that still start first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from wattpack.errors import PermanentError

Floats = npt.NDArray[np.float64]

WAIT_SECONDS: Final = 10.0
GONE_SECONDS: Final = 180.0

Policy = Callable[[int, Floats], Floats]
"""Minute and queued requests by setting, to the replicas to have by setting; both (n_settings,)."""


DAY_MINUTES: Final = 1440


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of each setting of a policy, by day, shape (n_days, n_settings).

    Attributes:
        violated: Minutes in which the objective was missed.
        hours: Of replicas, working and starting.
    """

    violated: Floats
    hours: Floats

    def between(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Violated minutes and replica hours of each setting, of days ``first`` to ``last``."""
        return self.violated[first:last].sum(axis=0), self.hours[first:last].sum(axis=0)


def played(
    policy: Policy,
    rates: Floats,
    replica_rate: float,
    starts: npt.NDArray[np.intp],
    n_settings: int,
) -> Outcome:
    """What becomes of a service under a policy, all of its settings side by side.

    Args:
        policy: Called at the start of every minute; it knows the minutes before.
        rates: Requests a second by minute, shape (n_minutes,).
        replica_rate: Requests a second that one replica serves.
        starts: Minutes that an order of each minute takes, shape (n_minutes,).
        n_settings: Of the policy.
    """
    fleet = Fleet(float(rates[0]), replica_rate, starts, n_settings)
    for minute, rate in enumerate(rates):
        fleet.minute(minute, float(rate), policy(minute, fleet.queued))
    return Outcome(fleet.violated, fleet.hours)


class Fleet:
    """One service's replicas and its queue, of several settings side by side.

    Args:
        first_rate: Requests a second that come at first; half as many again can be served.
        replica_rate: Requests a second that one replica serves.
        starts: Minutes that an order of each minute takes, shape (n_minutes,).
        n_settings: Of the policy.

    Attributes:
        queued: Requests at the end of the last minute, shape (n_settings,).
        violated: By day and setting, as in ``Outcome``.
        hours: Likewise.
    """

    def __init__(
        self,
        first_rate: float,
        replica_rate: float,
        starts: npt.NDArray[np.intp],
        n_settings: int,
    ) -> None:
        self._rate, self._starts = replica_rate, starts
        self._working = np.full(n_settings, np.ceil(1.5 * first_rate / replica_rate))
        self._starting = np.zeros((int(starts.max()) + 1, n_settings))
        self.queued = np.zeros(n_settings)
        days = -(-len(starts) // DAY_MINUTES)
        self.violated = np.zeros((days, n_settings))
        self.hours = np.zeros((days, n_settings))

    def minute(self, minute: int, rate: float, wanted: Floats) -> None:
        """Go through a minute with as many requests a second, having ordered the wanted."""
        starting = self._starting
        working = self._working + starting[0]
        starting[:-1], starting[-1] = starting[1:], 0.0
        self._working = _ordered(wanted, working, starting, int(self._starts[minute]))
        served = self._working * self._rate
        left = self.queued + (rate - served) * 60.0
        self.queued = np.clip(left, 0.0, served * GONE_SECONDS)
        self.violated[minute // DAY_MINUTES] += self.queued > WAIT_SECONDS * served
        self.hours[minute // DAY_MINUTES] += (self._working + starting.sum(axis=0)) / 60.0


def _ordered(wanted: Floats, working: Floats, starting: Floats, takes: int) -> Floats:
    """Orders and stops of a minute: ``starting`` in place, the working replicas returned."""
    surplus = working + starting.sum(axis=0) - wanted
    starting[takes - 1] += np.maximum(-surplus, 0.0)
    surplus = np.maximum(surplus, 0.0)
    for place in range(len(starting) - 1, -1, -1):
        stopped = np.minimum(starting[place], surplus)
        starting[place] -= stopped
        surplus = surplus - stopped
    left: Floats = working - np.minimum(working, surplus)
    return left


def just_in_time_hours(rates: Floats, replica_rate: float, start_minutes: float) -> float:
    """Replica hours of whoever knows every minute: none waits, and starts end when they are needed.

    Each replica in turn works in the minutes that need so many, and through gaps that are shorter
    than a start. The queue's ten seconds are not used, so a policy that violates may need less.
    """
    needed = np.maximum(np.ceil(rates / replica_rate - 1e-9), 1)
    minutes = 0.0
    for number in range(1, int(needed.max()) + 1):
        edges = np.diff(np.concatenate([[0], (needed >= number).astype(int), [0]]))
        begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        gaps = (begins[1:] - ends[:-1]).astype(np.float64)
        worked = float((ends - begins).sum())
        minutes += worked + float(np.minimum(gaps, start_minutes).sum()) + start_minutes
    return minutes / 60.0


def least_hours(rates: Floats, replica_rate: float, start_minutes: float) -> float:
    """The same for whoever also lets everybody wait as long as the objective allows.

    A linear programme of minutes: replicas, the queue and replicas that are added, each of which
    costs its start. Replicas may be parts, so whole ones need somewhat more.
    """
    count = len(rates)
    same, before = sparse.eye_array(count), sparse.eye_array(count, k=-1)
    none = sparse.csr_array((count, count))
    minute = (same - before) / 60.0
    longest = WAIT_SECONDS * replica_rate / 60.0
    rows = sparse.block_array([
        [-replica_rate * same, -minute, none],
        [-longest * same, same / 60.0, none],
        [same - before, none, -same],
    ]).tocsr()  # fmt: skip
    limits = np.concatenate([-np.asarray(rates, dtype=np.float64), np.zeros(2 * count)])
    prices = np.concatenate([np.ones(count), np.zeros(count), np.full(count, start_minutes)])
    bounds = [(1.0, None)] * count + [(0.0, None)] * (2 * count)
    found = linprog(prices, A_ub=rows, b_ub=limits, bounds=bounds, method="highs-ds")
    if not found.success:
        raise PermanentError(f"least hours: {found.message}")
    return float(found.fun) / 60.0
