"""Tokens of forecast requests: from bins to the status, the metrics and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from forecasting.app.forecast_command import main
from forecasting.series_source import Floats
from forecasting.targets import target_of
from forecasting.token_demand import RequestForecast, token_demand
from forecasting.tokens.binned_lengths import binned_lengths
from forecasting.told_lengths import LENGTHS_AWAY
from tests.forecasting.test_forecaster_process import DAY, World
from wattpack.errors import InputError

STEP = 600.0
MEAN, SIGMA = 400.0, 1.0
P99 = MEAN * np.exp(2.3263478740408408 * SIGMA - SIGMA**2 / 2)


def simulated(days: int, rate: float, seed: int = 0) -> tuple[Floats, Floats]:
    """Requests and tokens a second; every request is drawn by itself."""
    random = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    counts = random.poisson(rate * STEP * (1 + 0.4 * np.sin(2 * np.pi * t / DAY)))
    mu = np.log(MEAN) - SIGMA**2 / 2
    lengths = random.lognormal(mu, SIGMA, counts.sum())
    owner = np.repeat(t, counts)
    return counts / STEP, np.bincount(owner, lengths, minlength=len(t)) / STEP


@pytest.mark.parametrize("told", [True, False])
def test_moments_of_bins_are_those_of_the_requests(told: bool) -> None:
    requests, tokens = simulated(10, 0.5)
    p99 = np.full(len(requests), P99) if told else None
    found = binned_lengths(requests, tokens, p99, STEP)
    assert found is not None
    assert found.mean == pytest.approx(MEAN, rel=0.05)
    square = MEAN**2 * np.exp(SIGMA**2)
    assert found.second_moment == pytest.approx(square, rel=0.06 if told else 0.3)
    assert found.p99 == pytest.approx(P99, rel=0.05 if told else 0.3)


def test_a_second_moment_that_is_told_counts_as_told() -> None:
    requests, tokens = simulated(10, 0.5)
    square, longest = np.full(len(requests), 7e5), np.full(len(requests), 3000.0)
    both = binned_lengths(requests, tokens, longest, STEP, square)
    alone = binned_lengths(requests, tokens, None, STEP, square)
    assert both is not None
    assert alone is not None
    assert (both.second_moment, both.p99) == (pytest.approx(7e5), pytest.approx(3000.0))
    sigma = np.sqrt(np.log(7e5 / alone.mean**2))
    expected = alone.mean * np.exp(2.3263478740408408 * sigma - sigma**2 / 2)
    assert alone.p99 == pytest.approx(expected)
    # None is below what the mean alone gives, and bins that tell nothing tell nothing wrong.
    low = binned_lengths(requests, tokens, None, STEP, np.full(len(requests), 1.0))
    assert low is not None
    assert low.second_moment == pytest.approx(low.mean**2)
    untold = binned_lengths(requests, tokens, None, STEP, np.full(len(requests), np.nan))
    assert untold == binned_lengths(requests, tokens, None, STEP)


def test_what_a_client_asks_for_now_counts_more_than_what_it_asked_for_yesterday() -> None:
    requests = np.full(3 * DAY, 1.0)
    tokens = np.where(np.arange(3 * DAY) < 2 * DAY, 100.0, 1000.0)
    found = binned_lengths(requests, tokens, None, STEP)
    assert found is not None
    assert found.mean > 900


def test_gaps_idle_bins_and_too_few_requests_tell_nothing_wrong() -> None:
    requests, tokens = simulated(2, 0.5)
    requests[::5], tokens[1::7] = np.nan, np.nan
    requests[2::9] = 0.0
    found = binned_lengths(requests, tokens, np.full(len(requests), np.nan), STEP)
    assert found is not None
    assert found.mean == pytest.approx(MEAN, rel=0.15)
    assert binned_lengths(np.zeros(DAY), np.zeros(DAY), None, STEP) is None
    assert binned_lengths(np.full(DAY, np.nan), np.full(DAY, 1.0), None, STEP) is None
    assert binned_lengths(np.full(DAY, 1e-5), np.full(DAY, 1.0), None, STEP) is None


def test_peaks_of_tokens_hold_as_promised_where_the_rate_is_known() -> None:
    """Rate fixed, so that only the lengths are by chance: against requests drawn one by one."""
    rate, horizon, runs = 0.2, 36, 1000
    requests = np.full(10 * DAY, rate)
    quantiles = np.full((horizon, 3), rate)
    forecast = RequestForecast(requests, 600, quantiles, (0.5, 0.95, 0.99), np.full(3, rate))
    lengths = binned_lengths(requests, requests * MEAN, np.full(10 * DAY, P99), STEP)
    assert lengths is not None
    found = token_demand(forecast, lengths, float("inf"))
    random = np.random.default_rng(3)
    counts = random.poisson(rate * STEP, runs * horizon)
    mu = np.log(MEAN) - SIGMA**2 / 2
    drawn = random.lognormal(mu, SIGMA, counts.sum())
    owner = np.repeat(np.arange(runs * horizon), counts)
    sums = np.bincount(owner, drawn, minlength=runs * horizon).reshape(runs, horizon) / STEP
    peaks = sums.max(axis=1)
    assert found.peaks[0] == pytest.approx(np.median(peaks), rel=0.1)
    assert 0.9 < (peaks <= found.peaks[1]).mean() < 0.985
    # Without the lengths' chance the peak would be the mean.
    assert found.peaks[0] > 1.2 * rate * MEAN


def test_a_status_tells_tokens_where_lengths_are_told() -> None:
    world = World()
    requests, tokens = simulated(12, 0.5)
    world.source.values.update(requests=requests, tokens=tokens)
    target = {"workload": "chat", "series": "requests", "unit": "1/s"}
    world.add("told", target=target, tokens={"series": "tokens"})
    world.add("away", target=target, tokens={"series": "lost"})
    world.add("untold", target=target)
    world.source.values["squares"] = np.full(len(requests), 7e5)
    world.add(
        "squares", target=target, tokens={"series": "tokens", "secondMomentSeries": "squares"}
    )
    world.source.failing = {"lost"}
    assert world.process.tick()
    found = world.status("told")["tokens"]
    assert found["mean"] == pytest.approx(MEAN, rel=0.1)
    assert MEAN * world.status("told")["p50"] < found["p50"] < found["p95"] < found["p99"]
    assert found["requestP99"] > found["mean"]
    assert world.status("squares")["tokens"]["secondMoment"] == pytest.approx(7e5)
    text = generate_latest(world.process.metrics.registry).decode()
    assert 'wattpack_forecast_token_peak{level="0.99",name="told",namespace="power"}' in text
    for name in ("away", "untold"):
        assert "tokens" not in world.status(name)
        assert world.ready(name)["status"] == "True"
        assert f'token_peak{{level="0.99",name="{name}"' not in text


def test_the_command_prints_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests, tokens = simulated(10, 0.5)
    table = tmp_path / "t.csv"
    rows = [f"{600 * i},{r},{t}" for i, (r, t) in enumerate(zip(requests, tokens, strict=True))]
    table.write_text("\n".join(["time,requests,tokens", *rows]), encoding="utf-8")
    asked = ["requests", "--data-file", str(table), "--tokens", "tokens"]
    assert main(asked) == 0
    assert "highest tokens a second: p50" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["forecasts"]
    assert shown["status"]["tokens"]["mean"] == pytest.approx(MEAN, rel=0.1)
    assert main(["requests", "tokens", *asked[1:]]) == 2
    for flag in ("--token-p99", "--token-second-moment"):
        assert main(["requests", "--data-file", str(table), flag, "x"]) == 2
        assert main([*asked, flag, "x"]) == 2, "no such series"


def _shown(
    folder: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, Floats], *argv: str
) -> dict[str, Any]:
    """The status of the requests in a table of these columns."""
    table = folder / "t.csv"
    rows = [
        f"{600 * i},{','.join(map(str, row))}"
        for i, row in enumerate(zip(*columns.values(), strict=True))
    ]
    table.write_text("\n".join([f"time,{','.join(columns)}", *rows]), encoding="utf-8")
    assert main(["requests", "--data-file", str(table), "--tokens", "tokens", "--json", *argv]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["forecasts"]
    return dict(shown["status"])


@pytest.mark.parametrize(("wild", "square_of_wild"), [(1000.0, 1000.0), (-1000.0, -1e6)])
def test_one_wild_bin_of_a_tail_tells_no_tail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wild: float, square_of_wild: float
) -> None:
    requests, tokens = simulated(3, 0.5)
    longest, square = np.full(len(requests), P99), np.full(len(requests), 7e5)
    columns = {"requests": requests, "tokens": tokens, "longest": longest, "square": square}
    flags = ("--token-p99", "longest", "--token-second-moment", "square")
    usual = _shown(tmp_path, capsys, columns, *flags)["tokens"]
    longest[-10] *= wild
    square[-10] *= square_of_wild
    assert _shown(tmp_path, capsys, columns, *flags)["tokens"] == usual


@pytest.mark.parametrize(("flag", "wrong"), [("second-moment", 1e9), ("p99", 4e6)])
def test_a_tail_of_another_series_promises_no_more_than_is_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, wrong: float
) -> None:
    """A record of 25 tokens a second made a p99 of 6,459, and nothing said so."""
    requests, tokens = simulated(3, 0.05)
    columns = {"requests": requests, "tokens": tokens, "tail": np.full(len(requests), wrong)}
    status = _shown(tmp_path, capsys, columns, f"--token-{flag}", "tail")
    told, record = status["tokens"], float(tokens.max())
    assert told["p99"] <= 20.0 * record * (1 + 1e-6)
    assert "extreme" in status["flags"] or told["p99"] < 20.0 * record
    sigma = np.sqrt(np.log(told["secondMoment"] / told["mean"] ** 2))
    assert sigma < 2.33
    assert told["requestP99"] < 15.0 * told["mean"]


def test_lengths_are_not_away_where_requests_have_no_day_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests, tokens = (row[:36] for row in simulated(1, 0.5))
    status = _shown(tmp_path, capsys, {"requests": requests, "tokens": tokens})
    assert "no-history" in status["flags"]
    assert LENGTHS_AWAY not in status["flags"]


def test_a_domain_has_no_tokens() -> None:
    body = {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "DemandForecast",
        "metadata": {"name": "n", "namespace": "ns"},
        "spec": {"target": {"powerDomain": "r", "series": "x"}, "tokens": {"series": "y"}},
    }  # fmt: skip
    with pytest.raises(InputError, match="powerDomain"):
        target_of(body)
