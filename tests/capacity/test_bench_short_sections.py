"""Idleness, element-wise kernels, arrivals, eager steps: measured, told apart, read back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from capacity.bench.bench_identity import SILENT_PART
from capacity.bench.bench_point import BenchPoint
from capacity.bench.launch_bound import transition_batch
from capacity.bench.measurement_row import MeasurementRow, parse_rows, row_from_dict, row_line
from capacity.bench.row_checks import require_one_fingerprint
from capacity.bench.timing import ArrivalRule, PowerRule, time_arrivals, watch_idle
from capacity.kernels import Collective, DecoderStep, Elementwise, Gemm, Idle
from tests.capacity.bench_builders import IDENTITY, a_rig, a_row, quick_points, run_on
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND


@dataclass
class Runs:
    """Each run takes this long; notes when it was launched."""

    clock: ManualClock
    length: float
    launched_ns: list[int]
    implementation: str = "test"
    runs_per_launch: int = 1

    def launch(self, count: int) -> Runs:
        self.launched_ns.append(self.clock.monotonic_ns())
        return self

    def done(self) -> bool:
        return True

    def seconds(self) -> float:
        self.clock.advance_seconds(self.length)
        return 0.0

    def close(self) -> None:
        pass


def test_arrivals_come_in_exponential_gaps_at_the_asked_rate() -> None:
    clock = ManualClock()
    kernel = Runs(clock, 1e-5, [])
    latency, settled = time_arrivals(kernel, ArrivalRule(100.0, 2000), clock, seed=3)
    gaps = np.diff(kernel.launched_ns) / NS_PER_SECOND
    assert gaps.mean() == pytest.approx(0.01, rel=0.07)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)  # so it is for exponential ones
    assert settled
    assert latency.median_seconds == pytest.approx(1e-5, rel=1e-3)
    assert latency.samples == 2000


def rows_of(*sections: str) -> tuple[MeasurementRow, ...]:
    rig = a_rig()
    before = watch_idle(rig.meter, rig.clock, 1.0, 1.0, PowerRule())
    rig = replace(rig, idle_before=before)
    return run_on(rig, quick_points(rig, *sections)).rows  # type: ignore[arg-type]


def test_idle_rows_tell_the_board_with_and_without_a_context() -> None:
    rows = {row.kernel: row for row in rows_of("idle")}
    assert set(rows) == {Idle("none"), Idle("open")}
    for row in rows.values():
        assert row.power is not None
        assert row.power.mean_watts == pytest.approx(80, rel=0.05)  # of the simulated board
        assert row.flags == ()


def test_a_board_that_was_open_already_has_no_idle_row_without_a_context() -> None:
    rig = a_rig()
    outcome = run_on(rig, quick_points(rig, "idle"))
    assert [row.kernel for row in outcome.rows] == [Idle("open")]
    assert list(outcome.skipped.values()) == [
        "the board was not read before this process opened it"
    ]


def test_every_element_wise_kernel_is_measured_where_its_arrays_are_warm() -> None:
    rows = rows_of("elementwise")
    assert {row.kernel.op for row in rows if isinstance(row.kernel, Elementwise)} == {
        "norm", "rotate", "gate",
    }  # fmt: skip
    assert {row.cache_state for row in rows} == {"warm"}


def test_products_are_timed_back_to_back_and_as_they_come() -> None:
    rows = rows_of("arrivals")
    modes = [(row.kernel, row.timing_mode) for row in rows]
    assert len(modes) == len(set(modes)) == 4
    for row in rows:
        assert (row.arrivals_per_second > 0) is (row.timing_mode == "arrivals")


def test_a_small_stack_launched_eagerly_is_slower_until_its_batch_is_large() -> None:
    rows = rows_of("transition")
    times = {
        (row.kernel.batch, row.launch_mode): row.latency.median_seconds
        for row in rows if isinstance(row.kernel, DecoderStep)
    }  # fmt: skip
    assert times[1, "eager"] > 1.3 * times[1, "graph"]
    assert times[128, "eager"] == pytest.approx(times[128, "graph"], rel=0.1)


@pytest.mark.parametrize(
    "row",
    [
        a_row(kernel=Idle("none")),
        a_row(kernel=Elementwise("gate", 3, 5)),
        a_row(timing_mode="arrivals", launch_mode="eager", arrivals_per_second=100.0, power=None),
    ],
    ids=["idle", "elementwise", "arrivals"],
)
def test_new_rows_read_back(row: MeasurementRow) -> None:
    (again,) = parse_rows([row_line(row)])
    assert row_line(again) == row_line(row)
    assert (again.launch_mode, again.arrivals_per_second) == (
        row.launch_mode, row.arrivals_per_second,
    )  # fmt: skip


def test_a_row_of_before_is_written_as_it_was() -> None:
    assert "launch_mode" not in row_line(a_row())
    assert "arrivals_per_s" not in row_line(a_row())


@pytest.mark.parametrize(
    ("change", "field"),
    [({"launch_mode": "later"}, "launch_mode"), ({"arrivals_per_s": -1}, "arrivals_per_s")],
)
def test_unknown_ways_of_timing_are_refused(change: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        row_from_dict({**json.loads(row_line(a_row())), **change})


def test_points_that_differ_only_in_how_they_are_timed_have_keys_of_their_own() -> None:
    gemm = Gemm(1, 512, 512)
    keys = {
        BenchPoint("arrivals", gemm).key,
        BenchPoint("arrivals", gemm, timing_mode="arrivals").key,
        BenchPoint("arrivals", gemm, launch_mode="eager").key,
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("aaaabbbbccccdddd", "aaaabbbbccccdddd", True),
        ("aaaabbbbccccdddd", "aaaabbbbccccddde", False),
        ("aaaabbbbcccc" + SILENT_PART, "aaaabbbbccccdddd", True),  # one has no 8-bit units
        (SILENT_PART + "bbbb", "aaaabbbc", False),
        ("", "aaaabbbbccccdddd", True),
    ],
)
def test_fingerprints_are_compared_part_by_part(one: str, other: str, alike: bool) -> None:
    left, right = (replace(IDENTITY, numeric_fingerprint=text) for text in (one, other))
    if alike:
        require_one_fingerprint(left, right)
    else:
        with pytest.raises(InputError, match="numeric_fingerprint"):
            require_one_fingerprint(left, right)


def test_links_and_hosts_get_the_looser_stop_rule() -> None:
    from capacity.bench.point_bench import BenchSettings

    settings = BenchSettings("test", 1)
    strict = settings.stop_rule(BenchPoint("gemm", Gemm(1, 1, 1)))
    collective = settings.stop_rule(BenchPoint("collectives", Collective("all_reduce", 1024, 2)))
    eager = settings.stop_rule(BenchPoint("transition", Gemm(1, 1, 1), launch_mode="eager"))
    assert strict.noise == 0.01
    assert collective.noise == eager.noise == 0.05


def transition_rows(ratios: dict[int, float]) -> list[MeasurementRow]:
    rows = []
    for batch, ratio in ratios.items():
        step = DecoderStep("decode", batch, 1, 512, 2, 64, 4, 2, 16, 128, 512)
        for mode, seconds in (("graph", 1e-3), ("eager", 1e-3 * ratio)):
            latency = replace(a_row().latency, median_seconds=seconds)
            rows.append(a_row(kernel=step, section="transition", launch_mode=mode, latency=latency))
    return rows


@pytest.mark.parametrize(
    ("ratios", "batch"),
    [
        ({1: 1.1**3, 16: 1.1**2, 64: 1.0}, 32.0),  # half-way between 16 and 64 in logarithms
        ({1: 1.0, 16: 1.0}, 1.0),
        ({1: 3.0, 16: 2.0}, float("inf")),
        ({}, None),
    ],
)
def test_the_batch_where_launches_cease_to_count(
    ratios: dict[int, float], batch: float | None
) -> None:
    found = transition_batch(transition_rows(ratios))
    assert found == (None if batch is None else pytest.approx(batch))
