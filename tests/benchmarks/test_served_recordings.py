"""The recorded server's batching rules, and the shipped recordings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._continuous_batcher import Batcher, CacheRanges, Served
from benchmarks._served_runs import (
    PRODUCT_RECORDINGS,
    RECORDINGS,
    PowerLog,
    folder,
    recordings,
)
from benchmarks.board_check import products


def test_prompts_are_cut_into_as_few_equal_parts_as_the_budget_allows() -> None:
    batcher = Batcher(10_000, chunk_tokens=100)
    batcher.waiting.extend([Served(0, 0.0, 150, 3), Served(1, 0.0, 60, 3)])
    first = batcher.next()
    assert [(one.request.number, one.tokens) for one in first.chunks] == [(0, 70)]
    batcher.done(first, 1.0)
    second = batcher.next()
    assert [(one.request.number, one.tokens) for one in second.chunks] == [(0, 70)]
    batcher.done(second, 2.0)
    third = batcher.next()
    assert [(one.request.number, one.tokens) for one in third.chunks] == [(0, 10), (1, 60)]


def test_answers_go_on_beside_prompts() -> None:
    batcher = Batcher(10_000, chunk_tokens=100)
    batcher.waiting.append(Served(0, 0.0, 10, 5))
    batcher.done(batcher.next(), 1.0)
    batcher.waiting.append(Served(1, 1.0, 400, 1))
    beside = batcher.next()
    assert [one.number for one in beside.decodes] == [0]
    assert beside.prompt_tokens == 80  # five equal parts of what 99 tokens of room take


Asked = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 40)), min_size=1, max_size=12)


@settings(max_examples=40)
@given(Asked, st.integers(40, 300), st.integers(1, 5))
def test_every_request_gets_all_of_its_tokens_and_gives_its_places_back(
    asked: list[tuple[int, int]], chunk_tokens: int, max_batch: int
) -> None:
    batcher = Batcher(700, chunk_tokens, max_batch)
    sent = [Served(n, 0.0, prompt, output) for n, (prompt, output) in enumerate(asked)]
    batcher.waiting.extend(sent)
    now = 0.0
    while batcher.busy:
        iteration = batcher.next()
        assert iteration.decodes or iteration.chunks
        assert iteration.prompt_tokens + len(iteration.decodes) <= chunk_tokens
        held = batcher.filling + batcher.decoding
        assert len(held) <= max_batch
        taken = sorted((one.start, one.start + one.places) for one in held)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))
        now += 1.0
        batcher.done(iteration, now)
    assert all((one.filled, one.made) == (one.prompt_tokens, one.output_tokens) for one in sent)
    assert [one.first_seconds for one in sent] == sorted(one.first_seconds for one in sent)
    assert batcher._ranges._free == [(0, 700)]


def test_a_range_that_fits_nowhere_is_not_taken() -> None:
    ranges = CacheRanges(100)
    assert ranges.take(60) == 0
    assert ranges.take(50) == -1
    ranges.give_back(0, 60)
    assert ranges.take(100) == 0


@pytest.mark.parametrize(("gpu", "runs"), [("H200-SXM", 25), ("H100-SXM", 8)])
def test_recordings_are_whole(gpu: str, runs: int) -> None:
    seen = 0
    for recording in recordings(gpu):
        for run in recording.runs:
            seen += 1
            begin = run.begin_seconds
            assert run.ended.mean() > 0.8
            assert (run.ttft_seconds > 0).all()
            assert (run.tpot_seconds > 0.001).all()
            inside = (recording.power.seconds > begin) & (
                recording.power.seconds < begin + run.seconds
            )
            assert inside.sum() > 10 * run.seconds
            # Two sensors of one board: the counter and the samples tell one mean.
            counted = recording.power.counted_watts(begin, begin + run.seconds)
            sampled = recording.power.sampled_watts(begin, begin + run.seconds)
            assert sampled == pytest.approx(counted, rel=0.02)
    assert seen == runs
    assert sum(file.stat().st_size for file in folder(gpu).iterdir()) < 1_200_000


def test_both_types_were_recorded_under_one_stream_of_arrivals() -> None:
    assert set(RECORDINGS) == {"H200-SXM", "H100-SXM"}
    first, second = (next(recordings(gpu, (1,))) for gpu in RECORDINGS)
    for one, other in zip(first.runs, second.runs, strict=True):
        assert one.requests.arrival_seconds.tolist() == other.requests.arrival_seconds.tolist()
        assert one.requests.output_tokens.tolist() == other.requests.output_tokens.tolist()


def test_every_board_with_products_ran_the_same_ones() -> None:
    ran = [
        products(gpu, number)[0]
        for gpu, numbers in PRODUCT_RECORDINGS.items()
        for number in numbers
    ]
    assert len(ran) == 4
    assert len(set(ran[0])) == 70
    assert all(kernels == ran[0] for kernels in ran)


def test_means_of_a_power_log_are_those_of_their_windows() -> None:
    seconds = np.arange(0.0, 4.0, 0.1)
    watts = np.where(seconds < 2.0, 100.0, 300.0)
    log = PowerLog(seconds, watts, watts, np.array([0.0, 4.0]), np.array([0.0, 800.0]))
    assert log.means(0.0, 4.0, 1.0).tolist() == [100.0, 100.0, 300.0, 300.0]
    assert log.counted_watts(1.0, 3.0) == 200.0
