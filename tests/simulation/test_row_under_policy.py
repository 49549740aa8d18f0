"""The inference row under every policy: it runs, and what is counted of it."""

from __future__ import annotations

import pytest

from benchmarks.polca_row import figures_of
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import (
    ROW_POLICIES,
    Window,
    polca_scenario,
    run_policy,
)
from wattpack.errors import InputError

SERVERS = 4


@pytest.mark.parametrize("policy", ROW_POLICIES)
def test_every_policy_runs_the_row(policy: str) -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    window = Window(43_200.0, 4.0, 6.0, 2.0)
    scenario = polca_scenario(SERVERS, 2, ServerPower.of())
    made = run_policy(policy, arrivals, window, scenario)
    figures = figures_of(made, made, window, arrivals.times)
    assert figures["trips"] == 0
    assert 0.02 < figures["mean_ratio"] < SERVERS / 40
    assert figures["work_low"] == figures["work_high"] == 1.0
    assert figures["work_from_start_low"] == figures["work_from_start_high"] == 1.0
    assert figures["high_whole_p99"] == 0.0


def test_a_policy_nobody_knows_is_refused() -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    with pytest.raises(InputError, match="wattpack"):
        run_policy(
            "other",
            arrivals,
            Window(0.0, 1.0, 1.0, 1.0),
            polca_scenario(SERVERS, 2, ServerPower.of()),
        )
