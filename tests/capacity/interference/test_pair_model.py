"""Speeds of jobs that share a board: what is left out is not known, and alike jobs answer alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from capacity.interference.board_share import BoardShare, slow_down
from capacity.interference.pair_model import PairModel, PairRow, SharedJob
from wattpack.errors import InputError

JOBS = [SharedJob(model, batch) for model in ("lstm", "resnet") for batch in (16, 32, 64)]


def planted(job: SharedJob, beside: SharedJob) -> float:
    """Nets suffer less than language models, and large batches hurt more."""
    own = {"lstm": -0.3, "resnet": 0.8}[job.model]
    return 1.0 / (1.0 + math.exp(0.2 * (math.log2(beside.batch_size) - 4.0) - own))


def measured() -> list[PairRow]:
    return [PairRow(job, beside, planted(job, beside)) for job in JOBS for beside in JOBS]


def test_what_is_left_out_is_predicted_as_if_it_had_never_been_measured() -> None:
    rows = measured()
    out = np.array([i for i, row in enumerate(rows) if {row.job, row.beside} == {JOBS[0], JOBS[4]}])
    kept = [row for i, row in enumerate(rows) if i not in out]
    said = PairModel(rows).left_out([out])
    first, second = PairModel(kept).speeds(JOBS[0], JOBS[4])
    of_first = next(i for i in out if rows[i].job == JOBS[0])
    of_second = next(i for i in out if rows[i].job == JOBS[4])
    assert said[of_first] == pytest.approx(first, abs=1e-9)
    assert said[of_second] == pytest.approx(second, abs=1e-9)
    assert np.isnan(np.delete(said, out)).all()


def test_a_pair_that_was_never_measured_is_found_from_its_members_other_pairs() -> None:
    rows = [row for row in measured() if {row.job, row.beside} != {JOBS[1], JOBS[5]}]
    speeds = PairModel(rows).speeds(JOBS[1], JOBS[5])
    truth = (planted(JOBS[1], JOBS[5]), planted(JOBS[5], JOBS[1]))
    assert speeds == pytest.approx(truth, abs=0.02)


def test_a_batch_size_between_two_others_answers_between_them() -> None:
    rows = [row for row in measured() if 32 not in (row.job.batch_size, row.beside.batch_size)]
    beside = SharedJob("lstm", 16)
    slow, fast = (PairModel(rows).speeds(beside, SharedJob("resnet", b))[0] for b in (64, 16))
    assert slow < PairModel(rows).speeds(beside, SharedJob("resnet", 32))[0] < fast


def test_order_does_not_matter_and_speeds_are_shares() -> None:
    model = PairModel(measured())
    stranger = SharedJob("nobody", 7)
    for first, second in ((JOBS[0], JOBS[3]), (JOBS[2], stranger), (stranger, stranger)):
        one, other = model.speeds(first, second)
        assert (other, one) == pytest.approx(model.speeds(second, first))
        assert 0.0 < min(one, other) <= max(one, other) <= 1.0


@pytest.mark.parametrize("speed", [0.0, -0.1, 1.5, math.nan, math.inf])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(InputError, match="speed"):
        PairRow(JOBS[0], JOBS[1], speed)


def test_no_rows_and_no_batch_are_refused() -> None:
    with pytest.raises(InputError, match="rows"):
        PairModel([])
    with pytest.raises(InputError, match="batch_size"):
        SharedJob("lstm", 0)


@pytest.mark.parametrize(
    ("shares", "boards", "slower"),
    [
        ([(0.4, 0.1), (0.5, 0.2)], 1, 1.0),
        ([(0.9, 0.1), (0.8, 0.2)], 1, 1.7),
        ([(0.1, 0.9), (0.3, 0.6)], 1, 1.5),
        ([(0.9, 0.1), (0.2, 0.9)], 1, 1.1),
        ([(0.9, 0.1), (0.8, 0.2), (0.7, 0.0)], 2, 1.2),
        ([], 1, 1.0),
    ],
)
def test_the_unit_that_is_asked_for_beyond_its_whole_is_divided(
    shares: list[tuple[float, float]], boards: int, slower: float
) -> None:
    assert slow_down([BoardShare(*pair) for pair in shares], boards) == pytest.approx(slower)


@pytest.mark.parametrize("share", [-0.1, 1.01, math.nan, math.inf])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="bandwidth"):
        BoardShare(0.5, share)
    with pytest.raises(InputError, match="compute"):
        BoardShare(share, 0.5)


def test_no_board_is_refused() -> None:
    with pytest.raises(InputError, match="boards"):
        slow_down([], 0)
