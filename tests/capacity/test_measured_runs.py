"""Own runs correct an engine's constants where that helps on runs that were held out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capacity.app.own_measurements import correction_line
from capacity.catalogue.serving_measurement import (
    Latency,
    RunFacts,
    ServingMeasurement,
    parse_measurements,
)
from capacity.mix.mix_problem import Phase
from capacity.mix.predicted_rates import RateQuestion
from capacity.mix.served_rates import ServedRates
from capacity.serving.engine import EngineConstants, shipped_constants
from capacity.serving.engine_fit import predict_run
from capacity.serving.measured_runs import MeasuredRun, correct, runs_of
from wattpack.cli import main
from wattpack.errors import InputError

SLOW = replace(shipped_constants(), decode_products=1.6, step_seconds=2e-3, prompt_products=1.5)
"""An engine whose steps take longer than those of the shipped constants."""

NAME = "meta-llama/Llama-3.1-8B-Instruct"


def row(clients: int | None = 8, **changes: Any) -> ServingMeasurement:
    rate = changes.pop("request_rate", None)
    facts = RunFacts("vllm", "test", NAME, "H200-SXM", 1, clients, rate)
    made = ServingMeasurement(
        facts, 1024, 64, 80, 1.0, 60.0, Latency(0.1, 0.1, None), Latency(0.01, 0.01, None), 1.3, 85
    )
    return replace(made, **changes)


def measured(constants: EngineConstants, number_format: Any = "fp8") -> list[ServingMeasurement]:
    """What a server with these constants would have been measured at."""
    rows = []
    for clients, prompt in ((1, 512), (4, 4096), (16, 512), (32, 2048)):
        one = row(clients, input_tokens=float(prompt))
        (run,) = runs_of([one], "vllm", number_format, number_format)
        made = predict_run(run, constants)
        first, each = made.ttft_seconds, made.tpot_seconds
        rows.append(replace(
            one,
            time_to_first_token=Latency(first, first, None),
            time_per_output_token=Latency(each, each, None),
        ))  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def slow_rows() -> list[ServingMeasurement]:
    return measured(SLOW)


@pytest.mark.parametrize("number_format", ["fp8", "bf16"])
def test_runs_of_a_slower_engine_correct_its_constants(number_format: Any) -> None:
    runs = runs_of(measured(SLOW, number_format), "vllm", number_format, number_format)
    made = correct(runs)
    assert made.is_held_out
    assert made.is_used
    assert made.constants == made.corrected
    assert made.tpot_before > 0.2
    assert made.tpot_after < 0.03
    assert made.ttft_after < made.ttft_before


def test_runs_that_say_nothing_new_change_nothing() -> None:
    rows = measured(shipped_constants())
    noise = np.exp(0.1 * np.random.default_rng(1).normal(size=len(rows)))
    shaken = [
        replace(one, time_per_output_token=Latency(f * each.mean, f * each.mean, None))
        for one, f in zip(rows, noise.tolist(), strict=True)
        if (each := one.time_per_output_token)
    ]
    made = correct(runs_of(shaken, "vllm", "fp8", "fp8"))
    assert not made.is_used
    assert made.constants == shipped_constants()


def test_one_run_is_judged_on_itself_and_says_so(slow_rows: list[ServingMeasurement]) -> None:
    made = correct(runs_of(slow_rows[:1], "vllm", "fp8", "fp8"))
    assert not made.is_held_out
    assert correction_line(made).startswith("one run: not held out")
    assert made.tpot_after < made.tpot_before


def test_buckets_of_one_run_are_one_run() -> None:
    long = replace(row(), input_tokens=8192.0, requests=20, share=0.2)
    short = replace(row(), share=0.8, time_to_first_token=Latency(0.05, 0.05, None))
    (run,) = runs_of([short, long], "vllm", "fp8", "fp8")
    assert run.mix.shares == (0.8, 0.2)
    assert run.ttft_seconds == pytest.approx(0.06)
    sizes = run.mix.sizes(4000)
    assert np.mean([s.prompt for s in sizes]) == pytest.approx(0.8 * 1024 + 0.2 * 8192, rel=0.05)


def test_arrivals_are_played_as_they_were_asked_for() -> None:
    def work(**changes: Any) -> Any:
        (run,) = runs_of([row(None, **changes)], "vllm", "fp8", "fp8")
        return run.work

    assert set(work().times) == {0.0}
    times, faster = (np.array(work(request_rate=rate).times) for rate in (4.0, 8.0))
    assert times == pytest.approx(2 * faster)
    assert len(times) / times[-1] == pytest.approx(4.0, rel=0.4)


def test_corrected_constants_reach_the_rates_of_a_mix(slow_rows: list[ServingMeasurement]) -> None:
    constants = correct(runs_of(slow_rows, "vllm", "fp8", "fp8")).constants
    question = RateQuestion(
        "llama-3.1-8b", "H200-SXM", 1, 700.0, (200.0, 700.0), Phase.WHOLE, "fp8", 512, 64, 1.0, 0.02
    )
    usual, own = ServedRates(), ServedRates(constants)
    before, after = usual.rate(question), own.rate(question)
    assert before is not None
    assert after is not None
    assert after.requests_per_second < 0.9 * before.requests_per_second
    assert own.digest() != usual.digest()


def written(folder: Path, rows: list[ServingMeasurement]) -> Path:
    file = folder / "own.jsonl"
    file.write_text("".join(json.dumps(one.document()) + "\n" for one in rows))
    return file


def test_rows_come_back_as_they_were_written(
    tmp_path: Path, slow_rows: list[ServingMeasurement]
) -> None:
    assert list(parse_measurements(written(tmp_path, slow_rows).read_text())) == slow_rows


def test_plan_serving_tells_what_own_runs_changed(
    tmp_path: Path, slow_rows: list[ServingMeasurement], capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(written(tmp_path, slow_rows))
    question = ["plan", "serving", "llama-3.1-8b", "--concurrency", "8", "--output-tokens", "64"]
    assert main([*question, "--json"]) == 0
    (usual,) = json.loads(capsys.readouterr().out)
    assert main([*question, "--json", "--measurements", file]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measurements"]["isUsed"]
    assert told["measurements"]["tpotErrorAfter"] < told["measurements"]["tpotErrorBefore"]
    assert told["answer"][0]["tpotSeconds"]["mean"] > 1.2 * usual["tpotSeconds"]["mean"]
    assert main([*question, "--measurements", file]) == 0
    assert "on runs held out" in capsys.readouterr().out


def test_plan_gpus_counts_with_what_own_runs_changed(
    tmp_path: Path, slow_rows: list[ServingMeasurement], capsys: pytest.CaptureFixture[str]
) -> None:
    demand = tmp_path / "mix.yaml"
    body = {
        "apiVersion": "wattpack.io/gpu-mix/v1",
        "serving": {"languageModel": "llama-3.1-8b", "numberFormat": "fp8", "capsWatts": [700]},
        "buckets": [{"name": "chat", "requestsPerSecond": 400, "inputTokens": 512,
                     "outputTokens": 64, "timePerOutputTokenSeconds": 0.02,
                     "timeToFirstTokenSeconds": 1.0}],
        "offers": [{"name": "h200", "gpuModel": "H200-SXM", "gpus": 64, "dollarsPerGpuHour": 3.0}],
    }  # fmt: skip
    demand.write_text(json.dumps(body))
    question = ["plan", "gpus", "--demand", str(demand), "--json", "--no-explain"]
    assert main(question) == 0
    usual = json.loads(capsys.readouterr().out)
    assert main([*question, "--measurements", str(written(tmp_path, slow_rows))]) == 0
    own = json.loads(capsys.readouterr().out)
    assert own["measurements"]["runs"] == 4
    assert own["dollarsPerHour"]["total"] > usual["dollarsPerHour"]["total"]
    demand.write_text(json.dumps({k: v for k, v in body.items() if k != "serving"}))
    assert main([*question, "--measurements", str(tmp_path / "own.jsonl")]) == 2
    assert "measurements" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda text: "", "measurements"),
        (lambda text: text[:-40], "JSON"),
        (lambda text: text.replace("/v1", "/v9"), "schema"),
        (lambda text: text.replace('"input_tokens"', '"prompts"'), "input_tokens"),
        (lambda text: text.replace('"gpus": 1', '"gpus": 1.5'), "run.gpus"),
        (lambda text: text.replace('"gpus": 1', '"gpus": 0'), "gpus"),
        (lambda text: text.replace('"mean": ', '"mean": -'), "mean"),
        (lambda text: text.replace('"requests": 80', '"requests": NaN'), "requests"),
        (lambda text: text.replace('"requests": 80', '"requests": 80.5'), "requests"),
        (lambda text: text.replace('"concurrency": 1,', '"concurrency": 1.0,'), "run.concurrency"),
        (lambda text: text.replace('"run": {', '"run": 7, "x": {'), "row.x"),
        (lambda text: text.replace("Llama-3.1-8B", "Nobody-1B"), "language_model"),
        (lambda text: text.replace("H200-SXM", "Z900"), "gpu"),
    ],
)
def test_measurements_that_cannot_be_are_refused_by_file_and_field(
    spoil: Callable[[str], str],
    named: str,
    tmp_path: Path,
    slow_rows: list[ServingMeasurement],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(tmp_path, slow_rows)
    file.write_text(spoil(file.read_text()))
    assert main(["plan", "serving", "llama-3.1-8b", "--measurements", str(file)]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([], "measurements"),
        ([row(n + 1) for n in range(61)], "measurements"),
        ([row(time_per_output_token=None)], "time_per_output_token"),
        ([row(input_tokens=3e6)], "prompt_tokens"),
        ([row(output_tokens=1e-9)], "time_per_output_token"),
        ([row(time_to_first_token=Latency(0.0, 0.0, None))], "time_to_first_token.mean"),
        ([row(time_per_output_token=Latency(0.0, 0.0, None))], "time_per_output_token.mean"),
        ([row(time_per_output_token=Latency(1e-7, 1e-7, None))], "time_per_output_token.mean"),
        ([row(output_tokens_per_second=1e9)], "output_tokens_per_second"),
    ],
)
def test_runs_that_tell_nothing_of_constants_are_refused(
    rows: list[ServingMeasurement], field: str
) -> None:
    with pytest.raises(InputError) as refused:
        runs_of(rows, "vllm", "fp8", "fp8")
    assert refused.value.field == field


@pytest.mark.parametrize("rate", [1e-300, 1e300])
def test_a_rate_of_no_clients_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="request_rate"):
        row(None, request_rate=rate)


def test_every_run_is_what_the_fit_takes(slow_rows: list[ServingMeasurement]) -> None:
    (run, *_) = runs_of(slow_rows, "trtllm", "fp8", "bf16")
    assert isinstance(run, MeasuredRun)
    assert run.deployment(SLOW).engine.constants == SLOW
    assert run.deployment(SLOW).cache_format == "bf16"
