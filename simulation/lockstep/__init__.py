"""Simulated time over many threads and processes: ``LockstepClock`` and its ``Conductor``.

Time moves only when every participant waits and no message is under way:

    participant ── wait deadline ──>  Conductor  ── (all wait, nothing under way) ──> now = earliest
    participant ── sent / handled ─>     │       <── go ── those whose deadline is reached
    waker ──────── wake ───────────>     └──── shared memory: the present time, read by everybody

A participant is a thread that has called ``wait_until``; a process is held back from its connection
until ``ready``, so that nothing starts without it. A process that dies has left. Everything is
written to the conductor's socket before the act that it announces can have consequences, and the
conductor empties all sockets before it moves time, so no order of arrival can deceive it.

LockstepError (PermanentError)
├── LockstepEndedError    the conductor is gone or has stopped: leave the loop
└── LockstepStalledError  something holds time; names who runs and how many messages are under way
"""

from simulation.lockstep.conductor import Conductor, Pace
from simulation.lockstep.lockstep_clock import LockstepClock, connect
from simulation.lockstep.lockstep_errors import (
    LockstepEndedError,
    LockstepError,
    LockstepStalledError,
)

__all__ = [
    "Conductor",
    "LockstepClock",
    "LockstepEndedError",
    "LockstepError",
    "LockstepStalledError",
    "Pace",
    "connect",
]
