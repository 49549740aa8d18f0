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
from simulation.inference_row.served_rows import served_row
from wattpack.errors import InputError

SMALL = ("--servers", "4", "--policies", "uncapped", "polca")


def test_a_quick_run_judges_the_policies_asked_for() -> None:
    figures = polca_row.run(Options(quick=True, arguments=SMALL)).figures
    assert figures["servers"] == 4
    assert figures["polca_brakes"] == figures["polca_trips"] == 0
    # Four servers on a breaker for forty are never held back.
    assert figures["polca_low_whole_p99"] == 0.0
    assert "wattpack_brakes" not in figures


TIGHT = """
row: {groups: [{gpu_model: A100-SXM, count: 4}], racks: 1, rated_servers: 3,
      rated_server_watts: 5800, rack_rated_servers: 6, external_watts: 0}
"""


def of_file(folder: Path, text: str, *more: str) -> Options:
    file = folder / "row.yaml"
    file.write_text(text, encoding="utf-8")
    quiet: list[str] = []
    return Options(quick=True, arguments=(*more, "--scenario", str(file)), progress=quiet.append)


@pytest.mark.parametrize(
    ("text", "more", "key"),
    [
        ("name: other\n", (), "row.groups"),
        (TIGHT.replace("A100-SXM", "L40S"), (), "row.groups[].gpu_model"),
        (TIGHT, ("--servers", "5"), "row.groups"),
        (TIGHT, ("--gpu-share", "0.5"), "--gpu-share"),
        (TIGHT.replace("A100", "H100"), ("--lengths", "azure"), "lengths"),
        (TIGHT.replace("rated_servers: 3", "rated_servers: 0.5"), (), "row.rated_servers"),
        (TIGHT + "faults: [{kind: gpu_hung, at_seconds: 1}]", (), "faults.kind"),
        (TIGHT + "faults: [{kind: node_reboot, at_seconds: 1, target: n}]", (), "faults.0.target"),
    ],
)
def test_what_cannot_be_run_is_refused_first(
    text: str, more: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        polca_row.run(of_file(tmp_path, text, *more))
    assert refused.value.field == key


def test_a_scenario_of_such_boards_is_judged(tmp_path: Path) -> None:
    figures = polca_row.run(of_file(tmp_path, TIGHT, *SMALL)).figures
    assert float(figures["uncapped_mean_ratio"]) > 0.8
    assert figures["gpu_share"] == pytest.approx(8 * 400.0 / 5800.0)


def test_a_row_of_newer_boards_is_as_busy_as_its_type(tmp_path: Path) -> None:
    text = TIGHT.replace("A100-SXM", "H200-SXM").replace("5800", "10200")
    figures = polca_row.run(of_file(tmp_path, text, "--policies", "uncapped", "wattpack")).figures
    assert figures["servers"] == 4
    assert figures["calibration_sha256"] == served_row("h200_nameplate").sha256
    assert 0.5 < float(figures["uncapped_mean_ratio"]) < 1.2


def test_every_policy_meets_the_faults_of_a_file(tmp_path: Path) -> None:
    """Seconds count from the counted time on: 120 s of the quick form lie before it."""
    text = TIGHT.replace("rated_servers: 3", "rated_servers: 3.6")
    asked = ("--policies", "uncapped", "polca", "wattpack")
    crash = "\nfaults: [{kind: controller_crash, at_seconds: 5, duration_seconds: 50}]"
    dark = "\nfaults: [{kind: node_reboot, at_seconds: 5, duration_seconds: 40, target: node-000}]"
    plain, without, darker = (
        polca_row.run(of_file(tmp_path, text + more, *asked)).figures for more in ("", crash, dark)
    )
    mean = {
        name: [float(one[f"{name}_mean_ratio"]) for one in (plain, without, darker)]
        for name in ("uncapped", "polca", "wattpack")
    }
    # Nobody decides: leases end, and boards fall to their guaranteed caps.
    assert mean["wattpack"][1] < 0.95 * mean["wattpack"][0]
    assert mean["uncapped"][1] == mean["uncapped"][0]
    # A quarter of the row is dark for two thirds of the time, whoever holds the power.
    for name in mean:
        assert mean[name][2] < 0.95 * mean[name][0], name
    told = str(darker["scenario_keys_without_meaning"])
    assert told == "none"


def test_a_meter_that_is_silent_blinds_the_published_policy(tmp_path: Path) -> None:
    gap = "\nfaults: [{kind: meter_gap, at_seconds: 0, duration_seconds: 60}]"
    hot = TIGHT.replace("rated_servers: 3", "rated_servers: 2.6")
    # Orders of before the gap still come to act, 40 s late.
    figures = [
        polca_row.run(of_file(tmp_path, hot + more, "--policies", "polca")).figures
        for more in ("", gap)
    ]
    assert figures[0]["polca_mean_ratio"] != figures[1]["polca_mean_ratio"]


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
