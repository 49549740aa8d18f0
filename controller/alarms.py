"""Conditions of domains that people hear of, told when they begin and when they are surely over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from wattpack.power.domain_tree import BoolArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["Alarms", "Condition", "debounced", "no_alarms"]

# What comes and goes faster is one incident: nobody reads the same line twice a minute.
_OVER_AFTER_NS = 30 * NS_PER_SECOND


class Condition(IntEnum):
    """Rows of ``Alarms``."""

    FORECAST_ABOVE = 0
    DEGRADED = 1
    METER_MISMATCH = 2
    NODES_SILENT = 3
    READINGS_FROZEN = 4
    EPOCH_IGNORED = 5
    RESERVE_MISSING = 6
    METER_UNUSED = 7


@dataclass(frozen=True, slots=True)
class Alarms:
    """Which conditions stand, so that only their changes are told.

    Attributes:
        on: (n_conditions, n_domains).
        seen_ns: When each last held, (n_conditions, n_domains).
    """

    on: BoolArray
    seen_ns: IntArray


def no_alarms(n_domains: int) -> Alarms:
    """All is well."""
    shape = (len(Condition), n_domains)
    return Alarms(np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64))


def debounced(before: Alarms, holds: BoolArray, now_ns: int) -> Alarms:
    """The alarms after one more look: on at once, off after 30 s without, (n_conditions, n)."""
    seen_ns = np.where(holds, now_ns, before.seen_ns)
    return Alarms(holds | (before.on & (now_ns - seen_ns < _OVER_AFTER_NS)), seen_ns)
