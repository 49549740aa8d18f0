"""The judge's rules as values: errors, lazy answers, source texts, times, order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capacity.kernels import Gemm
from capacity.ranking.input_styles import TimedStyles, styles
from capacity.ranking.kernel_host import HostFacts, RoundReport
from capacity.ranking.kernel_judge import KernelJudge
from capacity.ranking.kernel_ranking import NoBaseline, rank
from capacity.ranking.kernel_source import KernelSource, require_fair_source
from capacity.ranking.kernel_verdict import KernelRefused, ShapeResult, Timing, Verdict
from capacity.ranking.output_check import output_error, untold
from capacity.ranking.ranked_task import Expected, RankedTask
from capacity.ranking.trial_timing import (
    Round,
    RoundCost,
    TrialRule,
    doubted_time,
    per_run,
    timed_cases,
)
from capacity.ranking_process.numpy_host import NumpyHost, NumpyLibrary
from capacity.roofs import require_roofs
from tests.capacity.ranking.trials import DECODE, GEMM, LIMITS, PREFILL, QUICK, TRIAD, source
from wattpack.clock import SystemClock

DIGITS = {"fp32": 24, "fp16": 11, "bf16": 8, "tf32": 11, "fp8": 4}
TASKS = [GEMM, PREFILL, DECODE, TRIAD]


def rounded(x: np.ndarray, digits: int) -> np.ndarray:
    """To so many binary digits, ties to even, exponents without bounds."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(mantissa, digits)), exponent - digits)


def gemm_of(number_format: str) -> RankedTask:
    return RankedTask("gemm", Gemm(48, 48, 512, number_format))  # type: ignore[arg-type]


def operands_of(task: RankedTask, style_index: int, seed: int = 3) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    made = styles(task)[style_index].make(rng.standard_normal, task)
    return tuple(rounded(x, DIGITS[task.number_format]) for x in made)


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "fp16"])
def test_a_result_that_was_rounded_once_or_twice_is_right(number_format: str) -> None:
    task = gemm_of(number_format)
    for index, style in enumerate(styles(task)):
        operands = operands_of(task, index)
        expected = task.expected(operands, NumpyLibrary(), climbing=style.climbing)
        once = rounded(expected.value, DIGITS[number_format])
        assert output_error(once, expected).right, style.name
        twice = rounded(once * 3, DIGITS[number_format]) / 3
        assert output_error(twice, expected).right, style.name


@pytest.mark.parametrize(
    ("number_format", "digits"),
    [("fp32", 12), ("fp32", 11), ("fp32", 8), ("bf16", 5), ("bf16", 4), ("fp16", 8), ("fp16", 4)],
)
def test_narrower_operands_are_told_on_normal_ones(number_format: str, digits: int) -> None:
    task = gemm_of(number_format)
    operands = operands_of(task, 0)
    expected = task.expected(operands, NumpyLibrary())
    x, w = (rounded(operand, digits) for operand in operands)
    assert not output_error(rounded(x @ w.T, DIGITS[number_format]), expected).right


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("parts", [2, 4, 16])
def test_sums_of_narrow_parts_are_told_by_some_style(number_format: str, parts: int) -> None:
    task = gemm_of(number_format)
    digits = {"fp32": 12}.get(number_format, DIGITS[number_format])
    right = []
    for index, style in enumerate(styles(task)):
        x, w = operands_of(task, index)
        expected = task.expected((x, w), NumpyLibrary(), climbing=style.climbing)
        total = np.zeros(task.output_shape)
        for a, b in zip(np.split(x, parts, 1), np.split(w, parts, 1), strict=True):
            total = rounded(total + rounded(a @ b.T, digits), digits)
        right.append(output_error(total, expected).right)
    assert not all(right)


@pytest.mark.parametrize("task", [GEMM, PREFILL, TRIAD], ids=lambda task: str(task.name))
def test_every_distribution_is_met_while_timed_at_places_that_nobody_knows(
    task: RankedTask,
) -> None:
    """Drawn one by one, "outliers" and "large" were both missing in one trial of forty."""
    others = styles(task)[1:]
    places = set()
    for seed in range(50):
        dealt = TimedStyles(styles(task), random.Random(seed))
        rounds = [dealt.of_a_round(8) for _ in range(4)]
        met = Counter(style.name for wanted in rounds for style in wanted)
        assert met["normal"] == 24
        assert all(met[other.name] >= 2 for other in others)
        places.add(tuple(style.name for style in rounds[0]))
    assert len(places) > 25


@pytest.mark.parametrize("runs", [1, 2, 64])
def test_a_round_of_any_length_has_another_distribution(runs: int) -> None:
    wanted = TimedStyles(styles(GEMM), random.Random(1)).of_a_round(runs)
    assert len(wanted) == runs
    assert sum(style.name != "normal" for style in wanted) == max(1, runs // 4)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_no_lazy_answer_passes_for_any_distribution(task: RankedTask) -> None:
    for index, style in enumerate(styles(task)):
        first, second = (
            task.expected(operands_of(task, index, seed), NumpyLibrary(), climbing=style.climbing)
            for seed in (1, 2)
        )
        assert untold(first, second) is None, style.name


def test_a_task_whose_result_can_be_guessed_is_found_out() -> None:
    unit, value = np.full((4, 8), 0.01), np.random.default_rng(1).standard_normal((4, 8))
    constant_rows = np.repeat(value[:, :1], 8, 1)
    near_zero = value * 1e-3
    other = Expected(value[::-1], unit)
    assert untold(Expected(near_zero, unit), other) == "zeros"
    assert untold(Expected(constant_rows, unit), other) == "the mean along axis 1"
    assert untold(Expected(value, unit), Expected(value, unit)) == "the result of another seed"
    assert untold(Expected(value, unit), other) is None


def test_a_neighbour_has_another_size_and_the_same_alignment() -> None:
    for size, other in ((4096, 4224), (96, 128), (7, 8), (1, 1)):
        kernel = RankedTask("gemm", Gemm(size, 64, 64, "fp32")).neighbour().kernel
        assert isinstance(kernel, Gemm)
        assert kernel.m == other


FAIR = [
    "def k(x, w, out):\n    for n in range(4):\n        out[:, n] = x @ w[n]\n",
    "try:\n    import fast\nexcept ImportError:\n    fast = None\ndef k(x, w): return fast(x, w)\n",
    "def k(x, w):\n    try:\n        return go(x, w)\n    except ValueError as e:\n"
    "        raise RuntimeError from e\n",
    "def other(x, w): return x @ w.T\ndef k(x, w): return own(x, w)\n",
]
UNFAIR = [
    ("falls_back", "def k(x, w):\n    try:\n        go()\n    except Exception:\n        pass\n"),
    ("falls_back", "def k(x, w):\n    with contextlib.suppress(Exception):\n        go()\n"),
    ("wraps_library", "def h(a, b): return a @ b.T\ndef k(x, w): return h(x, w)\n"),
    ("wraps_library", "def k(x, w):\n    y = w.t().contiguous()\n    return torch.mm(x, y)\n"),
    ("wraps_library", "def k(x, w): return x.matmul(w.T)\n"),
    ("wraps_library", "def k(x, w): return F.linear(x, w)\n"),
    ("looks_around", "import gc\ndef k(x, w): return None\n"),
    ("looks_around", "import sys\ndef k(x, w): return sys._getframe(1).f_locals\n"),
    ("looks_around", "from capacity.ranking_process import kernel_child\ndef k(x, w): pass\n"),
    ("looks_around", "import sys\nm = sys.modules['__main__']\ndef k(x, w): pass\n"),
    ("not_loadable", "def k(x, w:\n"),
]


@pytest.mark.parametrize("text", FAIR)
def test_a_fair_text_is_tried(text: str) -> None:
    require_fair_source(KernelSource("k", "k.py", "k", text), "gemm")


@pytest.mark.parametrize(("reason", "text"), UNFAIR)
def test_an_unfair_text_costs_no_device_time(reason: str, text: str) -> None:
    with pytest.raises(KernelRefused) as refusal:
        require_fair_source(KernelSource("k", "k.py", "k", text), "gemm")
    assert refusal.value.reason == reason


def rounds(stream: float, device: float, claimed: float) -> list[Round]:
    return [Round("stream", stream, stream, claimed), Round("device", device, device, claimed)] * 3


@pytest.mark.parametrize(
    ("stream", "device", "claimed", "reason"),
    [
        (1e-4, 1e-4, 0.95e-4, None),
        (1e-4, 1.4e-4, 1e-4, None),
        (1e-4, 1.6e-4, 1e-4, "side_stream"),
        (1e-4, 1e-4, 0.5e-4, "timers_disagree"),
        (1e-6, 1e-6, 0.0, None),
    ],
)
def test_two_ways_of_waiting_and_two_clocks_agree(
    stream: float, device: float, claimed: float, reason: str | None
) -> None:
    doubt = doubted_time(rounds(stream, device, claimed), 2e-6)
    assert (doubt.reason if doubt else None) == reason


def test_one_quiet_round_clears_a_kernel_on_a_busy_machine() -> None:
    busy = rounds(1e-4, 9e-4, 1e-4)
    assert doubted_time(busy, 1e-6) is not None
    assert doubted_time([*busy, *rounds(1e-4, 1e-4, 1e-4)], 1e-6) is None


def test_one_disturbed_round_clears_no_liar() -> None:
    lying = rounds(1e-4, 1e-4, 1e-6)
    disturbed = rounds(1e-4, 1e-4, 2e-4)
    assert doubted_time([*lying, *disturbed], 1e-6) is not None


@pytest.mark.parametrize("claimed", [float("nan"), float("inf"), -1.0, 2.0])
def test_a_claim_that_cannot_be_is_refused(claimed: float) -> None:
    with pytest.raises(KernelRefused, match="timers_disagree"):
        per_run(RoundReport(1.0, 1.0, claimed), RoundCost(0, 0), "device", 4)


def facts(cache: float, memory: float) -> HostFacts:
    return HostFacts("GPU", "sm", "", cache, memory, 1e-4, None)


def test_cold_means_that_the_operands_of_a_round_fill_the_cache_three_times() -> None:
    task = RankedTask("gemm", Gemm(256, 256, 256, "fp32"))  # 0.5 MB of operands, 0.75 MB in all
    cases = timed_cases(task, facts(2**24, 2**30), TrialRule())
    assert [(case.cache_state, case.slots) for case in cases] == [("cold", 96), ("warm", 10)]
    small = timed_cases(task, facts(2**24, 2**30), TrialRule(most_runs=64))
    assert [case.cache_state for case in small] == ["warm"]


class BelowTheRoof(NumpyHost):
    """A host whose datasheet allows hardly anything."""

    def facts(self) -> HostFacts:
        roofs = replace(require_roofs("H200-SXM"), peak_flops={"fp32": 1e6})
        return replace(super().facts(), roofs=roofs)


def test_a_time_above_the_roof_is_refused() -> None:
    judge = KernelJudge(BelowTheRoof(SystemClock(), LIMITS), QUICK)
    honest = source(Path(__file__).with_name("honest_kernels.py"), "column_blocks")
    verdict = judge.try_kernel(honest, [GEMM])
    assert verdict.reason == "above_roof"
    assert "H200" in verdict.evidence


def verdict(name: str, *seconds: float, reason: str | None = None) -> Verdict:
    shapes = tuple(
        ShapeResult("shape", (Timing("cold", s, s, s, 0.0, 10, s),), 0.4) for s in seconds
    )
    return Verdict(name, "0" * 64, reason, "", shapes, (), 0.1, 1)  # type: ignore[arg-type]


def test_kernels_are_ranked_against_the_best_baseline_of_each_shape() -> None:
    baselines = [verdict("a", 1.0, 4.0), verdict("b", 2.0, 2.0)]
    lines = rank(baselines, [
        verdict("half", 2.0, 4.0), verdict("refused", reason="timeout"), verdict("fast", 0.8, 2.0),
    ])  # fmt: skip
    assert [line.verdict.kernel for line in lines] == ["fast", "a", "b", "half", "refused"]
    speeds = {line.verdict.kernel: line.by_shape for line in lines}
    assert speeds["half"] == (0.5, 0.5)
    assert lines[0].by_shape == (1.25, 1.0)
    assert [line.doubts for line in lines[:2]] == [("faster_than_plausible",), ()]


def test_without_a_baseline_nothing_is_ranked() -> None:
    with pytest.raises(NoBaseline, match="raised"):
        rank([verdict("a", reason="raised")], [verdict("b", 1.0)])
