"""``wattpack backtest`` tells what each model behind the forecasts is worth by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forecasting.app.backtest_command import main
from forecasting.backtest.backtest_verdicts import verdict_of
from forecasting.backtest.plan import Asked, plan_of, targets_of
from forecasting.backtest.rolling import rolling
from forecasting.backtest.tier_verdicts import TierVerdict
from forecasting.backtest.window import DECILES, Window
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import Floats
from forecasting.sqlite import HistoryStore
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.records import Records
from forecasting.tiers.tier import Tier
from forecasting.tiers.tier_sets import TierSet

DAY = 144
DAYS = 6
END = DAYS * 86400


class Always(Tier):
    """One value for whatever has not been idle all along; no answer for that."""

    model = "always/1"
    value = 120.0

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        made = np.full((len(self.records.series), horizon, len(levels)), self.value)
        made[self.records.filled.max(axis=1) == 0] = np.nan
        return made


def _tiers(horizon: int) -> tuple[Tier, ...]:
    return (Ridge(Records(), horizon), Always())


@pytest.fixture(scope="module")
def values() -> dict[str, Floats]:
    t = np.arange(DAYS * DAY)
    noise = np.random.default_rng(4).gamma(2.0, 4.0, (2, len(t)))
    daily = 100 + 40 * np.sin(2 * np.pi * t / DAY)
    return {"a": daily + noise[0], "b": 2 * daily + noise[1], "idle": np.zeros(len(t))}


@pytest.fixture(scope="module")
def windows(values: dict[str, Floats]) -> list[Window]:
    state = ForecasterState(TierSet(_tiers, _tiers))
    plan = plan_of(list(values), END, Asked(days=1, every_hours=6))
    return [one for _, of in rolling(plan, MemorySource(values), state) for one in of]


def _tier(windows: list[Window], model: str) -> TierVerdict:
    (found,) = [one for one in verdict_of(windows).tiers if one.model == model]
    return found


def test_a_model_is_charged_for_what_it_said_itself(
    windows: list[Window], values: dict[str, Floats]
) -> None:
    """Against the definition, by plain loops over bins and levels."""
    own: dict[str, float] = {}
    others: dict[str, np.ndarray] = {}
    for window in windows:
        said = {tier.model: tier for tier in window.tiers}
        assert list(said) == ["ridge", "always"]
        if window.series == "idle":
            assert said["always"].loss is None
            continue
        first = window.origin_seconds // 600
        lost = 0.0
        for came in values[window.series][first : first + 36]:
            errors = [came - Always.value] * len(DECILES)
            both = zip(DECILES, errors, strict=True)
            lost += float(np.mean([2 * max(q * e, (q - 1) * e) for q, e in both]))
        assert said["always"].loss == pytest.approx(lost, rel=1e-6)
        assert sum(tier.weight for tier in window.tiers) == pytest.approx(1.0, abs=1e-3)
        own[window.series] = own.get(window.series, 0.0) + lost
        of_others = np.array(window.losses[:2], dtype=float)
        others[window.series] = others.get(window.series, np.zeros(2)) + of_others
    told = _tier(windows, "always")
    assert told.windows == sum(window.series != "idle" for window in windows)
    over = np.array([own[name] / others[name] for name in ("a", "b")])
    assert told.over_forecast == pytest.approx(float(np.exp(np.log(over[:, 0]).mean())))
    assert told.geometric_ratio == pytest.approx(float(np.exp(np.log(over[:, 1]).mean())))
    assert told.pooled_ratio == pytest.approx(
        sum(own.values()) / sum(o[1] for o in others.values())
    )


def test_the_model_that_knows_nothing_is_seen_to(windows: list[Window]) -> None:
    tiers = verdict_of(windows).tiers
    assert [one.model for one in tiers] == ["ridge", "always"]
    ridge, always = tiers
    assert ridge.geometric_ratio is not None
    assert always.geometric_ratio is not None
    assert always.geometric_ratio > 2 * ridge.geometric_ratio
    assert (always.over_forecast or 0) > 2
    assert always.weight < 0.1 < 0.9 < ridge.weight
    assert ridge.weight + always.weight == pytest.approx(1.0, abs=1e-3)


def test_only_who_asks_is_told_what_models_say(values: dict[str, Floats]) -> None:
    """Of 10,000 series it would be a tenth of what a process holds."""
    source = MemorySource(values)
    for asks in (False, True):
        plan = plan_of(["a"], END, Asked(days=1))
        asked = [replace(one, tells_tiers=asks) for one in targets_of(plan)]
        known = ForecasterState(rehearsed=frozenset({asked[0].identity}))
        (answer,) = step(known, float(END), source, asked)[1]
        assert answer.made is not None
        assert (answer.made.by_tier is not None) is asks


def test_the_report_has_a_table_of_models_and_the_terminal_a_line_each(
    values: dict[str, Floats], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "history.db", tmp_path / "report"
    with HistoryStore(file) as store:
        for name, row in values.items():
            store.append_bins(name, 0, row, row)
    line = ["--all", "--history-file", str(file), "--until", str(END), "--days", "0.5"]
    kept = ["--resume", str(tmp_path / "kept")]
    for _ in range(2):  # the second one from what is kept
        assert main([*line, *kept, "--models", "ridge", "--out", str(out)]) == 0
        told = capsys.readouterr().out
        assert "of the forecast's; weight 100%" in " ".join(told.split())
        report = json.loads((out / "backtest.json").read_text())
        (ridge,) = report["verdict"]["tiers"]
        assert ridge["model"] == "ridge"
        assert ridge["windows"] == 6
        assert ridge["weight"] == 1.0
        assert 0 < ridge["geometric_ratio"] < 1
        assert 0.8 < ridge["over_forecast"] < 1.25
        assert {tier["model"] for one in report["windows"] for tier in one["tiers"]} == {"ridge"}
        table = (out / "report.md").read_text().split("## Models behind the forecast")[1]
        assert "| ridge | 6 | 100% |" in table.split("## ")[0]
        assert "Models behind the forecast" in (out / "index.html").read_text()
