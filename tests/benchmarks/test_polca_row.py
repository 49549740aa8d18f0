"""The judge of polca_row: windows, rows that may not be judged, and what is summed how."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import polca_row
from benchmarks._polca_arms import WATTPACK_SLOW, of_arm
from benchmarks.runner import Options
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import polca_scenario
from wattpack.errors import InputError

SMALL = ("--servers", "4", "--policies", "uncapped", "polca")


def test_a_quick_run_judges_the_policies_asked_for() -> None:
    figures = polca_row.run(Options(quick=True, arguments=SMALL)).figures
    assert figures["servers"] == 4
    assert figures["polca_brakes"] == figures["polca_trips"] == 0
    # Four servers on a breaker for forty are never held back.
    assert figures["polca_low_whole_p99"] == 0.0
    assert "wattpack_brakes" not in figures


def test_a_scenario_of_other_boards_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "h200.yaml"
    file.write_text("name: other\n", encoding="utf-8")
    with pytest.raises(InputError, match="A100-SXM"):
        polca_row.run(Options(quick=True, arguments=(*SMALL, "--scenario", str(file))))


def test_a_scenario_of_such_boards_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "tight.yaml"
    file.write_text(
        "row: {groups: [{gpu_model: A100-SXM, count: 4}], racks: 1, rated_servers: 3,"
        " rated_server_watts: 5800, rack_rated_servers: 6, external_watts: 0}\n",
        encoding="utf-8",
    )
    figures = polca_row.run(Options(quick=True, arguments=(*SMALL, "--scenario", str(file))))
    assert float(figures.figures["uncapped_mean_ratio"]) > 0.8


def test_the_hottest_day_has_the_most_work() -> None:
    arrivals = ClientArrivals(4, load=0.5, burst_cv=1.0, seed=4)
    first, *_, last = polca_row.hottest_days(arrivals, 1.0)
    begin = polca_row.PEAK_HOUR * 3600.0
    most, least = (
        len(arrivals.between(day * 86_400.0 + begin, day * 86_400.0 + begin + 3600.0))
        for day in (first, last)
    )
    assert most > least


def test_events_are_summed_and_loads_are_the_worst() -> None:
    windows = [
        {"polca": {"brakes": 1, "peak_ratio": 0.9, "high_whole_p50": 0.01}},
        {"polca": {"brakes": 2, "peak_ratio": 0.8, "high_whole_p50": 0.03}},
    ]
    made = polca_row.summary("polca", windows)
    assert made == pytest.approx(
        {"polca_brakes": 3, "polca_peak_ratio": 0.9, "polca_high_whole_p50": 0.02}
    )


def test_losses_are_held_against_a_row_that_does_not_go_dark(tmp_path: Path) -> None:
    file = tmp_path / "dark.yaml"
    file.write_text(
        "row: {groups: [{gpu_model: A100-SXM, count: 4}], racks: 1, rated_servers: 1.7,"
        " rated_server_watts: 5800, rack_rated_servers: 6, external_watts: 0}\n",
        encoding="utf-8",
    )
    asked = ("--servers", "4", "--policies", "uncapped", "--scenario", str(file))
    figures = polca_row.run(Options(quick=True, arguments=asked)).figures
    assert figures["uncapped_trips"] == 1
    assert float(figures["uncapped_work_high"]) < 0.9
    assert float(figures["uncapped_high_first_p99"]) > 0.0


def test_the_static_row_has_the_servers_of_its_measured_peak_and_loses_nothing() -> None:
    asked = ("--servers", "26", "--policies", "uncapped", "static")
    figures = polca_row.run(Options(quick=True, arguments=asked)).figures
    assert figures["static_servers"] == 50
    assert figures["static_low_whole_p99"] == figures["static_high_first_p50"] == 0.0
    # Of the row asked for; clients are others, and a minute is short.
    work = [float(figures[f"static_work_{name}"]) for name in ("low", "high")]
    assert work == pytest.approx([50 / 26] * 2, rel=0.3)


def test_the_slow_arm_alone_has_boards_and_settings_of_forty_seconds() -> None:
    scenario = polca_scenario(4, 1, ServerPower.of())
    name, row, settings = of_arm(WATTPACK_SLOW, scenario)
    assert (name, row.plant.cap_delay_max_seconds) == ("wattpack", 40.0)
    assert settings is not None
    assert settings.settle_seconds == 40.0
    assert of_arm("polca", scenario) == ("polca", scenario, None)


def test_nobody_blames_boards_that_are_slow_by_their_plants_own_word() -> None:
    asked = ("--policies", "uncapped", WATTPACK_SLOW)
    figures = polca_row.run(Options(quick=True, arguments=asked)).figures
    assert (
        float(figures[f"{WATTPACK_SLOW}_peak_ratio"]) < 0.9 < float(figures["uncapped_mean_ratio"])
    )
    assert figures[f"{WATTPACK_SLOW}_invariant_violations"] == 0
