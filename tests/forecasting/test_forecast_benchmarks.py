"""The benchmarks run in their quick form and give what they promise."""

from __future__ import annotations

import pytest

from benchmarks import forecast_quality, forecast_scale
from benchmarks.runner import Options


def test_quality_is_measured_and_met_on_the_shipped_traces() -> None:
    result = forecast_quality.run(Options(quick=True, progress=lambda _: None))
    assert result.met(), result.figures
    assert result.figures["windows"] == 21 * 40
    uncalibrated = result.figures["peak_p99_violation_ratio_uncalibrated"]
    assert isinstance(uncalibrated, float)
    assert uncalibrated > float(result.figures["peak_p99_violation_ratio"])


def test_scale_reports_every_targeted_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_scale, "forecast", lambda *_, **__: None)
    result = forecast_scale.run(Options(quick=True, progress=lambda _: None))
    assert set(result.targets) <= set(result.figures)
