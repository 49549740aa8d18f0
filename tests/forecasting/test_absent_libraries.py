"""Each model may be absent: a library that cannot be loaded, or fails, costs its own answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from forecasting.app import forecaster_command
from forecasting.app.backtest_command import main as backtest
from forecasting.app.forecast_command import main as forecast
from forecasting.lightgbm_library import ForestsError, lightgbm_at_work, lightgbm_problem
from forecasting.prewarming.minute_needs import MinuteNeeds, MinuteQuestion
from forecasting.series_source import Floats, SeriesId
from forecasting.sqlite import HistoryStore
from forecasting.tiers import statsforecast_mstl
from forecasting.tiers.boosted import Boosted
from simulation.kube import EmbeddedKube
from tests.forecasting.tiers.test_tiers import DAY, LEVELS, demand, history
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

DAYS = 5
NOW = DAYS * 86400
WORDS = "libgomp.so.1: cannot open shared object file"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "history.db"
    with HistoryStore(found) as store:
        for i, values in enumerate(demand(3, DAYS * DAY)):
            store.append_bins(f"s{i}", 0, values, values)
    return found


def _unloadable(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is found, and loading it fails as where the system lacks a library of its."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"raise OSError({WORDS!r})\n", encoding="utf-8")
    for known in [one for one in sys.modules if one.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def without_lightgbm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _unloadable("lightgbm", tmp_path / "packages", monkeypatch)


@pytest.mark.usefixtures("without_lightgbm")
def test_a_library_that_cannot_be_loaded_is_an_absent_model(
    file: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It was found, so it was taken to be there, and the command ended with a traceback."""
    asked = ["--all", "--history-file", str(file), "--at", str(NOW), "--models", "all", "--json"]
    assert forecast(asked) == 0
    told = json.loads(capsys.readouterr().out)["forecasts"]
    assert len(told) == 3
    assert all("ridge" in str(one["status"]["tiers"]) for one in told)
    assert "boosted" not in str(told)
    assert caplog.text.count("without boosted") == caplog.text.count(WORDS) == 1


@pytest.mark.usefixtures("without_lightgbm")
def test_a_backtest_goes_on_without_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--all", "--history-file", str(file), "--until", str(NOW), "--days", "0.5"]
    assert backtest([*asked, "--out", str(tmp_path / "report")]) == 0
    assert "6 windows judged" in capsys.readouterr().out


@pytest.mark.usefixtures("without_lightgbm")
def test_a_round_of_the_process_goes_on_without_it(file: Path) -> None:
    clock = ManualClock(wall_offset_ns=NOW * NS_PER_SECOND)
    kube, resource = EmbeddedKube(clock), DemandForecast.meta.resource
    body = {
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "s0", "namespace": "power"}, "spec": {"target": {"series": "s0"}},
    }  # fmt: skip
    kube.create(resource, body, "power")
    with (
        mock.patch.object(forecaster_command, "SystemClock", return_value=clock),
        mock.patch("wattpack.kube.client.connect", return_value=kube),
    ):
        assert forecaster_command.main(["--once", f"--history-file={file}"]) == 0
    (told,) = kube.list(resource).items
    assert "ridge" in told["status"]["modelVersion"]
    assert "boosted" not in told["status"]["modelVersion"]


@pytest.mark.usefixtures("without_lightgbm")
def test_replicas_are_left_to_the_rounds_without_it(caplog: pytest.LogCaptureFixture) -> None:
    def read(series: Any, start: int, end: int) -> Floats:
        return np.random.default_rng(1).gamma(9, 1, (len(series), (end - start) // 60))

    needs = MinuteNeeds(read, rounds=5)
    asked = [MinuteQuestion(SeriesId("chat"), steps, 10.0) for steps in (2, 3)]
    assert needs.quantiles(asked, 12 * 86400.0) == {}
    assert needs.quantiles(asked, 12 * 86400.0 + 7200) == {}
    assert caplog.text.count(WORDS) == 1


@pytest.mark.usefixtures("without_lightgbm")
def test_its_words_are_the_reason() -> None:
    assert WORDS in lightgbm_problem()
    tier = Boosted()
    tier.update(history(demand(3, 5 * DAY)))
    assert np.isnan(tier.quantiles(36, LEVELS)).all()
    assert WORDS in tier.problem


@pytest.mark.parametrize("method", ["train", "Booster"])
def test_forests_that_fail_cost_only_themselves(
    file: Path,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """LightGBM's own error is no ValueError, and nobody caught it."""
    lightgbm = pytest.importorskip("lightgbm")

    def fail(*_: Any, **__: Any) -> None:
        raise lightgbm.basic.LightGBMError("not enough memory")

    monkeypatch.setattr("forecasting.tiers.boosted_fit.TREES", 3)
    monkeypatch.setattr(lightgbm, method, fail)
    asked = ["--all", "--history-file", str(file), "--at", str(NOW), "--models", "all", "--json"]
    assert forecast(asked) == 0
    told = json.loads(capsys.readouterr().out)["forecasts"]
    assert all("ridge" in one["status"]["modelVersion"] for one in told)
    assert "LightGBMError: not enough memory" in caplog.text


def test_whatever_is_raised_at_work_is_an_error_of_ours() -> None:
    pytest.importorskip("lightgbm")
    with pytest.raises(ForestsError, match="ZeroDivisionError"), lightgbm_at_work():
        _ = 1 / 0


def test_a_plug_in_whose_library_cannot_be_loaded_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found, so it was there, and failed at every answer."""
    _unloadable("statsforecast", tmp_path, monkeypatch)
    with pytest.raises(OSError, match="libgomp"):
        statsforecast_mstl.make()
