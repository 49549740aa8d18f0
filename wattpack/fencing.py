"""Which fencing epochs and sequences can be real (I4): a fact of actuators and leaders alike.

An epoch counts changes of leadership, so one far beyond what is known was made up, to use the
epochs up or to lock the real leader out: actuators refuse it, leaders ignore it, both alarm.
"""

from __future__ import annotations

EPOCH_ROOM = 2**20
"""The most by which epochs may rise in a short time, and lie above a leader's Lease."""

MAX_SEQUENCE = 2**40
"""Beyond any sequence that is ever sent: a leader with ten commands a second counts 3,000 years."""

MAX_EPOCH = 2**31 - 1
"""A Lease counts changes of leadership in an int32."""
