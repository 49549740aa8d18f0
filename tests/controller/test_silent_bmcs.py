"""What a server drew when its BMC spoke last is not forgotten with the word itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.controller.builders import make_topology
from tests.controller.metered_row import MeteredRow

LIGHT, BUSY, FULL = 150.0, 500.0, 690.0
ALL_SILENT = 200
"""From this second neither domain meter nor BMC says anything."""


def row_of_bmcs(until: int, meters_until: int, *, speaking_from: int = 30) -> MeteredRow:
    """Boards at rest until BMCs are known, then busy, and at full power once all are silent."""
    n = 8
    topology = make_topology(
        parents=(-1,), nodes=(0,) * n, gpus_per_node=4, ratings=[60_000.0], node_worst_watts=2000.0
    )

    def demand(second: int) -> np.ndarray:
        watts = LIGHT if second < 60 else BUSY if second < ALL_SILENT + 5 else FULL
        return np.full(topology.n_gpus, watts)

    return MeteredRow(
        topology,
        demand,
        np.random.default_rng(3),
        metered=(0,),
        meters_until=meters_until,
        whole_metered=True,
        whole_metered_in=range(speaking_from, until),
        host_base=400.0,
        host_per_gpu=0.25,
    )


def counted_over_true(row: MeteredRow, count: int) -> list[float]:
    """The draw that is counted over the true one, of each second."""
    return [float(d.draw_watts[0]) / row.true_watts()[0] for _, d in row.run(count)]


@pytest.mark.parametrize("lead", [-2, 0, 30])
def test_meters_and_bmcs_that_fall_silent_together_hide_no_servers(lead: int) -> None:
    """The share was learned at rest, before BMCs were known: 9 % of the rating was missing."""
    row = row_of_bmcs(ALL_SILENT, ALL_SILENT - 12 - lead)
    shares = counted_over_true(row, ALL_SILENT + 90)
    assert min(shares[ALL_SILENT + 12 :]) > 0.97


def test_what_bmcs_showed_is_no_longer_counted_once_a_meter_has_taught() -> None:
    row = row_of_bmcs(ALL_SILENT, 1_000_000)
    row.demand = lambda second: np.full(row.topology.n_gpus, FULL if second < 230 else LIGHT)
    shares = counted_over_true(row, 1000)
    assert max(shares[900:]) < 1.03
