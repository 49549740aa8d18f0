"""Every loophole has a kernel that uses it and is refused for it; no honest kernel is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from capacity.ranking.ranked_task import RankedTask
from capacity.ranking_process.kernel_process import StartedChild
from tests.capacity.ranking.trials import DECODE, GEMM, LIMITS, PREFILL, TRIAD, verdict_on

HONEST = Path(__file__).with_name("honest_kernels.py")
CHEATING = Path(__file__).with_name("cheating_kernels.py")

HONEST_KERNELS: list[tuple[str, RankedTask]] = [
    *((name, GEMM) for name in (
        "column_blocks", "row_blocks", "split_sums", "tiles", "outer_products", "row_by_row",
        "column_by_column", "multiply_and_add", "four_quarters", "split_sums_pairwise",
        "double_precision", "threads_that_end", "queued", "queued_and_waited_for",
        "queued_and_returned", "own_stream_joined", "kept_scratch", "packed_copies", "talkative",
        "slow", "last_tile_ragged", "strassen_once", "raises_by_name",
    )),
    ("attention_online", PREFILL), ("attention_online", DECODE),
    ("attention_rows", PREFILL), ("attention_rows", DECODE),
    ("triad_blocks", TRIAD), ("triad_other_order", TRIAD),
]  # fmt: skip

CHEATS: dict[str, set[str]] = {
    "side_stream": {"unfinished_result"},
    "thread_that_finishes_later": {"unfinished_result"},
    "idle_threads": {"left_threads"},
    "child_process": {"left_processes"},
    "daemon": {"left_processes"},
    "lazy_array": {"not_a_plain_array"},
    "fake_array": {"not_a_plain_array"},
    "does_nothing": {"unfinished_result"},
    "returns_what_memory_held": {"wrong_result", "unfinished_result"},
    "returns_zeros": {"wrong_result"},
    "returns_the_poison": {"unfinished_result"},
    "skips_the_last_row": {"unfinished_result"},
    "skips_every_third_run": {"wrong_result", "stale_result"},
    "many_runs_in_one_call": {"looks_around"},
    "same_result_again": {"stale_result", "wrong_result"},
    "cached_by_pointer": {"stale_result", "wrong_result"},
    "cached_by_first_elements": {"stale_result", "wrong_result"},
    "leaves_signalling_nans": {"wrong_result", "unfinished_result"},
    "searches_memory_for_the_answer": {"wrong_result", "unfinished_result"},
    "result_of_another_slot": {"wrong_result", "unfinished_result"},
    "one_shape": {"wrong_result"},
    "assumes_normal_operands": {"wrong_result"},
    "careful_while_examined": {"wrong_result"},
    "modifies_operands": {"modified_inputs"},
    "half_operands": {"precision_downgrade"},
    "bfloat_operands": {"precision_downgrade"},
    "twelve_bits": {"precision_downgrade"},
    "half_sums": {"precision_downgrade"},
    "half_of_the_sum": {"wrong_result"},
    "patches_the_clock": {"patched"},
    "patches_the_event": {"timers_disagree"},
    "library_call": {"wraps_library"},
    "library_operator": {"wraps_library"},
    "library_by_another_name": {"wraps_library"},
    "library_in_einsum": {"wraps_library"},
    "falls_back": {"falls_back"},
    "skips_one_run_in_thirty": {"wrong_result", "stale_result"},
    "raises": {"raised"},
    "ends_the_process": {"died"},
    "takes_all_memory": {"memory"},
    "two_arguments_too_many": {"not_loadable"},
    "wrong_shape": {"wrong_shape"},
    "wrong_format": {"wrong_shape"},
}

CHEATS_OF_OTHER_TASKS: list[tuple[str, RankedTask, set[str]]] = [
    ("attention_without_mask", PREFILL, {"wrong_result"}),
    ("attention_to_the_latest", DECODE, {"wrong_result", "precision_downgrade"}),
    ("attention_in_half", PREFILL, {"precision_downgrade"}),
    ("attention_in_half", DECODE, {"precision_downgrade"}),
    ("attention_of_the_mean", DECODE, {"wrong_result"}),
    ("attention_by_fused_call", DECODE, {"wraps_library"}),
    ("triad_in_half", TRIAD, {"precision_downgrade", "unfinished_result", "wrong_result"}),
    ("triad_of_half", TRIAD, {"unfinished_result"}),
    ("triad_without_b", TRIAD, {"wrong_result"}),
]

PRYING = {
    "replaces_the_events_reader": {"timers_disagree"},
    "hides_that_names_are_patched": {"timers_disagree"},
    "works_while_unwatched": {"timers_disagree", "side_stream"},
    "answers_for_its_process": {"unfinished_result", "looks_around"},
    "tells_no_number": {"timers_disagree"},
    "answers_nothing": {"raised"},
    "answers_a_list": {"raised"},
    "answers_an_endless_number": {"raised"},
    "refuses_itself_for_no_reason": {"raised"},
    "inspects_to_nonsense": {"raised"},
    "speaks_before_it_is_asked": {"raised", "unfinished_result"},
    "talks_without_end": {"raised"},
    "shortens_the_shared_memory": {"raised"},
    "fills_the_disk": {"raised", "died"},
    "closes_its_ears": {"died", "raised"},
    "tells_more_than_passed": {"timers_disagree"},
}


@pytest.mark.parametrize(
    ("function", "task"), HONEST_KERNELS, ids=lambda x: x if isinstance(x, str) else x.name
)
def test_an_honest_kernel_is_ranked(function: str, task: RankedTask) -> None:
    verdict = verdict_on(HONEST, function, task)
    assert (verdict.reason, verdict.evidence) == (None, "")
    assert verdict.shapes[0].timings[0].median_seconds > 0


@pytest.mark.parametrize("function", CHEATS)
def test_a_cheating_kernel_is_refused_for_what_it_does(function: str) -> None:
    verdict = verdict_on(CHEATING, function)
    assert verdict.reason in CHEATS[function], verdict.evidence
    assert verdict.evidence


@pytest.mark.parametrize(
    ("function", "task", "reasons"),
    CHEATS_OF_OTHER_TASKS,
    ids=lambda x: x if isinstance(x, str) else getattr(x, "name", ""),
)
def test_the_other_tasks_are_cheated_as_little(
    function: str, task: RankedTask, reasons: set[str]
) -> None:
    verdict = verdict_on(CHEATING, function, task)
    assert verdict.reason in reasons, verdict.evidence


@pytest.mark.parametrize("function", PRYING)
def test_a_kernel_that_changes_its_process_gains_nothing(function: str) -> None:
    verdict = verdict_on(CHEATING.with_name("prying_kernels.py"), function)
    assert verdict.reason in PRYING[function], verdict.evidence


def test_a_kernel_that_never_ends_is_ended() -> None:
    verdict = verdict_on(CHEATING, "never_ends", limits=replace(LIMITS, round_seconds=0.5))
    assert verdict.reason == "timeout"


def test_a_kernel_cannot_make_rounds_look_dear() -> None:
    verdict = verdict_on(CHEATING.with_name("prying_kernels.py"), "stalls_empty_rounds")
    timing = verdict.shapes[0].timings[0]
    assert timing.median_seconds > 0.5 * timing.device_seconds > 0


def test_a_trial_leaves_no_process() -> None:
    """Other tests may have left what this process keeps, such as a tracker of shared memory."""
    before = _children()
    verdict_on(CHEATING, "daemon")
    assert _children() <= before


def _children() -> set[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


def test_a_process_that_was_started_ahead_and_not_used_is_ended() -> None:
    child = StartedChild("capacity.ranking_process.numpy_device")
    assert child.process.poll() is None
    child.close()
    assert child.process.returncode is not None
    assert not child.errors.exists()
