"""Figures are compared with the ranges that were seen, and the kept results lie within them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.expected import Range, outside, read_ranges
from benchmarks.runner import RESULTS, discover
from wattpack.errors import InputError


@pytest.mark.parametrize("name", sorted(discover()))
def test_every_benchmark_has_ranges_and_its_kept_result_lies_within_them(name: str) -> None:
    ranges = read_ranges()[name]
    kept = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert ranges, f"no figure of {name} has a range"
    assert outside(ranges, kept["figures"], quick=False) == {}


def test_no_range_is_kept_for_a_benchmark_that_does_not_exist() -> None:
    assert set(read_ranges()) == set(discover())


@pytest.mark.parametrize("figure", [1.3, 0.7, float("nan"), None, "1", True])
def test_a_figure_more_than_two_spreads_from_the_mean_is_outside(figure: object) -> None:
    assert outside({"ratio": Range(1.0, 0.1, 3)}, {"ratio": figure}, quick=False)


def test_a_short_run_is_compared_in_what_does_not_depend_on_the_machine() -> None:
    ranges = {"seconds": Range(1.0, 0.1, 3), "ratio": Range(1.0, 0.1, 3, quick=True)}
    assert set(outside(ranges, {"seconds": 9.0, "ratio": 9.0}, quick=True)) == {"ratio"}
    assert outside(ranges, {"seconds": 9.0, "ratio": 1.2}, quick=True) == {}


def test_what_full_runs_are_known_to_miss_is_compared_in_short_ones_alone(tmp_path: Path) -> None:
    file = tmp_path / "ranges.yaml"
    file.write_text(
        "one:\n  seconds: {mean: 0, spread: 0, runs: 1, quick: only}\n", encoding="utf-8"
    )
    ranges = read_ranges(file)["one"]
    assert outside(ranges, {"seconds": 67}, quick=False) == {}
    assert set(outside(ranges, {"seconds": 1}, quick=True)) == {"seconds"}
    file.write_text(
        "one:\n  seconds: {mean: 0, spread: 0, runs: 1, quick: never}\n", encoding="utf-8"
    )
    with pytest.raises(InputError, match="quick"):
        read_ranges(file)


@pytest.mark.parametrize(
    "text",
    [
        "b: {f: {mean: 1, spread: 0}}",
        "b: {f: {mean: .nan, spread: 0, runs: 1}}",
        "b: {f: {mean: 1, spread: -1, runs: 1}}",
        "b: {f: {mean: 1, spread: 1, runs: 0}}",
        "b: {f: {mean: 1, spread: 1, runs: 1, quik: true}}",
    ],
)
def test_a_range_that_makes_no_sense_is_refused_by_its_name(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ranges.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"b\.f"):
        read_ranges(file)
