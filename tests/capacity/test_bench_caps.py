"""Caps and clock locks: held where somebody may write them, given back however a run ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actuator import DeviceCommand, LeaseCommand, Operation
from capacity.app.actuator_settings import LEASE_MS, ActuatorSettings
from capacity.app.bench_command import main
from capacity.bench.bench_plan import bench_plan
from capacity.bench.bench_point import BenchPoint
from capacity.bench.bench_runner import run_bench
from capacity.bench.board_settings import AS_IT_STANDS, BoardSetting, SettingsRefused
from capacity.bench.fault_finder import find_faults
from capacity.bench.measurement_row import read_rows
from capacity.bench.point_bench import BenchRig, BenchSettings
from capacity.bench.results_file import read_earlier_run
from capacity.bench.row_checks import require_one_board
from capacity.kernels import Gemm
from capacity.simulated_backend import SimulatedBackend
from tests.actuator.test_actuator_on_boards import Bench as ActuatorBench
from wattpack.clock import ManualClock


@dataclass
class Noted:
    """Settings that are only noted."""

    held: list[BoardSetting] = field(default_factory=list)
    restored: int = 0

    def hold(self, setting: BoardSetting) -> None:
        self.held.append(setting)

    def restore(self) -> None:
        self.restored += 1


def rig_with(settings: object | None) -> BenchRig:
    clock = ManualClock()
    board = SimulatedBackend(clock)
    chosen = board.settings() if settings == "own" else settings
    return BenchRig(board, board.meter(), clock, board.meter().state(), settings=chosen)  # type: ignore[arg-type]


def cap_points(seed: int = 1, *, quick: bool = True) -> tuple[BenchPoint, ...]:
    return bench_plan(rig_with(None).backend.facts(), ("caps",), quick=quick, seed=seed)


def test_caps_and_locks_come_in_random_order() -> None:
    order = [point.setting for point in cap_points()]
    assert order != sorted(order, key=lambda s: (s.cap_watts or 0, s.lock_max_mhz or 0))
    assert order != [point.setting for point in cap_points(seed=2)]
    assert {s.cap_watts for s in order if s.cap_watts} == {280, 350, 420, 490, 595, 700}
    assert len({s.lock_max_mhz for s in order if s.lock_max_mhz}) == 3


def test_rows_say_what_held_the_board_and_draw_no_more() -> None:
    rows = run_bench(cap_points(), rig_with("own"), BenchSettings("test", 1)).rows
    assert len(rows) == len(cap_points())
    for row in rows:
        assert row.power is not None
        assert row.power.mean_watts <= 1.02 * row.identity.power_limit_watts
        assert "slow_clock" not in row.flags
    locked = [row for row in rows if row.identity.sm_clock_lock_mhz]
    assert all(row.sm_clock_mhz == row.identity.sm_clock_lock_mhz for row in locked)
    times = {row.identity.power_limit_watts: row.power.sustained_seconds for row in rows
             if isinstance(row.kernel, Gemm) and not row.identity.sm_clock_lock_mhz
             and row.power}  # fmt: skip
    assert times[280] > 1.1 * times[420] > 1.1 * times[700]


def test_rows_under_caps_are_rows_of_one_board_without_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    command = [
        "run", "--backend", "simulated", "--quick", "--sections", "gemm,caps", "--out", str(file),
    ]  # fmt: skip
    assert main(command) == 0
    rows = read_rows(file)
    require_one_board(rows)
    assert find_faults(rows) == ()
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-5]))
    assert len(read_earlier_run(file).rows) == len(rows) - 5
    assert main(command) == 0
    assert len(read_rows(file)) == len(rows)


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, ValueError])
def test_the_board_is_given_back_however_a_run_ends(end: type[BaseException] | None) -> None:
    noted = Noted()

    def report(progress: object) -> None:
        if end is not None and len(noted.held) > 2:
            raise end

    def run() -> None:
        run_bench(cap_points(), rig_with(noted), BenchSettings("test", 1), report=report)

    if end is None:
        run()
    else:
        with pytest.raises(end):
            run()
    assert noted.restored == 1


def test_points_without_a_setting_are_measured_as_the_board_stands() -> None:
    noted = Noted()
    plain = BenchPoint("gemm", Gemm(1, 512, 512))
    points = [cap_points()[0], plain]
    run_bench(points, rig_with(noted), BenchSettings("test", 1))
    cap = cap_points()[0].setting
    assert noted.held == [cap, cap, AS_IT_STANDS, AS_IT_STANDS]  # each again once it has settled


def test_without_anybody_to_set_caps_the_default_alone_is_measured_and_said() -> None:
    points = [BenchPoint("gemm", Gemm(1, 512, 512)), *cap_points()]
    outcome = run_bench(points, rig_with(None), BenchSettings("test", 1))
    assert [row.section for row in outcome.rows] == ["gemm"]
    assert set(outcome.skipped.values()) == {
        "nobody may set caps or clock locks: default limit only"
    }


def settings_of(bench: ActuatorBench) -> ActuatorSettings:
    return ActuatorSettings(bench.actuator, "GPU-0")


def test_the_actuator_holds_a_cap_and_gives_its_own_limit_back() -> None:
    bench = ActuatorBench()
    before = bench.limit()
    settings = settings_of(bench)
    settings.hold(BoardSetting(cap_watts=300.0))
    assert bench.limit() == 300.0
    settings.hold(BoardSetting(lock_max_mhz=1200))
    assert bench.row().lock_max_mhz == 1200
    settings.restore()
    assert (bench.limit(), bench.row().lock_max_mhz) == (before, None)
    assert not bench.row().lease_active


@pytest.mark.parametrize(("cap_watts", "left_watts"), [(600.0, 400.0), (300.0, 300.0)])
def test_a_run_that_dies_leaves_no_lease_and_no_more_than_the_guaranteed_cap(
    cap_watts: float, left_watts: float
) -> None:
    bench = ActuatorBench()  # guaranteed: 400 W; the end of a lease never raises a limit
    settings_of(bench).hold(BoardSetting(cap_watts=cap_watts))
    bench.pass_seconds(LEASE_MS // 1000 + 1)
    assert not bench.row().lease_active
    assert bench.limit() == left_watts


def test_a_board_that_a_controller_holds_is_left_alone() -> None:
    bench = ActuatorBench()
    bench.apply(500.0)
    with pytest.raises(SettingsRefused, match="a controller holds GPU-0"):
        settings_of(bench).hold(BoardSetting(cap_watts=300.0))
    assert bench.limit() == 500.0


def test_a_refused_cap_names_its_field_and_changes_nothing() -> None:
    bench = ActuatorBench()
    before = bench.limit()
    with pytest.raises(SettingsRefused, match="cap_watts"):
        settings_of(bench).hold(BoardSetting(cap_watts=5000.0))
    assert bench.limit() == before
    with pytest.raises(SettingsRefused, match="GPU-7"):
        ActuatorSettings(bench.actuator, "GPU-7").hold(BoardSetting(cap_watts=300.0))


def test_a_controller_that_comes_meanwhile_is_obeyed() -> None:
    bench = ActuatorBench()
    settings = settings_of(bench)
    settings.hold(BoardSetting(cap_watts=300.0))
    status = bench.actuator.status()
    bench.actuator.apply(
        LeaseCommand(
            status.highest_epoch + 1, 1, status.nonce, 5000,
            (DeviceCommand("GPU-0", Operation.SET_POWER_LIMIT, 500.0),),
        )
    )  # fmt: skip
    with pytest.raises(SettingsRefused, match="another"):
        settings.hold(BoardSetting(cap_watts=350.0))
    settings.restore()
    assert bench.limit() == 500.0


def test_the_second_hold_renews_the_lease() -> None:
    bench = ActuatorBench()
    settings = settings_of(bench)
    for _ in range(3):
        settings.hold(BoardSetting(cap_watts=300.0))
        bench.pass_seconds(LEASE_MS // 1000 - 2)
        assert bench.limit() == 300.0
