"""The plant that judges power control still does what it did when it was frozen (ADR 0030).

Its hash is of constants and spreads; these figures are of its formulas, too. One that differs is
another plant: an ADR, and every baseline anew. Made once by the plant of hash ``f5ab6e69``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import yaml

from simulation.plant import ROW, breakers_of
from simulation.plant_hash import plant_sha256
from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS
from tests.simulation.row_control.rows import small_row
from wattpack.units import NS_PER_SECOND

FIGURES: Final[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
STEP_SECONDS: Final = 0.25
TOLD_SECONDS: Final = 4.0


def played(model: str) -> list[list[float]]:
    """A minute of a small row: waves of work, lowered limits, a lock, everything to full, a reboot,
    a reload, one sensor edge and a lost feed; a line of sums every four seconds."""
    shape = {"groups": [{"gpu_model": model, "count": 6}], "redundancy": "2N"}
    row = small_row().row.model_dump(exclude_unset=True) | shape
    plant = RowPlant(small_row(row=row, seed=5), START_NS)
    bank, n = plant.bank, plant.n_gpus
    boards, feeds = np.arange(n), np.ones(len(plant.domain_names), dtype=np.bool_)
    faults = RowFaults(
        [
            RowFault(RowFaultKind.SENSOR_GAIN, 20.0, 30.0, boards % 3 == 0, 0.95),
            RowFault(RowFaultKind.FEED_LOST, 32.0, 50.0, feeds),
        ]
    )
    lines = []
    for k in range(1, round(60.0 / STEP_SECONDS) + 1):
        seconds = (k - 1) * STEP_SECONDS
        if seconds == 10.0:
            bank.set_limits(np.where(boards % 2 == 0, 0.6, 1.0) * bank.default_limit_watts)
        elif seconds == 16.0:
            for i in range(0, n, 5):
                bank.set_lock(i, round(0.8 * float(bank.max_clock_mhz[i])))
        elif seconds == 44.0:
            plant.reboot(1, START_NS + 52 * NS_PER_SECOND)
            plant.reload_driver(2)
        plant.begin_window(faults, seconds)
        wave = 0.55 + 0.35 * np.sin(seconds / 7.0 + boards / 9.0)
        wanted = np.where(30.0 <= seconds < 40.0, 1.3, wave) * bank.default_limit_watts
        plant.advance(np.where(plant.held().alive, wanted, 0.0), STEP_SECONDS)
        if k % round(TOLD_SECONDS / STEP_SECONDS) == 0:
            lines.append(told(plant))
    return lines


def told(plant: RowPlant) -> list[float]:
    bank = plant.bank
    figures = (
        bank.drawn_watts.sum(),
        bank.sensed_draw_watts().sum(),
        bank.energy_joules.sum(),
        bank.sm_clock_mhz().sum(),
        plant.servers.host_watts.sum(),
        plant.breakers.ratio.max(),
        plant.breakers.heat.max(),
        np.nan_to_num(plant.meters.watts).sum(),
        np.nan_to_num(plant.bmcs.watts).sum(),
    )
    return [float(figure) for figure in figures]


@pytest.mark.parametrize("model", ["H200-SXM", "A100-SXM"])
def test_a_minute_of_the_plant_is_the_one_that_was_frozen(model: str) -> None:
    assert plant_sha256(small_row().plant)[:8] == "f5ab6e69"
    np.testing.assert_allclose(played(model), FIGURES["minutes"][model], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", [5, 6])
def test_breakers_open_when_they_did(seed: int) -> None:
    opened = {ratio: seconds_to_open(ratio, seed) for ratio in FIGURES["opened_seconds"][seed]}
    assert opened == pytest.approx(FIGURES["opened_seconds"][seed])


def seconds_to_open(ratio: float, seed: int) -> float:
    """Of the row's breaker at a constant load, in steps of 50 ms."""
    breakers = breakers_of(small_row(seed=seed))
    watts = ratio * breakers.rating_watts
    for k in range(1, 40_000):
        if breakers.advance(watts, 0.05)[ROW]:
            return 0.05 * k
    return math.inf
