"""Steps teach in the round after their bin, once, and as much as if all had come at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.engine_memory import EngineMemory, Pool
from forecasting.open_issues import OpenIssue
from forecasting.series_source import Floats, History, SeriesId
from forecasting.settlement import Judge, settled

LEVELS = (0.1, 0.5, 0.9, 0.99)
NAMES = tuple(SeriesId(f"s{i}") for i in range(30))
POOL: Pool = ("ns", "workload")
JUDGE = Judge(LEVELS, dict.fromkeys(NAMES, POOL))
HORIZON, BEGIN = 12, 864_000


def issue() -> OpenIssue:
    """Uniform between 0 and 100, with a tier that always says too little."""
    steps = np.broadcast_to(100.0 * np.array(LEVELS), (len(NAMES), HORIZON, len(LEVELS)))
    peaks = np.broadcast_to([50.0, 80.0, 95.0, 99.0], (len(NAMES), len(LEVELS)))
    return OpenIssue(
        begin_seconds=BEGIN,
        series=NAMES,
        pools=(POOL,) * len(NAMES),
        steps=steps.astype(np.float32),
        told_steps=steps.astype(np.float32),
        tiers=("ridge/3", "low/1"),
        by_tier=np.stack([steps[:, :, :3], steps[:, :, :3] / 2]).astype(np.float32),
        peaks=np.array(peaks),
        told_peaks=np.array(peaks),
        scale=np.full(len(NAMES), 100.0),
        change=np.full(len(NAMES), 30.0),
        judged=np.ones(len(NAMES), dtype=bool),
        broken=np.zeros(peaks.shape, dtype=bool),
        counted=np.ones(len(NAMES), dtype=bool),
    )


def history(came: Floats) -> History:
    """A day before the window, then what came of it."""
    values = np.concatenate([np.full((len(NAMES), 144), 50.0), came], axis=1)
    return History(NAMES, values, BEGIN + came.shape[1] * 600, 600)


@given(st.integers(0, 2**32 - 1))
def test_bin_by_bin_teaches_as_much_as_all_at_once(seed: int) -> None:
    came = np.random.default_rng(seed).uniform(0, 98, (len(NAMES), HORIZON))
    start = EngineMemory(open_issues=(issue(),))
    at_once = settled(start, history(came), JUDGE)
    by_bins = start
    for over in range(HORIZON + 1):
        by_bins = settled(by_bins, history(came[:, :over]), JUDGE)
        if over < HORIZON:
            again = settled(by_bins, history(came[:, :over]), JUDGE)
            assert np.array_equal(again.losses.sums, by_bins.losses.sums)
            assert len(again.open_issues) == 1
    assert by_bins.open_issues == at_once.open_issues == ()
    one, other = by_bins.points[POOL], at_once.points[POOL]
    assert one.drift == pytest.approx(other.drift, abs=1e-12)
    assert one.windows == pytest.approx(other.windows, rel=0.06)
    # The window's first steps are two hours older than its last.
    assert by_bins.losses.windows[..., :4] == pytest.approx(np.ones((2, 30, 4)), rel=0.03)
    assert by_bins.losses.sums == pytest.approx(at_once.losses.sums, rel=0.03)
    assert by_bins.records == at_once.records


def test_the_first_step_teaches_ten_minutes_later() -> None:
    start = EngineMemory(open_issues=(issue(),))
    missed = settled(start, history(np.full((len(NAMES), 1), 94.0)), JUDGE)
    assert missed.points[POOL].windows == pytest.approx(len(NAMES) / HORIZON)
    assert missed.points[POOL].drift[2] < 0 < missed.points[POOL].drift[3]
    assert missed.losses.windows[:, :, 0] == pytest.approx(1.0)
    assert missed.losses.windows[:, :, 1:] == pytest.approx(0.0)
    assert missed.losses.sums[1, 0, 0] > missed.losses.sums[0, 0, 0] > 0
    assert missed.peaks[POOL].windows == 0.0


def test_a_series_that_became_another_one_does_not_teach_steps() -> None:
    start = EngineMemory(open_issues=(issue(),))
    renewed = replace(JUDGE, new_since_seconds={NAMES[0]: BEGIN + 600})
    came = history(np.full((len(NAMES), 1), 50.0))
    assert settled(start, came, renewed).points[POOL].windows == pytest.approx(29 / HORIZON)
