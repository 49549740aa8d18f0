"""How boards are held, compiled: ``RowPlant.held``, the same to the last bit."""

from __future__ import annotations

from simulation.row_control.work import Bools, Floats, Integers
from wattpack.compiled import compiled


@compiled
def drawn_shares(drawn_watts: Floats, shed_watts: Floats, into: Floats) -> None:
    """Watts drawn over watts wanted at the present clock, within 0 and 1."""
    for i in range(len(into)):
        share = drawn_watts[i] / max(drawn_watts[i] + shed_watts[i], 1e-9)
        into[i] = min(max(share, 0.0), 1.0)


@compiled
def clock_shares(lock_mhz: Floats, max_mhz: Floats, into: Floats) -> bool:
    """Locked over highest clocks, 1 without a lock; whether there is any."""
    locked = False
    for i in range(len(into)):
        has = lock_mhz[i] > 0
        into[i] = lock_mhz[i] / max_mhz[i] if has else 1.0
        locked |= has
    return locked


@compiled
def find_alive(
    lost: Bools, on: Bools, down_until_ns: Integers, now_ns: int, node_of_gpu: Integers,
    into: Bools,
) -> bool:  # fmt: skip
    """Boards that are there, in servers with power that run; whether all are."""
    everyone = True
    for i in range(len(into)):
        node = node_of_gpu[i]
        into[i] = on[node] and down_until_ns[node] <= now_ns and not lost[i]
        everyone &= into[i]
    return everyone
