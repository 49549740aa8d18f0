"""What servers drew beside their boards when a meter of their own was believed last.

    its BMC is believed    what it shows counts; remembered is the highest of the last half minute
    then it is lost        what is remembered counts, and more where its boards draw more since
    meters have taught     what they taught of servers without a meter counts alone

What a domain's meter taught is of servers that nothing else showed, perhaps of an hour ago and of
boards at rest: where BMCs and meters fall silent together, it alone hides what servers draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.host_draws import HOST_PER_GPU_WATT
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["LastHosts", "beyond_taught_watts", "hosts_taken", "no_hosts_yet"]

# Fans are down again half a minute after boards are; a BMC that has begun to stand still shows too
# little for that long. Assumed.
_FALLS_SECONDS: Final = 30.0
# By then nine tenths of a rise are taught (controller/meters.py).
_TAUGHT_LESSONS: Final = 120


@dataclass(frozen=True, slots=True)
class LastHosts:
    """Of each server.

    Attributes:
        watts: What it drew beside its boards, DC, NaN where no meter of its own was ever believed,
            (n_nodes,).
        boards_watts: What its boards drew then, the highest of the last half minute as well, DC,
            (n_nodes,).
        lessons: Lessons of meters above it since then, (n_nodes,).
    """

    watts: FloatArray
    boards_watts: FloatArray
    lessons: IntArray


def no_hosts_yet(n_nodes: int) -> LastHosts:
    """No meter of a server was believed yet."""
    unknown = np.full(n_nodes, np.nan)
    return LastHosts(unknown, unknown.copy(), np.zeros(n_nodes, dtype=np.int64))


def hosts_taken(
    memory: LastHosts,
    host_watts: FloatArray,
    boards_watts: FloatArray,
    lessons: IntArray,
    seconds: float,
) -> LastHosts:
    """The memory after a tick.

    Args:
        memory: So far.
        host_watts: What meters of servers show now, NaN where none is believed, DC, (n_nodes,).
        boards_watts: What is read of each server's boards, DC, (n_nodes,).
        lessons: Of meters above each server at this tick, (n_nodes,).
        seconds: Since the last tick.
    """
    shown = ~np.isnan(host_watts)
    if not some(shown) and not some(~np.isnan(memory.watts)):
        return memory
    left = float(np.exp(-seconds / _FALLS_SECONDS))
    return LastHosts(
        np.where(shown, _highest(memory.watts, host_watts, left), memory.watts),
        np.where(shown, _highest(memory.boards_watts, boards_watts, left), memory.boards_watts),
        np.where(shown, 0, memory.lessons + lessons),
    )


def _highest(before: FloatArray, now: FloatArray, left: float) -> FloatArray:
    """Rises at once and falls slowly; ``left`` is how much of a fall is left."""
    return np.asarray(np.fmax(now, now + left * (before - now)))


def beyond_taught_watts(
    memory: LastHosts,
    host_watts: FloatArray,
    boards_watts: FloatArray,
    taught_watts: FloatArray,
    heard: BoolArray,
) -> FloatArray:
    """What lost meters showed beyond what servers count at without them, DC, (n_nodes,).

    Args:
        memory: Of this tick.
        host_watts: What meters of servers show now, NaN where none is believed, DC, (n_nodes,).
        boards_watts: What is read of each server's boards, DC, (n_nodes,).
        taught_watts: What each server counts at beside its boards without one, DC, (n_nodes,).
        heard: Servers that are; the others count at their declared worst, (n_nodes,).
    """
    lost = heard & np.isnan(host_watts) & (memory.lessons < _TAUGHT_LESSONS)
    if not some(lost):
        return np.zeros(len(lost))
    follows = HOST_PER_GPU_WATT * np.fmax(boards_watts - memory.boards_watts, 0.0)
    return np.where(lost, np.fmax(memory.watts + follows - taught_watts, 0.0), 0.0)
