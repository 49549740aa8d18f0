"""What the live view tells beside the figures of the tick."""

from __future__ import annotations

import math

import pytest

from controller.app.fleet import Fleet
from tests.controller_process.messages import make_hello, make_reading
from tests.controller_process.object_builders import make_cluster, make_node
from tests.controller_process.test_tick_attacks import Bench
from wattpack.live_view import LiveView


def view_with_degrees(*degrees: float) -> LiveView:
    fleet = Fleet()
    fleet.hello(make_hello("node-1"))
    bench = Bench(make_cluster(make_node("node-1")), fleet)
    readings = [make_reading(f"node-1-gpu-{i}") for i in range(2)]
    for reading, celsius in zip(readings, degrees, strict=True):
        reading.temperature_celsius = celsius
    bench.tick("node-1", devices=readings)
    view = bench.ticker.live()
    assert view is not None
    return LiveView.model_validate_json(view.model_dump_json())


def test_a_domain_tells_its_release_level_and_what_its_breaker_survives() -> None:
    row = view_with_degrees(50.0, 50.0).domains[0]
    assert row.release_watts == pytest.approx(row.cap_band_watts - 0.07 * row.rating_watts, abs=1)
    assert row.survivable_watts is not None
    assert row.survivable_watts > row.rating_watts


@pytest.mark.parametrize(
    ("told", "shown"), [(61.0, 61.0), (0.0, None), (-5.0, None), (5e4, None), (math.nan, None)]
)
def test_a_temperature_that_no_board_can_have_is_unknown(told: float, shown: float | None) -> None:
    assert view_with_degrees(told, 50.0).gpus.temperature_celsius == [shown, 50.0]


def test_floors_are_told() -> None:
    view = view_with_degrees(50.0, 50.0)
    assert all(0 < floor <= 700 for floor in view.gpus.floor_watts)
