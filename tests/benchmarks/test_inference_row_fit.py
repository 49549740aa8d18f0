"""How inference_row weighs its marks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import inference_row


def test_the_fit_weighs_the_three_marks_alike() -> None:
    published = {"peak": 0.79, "rise_2_seconds": 0.09, "rise_40_seconds": 0.118}
    assert inference_row.miss(published) == 0.0
    assert inference_row.miss({**published, "peak": 1.1 * 0.79}) == pytest.approx(0.1)
    assert inference_row.miss({**published, "rise_2_seconds": 0.081}) == pytest.approx(0.1)


def test_hours_are_means_over_days() -> None:
    readings = np.tile(np.linspace(0.5, 0.7, 3600), (2, 1))
    made = inference_row.figures_of(readings)
    assert made["busiest_hour"] == pytest.approx(0.65, abs=1e-3)
    assert made["quietest_hour"] == pytest.approx(0.55, abs=1e-3)


def test_busy_hours_of_whole_days_are_told_apart() -> None:
    readings = np.full((2, 24 * 1800), 0.5)
    readings[:, 2 * 1800] = 0.9
    readings[1, 12 * 1800] = 0.7
    made = inference_row.judged(readings)
    assert (made["peak"], made["peak_busy_hours"]) == (0.9, 0.7)
    assert made["rise_2_seconds_busy_hours"] == pytest.approx(0.2)
    assert "peak_busy_hours" not in inference_row.judged(readings[:, :1800])
