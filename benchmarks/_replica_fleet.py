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
    working = np.full(n_settings, np.ceil(1.5 * rates[0] / replica_rate))
    starting = np.zeros((int(starts.max()) + 1, n_settings))
    queued = np.zeros(n_settings)
    days = -(-len(rates) // DAY_MINUTES)
    violated, hours = np.zeros((days, n_settings)), np.zeros((days, n_settings))
    for minute, rate in enumerate(rates):
        working = working + starting[0]
        starting[:-1], starting[-1] = starting[1:], 0.0
        working = _ordered(policy(minute, queued), working, starting, int(starts[minute]))
        served = working * replica_rate
        queued = np.clip(queued + (rate - served) * 60.0, 0.0, served * GONE_SECONDS)
        violated[minute // DAY_MINUTES] += queued > WAIT_SECONDS * served
        hours[minute // DAY_MINUTES] += (working + starting.sum(axis=0)) / 60.0
    return Outcome(violated, hours)


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
