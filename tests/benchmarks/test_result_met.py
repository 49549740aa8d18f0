"""A result says that its targets are met only where it has any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.runner import RESULTS, Result, Target


@pytest.mark.parametrize(
    ("figures", "targets", "met"),
    [
        ({"loss": 0.081}, {}, None),
        ({"loss": 0.04}, {"loss": Target(at_most=0.05)}, True),
        ({"loss": 0.081}, {"loss": Target(at_most=0.05)}, False),
        ({"others": 0.0}, {"loss": Target(at_most=0.05)}, False),
    ],
)
def test_nothing_is_met_where_nothing_is_wanted(
    figures: dict[str, float], targets: dict[str, Target], met: bool | None
) -> None:
    assert Result(figures, targets).to_json("one")["met"] is met


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_no_kept_result_without_targets_says_that_it_met_them(file: Path) -> None:
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert (kept["met"] is None) == (not kept["targets"])
