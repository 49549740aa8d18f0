"""The demo with two replicas, one of which dies while it leads: exact times, virtual clock."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from simulation.app.demo_watch import Watch
from simulation.app.running_demo import DemoRow
from tests.simulation.twin_builders import small_scenario
from wattpack.units import NS_PER_SECOND

CRASH_SECONDS, END_SECONDS = 55.3, 85.0


def test_a_row_whose_leader_dies_is_back_in_12_seconds_and_never_unsafe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[tuple[float, np.ndarray]] = []
    over = threading.Event()
    advance = Watch.advance

    def noting(self: Watch, to_ns: int) -> None:
        advance(self, to_ns)
        limits.append((to_ns / NS_PER_SECOND, self._world.bank.limit_watts.copy()))
        if to_ns > END_SECONDS * NS_PER_SECOND:
            over.set()

    monkeypatch.setattr(Watch, "advance", noting)
    crash = {"kind": "controller_crash", "at_seconds": CRASH_SECONDS}
    row = DemoRow(small_scenario(duration_seconds=100.0, faults=[crash]), speed=None, replicas=2)
    try:
        row.start()
        first = row.control.leader()
        assert over.wait(120), "simulated time goes on"
        assert row.control.leader() not in (None, first)
        assert row.watch.violations == []
        assert row.world.trips == 0
    finally:
        row.stop()
    before = next(watts for at, watts in reversed(limits) if at < CRASH_SECONDS)
    after = [(at - CRASH_SECONDS, watts) for at, watts in limits if at >= CRASH_SECONDS]
    fallen = next(at for at, watts in after if watts.max() < before.min())
    back = [
        min(at for at, watts in after if at > fallen and watts[board] >= before[board] - 1.0)
        for board in range(before.size)
    ]
    assert min(back) <= 12.0
    assert max(back) <= 25.0
