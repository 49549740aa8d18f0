"""Rows of --resume are of one seed and one state of the sources; no plan is compared as none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.plan_parallel import over_percent
from benchmarks.runner import Options, finished_rows

INFINITE = float("inf")


class Cases:
    """Counts what is run."""

    def __init__(self) -> None:
        self.run: list[tuple[int, int]] = []

    def __call__(self, seed: int, number: int) -> dict[str, int]:
        self.run.append((seed, number))
        return {"seed": seed}


def test_rows_of_another_seed_are_not_taken(tmp_path: Path) -> None:
    cases = Cases()
    finished_rows(Options(seed=1, resume=tmp_path), "rows", cases, 2)
    rows = finished_rows(Options(seed=2, resume=tmp_path), "rows", cases, 2)
    assert [row["seed"] for row in rows] == [2, 2]
    finished_rows(Options(seed=1, resume=tmp_path), "rows", cases, 2)
    assert cases.run == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_rows_of_other_sources_are_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases, options = Cases(), Options(resume=tmp_path)
    finished_rows(options, "rows", cases, 1)
    monkeypatch.setattr(runner, "sources_digest", lambda: "another")
    finished_rows(options, "rows", cases, 1)
    assert cases.run == [(1, 0), (1, 0)]


def test_the_digest_rests_on_every_package_that_a_benchmark_calls() -> None:
    packages = {"actuator", "controller", "gpu", "simulation", "telemetry", "wattpack"}
    assert packages <= set(runner.EVERYTHING)
    root = Path(runner.__file__).parent.parent
    assert all((root / place).exists() for place in runner.EVERYTHING)
    assert runner.sources_digest(("gpu",)) != runner.sources_digest(("gpu", "pyproject.toml"))


@pytest.mark.parametrize(
    ("seconds", "best", "percent"),
    [(1.1, 1.0, 10.0), (INFINITE, INFINITE, 0.0), (INFINITE, 1.0, 1e9), (1.0, INFINITE, 1e9)],
)
def test_a_plan_where_no_plan_is_and_none_where_one_is_fail(
    seconds: float, best: float, percent: float
) -> None:
    assert over_percent(seconds, best) == pytest.approx(percent)
