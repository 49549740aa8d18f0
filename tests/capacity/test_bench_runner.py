"""A run measures each point once, stops when it knows enough, and doubts what it should."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from capacity.bench.bench_plan import bench_plan, designed_gemms
from capacity.bench.bench_point import BenchPoint, BoardFacts
from capacity.bench.bench_runner import flag_drift
from capacity.bench.quality import BenchRefused, TimedPoint, drifted, judge_gate, judge_row
from capacity.bench.timing import BoardWatch, PowerRule, StopRule, time_bursts, watch_board
from capacity.kernels import Gemm, MemoryStream
from capacity.model.hold_outs import hold_out_folds
from capacity.roofs import require_roofs
from capacity.simulated_backend import PlantedFault
from gpu.board_meter import BoardSample, BoardState
from tests.capacity.bench_builders import a_rig, a_row, quick_points, run_on
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

H200 = require_roofs("H200-SXM")
FACTS = BoardFacts(140 * 2**30, 50 * 2**20, ("bf16", "fp8"), gpus=2)


@dataclass
class Kernel:
    """Runs of these lengths, in turn; virtual time passes while they run."""

    clock: ManualClock
    lengths: tuple[float, ...]
    implementation: str = "test"
    runs_per_launch: int = 1
    launched: int = 0

    def launch(self, count: int) -> Pending:
        turn = itertools.islice(itertools.cycle(self.lengths), self.launched, None)
        seconds = next(turn) * count
        self.launched += 1
        return Pending(self.clock, self.clock.monotonic_ns() + round(seconds * 1e9), seconds)

    def close(self) -> None:
        pass


@dataclass
class Pending:
    clock: ManualClock
    end_ns: int
    length: float

    def done(self) -> bool:
        return self.clock.monotonic_ns() >= self.end_ns

    def seconds(self) -> float:
        self.clock.wait_until(self.end_ns)
        return self.length


@dataclass
class Meter:
    """Draws the same watts all the time; the counter moves in steps."""

    watts: float = 500.0
    step_ns: int = 100_000_000
    counter_share: float = 1.0
    reasons: int = 0
    tells_energy: bool = True

    def state(self) -> BoardState:
        return BoardState("NVIDIA H200", "u", "v", "d", 700.0, 700.0, 1980, False, 0, 0.0)

    def sample(self, now_ns: int) -> BoardSample:
        told = now_ns // self.step_ns * self.step_ns / NS_PER_SECOND
        joules = told * self.watts * self.counter_share if self.tells_energy else None
        return BoardSample(now_ns, self.watts, joules, 1980.0, 50.0, self.reasons)


def test_bursts_end_as_soon_as_the_mean_is_known() -> None:
    steady = Kernel(ManualClock(), (1e-3,))
    latency, settled = time_bursts(steady, StopRule())
    assert settled
    assert steady.launched == 1 + StopRule().min_samples
    assert latency.median_seconds == pytest.approx(1e-3)
    assert latency.relative_std < 1e-9


def test_a_kernel_that_never_settles_ends_in_time_and_says_so() -> None:
    clock = ManualClock()
    latency, settled = time_bursts(Kernel(clock, (1e-3, 5e-3)), StopRule())
    assert not settled
    assert clock.monotonic_ns() < 2 * StopRule().max_seconds * NS_PER_SECOND
    assert latency.p10_seconds == pytest.approx(1e-3)
    assert latency.p90_seconds == pytest.approx(5e-3)


def test_the_stop_rule_is_the_interval_of_the_mean() -> None:
    rng = np.random.default_rng(3)
    samples = list(1 + 0.03 * rng.standard_normal(40))
    half = 1.96 * np.std(samples, ddof=1) / np.sqrt(40) / np.mean(samples)
    assert StopRule(noise=half * 1.01).satisfied(samples)
    assert not StopRule(noise=half * 0.99).satisfied(samples)
    assert not StopRule(min_samples=41).satisfied(samples)


def watch(meter: Meter, lengths: tuple[float, ...] = (1e-3,)) -> BoardWatch:
    clock = ManualClock()
    return watch_board(Kernel(clock, lengths), meter, clock, PowerRule())


def test_energy_counts_between_two_steps_of_the_counter() -> None:
    seen = watch(Meter(watts=512.0, step_ns=130_000_000))
    assert seen.power.mean_watts == pytest.approx(512.0, rel=0.02)
    assert seen.power.energy_joules == pytest.approx(
        seen.power.mean_watts * seen.power.window_seconds
    )
    steps = seen.power.energy_joules / (512.0 * 0.13)
    assert steps == pytest.approx(round(steps))
    assert seen.agrees


def test_a_counter_that_disagrees_with_the_samples_is_doubted() -> None:
    seen = watch(Meter(counter_share=0.9))
    assert not seen.agrees
    timed = TimedPoint(Gemm(1, 1, 1), True, a_row().latency, True, seen)
    assert "unstable_power" in judge_row(timed, H200, 1980)


def test_a_board_without_a_counter_is_read_from_its_samples() -> None:
    seen = watch(Meter(watts=321.0, tells_energy=False))
    assert seen.power.mean_watts == pytest.approx(321.0)


def test_a_throttled_board_is_read_later_and_longer() -> None:
    cool, held = watch(Meter()), watch(Meter(reasons=4))
    assert cool.power.window_seconds < 1.6 < 1.8 < held.power.window_seconds
    assert held.samples[0].monotonic_ns > 1.3 * NS_PER_SECOND > cool.samples[0].monotonic_ns


@pytest.mark.parametrize(
    ("meter", "settled", "flags"),
    [
        (Meter(), True, ()),
        (Meter(), False, ("unstable_time",)),
        (Meter(reasons=4), False, ("throttled",)),
    ],
)
def test_flags_of_a_row(meter: Meter, settled: bool, flags: tuple[str, ...]) -> None:
    timed = TimedPoint(Gemm(1, 1, 1), True, a_row().latency, settled, watch(meter))
    assert judge_row(timed, H200, 1980) == flags


def test_a_low_clock_without_a_reason_is_a_lock() -> None:
    timed = TimedPoint(Gemm(1, 1, 1), True, a_row().latency, True, watch(Meter()))
    assert judge_row(timed, H200, 2700) == ("slow_clock",)
    throttled = replace(timed, watch=watch(Meter(reasons=4)))
    assert judge_row(throttled, H200, 2700) == ("throttled",)


def test_faster_than_the_roof_is_flagged() -> None:
    kernel = MemoryStream("copy", 2**30)
    timed = TimedPoint(kernel, True, replace(a_row().latency, median_seconds=1e-4), True, None)
    assert judge_row(timed, H200, 1980) == ("above_peak",)
    assert judge_row(replace(timed, cache_is_cold=False), H200, 1980) == ()
    seen = watch(Meter())
    fast = replace(seen, power=replace(seen.power, sustained_seconds=1e-4))
    slow = replace(timed, latency=replace(a_row().latency, median_seconds=6e-4), watch=seen)
    assert "above_peak" in judge_row(replace(slow, watch=fast), H200, 1980)
    assert judge_row(timed, None, 1980) == ()


@pytest.mark.parametrize(
    ("change", "processors", "flags"),
    [
        ({}, 132, ()),
        ({"processes": 1}, 132, ("shared_gpu",)),
        ({"utilisation": 0.5}, 132, ("shared_gpu",)),
        ({"mig_enabled": True}, 132, ("mig_slice",)),
        ({}, 60, ("mig_slice",)),
        ({"power_limit_watts": 420.0}, 132, ("capped",)),
    ],
)
def test_what_the_gate_sees(
    change: dict[str, float], processors: int, flags: tuple[str, ...]
) -> None:
    state = replace(Meter().state(), **change)  # type: ignore[arg-type]
    gate = judge_gate(state, processors, H200)
    assert gate.flags == flags
    assert len(gate.remarks) == len(flags)


def test_a_board_in_use_is_refused_unless_somebody_allows_it() -> None:
    rig = a_rig()
    busy = replace(rig, state=replace(rig.state, processes=2))
    points = quick_points(rig, "launch")
    with pytest.raises(BenchRefused, match="2 other processes"):
        run_on(busy, points)
    rows = run_on(busy, points, allow_shared=True).rows
    assert {row.flags for row in rows} == {("shared_gpu",)}


def test_a_plan_is_the_same_for_the_same_seed_and_shuffled_by_another() -> None:
    sections = ("bandwidth", "gemm", "attention", "launch", "collectives", "validation", "steps")
    plans = [bench_plan(FACTS, sections, quick=False, seed=seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]
    keys = [[p.key for p in plan if p.section not in {"validation"}] for plan in plans]
    assert sorted(keys[0]) == sorted(keys[2])
    assert len(set(keys[0])) == len(keys[0])


def test_the_design_is_sixty_products_and_each_prefix_is_itself_a_design() -> None:
    sixty = designed_gemms(60)
    assert len(set(sixty)) == 60
    assert designed_gemms(15) == sixty[:15]
    assert sum(g.m <= 16 for g in sixty) >= 15
    assert sum(max(g.n, g.k) > 16384 for g in sixty) == 6
    assert not any(
        fold == 0 for fold in hold_out_folds([g for g in sixty if max(g.n, g.k) <= 16384])
    )


@pytest.mark.parametrize("count", [15, 60])
def test_half_of_the_designed_products_are_aligned_as_decoder_layers_are(count: int) -> None:
    usual = [g for g in designed_gemms(count) if max(g.n, g.k) <= 16384]
    aligned = sum(
        g.n % 256 == 0 and g.k % 256 == 0 and (g.m < 256 or g.m % 256 == 0) for g in usual
    )
    assert aligned == len(usual) // 2
    sizes = np.log2([(g.m, g.n, g.k) for g in usual])
    apart = np.abs(sizes[:, None] - sizes).max(axis=2) + 9 * np.eye(len(usual))
    assert apart.min() > 0.25  # no product stands beside its own aligned twin


def test_a_full_run_holds_eight_windows_and_every_mask() -> None:
    points = bench_plan(FACTS, ("attention",), quick=False, seed=1)
    masks = Counter(getattr(p.kernel, "mask", "") for p in points if _is_prefill(p))
    assert masks["window"] >= 8
    assert masks["document"] >= 6
    assert masks["causal"] >= 20
    assert sum(p.measures_power for p in points) == 24  # a second each: a run is to stay short
    quick = bench_plan(FACTS, ("attention",), quick=True, seed=1)
    assert len(quick) == 12


def _is_prefill(point: BenchPoint) -> bool:
    return getattr(point.kernel, "phase", "") == "prefill"


def test_no_point_asks_for_more_memory_than_the_board_has() -> None:
    small = replace(FACTS, memory_bytes=2**30, gpus=1)
    for point in bench_plan(small, ("bandwidth", "gemm", "attention"), quick=False, seed=1):
        assert point.kernel.bytes_moved <= 0.4 * 2**30
    assert bench_plan(small, ("steps",), quick=False, seed=1) == ()


def test_a_board_that_tells_no_watts_gets_no_power_points() -> None:
    points = bench_plan(replace(FACTS, tells_power=False), ("gemm",), quick=False, seed=1)
    assert not any(point.measures_power for point in points)


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(InputError, match="sections"):
        bench_plan(FACTS, ("gemm", "nonsense"), quick=True, seed=1)  # type: ignore[arg-type]


def test_a_broken_run_goes_on_and_measures_nothing_twice() -> None:
    rig = a_rig()
    points = quick_points(rig, "launch", "gemm")
    whole = run_on(rig, points)
    for kept in (0, 1, len(points) // 2, len(points)):
        measured: list[BenchPoint] = []
        outcome = run_on(
            a_rig(), points, known=whole.rows[:kept],
            report=lambda progress: measured.append(progress.row),  # noqa: B023
        )  # fmt: skip
        assert len(measured) == len(points) - kept
        assert outcome.rows[:kept] == whole.rows[:kept]
        assert [r.kernel for r in outcome.rows] == [p.kernel for p in points]


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_uuid_hash": "1" * 16},
        {"driver": "x"},
        {"power_limit_watts": 1.0},
        {"gpu_product": "NVIDIA H100", "numeric_fingerprint": "1" * 16},
    ],
)
def test_a_run_does_not_go_on_with_another_board_s_rows(change: dict[str, object]) -> None:
    rig = a_rig()
    points = quick_points(rig, "launch")
    row = run_on(rig, points).rows[0]
    strange = replace(row, identity=replace(row.identity, **change))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--out"):
        run_on(rig, points, known=[strange])


def test_the_remaining_time_ends_at_nothing_and_is_about_right() -> None:
    rig = a_rig()
    left: list[float] = []
    outcome = run_on(rig, report=lambda progress: left.append(progress.remaining_seconds))
    assert left[-1] == 0.0
    assert outcome.elapsed_seconds < 120
    half = left[len(left) // 2]
    assert 0 < half < outcome.elapsed_seconds


def test_drift_is_the_family_that_moved() -> None:
    assert not drifted([], [])
    assert not drifted([1, 1, 1, 1, 1], [1.0, 1.02, 0.99, 1.0, 1.5])
    assert drifted([1, 1, 1, 1, 1], [1.04, 1.05, 1.04, 1.0, 1.04])


def test_a_board_that_slows_down_during_the_run_is_told() -> None:
    rig = a_rig()
    points = quick_points(rig, "gemm", "repeat")
    cut = next(i for i, point in enumerate(points) if point.section == "repeat")
    first = run_on(rig, points[:cut])
    assert not run_on(a_rig(), points, known=first.rows).drifted
    slow = a_rig(PlantedFault(compute_slice=0.9, memory_slice=0.9))
    outcome = run_on(slow, points, known=first.rows)
    assert outcome.drifted
    assert all("drift" in row.flags for row in flag_drift(outcome.rows))
