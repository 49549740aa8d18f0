"""What boards tell of their draw is the scenario's choice; who controls is judged by who knows."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.simulated.board_spec import PowerSensor
from simulation.app.twin_run import TwinRun
from simulation.plant_constants import frozen_plant
from simulation.plant_hash import plant_sha256
from simulation.row_boards import sensor_of
from simulation.scenario import load_scenario
from simulation.world import World
from tests.simulation.row_control.rows import small_row, wattpack_run
from tests.simulation.test_inference_in_the_twin import inference
from tests.simulation.twin_builders import small_scenario
from wattpack.errors import InputError
from wattpack.units import seconds_to_ns

STEPS = [(0.0, 300.0), (20.0, 690.0), (60.0, 450.0), (80.0, 930.0)]


def with_sensor(power_sensor: str) -> dict[str, object]:
    return {"row": small_row().row.model_dump() | {"power_sensor": power_sensor}}


@pytest.mark.parametrize(
    ("gpu_model", "power_sensor", "found"),
    [
        ("H200-SXM", "averaged", PowerSensor.AVERAGED),
        ("H200-SXM", "sampled", PowerSensor.SAMPLED),
        ("H200-SXM", "by_type", PowerSensor.AVERAGED_AND_SAMPLED),
        ("A100-SXM", "by_type", PowerSensor.SAMPLED),
        ("L40S", "by_type", PowerSensor.AVERAGED_AND_SAMPLED),
        ("A40", "by_type", PowerSensor.AVERAGED_AND_SAMPLED),  # GA102: only GA100 has no average
        ("V100-PCIE", "by_type", PowerSensor.SAMPLED),
        ("RTX-6000", "by_type", PowerSensor.SAMPLED),  # Quadro RTX 6000: Turing
    ],
)
def test_a_type_has_the_sensors_that_nvml_tells_of(
    gpu_model: str, power_sensor: str, found: PowerSensor
) -> None:
    assert sensor_of(gpu_model, power_sensor) is found


def test_another_sensor_is_another_plant_and_says_so() -> None:
    scenario = load_scenario(None, row={"power_sensor": "sampled"})
    assert not scenario.plant_frozen
    hashes = {plant_sha256(frozen_plant(), one) for one in ("averaged", "sampled", "by_type")}
    assert len(hashes) == 3
    assert plant_sha256(frozen_plant(), "averaged") == plant_sha256(frozen_plant())
    with pytest.raises(InputError, match=r"row\.power_sensor"):
        load_scenario(None, row={"power_sensor": "instant"})


def test_agents_of_the_twin_read_what_the_boards_show() -> None:
    row = small_scenario().row.model_dump()
    worlds = [
        World(small_scenario(row=row | {"power_sensor": one})) for one in ("averaged", "sampled")
    ]
    for world in worlds:
        world.bank.advance(np.linspace(300.0, 900.0, 32), seconds_to_ns(0.25))
        world.bank.advance(np.linspace(900.0, 300.0, 32), seconds_to_ns(0.5))
    (mean, sample) = ([d.read(0) for d in w.driver(w.node_names[0]).devices()] for w in worlds)
    assert all(one.draw_watts == one.instant_draw_watts for one in sample)
    assert all(one.draw_watts != one.instant_draw_watts for one in mean)
    assert [one.energy_joules for one in mean] == [one.energy_joules for one in sample]


@pytest.mark.parametrize("meters", [True, False])
def test_a_row_of_sampled_boards_is_held_and_its_judge_finds_nothing(meters: bool) -> None:
    result = wattpack_run(small_row(**with_sensor("sampled")), STEPS, meters=meters).run(150.0)
    plain = wattpack_run(small_row(), STEPS, meters=meters).run(150.0)
    assert result.trips == 0
    assert result.violations == {}
    # Boards at their limits beat once a second, and reports come once a second: their readings are
    # of one phase of the beat. Work and heat stay those of a row that reads means.
    assert result.max_heat.max() < 0.1
    assert result.done[-1].sum() == pytest.approx(plain.done[-1].sum(), rel=0.03)
    assert result.done[-1].sum() != plain.done[-1].sum()


def test_the_product_holds_a_row_whose_boards_have_no_average() -> None:
    row = inference(10, 7.4).row.model_dump() | {"power_sensor": "by_type"}
    asked = {"lengths": "azure", "hotter": 0.5}
    run = TwinRun(inference(10, 7.4, row=row, inference_row=asked, duration_seconds=60.0))
    run.run()
    assert run.world.trips == 0
    assert run.monitor.count == 0, run.monitor.details
    reading = run.world.driver(run.world.node_names[0]).devices()[0].read(0)
    assert reading.draw_watts == reading.instant_draw_watts
