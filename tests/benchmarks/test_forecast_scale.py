"""What series cost: every case in a process of its own, kept, and added up to the plan."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import forecast_scale
from benchmarks._forecast_shard import ROUNDS, ShardCase, measured_alone
from benchmarks.runner import Options
from wattpack.errors import InputError


def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    row = measured_alone(ShardCase(20, "ridge"))
    assert row["series"] == 20
    assert all(row[f"{kind}_cpu_seconds"] > 0 for kind in ROUNDS)
    assert row["resident_mebibytes"] > row["before_mebibytes"] > 10
    assert row["state_mebibytes"] > 0
    assert row["process"] != os.getpid()


def _row(case: ShardCase) -> dict[str, Any]:
    """Costs that are easy to add up."""
    seconds = {"first": 9.0, "next": 2.0, "settling": 5.0}
    return {
        "series": case.series, "resident_mebibytes": 512.0, "before_mebibytes": 112.0,
        "state_mebibytes": 3.0,
        **{f"{kind}_cpu_seconds": spent for kind, spent in seconds.items()},
        **{f"{kind}_state_cpu_seconds": 1.0 for kind in seconds},
    }  # fmt: skip


def test_the_plan_is_what_the_shards_add_up_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[ShardCase] = []

    def measure(case: ShardCase) -> dict[str, Any]:
        asked.append(case)
        return _row(case)

    monkeypatch.setattr(forecast_scale, "measured_alone", measure)
    told: list[str] = []
    options = Options(seed=3, resume=tmp_path, progress=told.append)
    figures = forecast_scale.run(options).figures
    assert figures["sharded_series"] == 100_000
    assert sum(case.series == 10_000 for case in asked) == 11
    assert len({case.seed for case in asked if case.series == 10_000}) == 10
    # Of 36 rounds a window 34 are ordinary ones (3 s), two learn from a window (6 s): ten shards.
    assert figures["plan_mean_round_cpu_seconds"] == pytest.approx(10 * (34 * 3 + 2 * 6) / 36, 1e-2)
    assert figures["plan_gibibytes"] == 5.0
    assert figures["ridge_10000_mebibytes_a_series"] == 0.04
    assert figures["ridge_1000_next_round_cpu_milliseconds_a_series"] == 3.0
    assert any("100,000 series in 10 shards" in line for line in told)
    (kept,) = tmp_path.iterdir()
    assert len(kept.read_text(encoding="utf-8").splitlines()) == len(asked)
    again = forecast_scale.run(options).figures
    assert json.dumps(again) == json.dumps(figures)
    assert len(asked) == len(kept.read_text(encoding="utf-8").splitlines()), "measured again"


def test_a_number_of_shards_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="--shards"):
        forecast_scale.run(Options(arguments=("--shards", "0")))
