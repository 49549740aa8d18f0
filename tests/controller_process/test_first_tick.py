"""When a replica ticks after it has won the Lease: GPUs sit at guaranteed caps until then."""

from __future__ import annotations

import pytest

from capacity.profile_library import shipped_library
from controller.app.controller_process import ControllerProcess, Surroundings
from controller.app.controller_settings import ControllerSettings
from controller.app.tick_loop import NoMeters
from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock, Wake
from wattpack.units import NS_PER_SECOND
from wattpack.wire.certificates import new_authority, new_server

WON_AFTER_NS = NS_PER_SECOND * 13 // 5


class Over(Exception):
    """Enough ticks were seen."""


class Diary(ManualClock):
    """Notes when the loop goes on, and lets the replica win in the middle of its third period."""

    def __init__(self) -> None:
        super().__init__()
        self.replica: ControllerProcess | None = None
        self.went_on_ns: list[int] = []

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        assert self.replica is not None
        if len(self.went_on_ns) == 9:
            raise Over
        if self.monotonic_ns() < WON_AFTER_NS < deadline_ns:
            self.advance_to(WON_AFTER_NS)
            assert self.replica.elector.attempt()
        was_set = super().wait_until(deadline_ns, wake)
        self.went_on_ns.append(self.monotonic_ns())
        return was_set


def test_a_new_leader_ticks_at_once_and_again_when_one_lease_is_over() -> None:
    clock = Diary()
    authority = new_authority("test", clock.wall_time_ns())
    settings = ControllerSettings(stream_address="127.0.0.1:0", http_host="127.0.0.1", http_port=0)
    clock.replica = ControllerProcess(
        settings,
        Surroundings(
            api=EmbeddedKube(clock),
            clock=clock,
            identity=new_server(authority, ["localhost"], clock.wall_time_ns()),
            meters=NoMeters(),
            profiles=shipped_library(),
            election=settings.election(),
        ),
    )
    try:
        with pytest.raises(Over):
            clock.replica._run()
    finally:
        clock.replica.http.stop()
    seconds = [ns / NS_PER_SECOND for ns in clock.went_on_ns]
    lease_seconds = settings.lease_ttl_ms / 1000
    assert seconds[:3] == [1.0, 2.0, 2.6]
    over = seconds.index(2.6 + lease_seconds)
    assert seconds[over + 1] == pytest.approx(seconds[over] + settings.tick_seconds)
