"""A plug-in of an installed package forecasts in commands: judged before it runs in a cluster."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.app.backtest_command import main as backtest
from forecasting.app.forecast_command import main as forecast
from forecasting.app.model_choice import fresh_state, tier_set
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.sqlite import HistoryStore
from forecasting.targets import Target
from forecasting.tiers.naive import SeasonalNaive
from forecasting.tiers.plug_in import GROUP, load_plug_ins
from forecasting.tiers.tier_sets import RIDGE_ALONE
from tests.forecasting.tiers.test_tiers import DAY, demand
from wattpack.errors import InputError

DAYS = 5
NOW = DAYS * 86400
ROOT = Path(__file__).parents[2]


class Noted(SeasonalNaive):
    """Sound; counts who is made and who is closed."""

    made = closed = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Noted]:
    """A package that offers ``noted`` and ``broken``, as pip leaves it."""
    folder = tmp_path / "packages" / "stranger-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    offered = f"[{GROUP}]\nnoted = {__name__}:Noted\nbroken = {__name__}:nowhere\n"
    (folder / "entry_points.txt").write_text(offered)
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(Noted, "made", 0)
    monkeypatch.setattr(Noted, "closed", 0)
    return Noted


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "history.db"
    with HistoryStore(found) as store:
        for i, values in enumerate(demand(2, DAYS * DAY)):
            store.append_bins(f"s{i}", 0, values, values)
    return found


def test_a_forecast_is_made_with_it(
    file: Path, installed: type[Noted], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--all", "--history-file", str(file), "--at", str(NOW), "--json"]
    assert forecast([*line, "--plug-in", "noted", "--plug-in", "noted"]) == 0
    for one in json.loads(capsys.readouterr().out)["forecasts"]:
        names = [tier["name"] for tier in one["status"]["tiers"]]
        assert sorted(names) == ["noted", "ridge"]
        assert "noted/seasonal-naive/1" in one["status"]["modelVersion"]
    assert installed.made == installed.closed > 0


def test_a_backtest_judges_it(file: Path, tmp_path: Path, installed: type[Noted]) -> None:
    line = ["--all", "--history-file", str(file), "--until", str(NOW), "--days", "0.5"]
    peaks = []
    for flags in ([], ["--plug-in", "noted"]):
        out, kept = tmp_path / f"report{len(flags)}", ["--resume", str(tmp_path / "kept")]
        assert backtest([*line, *kept, *flags, "--models", "ridge", "--out", str(out)]) == 0
        windows: list[dict[str, Any]] = json.loads((out / "backtest.json").read_text())["windows"]
        assert all(one["peaks"] for one in windows)
        assert any("noted" in one["method"] for one in windows) is bool(flags)
        peaks.append([one["peaks"] for one in windows])
    assert not np.array_equal(*peaks)
    assert installed.made == installed.closed > 0


@pytest.mark.parametrize(("name", "words"), [("nobody", GROUP), ("broken", "nowhere")])
@pytest.mark.parametrize("command", [forecast, backtest])
@pytest.mark.usefixtures("installed")
def test_one_that_is_not_there_is_refused(
    command: Any, name: str, words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who asks a command for it wants no figures without it; the process goes on without."""
    assert command(["s0", "--history-file", str(file), "--plug-in", name]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert "plug-in" in told.err
    assert words in told.err
    with pytest.raises(InputError):
        fresh_state("ridge", [name])


@pytest.mark.usefixtures("installed")
def test_the_ridge_does_not_leave_it_out() -> None:
    """A process with `models: ridge` took no notice of its plug-ins."""
    tiers = tier_set("ridge", ["noted"]).live(36)
    assert [tier.provenance.model.split("/")[0] for tier in tiers] == ["ridge", "noted"]
    assert tier_set("ridge") is RIDGE_ALONE


def test_the_declared_example_is_one() -> None:
    """What `pyproject.toml` declares under its name is loaded and answers a whole round."""
    pytest.importorskip("statsforecast")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    offered = declared["project"]["entry-points"][GROUP]
    points = [EntryPoint(name, value, GROUP) for name, value in offered.items()]
    (plug_in,), absent = load_plug_ins(["statsforecast-mstl"], points)
    assert not absent
    assert plug_in.provenance.model.startswith("statsforecast-mstl/mstl-autoets/")


def test_the_example_answers_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("statsforecast")
    point = EntryPoint("statsforecast-mstl", "forecasting.tiers.statsforecast_mstl:make", GROUP)
    monkeypatch.setattr(
        "forecasting.tiers.tier_sets.load_plug_ins", lambda names: load_plug_ins(names, [point])
    )
    # Without a rehearsal: that would fit it anew for each of its windows.
    target = Target("ns", "s", SeriesId("s"), "series", 12, 600, (0.1, 0.5, 0.99), None, 1)
    tiers = tier_set("ridge", ["statsforecast-mstl"])
    known = ForecasterState(tiers, rehearsed=frozenset({target.identity}))
    source = MemorySource({"s": demand(1, DAYS * DAY)[0]})
    _, (answer,) = step(known, float(NOW), source, [target])
    assert answer.made is not None
    assert "statsforecast-mstl" in answer.made.methods[0]
    assert np.isfinite(answer.made.quantiles).all()
