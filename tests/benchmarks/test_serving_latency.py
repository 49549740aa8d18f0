"""The judge of serving_latency ranks and errs by sums that a person can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.serving_latency import Judged, ranking, time_bound
from capacity.serving.engine_fit import fit_constants
from capacity.serving.reference_runs import ReferenceRun, reference_runs, scored_runs


def measured(gpu: str, tpot: float) -> ReferenceRun:
    return ReferenceRun("vllm", "llama-3.1-70b", gpu, 4, 1024, 1001, 8, "inferencemax", 0.0, tpot)


def test_runs_are_those_of_the_published_table() -> None:
    assert len(reference_runs()) == 559
    assert len(scored_runs()) == 513
    assert {run.engine for run in scored_runs()} == {"trtllm", "vllm"}
    assert sum(run.ttft_seconds > 20 for run in scored_runs()) == 9, "full caches are in"


def test_a_pair_is_right_if_the_dearer_type_pays_for_itself_as_measured() -> None:
    # 10 ms on an H200 of 3.59 dollars, 5 ms on a B200 of 5.98: the B200 is worth it by a fifth
    cell = [measured("H200-SXM", 0.010), measured("B200-SXM", 0.005)]
    right = ranking([Judged(cell[0], 0.0, 0.012), Judged(cell[1], 0.0, 0.006)])
    wrong = ranking([Judged(cell[0], 0.0, 0.008), Judged(cell[1], 0.0, 0.006)])
    assert (right["ranking_pairs"], right["ranking_right_ratio"]) == (1, 1.0)
    assert wrong["ranking_right_ratio"] == 0.0
    assert wrong["ranking_bandwidth_right_ratio"] == 1.0


def test_two_engines_share_a_cell_and_equal_types_are_no_pair() -> None:
    ours = measured("H200-SXM", 0.010)
    other = replace(measured("B200-SXM", 0.005), engine="trtllm")
    same = replace(ours, engine="trtllm", tpot_seconds=0.005)
    found = ranking([Judged(ours, 0.0, 0.012), Judged(other, 0.0, 0.006), Judged(same, 0.0, 0.01)])
    assert found["ranking_pairs"] == 2, "both H200 against the B200, not against each other"
    assert found["ranking_within_engine_pairs"] == 1


def test_the_cheaper_hour_wins_where_the_dearer_type_is_no_faster() -> None:
    cell = [measured("H200-SXM", 0.010), measured("B200-SXM", 0.010)]
    found = ranking([Judged(one, 0.0, 0.01) for one in cell])
    assert found["ranking_cheaper_right_ratio"] == 1.0
    assert found["ranking_bandwidth_right_ratio"] == 0.0


def test_pairs_within_a_tenth_are_not_scored() -> None:
    cell = [measured("H200-SXM", 0.010), measured("B200-SXM", 0.010 * 3.59 / 5.98)]
    assert ranking([Judged(one, 0.0, 0.01) for one in cell])["ranking_pairs"] == 0


def test_a_fit_moves_the_constants_towards_its_runs() -> None:
    runs = [r for r in scored_runs() if r.gpu == "H200-SXM" and r.concurrency == 4][:6]
    slower = [
        ReferenceRun(*(getattr(r, name) for name in FIELDS[:-2]), r.ttft_seconds * 2,
                     r.tpot_seconds * 2)
        for r in runs
    ]  # fmt: skip
    fitted, doubled = fit_constants(runs, 1), fit_constants(slower, 1)
    assert doubled.decode_products > fitted.decode_products
    assert doubled.step_seconds > fitted.step_seconds


FIELDS = tuple(ReferenceRun.__dataclass_fields__)


@pytest.mark.parametrize("run", scored_runs()[::171], ids=lambda r: f"{r.engine}-{r.protocol}")
def test_every_client_sends_ten_requests(run: ReferenceRun) -> None:
    work = run.work
    assert len(work.sizes) == 10 * run.concurrency
    assert all(size.prompt <= run.prompt_tokens for size in work.sizes)


def test_a_model_that_is_slower_than_all_others_exceeds_their_bound() -> None:
    runs = [measured("H200-SXM", 0.010)] * 20
    other = [replace(run, language_model="qwen3-32b") for run in runs]
    figures = time_bound([
        *(Judged(run, 0.0, 0.010) for run in runs), *(Judged(run, 0.0, 0.008) for run in other)
    ])  # fmt: skip
    # Those that last 1.25 times as long exceed what exact ones let expect, and not the other way.
    assert figures["time_bound_exceeded_percent_model_held_out"] == 50.0
    assert figures["time_bound_exceeded_percent_model_worst"] == 100.0
