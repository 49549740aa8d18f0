"""The API server is gone for an hour: nobody is raised, leases end, no breaker is overdrawn."""

from __future__ import annotations

from collections.abc import Mapping

from controller.app.tick_loop import TickOutcome
from simulation.app.twin_run import TwinRun
from simulation.monitor import LeaseBook
from simulation.scenario import Scenario
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.units import NS_PER_SECOND, GpuUuid

DOWN_AT, HOUR = 30.0, 3600.0
# A leader believes in itself for 4 s after its last renewal, its leases last 3.5 s, and a tick
# hands them out once a second.
FALLEN_AFTER_SECONDS = 4.0 + 3.5 + 1.0
SLACK_WATTS = 1.0


def outage(down_seconds: float, rated_servers: float = 1.7) -> Scenario:
    """Two servers behind one rack, everything asking for full power during the outage."""
    row = small_scenario().row.model_dump() | {
        "groups": [{"gpu_model": "H200-SXM", "count": 2}],
        "racks": 1,
        "rated_servers": rated_servers,
        "rack_rated_servers": rated_servers,
    }
    return small_scenario(
        duration_seconds=20.0 + down_seconds,
        step_seconds=1.0,
        row=row,
        services=[],
        batch={"pods_per_hour": 0.0, "initial_pods": 0, "min_duration_seconds": 30.0},
        faults=[
            {"kind": "api_down", "at_seconds": DOWN_AT, "duration_seconds": down_seconds},
            {"kind": "demand_step", "at_seconds": DOWN_AT, "duration_seconds": down_seconds},
        ],
    )


class Seen:
    """What each second of the outage showed."""

    def __init__(self) -> None:
        self.over_rating_watts: list[float] = []
        self.over_guaranteed_watts: dict[float, float] = {}
        self.leading: dict[float, bool] = {}
        self.tables: Mapping[str, LeaseBook] = {}

    def run(self, scenario: Scenario) -> TwinRun:
        """The whole scenario."""
        run = TwinRun(scenario, self.look)
        self.tables = run.nodes.tables
        run.run()
        return run

    def look(self, world: World, outcome: TickOutcome) -> None:
        second = (world.now_ns - world.start_ns) / NS_PER_SECOND - DOWN_AT
        over = world.servers.domain_watts - world.breakers.rating_watts
        self.over_rating_watts.append(float(over.max()))
        self.over_guaranteed_watts[second] = max(
            float(world.bank.limit_watts[world.bank.index_of[GpuUuid(uuid)]])
            - entry.guaranteed_watts
            for table in self.tables.values()
            for uuid, entry in table.entries().items()
        )
        self.leading[second] = outcome.seen.leading


def test_an_hour_without_the_api_lets_caps_fall_in_time_and_overdraws_no_breaker() -> None:
    seen = Seen()
    run = seen.run(outage(HOUR))
    assert (run.world.trips, run.monitor.count) == (0, 0), run.monitor.details
    assert max(seen.over_rating_watts) <= 0.0
    during = {s: watts for s, watts in seen.over_guaranteed_watts.items() if 0 <= s < HOUR}
    assert during[0.0] > 50.0, "there is something to fall from"
    late = [watts for s, watts in during.items() if s >= FALLEN_AFTER_SECONDS]
    assert len(late) > HOUR - 15.0
    assert max(late) <= SLACK_WATTS


def test_when_the_api_is_back_the_leader_leads_again_and_raises() -> None:
    seen = Seen()
    seen.run(outage(20.0))
    assert not any(leads for second, leads in seen.leading.items() if 5.0 <= second < 20.0)
    assert seen.leading[max(seen.leading)]


def test_a_short_outage_within_the_renew_deadline_moves_no_cap() -> None:
    seen = Seen()
    seen.run(outage(3.0, rated_servers=2.2))  # the load itself asks for no cap there
    after = [watts for second, watts in seen.over_guaranteed_watts.items() if second >= 0.0]
    assert min(after) > 50.0
