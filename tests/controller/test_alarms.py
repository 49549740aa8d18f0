"""A condition that flickers is one incident, told once when it begins and once when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from controller.step import initial_state, step
from controller.tick_values import Observations, Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds

MOST_IN_A_MINUTE = 3
Change = Callable[[Observations, int], Observations]


def lines(topology: Topology, ticks: int, change: Change) -> list[tuple[int, str, str]]:
    """(second, domain, kind) of every transition."""
    state, told = initial_state(topology, SETTINGS), []
    for tick in range(ticks):
        observed = change(make_observations(topology, seconds(tick)), tick)
        state, _, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        told += [(tick, t.domain, t.kind) for t in decisions.transitions]
    return told


def most_in_a_minute(told: list[tuple[int, str, str]], ticks: int) -> int:
    """The most often that one line of one domain comes within any minute."""
    most = 0
    for begin in range(max(ticks - 60, 1)):
        inside = Counter((d, k) for second, d, k in told if begin <= second < begin + 60)
        most = max([most, *inside.values()])
    return most


def metered(observed: Observations, tick: int, factor: float) -> Observations:
    """A meter on each domain that reads a factor of 10 kW, a little other at each second."""
    n = len(observed.meter_watts)
    return replace(
        observed,
        meter_watts=np.full(n, 10_000.0 * factor + tick % 7),
        meter_time_ns=np.full(n, seconds(tick)),
    )


@pytest.mark.parametrize("period", [2, 5, 20])
def test_a_meter_that_comes_and_goes_over_its_bound_is_no_stream_of_lines(period: int) -> None:
    told = lines(
        make_topology(), 240, lambda o, t: metered(o, t, 1.6 if t % period < period / 2 else 0.2)
    )
    assert any(kind == "MeterMismatch" for _, _, kind in told)
    assert most_in_a_minute(told, 240) <= MOST_IN_A_MINUTE


def test_flickering_silence_epochs_and_readings_are_told_as_rarely() -> None:
    def flicker(observed: Observations, tick: int) -> Observations:
        odd = tick % 4 < 2
        received = observed.node_received_ns.copy()
        received[:2] -= seconds(10) if odd and tick > 10 else 0
        frozen = np.full_like(observed.gpu_energy_mean_watts, 200.0 if odd else 100.0)
        return replace(
            observed,
            node_received_ns=received,
            gpu_energy_mean_watts=frozen,
            node_epoch=np.full_like(observed.node_epoch, 2**31 if odd else 0),
        )

    told = lines(make_topology(), 240, flicker)
    kinds = {kind for _, _, kind in told}
    assert kinds >= {"NodesSilent", "EpochIgnored", "ReadingsFrozen"}
    assert most_in_a_minute(told, 240) <= MOST_IN_A_MINUTE


def test_what_is_over_is_told_after_half_a_minute() -> None:
    told = lines(make_topology(), 120, lambda o, t: metered(o, t, 1.6 if 20 <= t < 30 else 0.2))
    row = [(second, kind) for second, domain, kind in told if domain == "d0"]
    mismatch = [entry for entry in row if entry[1] in ("MeterMismatch", "MeterAgrees")]
    assert [kind for _, kind in mismatch] == ["MeterMismatch", "MeterAgrees"]
    assert mismatch[1][0] - mismatch[0][0] >= 30


def test_a_meter_that_lags_behind_a_load_step_is_no_mismatch() -> None:
    topology = make_topology()

    def lagging(observed: Observations, tick: int) -> Observations:
        # Boards fall from 300 to 100 W; the meter tells it two seconds later, of its own time.
        def load(at: int) -> float:
            return 300.0 if at < 30 else 100.0

        then = max(tick - 2, 0)
        gpus = topology.n_gpus
        below = np.array([16, 8, 8]) * load(then) + np.array([4, 2, 2]) * (800.0 + then % 3)
        return replace(
            observed,
            gpu_draw_watts=np.full(gpus, load(tick)),
            gpu_energy_mean_watts=np.full(gpus, load(tick)),
            meter_watts=below / 0.94 + tick % 5,
            meter_time_ns=np.full(3, seconds(then)),
        )

    assert not [kind for _, _, kind in lines(topology, 60, lagging) if kind == "MeterMismatch"]
