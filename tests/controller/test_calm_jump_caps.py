"""Where the survivable jump alone holds caps (I2), boards get all that it leaves, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.tick_values import Band
from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology
from tests.controller.obedient_row import ObedientRow, jump_bound_topology
from tests.controller.oracle import LEAST_FAULT_SECONDS, house_of


def calm_row() -> ObedientRow:
    """Idle boards of which the row's breaker bears no full power for as long as leases last."""
    row = ObedientRow(jump_bound_topology())
    row.run(60)
    assert 0.90 < row.caps.mean() / 700.0 < 0.98
    assert row.decisions.band.tolist() == [Band.NORMAL, Band.NORMAL]
    return row


@pytest.mark.parametrize("heat", [0.003, 0.006, 0.02])
def test_what_a_cooled_breaker_bears_again_is_given_back(heat: float) -> None:
    """Caps stayed up to 3 % of a limit below the ideal ones, and raises stopped 2 % short."""
    row = calm_row()
    cool = row.caps.copy()
    row.state = replace(row.state, heat=np.array([heat, 0.0]))
    row.run(5)
    assert row.caps.mean() < 0.995 * cool.mean(), "a warm one bears less"
    row.state = replace(row.state, heat=np.zeros(2))
    row.run(30)
    assert row.caps.mean() > 0.998 * cool.mean()


def test_caps_of_a_calm_row_stand_still() -> None:
    row = calm_row()
    row.changed = 0
    row.run(120)
    assert row.changed == 0


def test_a_breaker_that_cools_by_itself_moves_caps_a_few_times_only() -> None:
    """Each change of its heat moves the ideal caps a little: what is not worth a word waits."""
    row = calm_row()
    row.state = replace(row.state, heat=np.array([0.02, 0.0]))
    row.run(5)
    row.changed = 0
    row.run(600)
    assert 1 <= row.changed / len(row.caps) <= 12


def test_a_row_that_caps_keeps_its_worst_case_lower_than_it_must() -> None:
    """Idle boards held at what a shorter fault bears let a capped row swing past its rating."""
    row = calm_row()
    house = house_of(row.topology)
    top = house.domains()[0]

    def survives(seconds: float) -> bool:
        return bool(house.survives(top, house.worst(top, row.caps.tolist()), 0.0, seconds))

    assert survives(LEAST_FAULT_SECONDS)
    assert not survives(LEAST_FAULT_SECONDS + 0.5), "a calm row gives all that I2 leaves"
    row.demand[:24] = 690.0
    row.run(30)
    assert row.decisions.band.tolist()[0] == Band.CAPPING
    assert survives(LEAST_FAULT_SECONDS + 0.5)
    assert row.decisions.survivable_watts[0] > 1.03 * row.decisions.jump_limit_watts[0]
    row.demand[:] = 100.0
    row.run(130)
    assert row.decisions.band.tolist()[0] == Band.NORMAL
    assert not survives(LEAST_FAULT_SECONDS + 0.5), "and it comes back"


def crowded_row(floor_watts: float | None = None, **observed: Any) -> ObedientRow:
    """As many boards as I2 leaves well below full power."""
    topology = jump_bound_topology(oversubscription=1.8)
    if floor_watts is not None:
        topology = replace(topology, floor_watts=np.full(topology.n_gpus, floor_watts))
    row = ObedientRow(topology, **observed)
    row.run(60)
    return row


def test_i5_the_margin_of_a_row_that_caps_leaves_every_floor_that_i2_leaves() -> None:
    row = crowded_row(floor_watts=570.0)
    assert row.caps.min() >= 569.0
    row.demand[:22] = 700.0
    row.run(40)
    assert row.decisions.band.tolist()[0] == Band.CAPPING
    assert row.decisions.jump_limit_watts[0] < row.decisions.survivable_watts[0]
    assert row.caps.min() >= 569.0


def test_a_row_that_i2_alone_holds_below_its_band_does_not_stay_capped_after_a_peak() -> None:
    """It would have kept its worst case lower than it must for as long as its work went on."""
    row = crowded_row()
    row.demand[:20] = 700.0
    row.run(80)
    assert row.decisions.band.tolist() == [Band.NORMAL, Band.NORMAL]
    before = row.decisions.draw_watts[0]
    row.demand[20:] = 400.0
    row.run(30)
    assert row.decisions.band.tolist()[0] == Band.CAPPING
    row.demand[20:] = 100.0
    row.run(300)
    assert row.decisions.band.tolist() == [Band.NORMAL, Band.NORMAL]
    assert row.decisions.draw_watts[0] > 0.98 * before


def test_what_boards_that_people_cap_leave_to_others_counts_before_a_band_lets_go() -> None:
    """It let go for what others drew while all could be raised, and capped again every half minute.

    A row of which draws went far beyond their target aims below where a band lets go.
    """
    by_hand = np.full(32, np.nan)
    by_hand[[2, 3, 6, 7, 10, 11, 14, 15]] = 200.0
    row = crowded_row(override_cap_watts=by_hand)
    held = row.state.held
    counts = held.counts.copy()
    counts[0, 52] = 2000.0  # excursions of 0.13 of the rating
    held = replace(held, counts=counts, total=counts.sum(axis=1))
    row.state = replace(row.state, held=held)
    row.demand[np.isnan(by_hand)] = 700.0
    row.run(60)
    assert row.decisions.band.tolist()[0] == Band.CAPPING
    for _ in range(240):
        row.run(1)
        assert row.decisions.band.tolist()[0] == Band.CAPPING


def test_i5_the_margin_leaves_floors_beside_boards_that_are_only_watched() -> None:
    """They count at all that they may hold, not at their floors."""
    mixed = make_topology(
        parents=(-1, 0, 0),
        nodes=[1] * 7 + [2],
        priority=[0, 0, 10, 10] * 8,
        oversubscription=1.8,
        curve=SWITCHBOARD_THERMAL,
        enforce=[True, True, False],
    )
    wide = replace(mixed.tree, rating_watts=np.array([mixed.tree.rating_watts[0], 1e6, 1e6]))
    topology = replace(mixed, tree=wide, floor_watts=np.full(mixed.n_gpus, 550.0))
    row = ObedientRow(topology)
    row.deaf = ~topology.enforced_gpu
    row.caps = np.where(row.deaf, 700.0, row.caps)
    row.run(60)
    assert row.caps[topology.enforced_gpu].min() >= 549.0
    row.demand[:23] = 700.0
    row.demand[24:28] = 200.0
    row.run(60)
    assert row.decisions.band.tolist()[0] == Band.CAPPING
    assert row.caps[topology.enforced_gpu].min() >= 549.0
