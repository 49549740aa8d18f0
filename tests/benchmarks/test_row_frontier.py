"""The frontier's search, verdicts and intervals; one quick run of a small row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import row_frontier
from benchmarks._frontier_cells import (
    ARMS,
    OPTIONS,
    PLAIN,
    STATIC,
    Cell,
    Hours,
    Variant,
    peak_reading,
    run_cell,
)
from benchmarks._frontier_figures import frontier_figures
from benchmarks._frontier_search import Known, Search, all_cells, interval, outcome, why_not
from benchmarks._row_days import hottest_windows
from benchmarks._row_slos import KINDS, PEAK_HOURS, SIX_WEEKS, broken, quantiles
from benchmarks.runner import Options
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.latency_accounts import RequestTimes
from simulation.inference_row.row_under_policy import WATTPACK
from wattpack.errors import InputError

SEARCH = Search("a100", "polca", "every", 40, 80, (11, 12, 13), tuple(range(11, 21)))
NAMES = [f"{g}_{kind}_{q}" for kind in KINDS for g in ("high", "low") for q in ("p50", "p99")]


def row(loss: float = 0.0, **more: float) -> dict[str, Any]:
    made: dict[str, Any] = dict.fromkeys(("brakes", "trips", "violations", "above_seconds"), 0)
    means = ("mean_ratio", "peak_ratio", "max_heat", "changes_per_gpu_hour", "guaranteed_watts")
    made |= dict.fromkeys((*means, "floor_watts"), 0.9)
    made |= {"work_low": 1.0 - loss, "work_high": 1.0}
    return {**made, "quantiles": dict.fromkeys(NAMES, 1.0 + loss), **more}


def carried_up_to(most: Mapping[int, int], asked: list[Cell]) -> Any:
    """A row whose seeds carry so many servers each, else lose a tenth."""

    def evaluate(cells: list[Cell]) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
        asked.extend(cells)
        for cell in cells:
            kept = cell.arm == PLAIN or cell.servers <= most.get(cell.seed, 55)
            yield cell, row(0.0 if kept else 0.1)

    return evaluate


def test_the_largest_count_that_every_common_seed_carries_is_found() -> None:
    known: dict[Cell, Mapping[str, Any]] = {}
    asked: list[Cell] = []
    all_cells([SEARCH], known, carried_up_to({12: 53, 17: 50}, asked))
    assert outcome(SEARCH, known) == (53, ())
    assert len(asked) == len(set(asked))
    # A count is given up at its first seed: far fewer cells than all of them.
    assert sum(cell.arm == "polca" for cell in asked) < 3 * 6 + 20
    figures = frontier_figures([SEARCH], known)
    assert figures["a100_polca_every_servers"] == 53
    assert figures["a100_polca_every_found_kept_share"] == 0.9
    assert figures["a100_polca_every_next_kept_share"] == 0.8
    assert figures["a100_polca_every_next_broken"] == ", ".join(
        f"high_{kind}_{q} 2" for kind in KINDS for q in ("p50", "p99")
    )


def test_a_search_goes_on_where_kept_cells_end() -> None:
    known: dict[Cell, Mapping[str, Any]] = {}
    all_cells([SEARCH], known, carried_up_to({}, []))
    part = dict(list(known.items())[:9])
    again: list[Cell] = []
    all_cells([SEARCH], part, carried_up_to({}, again))
    assert part == known
    assert len(again) == len(known) - 9


def standing_up_to(most: int, asked: list[Cell]) -> Any:
    """A row whose highest reading is at its rating with so many servers, with seed 12 one less."""

    def evaluate(cells: list[Cell]) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
        asked.extend(cells)
        for cell in cells:
            yield cell, row(peak_ratio=cell.servers / (most - (cell.seed == 12)))

    return evaluate


@pytest.mark.parametrize(("most", "found"), [(52, 51), (41, 40), (40, 39), (38, 37), (21, 20)])
def test_a_search_goes_below_its_start_where_that_is_not_carried(most: int, found: int) -> None:
    seeds = (11, 12, 13)
    static = Search("h100_peak", STATIC, "every", 20, 80, seeds, seeds, start=40)
    known: dict[Cell, Mapping[str, Any]] = {}
    asked: list[Cell] = []
    all_cells([static], known, standing_up_to(most, asked))
    assert outcome(static, known) == (found, ())
    figures = frontier_figures([static], known)
    assert figures["h100_peak_static_every_found_kept_share"] == 1.0
    assert figures["h100_peak_static_every_next_kept_share"] == pytest.approx(2 / 3)
    # Counts above the start are the same as ever, and below it only where it is not carried.
    assert {60, 50} <= {cell.servers for cell in asked}
    assert (min(cell.servers for cell in asked) < 40) == (found < 40)


@pytest.mark.parametrize(
    ("asked", "least", "start"),
    [
        ((), 20, 40),
        (("--least", "30"), 30, 40),
        (("--least", "45"), 45, 45),
        (("--least", "4", "--most", "6"), 4, 4),
    ],
)
def test_a_search_starts_at_the_rating(asked: tuple[str, ...], least: int, start: int) -> None:
    options = Options(arguments=asked)
    searches = row_frontier._searches(row_frontier._arguments(options), ["h100_peak"], options)
    assert {(one.least, one.start) for one in searches} == {(least, start)}


def why(mine: dict[str, Any], search: Search = SEARCH) -> list[str] | None:
    known: Known = {search.cell(50, 11): mine, Cell("a100", PLAIN, 50, 11): row()}
    return why_not(search, known if search.arm != STATIC else {search.cell(50, 11): mine}, 50, 11)


def test_brakes_trips_violations_and_lost_seconds_break_a_count() -> None:
    assert why(row()) == []
    assert why(row(brakes=1)) == ["brakes"]
    assert why(row(trips=1, violations=2)) == ["trips", "violations"]
    assert why({"refused": "I1"}) == ["I1"]
    assert why(row(0.009)) == []
    assert why(row(0.03)) == [f"high_{kind}_p50" for kind in KINDS]
    late = row()
    late["quantiles"] = {**late["quantiles"], "low_first_p99": 1.6, "low_whole_p50": 1.24}
    assert why(late) == ["low_first_p99"]
    unknown = row()
    unknown["quantiles"] = {**unknown["quantiles"], "low_token_p50": float("nan")}
    assert why(unknown) == ["low_token_p50"]
    assert why_not(SEARCH, {}, 50, 11) is None


def test_the_static_row_is_judged_by_its_highest_reading() -> None:
    static = Search("a100", STATIC, "every", 40, 80, (11,), (11,))
    assert why(row(peak_ratio=0.99), static) == []
    assert why(row(peak_ratio=1.01), static) == ["peak"]
    assert peak_reading(np.array([0.8, 0.9, 1.1, 0.7, 3.0])) == pytest.approx(0.9)


def test_limits_are_those_of_the_publication() -> None:
    assert PEAK_HOURS == {"high_p50": 0.01, "high_p99": 0.05, "low_p50": 0.25, "low_p99": 0.50}
    assert SIX_WEEKS["low_p50"] == 0.05
    loss = {name: 0.06 if name == "low_whole_p50" else 0.0 for name in NAMES}
    assert broken(loss, ("whole",)) == []
    assert broken(loss, ("whole",), SIX_WEEKS) == ["low_whole_p50"]


def test_quantiles_are_of_all_runs_together() -> None:
    def times(*seconds: float) -> RequestTimes:
        values = np.array(seconds)
        return RequestTimes(values, values, np.where(values > 50, np.nan, values))

    # Classes 0 and 2: low and high.
    runs, of_class = [times(1.0, 5.0), times(3.0, 99.0)], [np.array([0, 2]), np.array([0, 2])]
    made = quantiles(runs, of_class)
    assert made["low_whole_p50"] == 2.0
    assert made["high_whole_p50"] == 52.0
    assert made["high_token_p50"] == 5.0


@pytest.mark.parametrize(
    ("kept", "of", "low", "high"),
    [(10, 10, 0.692, 1.0), (0, 10, 0.0, 0.308), (5, 10, 0.187, 0.813)],
)
def test_intervals_are_exact(kept: int, of: int, low: float, high: float) -> None:
    assert interval(kept, of) == pytest.approx((low, high), abs=5e-4)


def test_the_hottest_hours_are_those_that_are_asked_most_of() -> None:
    arrivals = ClientArrivals(8, load=0.5, burst_cv=1.5, seed=5)
    windows = hottest_windows(arrivals, 42, 1.0)
    counts = [len(arrivals.between(*window.counted)) for window in windows]
    assert np.mean(counts[:5]) > 1.2 * np.mean(counts[-5:])
    asked = [arrivals.expected_seconds(*window.counted) for window in windows]
    assert asked == sorted(asked, reverse=True)
    short = Hours(1, 0.1, lead_seconds=60.0, tail_seconds=30.0).windows(arrivals)[0]
    assert (short.lead_seconds, short.seconds, short.tail_seconds) == (60.0, 360.0, 30.0)
    with pytest.raises(InputError, match="42 days"):
        arrivals.expected_seconds(0.0, 43 * 86_400.0)


def small(folder: Path) -> tuple[str, ...]:
    file = folder / "small.yaml"
    file.write_text(
        "row: {groups: [{gpu_model: H100-SXM, count: 4}], racks: 1, rated_servers: 4,"
        " rated_server_watts: 6500, rack_rated_servers: 9, external_watts: 0}\n",
        encoding="utf-8",
    )
    counts = ("--least", "4", "--most", "6")
    return ("--scenario", str(file), "--arms", "static", "polca", "--slos", "whole", *counts)


def test_somebody_elses_row_is_searched_and_kept(tmp_path: Path) -> None:
    options = Options(quick=True, resume=tmp_path / "kept", arguments=small(tmp_path))
    figures = row_frontier.run(options).figures
    assert figures["small_static_whole_servers"] in (4, 5)
    assert "small_polca_whole_over_static" in figures
    (kept,) = (tmp_path / "kept").iterdir()
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == figures["cells"]
    said: list[str] = []
    again = Options(
        quick=True, resume=options.resume, arguments=options.arguments, progress=said.append
    )
    assert row_frontier.run(again).figures == figures
    assert said == []


def test_a_row_without_server_times_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("row: {groups: [{gpu_model: L40S, count: 4}]}\n", encoding="utf-8")
    with pytest.raises(InputError, match="H200-SXM"):
        row_frontier.run(Options(quick=True, arguments=("--scenario", str(file))))
    with pytest.raises(InputError, match="--most"):
        row_frontier.run(Options(quick=True, arguments=("--least", "9", "--most", "8")))


def test_every_arm_runs_on_the_first_row_and_three_on_the_others() -> None:
    given = row_frontier._arguments(Options(arguments=("--variants", "a100", "h100_peak")))
    searches = row_frontier._searches(given, ["a100", "h100_peak"], Options())
    arms = {(one.variant, one.arm) for one in searches}
    assert {arm for variant, arm in arms if variant == "a100"} == set(ARMS)
    assert {arm for variant, arm in arms if variant != "a100"} == set(row_frontier.SWEPT)
    # Without a line: the seeds of the bisection are all that they get.
    assert {len(one.seeds) for one in searches if one.arm in OPTIONS} == {3}


@pytest.mark.parametrize("arm", OPTIONS)
def test_an_option_changes_what_the_row_declares_and_what_boards_may_do(arm: str) -> None:
    hours = Hours(1, 20.0 / 3600.0, 1.0, lead_seconds=90.0, tail_seconds=10.0)
    rows = {
        name: run_cell(Cell("a100", name, 54, 21), Variant(), hours) for name in (WATTPACK, arm)
    }
    assert rows[arm]["brakes"] == rows[arm]["trips"] == rows[arm]["violations"] == 0
    assert rows[arm]["mean_ratio"] != rows[WATTPACK]["mean_ratio"]
    # Of the row's own rating, not of all four feeds.
    assert rows[arm]["mean_ratio"] == pytest.approx(rows[WATTPACK]["mean_ratio"], rel=0.1)


def test_the_picture_tells_what_a_policy_guarantees_and_that_others_guarantee_nothing() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.row_frontier_plot import borne

    names = ("guaranteed_watts", "floor_watts", "above_seconds")
    figures = {
        f"a100_{arm}_every_{name}": value
        for arm, values in {"polca": (400.0, 0.0, 2.0), "wattpack": (146.0, 235.0, 5.0)}.items()
        for name, value in zip(names, values, strict=True)
    }
    assert borne(figures, "a100_polca_every") == ("none", "none", "2 s")
    assert borne(figures, "a100_wattpack_every") == ("146 W", "235 W", "5 s")
    assert borne(figures, "a100_no_cap_every") == ("I1", "I1", "I1")


def test_a_file_s_row_is_searched_with_its_own_times_faults_and_power(tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    text = (
        "row: {groups: [{gpu_model: H200-SXM, count: 6}], racks: 1, rated_servers: 4,"
        " rated_server_watts: 10200, rack_rated_servers: 8, external_watts: 0}\n"
    )
    file.write_text(text, encoding="utf-8")
    asked = ("--scenario", str(file), "--arms", "wattpack", "--least", "4", "--most", "6")
    found = row_frontier.run(Options(quick=True, arguments=asked, progress=lambda _: None))
    assert found.figures["theirs_gpu_share"] == pytest.approx(8 * 700.0 / 10_200.0)
    assert found.figures["theirs_server_rated_ac_watts"] == 4 * 10_200.0 / 40
    hours = Hours(1, 20.0 / 3600.0, 1.0, lead_seconds=60.0, tail_seconds=10.0)
    cell, variant = Cell("theirs", WATTPACK, 5, 11), Variant(scenario=file)
    plain = run_cell(cell, variant, hours)
    crash = "faults: [{kind: controller_crash, at_seconds: 0, duration_seconds: 60}]\n"
    file.write_text(text + crash, encoding="utf-8")
    assert run_cell(cell, variant, hours)["mean_ratio"] < 0.97 * plain["mean_ratio"]


@pytest.mark.parametrize(
    ("more", "flags", "key"),
    [
        ("faults: [{kind: node_reboot, at_seconds: 1, target: node-001}]", (), "faults[].target"),
        ("", ("--variants", "a100"), "--variants"),
    ],
)
def test_what_a_search_over_a_file_s_row_cannot_do_is_refused(
    more: str, flags: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text("row: {groups: [{gpu_model: H200-SXM, count: 52}]}\n" + more, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        row_frontier.run(Options(quick=True, arguments=("--scenario", str(file), *flags)))
    assert refused.value.field == key
