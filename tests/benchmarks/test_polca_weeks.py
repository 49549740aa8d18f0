"""How polca_weeks sums its shards up, and which it runs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks import _week_spans, polca_weeks
from benchmarks._summed_shards import Summed, read_summed, summed, write_summed
from benchmarks._weeks_figures import summary
from benchmarks.runner import Options, Row
from simulation.inference_row.request_time_counts import sparse, time_counts
from wattpack.errors import InputError


def row(seconds: float, brakes: int) -> dict[str, object]:
    return {
        **dict.fromkeys(("trips", "above_seconds", "cap_changes", "invariant_violations"), 0),
        "brakes": brakes,
        "peak_ratio": 0.9 + 0.01 * brakes,
        "max_heat": 0.0,
        "mean_ratio": 0.8,
        "hot_hours": 3.0,
        "cpu_seconds": 150.0,
        "work": [9.0, 10.0],
        "free_work": [10.0, 10.0],
        "times": {"low_whole": sparse(time_counts(np.full(10, seconds)))},
        "free_times": {"low_whole": sparse(time_counts(np.full(10, 10.0)))},
    }


def test_quantiles_are_of_all_requests_together() -> None:
    made = summary("polca", [row(10.0, 0), row(10.0, 1), row(12.0, 2)])
    assert made["polca_brakes"] == 3
    assert made["polca_cpu_hours_of_all"] == pytest.approx(21.0)
    assert made["polca_peak_ratio"] == pytest.approx(0.92)
    assert (made["polca_work_low"], made["polca_work_high"]) == (0.9, 1.0)
    assert made["polca_low_whole_p50"] == pytest.approx(0.0, abs=1e-3)
    assert made["polca_low_whole_p99"] == pytest.approx(0.2, abs=2e-3)


def test_a_policy_is_held_against_the_uncapped_row_of_the_same_shards() -> None:
    free = {"work": [1.0, 2.0], "times": {"low_whole": {}}}
    rows: dict[polca_weeks.Job, Row] = {
        polca_weeks.Job("polca", 52, 7): {"work": [0.5, 2.0]},
        polca_weeks.Job("polca", 52, 9): {"work": [0.6, 2.0]},
        polca_weeks.Job("wattpack", 56, 7): {"work": [0.7, 2.0]},
        polca_weeks.Job("uncapped", 52, 7): free,
        polca_weeks.Job("uncapped", 56, 9): free,
        polca_weeks.Job("uncapped", 52, 8): free | {"work": [3.0, 3.0]},
    }
    found = polca_weeks._with_uncapped("polca", 52, rows, [9, 8, 7])
    assert found == {7: {"work": [0.5, 2.0], "free_work": [1.0, 2.0], "free_times": free["times"]}}


def test_every_shard_is_run_once_in_an_order_of_the_seed() -> None:
    order = polca_weeks._order(1)
    assert sorted(order) == list(range(504))
    assert order != polca_weeks._order(2)
    first, last = _week_spans.span_of(0, (0.0, 6.0)), _week_spans.span_of(41, (18.0, 24.0))
    assert first.run[0] == first.counted[0] == 0.0
    assert last.run[1] == last.counted[1] == 42 * 86_400.0


def test_nothing_is_run_to_sum_up_what_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(polca_weeks, "KEPT", tmp_path)
    asked = Options(resume=tmp_path, arguments=("--finished", "--shards", "2"))
    result = polca_weeks.run(asked)
    assert result.figures["shards_asked"] == 2
    assert "polca_shards" not in result.figures
    assert not result.targets
    assert result.met() is None
    assert not list(tmp_path.iterdir())


def test_a_sum_of_shards_says_what_its_shards_say(tmp_path: Path) -> None:
    rows = [row(10.0, 0), row(10.0, 1) | {"calm_mean_error": -0.02}, row(12.0, 2)]
    rows[2]["calm_mean_error"] = 0.01
    file = tmp_path / "polca.json.gz"
    write_summed(file, Summed(frozenset({3, 5}), summed(rows[:2])))
    kept = read_summed(file)
    assert kept.numbers == {3, 5}
    assert kept.row is not None
    together, apart = (summary("polca", one) for one in ([kept.row, rows[2]], rows))
    assert together == pytest.approx(apart)
    assert together["polca_shards"] == 3


def test_shards_that_a_sum_holds_are_not_run_again() -> None:
    kept = {"polca": Summed(frozenset({7}), None), "wattpack": Summed(frozenset({7, 9}), None)}
    assert polca_weeks._jobs([7, 9, 8], kept, lambda _: 52) == [
        ("uncapped", 52, 9),
        ("polca", 52, 9),
        ("uncapped", 52, 8),
        ("polca", 52, 8),
        ("wattpack", 52, 8),
    ]
    counts = {"polca": 52, "wattpack": 56}
    assert polca_weeks._jobs([8], kept, counts.__getitem__) == [
        ("uncapped", 52, 8),
        ("polca", 52, 8),
        ("uncapped", 56, 8),
        ("wattpack", 56, 8),
    ]


@pytest.mark.parametrize(
    "content", [b"", b"words", gzip.compress(b"[]", mtime=0), gzip.compress(b"{}", mtime=0)]
)
def test_a_file_of_something_else_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "polca.json.gz"
    file.write_bytes(content)
    with pytest.raises(InputError, match="summed shards"):
        read_summed(file)
    assert read_summed(tmp_path / "none").row is None


def kept_names(*arguments: str) -> set[str]:
    options = Options(resume=Path("kept"), arguments=arguments)
    given = polca_weeks._arguments(options)
    sums = {polca_weeks._kept_file(given, options, name).name for name in given.policies}
    job = polca_weeks.Job("uncapped", 52, 7)
    shard = polca_weeks._file(given, options, job)
    assert shard is not None
    return sums | {shard.name}


def test_what_is_kept_of_a_hotter_row_is_kept_apart() -> None:
    ordinary, hotter, hottest = (
        kept_names(*more) for more in ((), ("--hotter", "0.05"), ("--hotter", "0.1"))
    )
    assert ordinary == kept_names("--hotter", "0")
    assert ordinary.isdisjoint(hotter | hottest)
    assert hotter.isdisjoint(hottest)
    assert any(name.startswith("polca-52-seed-1-") for name in ordinary)
    assert any(name.startswith("polca_weeks-uncapped-52-hotter-0.05-") for name in hotter)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polca_weeks, "QUICK_HOURS", (3.0, 3.0 + 210.0 / 3600.0))
    monkeypatch.setattr(_week_spans, "LEAD_SECONDS", 60.0)
    monkeypatch.setattr(_week_spans, "TAIL_SECONDS", 30.0)


def test_a_quick_run_leaves_what_is_kept_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    monkeypatch.setattr(polca_weeks, "KEPT", tmp_path)
    few = ("--servers", "4", "--policies", "polca", "--keep")
    polca_weeks.run(Options(quick=True, resume=tmp_path / "shards", arguments=few))
    assert not list(tmp_path.iterdir())


def test_a_hotter_row_is_asked_more_with_and_without_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shorten(monkeypatch)

    def work_of(hotter: str) -> tuple[float, float]:
        few = ("--servers", "4", "--policies", "polca", "--hotter", hotter)
        options = Options(quick=True, arguments=few)
        rows = polca_weeks._rows(
            polca_weeks._arguments(options),
            options,
            [polca_weeks.Job(arm, 4, 7) for arm in ("polca", "uncapped")],
        )
        mine, free = (sum(row["work"]) for row in rows.values())
        return mine, free

    ordinary, hotter = work_of("0"), work_of("0.5")
    assert min(hotter) > 1.2 * max(ordinary)


@pytest.mark.parametrize("hotter", ["5", "-0.1", "nan"])
def test_a_share_that_is_none_is_refused(hotter: str) -> None:
    with pytest.raises(InputError, match="--hotter"):
        polca_weeks.run(Options(arguments=("--finished", "--hotter", hotter)))


def test_shards_of_published_policies_outlive_changes_of_the_controller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They ask nothing of it, so they are named by all else that they rest on."""

    def never(*_: object) -> None:
        raise AssertionError("asked the controller")

    monkeypatch.setattr("simulation.row_control.wattpack_policy.step", never)
    found = polca_weeks.run(Options(quick=True, arguments=("--policies", "polca"), resume=tmp_path))
    assert found.figures["polca_brakes"] == 0
    given = polca_weeks._arguments(Options())
    assert polca_weeks._digest(given, "polca") == polca_weeks._digest(given, "uncapped")
    assert polca_weeks._digest(given, "polca") != polca_weeks._digest(given, "wattpack")
    with pytest.raises(AssertionError, match="asked the controller"):
        polca_weeks.run(Options(quick=True, arguments=("--policies", "wattpack"), resume=tmp_path))
