"""The cap band that a domain learns, and the walk between bands."""

from __future__ import annotations

import numpy as np
import pytest

from controller.bands import (
    BandMemory,
    DomainLoads,
    cap_band_share,
    held_target_share,
    initial_bands,
    initial_held,
    initial_rises,
    update_bands,
    update_rises,
)
from controller.tick_values import Band
from tests.controller.builders import SETTINGS, seconds

ONE = np.array([True])


def learn(shares: list[float], *, usable: bool = True) -> float:
    memory = initial_rises(1)
    for tick, share in enumerate(shares):
        memory = update_rises(memory, np.array([share]), ONE & usable, seconds(tick), SETTINGS)
    return float(cap_band_share(memory, SETTINGS)[0])


def test_without_history_the_step_model_rules() -> None:
    assert learn([]) == pytest.approx(0.95)
    assert learn([0.8] * 1200) == pytest.approx(0.95)


def test_of_the_margin_only_the_share_is_kept_free_that_can_rise() -> None:
    rising = np.array([1.0, 0.5])
    target = held_target_share(initial_held(2), np.full(2, 0.95), rising, SETTINGS)
    assert target == pytest.approx([0.9775, 0.98875])


def test_large_rises_near_the_band_lower_it() -> None:
    # 3 % of L a second for three seconds, of which two lie within detection and reaction.
    saw = [0.75, 0.78, 0.81, 0.84, 0.75, 0.75, 0.75, 0.75] * 200
    assert learn(saw) == pytest.approx(0.94, abs=0.003)


def test_rises_out_of_idleness_and_under_caps_teach_nothing() -> None:
    assert learn([0.3, 0.3, 0.3, 0.7, 0.7, 0.7, 0.7, 0.7] * 200) == pytest.approx(0.95)
    assert learn([0.75, 0.95] * 800, usable=False) == pytest.approx(0.95)


def walk(
    memory: BandMemory, draw: float, tick: int, *, uncapped: float = 0.0, braking: bool = False
) -> BandMemory:
    loads = DomainLoads(
        draw_share=np.array([draw]),
        uncapped_share=np.array([max(draw, uncapped)]),
        cap_band=np.array([0.95]),
        braking=ONE & braking,
        capped=ONE & False,
    )
    return update_bands(memory, loads, SETTINGS, seconds(tick))


def test_a_domain_is_released_only_after_the_dwell_and_only_if_it_would_stay_low() -> None:
    memory = walk(initial_bands(1), 0.96, 0)
    assert memory.band[0] == Band.CAPPING
    for tick in range(1, 60):
        memory = walk(memory, 0.80, tick, uncapped=1.1)
    assert memory.band[0] == Band.CAPPING
    for tick in range(60, 90):
        memory = walk(memory, 0.80, tick)
    assert memory.band[0] == Band.CAPPING
    memory = walk(memory, 0.80, 90)
    assert memory.band[0] == Band.RELEASING
    assert walk(memory, 0.80, 91).band[0] == Band.NORMAL
    assert walk(memory, 0.96, 91).band[0] == Band.CAPPING


def test_a_brake_goes_back_to_capping_when_the_load_is_at_target_for_five_seconds() -> None:
    memory = walk(initial_bands(1), 1.2, 0, braking=True)
    assert memory.band[0] == Band.BRAKE
    for tick in range(1, 6):
        memory = walk(memory, 0.90, tick)
    assert memory.band[0] == Band.BRAKE
    assert walk(memory, 0.90, 6).band[0] == Band.CAPPING
