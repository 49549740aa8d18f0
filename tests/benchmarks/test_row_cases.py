"""The judges of ``headroom``, ``response`` and ``calm`` see what is there, and only that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _load_step, calm, headroom, response
from benchmarks._breaker_curves import breaker_curves
from benchmarks._following_load import FollowingLoad
from benchmarks._row_cases import (
    ROW,
    STEADY,
    Arm,
    Asked,
    RowCase,
    asked_of,
    level_for,
    minute_means,
    second_means,
    shard_kind,
)
from benchmarks._survivable_caps import servers_without_caps, survivable_mean_caps
from benchmarks.runner import Options, Result
from simulation.row_control.row_policy import Uncapped
from simulation.row_control.run import RowRun, RowSetup
from simulation.row_control.work import Held, LevelWork
from simulation.scenario import load_scenario
from wattpack.errors import InputError

OWN = Asked(None, None, 1)
SMALL = {
    "row": {
        "groups": [{"gpu_model": "H200-SXM", "count": 3}],
        "racks": 1,
        "rated_servers": 2.4,
        "rack_rated_servers": 2.6,
        "external_watts": 0.0,
    }
}


FILE = """
name: small
step_seconds: 0.25
row: {groups: [{gpu_model: H200-SXM, count: 2}, {gpu_model: H100-SXM, count: 1}], racks: 1,
      rated_servers: 2.4, rack_rated_servers: 2.6, external_watts: 0}
"""


def from_file(folder: Path, text: str = FILE) -> Asked:
    file = folder / "row.yaml"
    file.write_text(text, encoding="utf-8")
    return asked_of("response", Options(arguments=("--scenario", str(file))), 1)


def uncapped(case: RowCase) -> RowRun:
    policy = Uncapped(case.plant.bank.default_limit_watts)
    return RowRun(RowSetup(case.scenario), case.row.work(), lambda _: policy)


def test_a_sine_is_told_with_its_amplitude_and_period_and_noise_is_not_a_cycle() -> None:
    seconds = np.arange(600.0)
    noise = 0.001 * np.random.default_rng(1).standard_normal(600)
    amplitude, period = calm.strongest_cycle(
        0.9 + 0.01 * np.sin(2 * np.pi * seconds / 12.0) + noise
    )
    assert amplitude == pytest.approx(0.01, rel=0.1)
    assert period == pytest.approx(12.0, rel=0.05)
    assert calm.strongest_cycle(0.9 + noise)[0] < calm.CYCLE_RATIO / 10
    drifting = 0.9 + 0.02 * seconds / 600.0
    assert calm.strongest_cycle(drifting)[0] < calm.CYCLE_RATIO


@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_a_following_load_changes_the_answer_of_the_row_by_its_gain(gain: float) -> None:
    answers = []
    for followed in (1.0, gain):
        case = RowCase(OWN, 1, STEADY, SMALL)
        driven = uncapped(case)
        load = FollowingLoad.of(driven.plant)
        driven.run(60.0)
        load.follow(followed)
        before = driven.run(5.0).load_ratio[-4:, ROW].mean()
        driven.actuators.cap_watts[:] = 450.0
        answers.append(before - driven.run(8.0).load_ratio[-1, ROW])
    # Fans follow the boards, not the load beside them.
    assert answers[1] / answers[0] == pytest.approx(gain, rel=0.1)


def test_load_beside_the_servers_reaches_row_and_rack() -> None:
    driven = uncapped(RowCase(OWN, 1, STEADY, SMALL))
    load = FollowingLoad.of(driven.plant)
    before = driven.run(5.0).load_ratio[-1]
    load.add(1000.0)
    after = driven.run(2.0).load_ratio[-1]
    rise = (after - before) * driven.plant.breakers.rating_watts
    assert rise == pytest.approx([1000.0, 1000.0], abs=150.0)


def test_the_level_found_is_the_load_asked_for() -> None:
    case = RowCase(OWN, 2, STEADY | level_for(OWN, 2, 0.9, SMALL), SMALL)
    assert uncapped(case).run(120.0).load_ratio[-20:, ROW].mean() == pytest.approx(0.9, abs=0.01)


def test_each_seed_of_response_begins_at_what_is_asked_for() -> None:
    """At one level for all a row began at 0.9398, and another at 0.9436 in its cap band."""
    level = response.level_before(OWN, 4)
    case = response._case(OWN, 4, "as_plant", level=level)
    driven = case.wattpack(Arm(), work=_load_step.RisingWork(case.row.work()))
    load = _load_step.recorded_load(driven)
    driven.run(response.CALM_SECONDS)
    before = response._before(driven, load)
    assert before["load_before"] == pytest.approx(response.LOAD_RATIO, abs=0.0004)
    assert (before["normal"], before["at_default"]) == (True, 1.0)


@pytest.mark.parametrize("told", [0.3, 1.0])
def test_a_level_that_a_file_says_is_left_as_it_is(tmp_path: Path, told: float) -> None:
    work = tmp_path / "work.yaml"
    work.write_text(f"{{serving_level_lowest: {told}, serving_level_highest: {told}}}")
    asked = replace(from_file(tmp_path), work=work)
    assert set(response.level_before(asked, 1)) == {"serving_level_lowest", "serving_level_highest"}


def test_time_above_the_rating_runs_from_the_first_to_the_last_moment() -> None:
    load = np.full(200, 0.9)
    load[[10, 30]] = 1.01
    assert _load_step.seconds_above(load, 0.1) == pytest.approx(2.1)
    assert _load_step.seconds_above(np.full(200, 1.0), 0.1) == 0.0


def test_the_last_lowered_board_to_come_down_counts() -> None:
    limits = np.full((50, 3), 700.0)
    limits[5:, :2] = 500.0
    drawn = np.full((50, 3), 720.0)
    drawn[8:, 0] = 540.0
    assert _load_step.seconds_to_limits(drawn, limits, 20, 0.1) == pytest.approx(5.0)
    drawn[14:, 1] = 549.0
    assert _load_step.seconds_to_limits(drawn, limits, 20, 0.1) == pytest.approx(1.5)
    assert _load_step.seconds_to_limits(drawn, limits, 4, 0.1) == 0.0
    assert _load_step.seconds_to_limits(drawn, np.full((50, 3), 700.0), 20, 0.1) == 0.0


def test_the_row_starts_where_its_breakers_allow_every_board_its_default_limit() -> None:
    def allowed(servers: int) -> dict[str, float]:
        groups = [{"gpu_model": "H200-SXM", "count": servers}]
        return survivable_mean_caps(RowCase(OWN, 1, {}, {"row": {"groups": groups}}).scenario)

    # By hand: 0.25 of 0.8 * 30.3 * (r^2 - 1)^-0.605 s is 5.3 s at r = 1.4993, so 611.7 kW; less
    # 61 hosts of 3370 W and 3 kW of switches; a watt of cap is 1.05 * 1.00407 / 0.94 W.
    assert allowed(61)["row"] == pytest.approx(712.6, abs=0.3)
    assert allowed(62)["row"] == pytest.approx(694.7, abs=0.3)
    assert min(allowed(61).values()) >= 700.0 > min(allowed(62).values())


@pytest.mark.parametrize(("arm", "delay"), [("as_plant", (0.3, 1.0)), ("delay_3", (3.0, 3.0))])
def test_a_file_s_row_takes_a_lowered_limit_as_late_as_the_arm_says(
    arm: str, delay: tuple[float, float], tmp_path: Path
) -> None:
    scenario = response._case(from_file(tmp_path), 1, arm).scenario
    assert (scenario.plant.cap_delay_min_seconds, scenario.plant.cap_delay_max_seconds) == delay
    assert (scenario.row.servers, scenario.step_seconds) == (3, response.STEP_SECONDS)


@pytest.mark.parametrize(("declared", "feeds"), [("None", 2), ("2N", 2), ("KofN", 3)])
def test_a_file_s_row_has_a_feed_to_lose(declared: str, feeds: int, tmp_path: Path) -> None:
    text = FILE.replace("racks: 1", f"racks: 1, redundancy: {declared}")
    row = response._case(from_file(tmp_path, text), 1, response.FEED).scenario.row
    assert (row.fed_by, row.servers) == (feeds, 3)


def test_servers_more_are_of_the_file_s_first_type(tmp_path: Path) -> None:
    asked = from_file(tmp_path, FILE.replace("rated_servers: 2.", "rated_servers: 3."))
    row = response._case(asked, 1, "", more=1).scenario.row
    assert [(one.gpu_model, one.count) for one in row.groups] == [("H200-SXM", 3), ("H100-SXM", 1)]


@pytest.mark.parametrize("more", ["redundancy: 2N, use_reserve: true", "heat_budget_ratio: 0.1"])
def test_response_refuses_a_row_whose_survivable_caps_it_cannot_work_out(
    more: str, tmp_path: Path
) -> None:
    asked = from_file(tmp_path, FILE.replace("racks: 1", f"racks: 1, {more}"))
    options = Options(quick=True, arguments=("--scenario", str(asked.scenario)))
    with pytest.raises(InputError, match=r"row\.(use_reserve|heat_budget_ratio)") as refused:
        response.run(options)
    assert refused.value.source == str(asked.scenario)


def test_a_shorter_lease_lets_boards_hold_more() -> None:
    leases = [
        survivable_mean_caps(load_scenario(control={"lease_ttl_ms": ms}))["row"]
        for ms in (2500, 4000)
    ]
    assert leases[0] > leases[1]


def test_work_rises_from_its_first_share_to_itself() -> None:
    level = LevelWork(np.zeros(2, dtype=np.int64), [(0.0, 500.0)])
    rising = _load_step.RisingWork(level)
    held = Held(np.ones(2), np.ones(2), np.ones(2, dtype=np.bool_))
    begin, end = _load_step.RISE_SECONDS
    assert rising.step(0.0, 1.0, held) == pytest.approx([350.0, 350.0])
    assert rising.step((begin + end) / 2, 1.0, held) == pytest.approx([425.0, 425.0])
    assert rising.step(end, 1.0, held) == pytest.approx([500.0, 500.0])
    assert rising.done() == pytest.approx([3.0, 3.0])


def test_means_of_seconds_and_minutes() -> None:
    steps = np.repeat(np.arange(120.0), 4)
    assert (second_means(steps, 0.25) == np.arange(120.0)).all()
    means = minute_means(np.arange(120.0))
    assert len(means) == 61
    assert means[0] == pytest.approx(29.5)


def test_headroom_counts_minutes_in_which_the_oracle_is_full_and_sums_work() -> None:
    arm = {
        "minute_means": [0.96, 0.94], "above": 0.5, "peak": 1.01, "trips": 0, "brakes": 0,
        "violations": 0, "work": [90.0, 99.0], "oracle_work": [100.0, 100.0],
        "worst_oracle_work": [90.0, 99.0],
    }  # fmt: skip
    rows = [dict.fromkeys(headroom.ARMS, arm)] * 2
    figures = headroom.figures(rows)
    assert figures["domain_meter_minute_mean_lowest"] == 0.94
    assert figures["domain_meter_above_rating_seconds"] == 1.0
    assert figures["domain_meter_low_work_of_oracle"] == pytest.approx(0.9)
    assert figures["neither_low_work_of_worst_oracle"] == pytest.approx(1.0)
    assert not Result(figures, headroom.TARGETS).met()
    never_full = [{**row, "domain_meter": {**arm, "minute_means": []}} for row in rows]
    good = {"domain_meter_minute_mean_lowest": headroom.TARGETS["domain_meter_minute_mean_lowest"]}
    assert not Result(headroom.figures(never_full), good).met()


def test_runs_that_never_crossed_meet_no_line_on_how_fast_they_came_back() -> None:
    one = {
        "seconds": 0.0, "peak": 0.99, "heat": 0.0, "trips": 0, "brakes": 0,
        "load_before": 0.9, "normal": True, "at_default": 1.0, "at_limit": 0.0,
    }  # fmt: skip
    more = {"survivable": 690.0, "held": 689.0, "over_survivable": 0.999, "most_servers": 59}
    rows = [{"as_plant": one, "feed_loss": one, response.MORE: more, response.COLD_CURVE: more}]
    figures = response.figures(rows, ["as_plant", "feed_loss"])
    assert figures["as_plant_runs_above_rating"] == 0
    assert figures["as_plant_runs_normal_at_default_caps"] == 1
    assert not Result(figures, response.TARGETS).met()


def test_a_row_under_the_product_stays_below_its_rating() -> None:
    case = RowCase(OWN, 1, {}, SMALL)
    result = case.wattpack(Arm()).run(20.0)
    assert result.trips == 0
    assert result.above_seconds.max() == 0.0


@pytest.mark.parametrize("wrong", [["--runs", "0"], ["--runs", "x"], ["more"], ["--scenario"]])
def test_wrong_arguments_are_named(wrong: list[str]) -> None:
    with pytest.raises(InputError):
        asked_of("headroom", Options(arguments=tuple(wrong)), 3)


def test_finished_runs_of_another_row_or_work_are_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("idle_share: 0.1\n", encoding="utf-8")
    one = shard_kind("calm", Asked(None, file, 1), 60.0)
    file.write_text("idle_share: 0.2\n", encoding="utf-8")
    assert (
        len({one, shard_kind("calm", Asked(None, file, 1), 60.0), shard_kind("calm", OWN, 60.0)})
        == 3
    )
    assert RowCase(Asked(None, file, 1), 1, {"idle_share": 0.5}, SMALL).settings.idle_share == 0.2


def test_a_typo_in_the_work_is_named(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("idle_shar: 0.1\n", encoding="utf-8")
    with pytest.raises(InputError, match="idle_share"):
        RowCase(Asked(None, file, 1), 1, {}, SMALL)


def test_where_only_a_cold_curve_is_known_fewer_servers_need_no_cap_and_boards_hold_less() -> None:
    scenario = response._case(OWN, 1, "").scenario
    most = servers_without_caps(scenario)
    assert most == 61
    cold = servers_without_caps(scenario, response.COLD_SHARE)
    assert scenario.row.rated_servers <= cold < scenario.row.servers < most
    hot, less = (survivable_mean_caps(scenario, share) for share in (1.0, 0.25))
    assert all(less[name] < hot[name] for name in hot)


def test_the_curves_that_a_rows_objects_declare_are_named() -> None:
    assert breaker_curves(load_scenario()) == "row SwitchboardThermal, racks RackThermal"
    budgeted = load_scenario(row={"heat_budget_ratio": 0.1})
    assert breaker_curves(budgeted) == "row Points, racks Points"
