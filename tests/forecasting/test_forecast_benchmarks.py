"""The benchmarks run in their quick form on one stored run, and say what they promise to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    _forecast_cases,
    calibration,
    forecast_accuracy,
    forecast_run,
    forecast_speed,
    next_interval,
    peak_reserve,
)
from benchmarks.forecast_run import LEVELS, PEAK_LEVELS, Published
from benchmarks.forecast_sets import HORIZON, LATER, ForecastSet, clients, totals
from benchmarks.runner import Options, Result
from forecasting.tiers import direct_ridge
from forecasting.tiers.tier_sets import RIDGE_ALONE
from wattpack.errors import InputError

Run = Callable[[Options], Result]
MODULES = (forecast_accuracy, calibration, peak_reserve, next_interval)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("run", [module.run for module in MODULES])
def test_every_pass_line_is_on_a_figure_that_is_printed(run: Run, kept: Path) -> None:
    result = run(Options(quick=True, resume=kept, progress=lambda _: None))
    (module,) = (m for m in MODULES if m.run is run)
    assert set(result.targets) == set(module.TARGETS)
    assert set(result.targets) <= set(result.figures)
    assert len(list(kept.glob("*-light-*.npz"))) == 2  # one run feeds them all


@pytest.mark.parametrize("run", [module.run for module in MODULES])
def test_a_file_of_the_users_is_judged_without_bounds(run: Run, tmp_path: Path) -> None:
    values = clients().values[:2, : 1440 + 60]
    lines = ["t_s,a,b", *(f"{600 * t},{a},{b}" for t, (a, b) in enumerate(values.T.tolist()))]
    file = tmp_path / "own.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = Options(quick=True, arguments=("--data", str(file)), progress=lambda _: None)
    result = run(told)
    assert result.targets == {}
    assert result.figures["data_windows"] == 2
    with pytest.raises(InputError, match="--confirmation"):
        run(replace(told, arguments=("--confirmation",)))
    with pytest.raises(InputError, match="--data FILE"):
        run(replace(told, arguments=("--dta", str(file))))


def _made_up(name: str, count: int) -> ForecastSet:
    """Series that nobody measured: the real later windows are scored once, and not here."""
    random = np.random.default_rng(count)
    values = random.uniform(1, 9, (count, 1440 + 2 * HORIZON))
    return ForecastSet(name, tuple("abc"[:count]), values, (1440, 1440 + HORIZON))


def test_one_run_confirms_all_that_is_said_of_forecasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clusters, total = _made_up("later_clusters", 3), _made_up("later_total", 1)
    monkeypatch.setitem(LATER, "later_clusters", lambda: clusters)
    monkeypatch.setitem(LATER, "later_total", lambda: total)
    monkeypatch.setattr(forecast_run, "all_tiers", lambda: RIDGE_ALONE)
    monkeypatch.setattr(_forecast_cases, "is_present", _forecast_cases.CHEAP.__contains__)
    rounds: list[str] = []
    told = Options(resume=tmp_path, arguments=("--confirmation",), progress=rounds.append)
    for module in MODULES:
        result = module.run(told)
        of_sets = [name for name in result.figures if not name.startswith("absent")]
        assert all(name.startswith(("later_clusters_", "later_total_")) for name in of_sets)
        assert {"later_clusters_windows", "later_total_windows"} <= set(of_sets)
        assert result.targets == {}
        assert told.arguments == module.KEPT_APART
    assert sum("rounds" in line for line in rounds) == 2  # origins, of one run for all four
    (kept,) = tmp_path.glob("*-published-*.npz")
    assert kept.name.startswith("later_clusters-later_total-")
    with pytest.raises(InputError, match="--confirm"):
        calibration.run(replace(told, arguments=("--confirm",)))


def test_sets_of_one_judgement_are_forecast_by_one_process() -> None:
    later = tuple(make() for make in LATER.values())
    assert [one.name for one in forecast_run._together(later[1])] == [one.name for one in later]
    assert forecast_run._together(totals())[0] is clients()
    alone = clients().sample(8, 5)
    assert forecast_run._together(alone) == (alone,)


def _case(truth: np.ndarray, quantiles: np.ndarray, peaks: np.ndarray) -> _forecast_cases.Case:
    """A set of one series and windows in a row, and what a process said of it."""
    windows = len(truth)
    past = np.arange(1440.0) % 143
    values = np.concatenate([past, truth.ravel()])[None]
    origins = tuple(1440 + HORIZON * i for i in range(windows))

    class Told(_forecast_cases.Case):
        def ours(self) -> Published:
            return Published(quantiles, peaks, (({},),) * windows, np.zeros(windows))

    return Told(ForecastSet("clients", ("a",), values, origins), Options(quick=True))


def test_calibration_counts_bins_and_windows() -> None:
    truth = np.tile(np.arange(1.0, HORIZON + 1), (4, 1))
    quantiles = np.zeros((4, 1, HORIZON, len(LEVELS)))
    quantiles[..., LEVELS.index(0.5)] = 18.0
    quantiles[..., LEVELS.index(0.99)] = 35.0
    peaks = np.zeros((4, 1, len(PEAK_LEVELS)))
    peaks[:, 0, 2] = [36.0, 36.0, 35.9, 40.0]
    figures = calibration._counted(_case(truth, quantiles, peaks))
    assert figures["clients_median_coverage"] == pytest.approx((17 + 18) / 2 / 36, abs=1e-4)
    assert figures["clients_coverage_at_0.99"] == pytest.approx(35 / 36, abs=1e-4)
    assert figures["clients_peak_p99_violated_windows"] == 1
    assert figures["clients_peak_p99_violated_share"] == 0.25
    assert figures["clients_peak_p99_violated_share_low95"] == pytest.approx(0.0063, abs=1e-4)
    assert figures["clients_peak_p99_violated_share_high95"] == pytest.approx(0.8059, abs=1e-4)


def test_a_reserve_that_knows_the_peaks_beats_every_maximum() -> None:
    random = np.random.default_rng(3)
    truth = random.uniform(10, 100, (12, 1)) * random.uniform(0.5, 1, (12, HORIZON))
    known = np.repeat(truth.max(axis=1)[:, None, None], 3, axis=2) - 1e-6
    steps = np.zeros((12, 1, HORIZON, len(LEVELS)))
    case = _case(truth, steps, known)
    figures = peak_reserve._compared(case, peak_reserve.USUAL)
    assert float(figures["clients_reserve_over_best_maximum"]) < 0.95
    assert figures["clients_published_unshifted_violated_share"] == 1.0
    assert float(figures["clients_published_unshifted_reserve_ratio"]) == pytest.approx(1.0)


def test_the_next_interval_is_one_bin_and_the_hours_are_the_rest() -> None:
    truth = np.full((2, HORIZON), 10.0)
    quantiles = np.zeros((2, 1, HORIZON, len(LEVELS)))
    median = quantiles[..., LEVELS.index(0.5)]
    median[..., 0], median[..., 1:5], median[..., 5:] = 9.0, 1e6, 12.0
    figures = next_interval._compared(_case(truth, quantiles, np.zeros((2, 1, 3))))
    assert figures["clients_published_10_minutes_wape"] == pytest.approx(0.1)
    assert figures["clients_published_1_to_6_hours_wape"] == pytest.approx(0.2)
    constant = abs(1439 % 143 - 10) / 20  # the second window begins where the first one stood
    assert figures["clients_dynamo_constant_10_minutes_wape"] == pytest.approx(constant)


def test_speed_is_of_a_tier_that_is_named_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_speed, "SERIES", 400)
    monkeypatch.setattr(forecast_speed, "tier_ratio", lambda given: 0.5)
    monkeypatch.setattr(forecast_speed, "_imports", lambda rounds: {"import_seconds": 1.0})
    result = forecast_speed.run(Options(quick=True, progress=lambda _: None))
    assert set(result.targets) <= set(result.figures)
    assert result.figures["tier"] == "ridge/3"
    assert direct_ridge.MIN_REFIT > 1


def test_a_tier_that_is_fed_bin_by_bin_is_better_than_yesterday() -> None:
    given = clients().sample(8, 1)
    near = replace(given, origins=given.origins[:2])
    assert 0 < forecast_speed.tier_ratio(near) < 1
