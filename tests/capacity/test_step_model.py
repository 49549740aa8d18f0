"""A step from its kernels: sums, one regulator over the whole, and the host that cannot keep up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from capacity.kernels import DecoderStep, Gemm, Kernel, MemoryStream
from capacity.model.launch_costs import LaunchCosts
from capacity.model.regulator import Floats, Regulator
from capacity.model.step_model import KernelMix, StepModel, mix_of
from capacity.roofs import require_roofs
from wattpack.errors import InputError

ROOFS = require_roofs("NVIDIA H200")
HOT = Gemm(4096, 4096, 4096)
COOL = MemoryStream("copy", 2**20)
WAITS = Gemm(1, 16384, 16384)
SECONDS: Mapping[Kernel, float] = {
    HOT: 200e-6, COOL: 100e-6, WAITS: WAITS.bytes_moved / ROOFS.bytes_per_second,
}  # fmt: skip
WATTS: Mapping[Kernel, float] = {HOT: 1000.0, COOL: 300.0, WAITS: 800.0}


@dataclass(frozen=True)
class Table:
    """Times and draws that a test wrote down."""

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        return np.array([SECONDS[kernel] for kernel in kernels])

    def uncapped_watts(self, kernels: Sequence[Kernel]) -> Floats:
        return np.array([WATTS[kernel] for kernel in kernels])


MODEL = StepModel(
    times=Table(),
    draws=Table(),
    regulator=Regulator(reach=0.4, bend=0.8, exponent=2.0, held_share=0.99, held_p95_share=1.05),
    launches=LaunchCosts(graph_seconds=2e-6, graph_gap_seconds=1e-6, eager_seconds=6e-6),
    roofs=ROOFS,
    gap_watts=150.0,
    p95_ratio=1.1,
)


def joules_by_hand(mix: KernelMix) -> float:
    return sum(count * SECONDS[kernel] * WATTS[kernel] for kernel, count in mix)


def test_seconds_and_joules_of_a_cool_step_add_up() -> None:
    mix = [(COOL, 30), (HOT, 2)]
    step = MODEL.predict(mix, 700.0)
    busy = 30 * 100e-6 + 2 * 200e-6
    assert step.seconds == step.uncapped_seconds == pytest.approx(busy + 2e-6)
    assert step.joules == pytest.approx(joules_by_hand(mix) + 2e-6 * 150.0)


def test_a_hot_kernel_inside_a_cool_step_is_not_slowed() -> None:
    alone = MODEL.predict([(HOT, 1)], 700.0)
    inside = MODEL.predict([(HOT, 1), (COOL, 10)], 700.0)
    assert alone.seconds > 1.05 * alone.uncapped_seconds
    assert inside.seconds == inside.uncapped_seconds


def test_a_step_above_the_limit_is_held_at_it_as_a_whole() -> None:
    step = MODEL.predict([(HOT, 10), (COOL, 1)], 700.0)
    assert step.uncapped_watts > 900
    assert step.mean_watts == pytest.approx(0.99 * 700)
    assert step.p95_watts == pytest.approx(1.05 * 700)
    excess = step.uncapped_watts / (0.99 * 700) - 1
    memory = [
        kernel.bytes_moved / SECONDS[kernel] / ROOFS.bytes_per_second for kernel in (HOT, COOL)
    ]
    slowed = 0.4 * excess**0.8 * (
        2000e-6 * (1 - memory[0] ** 2) + 100e-6 * (1 - memory[1] ** 2)
    )  # fmt: skip
    assert step.seconds == pytest.approx(2100e-6 + 2e-6 + slowed)


def test_work_that_waits_for_memory_does_not_feel_the_clock() -> None:
    step = MODEL.predict([(WAITS, 1)], 700.0)
    assert step.mean_watts < step.uncapped_watts
    assert step.seconds == pytest.approx(step.uncapped_seconds, rel=1e-9)


def test_how_a_mix_is_written_down_changes_nothing() -> None:
    together = MODEL.predict([(HOT, 3), (COOL, 2)], 600.0)
    apart = MODEL.predict([(COOL, 1), (HOT, 1), (COOL, 1), (HOT, 2)], 600.0)
    assert together.seconds == pytest.approx(apart.seconds)
    assert together.mean_watts == pytest.approx(apart.mean_watts)


def test_a_lower_limit_is_never_faster_and_never_draws_more() -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        mix = [(kernel, int(rng.integers(1, 20))) for kernel in (HOT, COOL, WAITS)]
        steps = [MODEL.predict(mix, limit) for limit in (1200.0, 900.0, 700.0, 500.0, 300.0)]
        for higher, lower in itertools.pairwise(steps):
            assert lower.seconds >= higher.seconds
            assert lower.mean_watts <= higher.mean_watts
            assert lower.p95_watts <= higher.p95_watts


def test_kernels_shorter_than_a_launch_wait_for_the_host() -> None:
    slow_host = StepModel(
        MODEL.times,
        MODEL.draws,
        MODEL.regulator,
        LaunchCosts(2e-6, 1e-6, 400e-6),
        ROOFS,
        150.0,
        1.1,
    )
    mix = [(COOL, 10)]
    graph, eager = (slow_host.predict(mix, 700.0, mode) for mode in ("graph", "eager"))
    assert graph.seconds == pytest.approx(1002e-6)
    assert eager.seconds == pytest.approx(4000e-6)
    assert eager.mean_watts == pytest.approx((1000e-6 * 300 + 3000e-6 * 150) / 4000e-6)


def test_what_the_limit_costs_fits_into_the_gaps_of_a_slow_host() -> None:
    slow_host = replace(MODEL, launches=LaunchCosts(2e-6, 1e-6, 400e-6))
    step = slow_host.predict([(HOT, 10)], 400.0, "eager")
    assert step.uncapped_watts > 400
    assert step.seconds == pytest.approx(4000e-6)


def test_a_single_kernel_is_a_mix_of_one() -> None:
    assert mix_of(HOT) == ((HOT, 1),)
    step = DecoderStep("decode", 1, 1, 512, 2, 256, 2, 1, 128, 512, 1000)
    assert mix_of(step) == step.kernel_mix()


@pytest.mark.parametrize(
    ("mix", "limit_watts", "field"),
    [
        ([], 700.0, "mix"),
        ([(HOT, 0)], 700.0, "mix[gemm]"),
        ([(HOT, 1)], 0.0, "limit_watts"),
        ([(HOT, 1)], math.nan, "limit_watts"),
    ],
)
def test_nonsense_is_refused_by_its_field(mix: KernelMix, limit_watts: float, field: str) -> None:
    with pytest.raises(InputError) as refusal:
        MODEL.predict(mix, limit_watts)
    assert refusal.value.field == field
