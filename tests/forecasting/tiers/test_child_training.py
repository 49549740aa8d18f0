"""Forests from a process beside: the same as fitted here, ended when late, told when it fails."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

from forecasting.side_training.child_training import ChildTraining
from forecasting.tiers.boosted import Boosted
from forecasting.tiers.boosted_features import Sample
from forecasting.tiers.boosted_fit import Forests, fit_forests
from tests.forecasting.tiers.test_tiers import DAY, LEVELS, demand, history
from wattpack.clock import ManualClock

PAUSE = threading.Event()


def small_sample() -> Sample:
    random = np.random.default_rng(0)
    features = random.random((600, 4)).astype(np.float32)
    changes = (features[:, 0] + random.random(600)).astype(np.float32)
    return Sample(features, changes, np.ones(600, dtype=np.float32), 20)


def running(code: str, deadline_seconds: float = 60) -> tuple[ChildTraining, ManualClock]:
    clock = ManualClock()
    command = (sys.executable, "-c", code)
    return ChildTraining(clock, deadline_seconds, command), clock


def awaited(training: ChildTraining) -> Forests | None:
    """What comes within a minute."""
    for _ in range(600):
        made = training.take()
        if made is not None or training.problem:
            return made
        PAUSE.wait(0.1)
    raise AssertionError("nothing came")


def test_forests_of_the_child_are_those_fitted_here() -> None:
    training = ChildTraining(ManualClock())
    assert training.submit(small_sample(), 77)
    assert not training.submit(small_sample(), 78)
    assert awaited(training) == fit_forests(small_sample(), 77)
    assert training.problem == ""
    assert training.take() is None


def test_a_late_fit_is_ended_and_the_next_may_begin() -> None:
    training, clock = running("import time; time.sleep(60)", deadline_seconds=5)
    assert training.submit(small_sample(), 1)
    assert training.take() is None
    assert training.problem == ""
    clock.advance_seconds(6)
    assert training.take() is None
    assert "deadline" in training.problem
    assert training.submit(small_sample(), 2)
    training.close()


def test_a_child_that_dies_or_leaves_nonsense_is_told() -> None:
    training, _ = running("raise SystemExit('no memory left')")
    training.submit(small_sample(), 1)
    assert awaited(training) is None
    assert "no memory left" in training.problem
    training, _ = running(
        "import sys, pathlib; pathlib.Path(sys.argv[1], 'forests.json').write_text('{}')"
    )
    training.submit(small_sample(), 1)
    assert awaited(training) is None
    assert "texts" in training.problem


def test_a_child_that_cannot_be_started_is_a_problem_and_no_error() -> None:
    training = ChildTraining(ManualClock(), command=(str(Path("/nowhere/python")),))
    assert not training.submit(small_sample(), 1)
    assert "nowhere" in training.problem


def test_a_failed_fit_is_tried_again_after_an_hour_of_data() -> None:
    training, _ = running("raise SystemExit(3)")
    values = demand(8, 6 * DAY)
    tier = Boosted(training=training)
    tier.update(history(values[:, : 5 * DAY]))
    assert awaited(training) is None
    for bins in (1, 5):
        tier.update(history(values[:, : 5 * DAY + bins]))
        assert training.take() is None
        assert tier.problem
    tier.update(history(values[:, : 5 * DAY + 6]))
    assert not training.submit(small_sample(), 1)  # the second try is under way
    assert np.isnan(tier.quantiles(3, LEVELS)).all()
    training.close()
