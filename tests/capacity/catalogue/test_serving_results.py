from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capacity.app.bench_command import main
from capacity.catalogue.result_formats import Format, read_results
from wattpack.errors import InputError

GPU = "H100-SXM"


def vllm(**changes: Any) -> dict[str, Any]:
    """A result as ``vllm bench serve --save-result`` writes it: 4 requests in 2 s."""
    made = {
        "date": "20260301-101500", "endpoint_type": "vllm", "label": None,
        "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "x", "num_prompts": 4,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4, "duration": 2.0,
        "completed": 4, "failed": 0, "total_input_tokens": 4096, "total_output_tokens": 400,
        "request_throughput": 2.0, "request_goodput": None, "output_throughput": 200.0,
        "total_token_throughput": 2248.0, "mean_ttft_ms": 120.0, "median_ttft_ms": 110.0,
        "std_ttft_ms": 10.0, "p99_ttft_ms": 180.0, "mean_tpot_ms": 15.0, "median_tpot_ms": 14.5,
        "std_tpot_ms": 1.0, "p99_tpot_ms": 20.0, "mean_itl_ms": 15.0, "median_itl_ms": 14.0,
        "std_itl_ms": 2.0, "p99_itl_ms": 30.0,
    }  # fmt: skip
    return made | changes


def detailed(**changes: Any) -> dict[str, Any]:
    lists = {
        "input_lens": [1024, 1024, 512, 1536], "output_lens": [100, 100, 100, 100],
        "ttfts": [0.1, 0.1, 0.05, 0.2], "itls": [[0.015] * 99] * 4,
        "generated_texts": [""] * 4, "errors": [""] * 4,
    }  # fmt: skip
    return vllm(**(lists | changes))


def aiperf(**changes: Any) -> dict[str, Any]:
    """A summary as AIPerf writes it; GenAI-Perf's is the same without ``schema_version``."""

    def spread(mean: float, unit: str) -> dict[str, Any]:
        return {"unit": unit, "avg": mean, "min": mean, "max": mean, "p50": mean, "p99": mean}

    made = {
        "schema_version": "1.0", "aiperf_version": "0.8.0",
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 200.0},
        "request_count": {"unit": "requests", "avg": 4.0},
        "time_to_first_token": spread(120.0, "ms"), "inter_token_latency": spread(15.0, "ms"),
        "request_latency": spread(1600.0, "ms"),
        "input_sequence_length": spread(1024.0, "tokens"),
        "output_sequence_length": spread(100.0, "tokens"),
        "input_config": {
            "endpoint": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"]},
            "loadgen": {"concurrency": 4},
        },
    }  # fmt: skip
    return made | changes


def test_a_vllm_summary_is_one_row_in_seconds() -> None:
    (row,) = read_results(json.dumps(vllm()), "vllm", GPU, 1)
    assert (row.input_tokens, row.output_tokens, row.requests) == (1024, 100, 4)
    assert row.time_to_first_token.p99 == pytest.approx(0.18)
    assert row.time_per_output_token is not None
    assert row.time_per_output_token.mean == pytest.approx(0.015)
    assert (row.run.concurrency, row.run.request_rate) == (4, None)


def test_requests_of_a_detailed_result_fall_into_buckets_that_add_up() -> None:
    rows = read_results(json.dumps(detailed()), "vllm", GPU, 1)
    assert [round(row.input_tokens) for row in rows] == [512, 1024, 1536]
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert sum(row.output_tokens_per_second for row in rows) == pytest.approx(200)
    assert all(
        row.time_per_output_token and row.time_per_output_token.p50 == pytest.approx(0.015)
        for row in rows
    )


def test_appended_results_are_one_row_each() -> None:
    text = "\n".join(json.dumps(vllm(max_concurrency=n)) for n in (1, 2, 4))
    assert [row.run.concurrency for row in read_results(text, "vllm", GPU, 1)] == [1, 2, 4]


@pytest.mark.parametrize("drop", [(), ("schema_version", "aiperf_version")])
def test_genai_perf_and_its_successor_are_read_alike(drop: tuple[str, ...]) -> None:
    made = {key: value for key, value in aiperf().items() if key not in drop}
    (row,) = read_results(json.dumps(made), "genai-perf", GPU, 1)
    assert (row.input_tokens, row.output_tokens, row.requests) == (1024, 100, 4)
    assert row.time_to_first_token.p50 == pytest.approx(0.12)
    assert row.run.concurrency == 4
    assert row.run.model == "meta-llama/Llama-3.1-8B-Instruct"


BAD: list[tuple[Format, Callable[..., dict[str, Any]], dict[str, Any], str]] = [
    ("vllm", vllm, {"completed": 0}, "completed"),
    ("vllm", vllm, {"completed": 2}, "completed"),
    ("vllm", vllm, {"duration": -2.0}, "duration"),
    ("vllm", vllm, {"duration": float("nan")}, "duration"),
    ("vllm", vllm, {"mean_ttft_ms": float("nan")}, "mean_ttft_ms"),
    ("vllm", vllm, {"median_tpot_ms": -1}, "median_tpot_ms"),
    ("vllm", vllm, {"p99_ttft_ms": 1.0}, "time_to_first_token.p99"),
    ("vllm", vllm, {"output_throughput": 400.0}, "output_throughput"),
    ("vllm", vllm, {"request_throughput": 1.0}, "request_throughput"),
    ("vllm", vllm, {"total_input_tokens": "many"}, "total_input_tokens"),
    ("vllm", detailed, {"ttfts": [0.1]}, "ttfts"),
    ("vllm", detailed, {"itls": [[-0.1] * 99] * 4}, "token time"),
    ("vllm", detailed, {"ttfts": 7}, "ttfts"),
    ("vllm", detailed, {"output_lens": {}}, "output_lens"),
    ("vllm", detailed, {"input_lens": ""}, "input_lens"),
    ("vllm", detailed, {"itls": [0.1, 0.1, 0.1, 0.1]}, "itls"),
    ("genai-perf", aiperf, {"time_to_first_token": {"unit": {}, "avg": 1, "p50": 1}}, "unit"),
    ("genai-perf", aiperf, {"schema_version": "2.0"}, "schema_version"),
    ("genai-perf", aiperf, {"time_to_first_token": None}, "time_to_first_token"),
    ("genai-perf", aiperf, {"time_to_first_token": {"unit": "h", "avg": 1, "p50": 1}}, "unit"),
    ("genai-perf", aiperf, {"output_token_throughput": {"avg": 900.0}}, "output_token"),
    ("genai-perf", aiperf, {"input_config": {}}, "input_config.models"),
]


@pytest.mark.parametrize(("file_format", "build", "changes", "named"), BAD)
def test_what_cannot_have_been_measured_is_refused_by_its_figure(
    file_format: Format, build: Callable[..., dict[str, Any]], changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named) as refused:
        read_results(json.dumps(build(**changes)), file_format, GPU, 1, "run.json")
    assert "run.json" in str(refused.value)


@pytest.mark.parametrize("key", ["duration", "mean_ttft_ms", "model_id"])
def test_a_missing_figure_is_named(key: str) -> None:
    made = vllm()
    del made[key]
    with pytest.raises(InputError, match=key):
        read_results(json.dumps(made), "vllm", GPU, 1)


@pytest.mark.parametrize("file_format", ["vllm", "genai-perf"])
@pytest.mark.parametrize("end", [0, 1, 40, 200, -1])
def test_a_file_that_was_cut_off_is_refused(file_format: Format, end: int) -> None:
    text = json.dumps(vllm() if file_format == "vllm" else aiperf())[:end]
    with pytest.raises(InputError):
        read_results(text, file_format, GPU, 1)


def test_results_of_two_versions_in_one_file_are_refused() -> None:
    old = vllm()
    del old["failed"]
    text = json.dumps(old) + "\n" + json.dumps(vllm())
    with pytest.raises(InputError, match="one version"):
        read_results(text, "vllm", GPU, 1)


def imported(folder: Path, made: dict[str, Any], *flags: str) -> tuple[int, Path]:
    file, out = folder / "run.json", folder / "rows.jsonl"
    file.write_text(json.dumps(made))
    flags = ("--format", "vllm", "--gpu", GPU, "--out", str(out), *flags)
    return main(["import", str(file), *flags]), out


def test_rows_are_written_as_json_lines(tmp_path: Path) -> None:
    status, out = imported(tmp_path, detailed())
    assert status == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 3
    assert {row["schema"] for row in rows} == {"wattpack.io/serving-measurement/v1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"total_output_tokens": 10**7, "output_throughput": 5e6},
        {"mean_tpot_ms": 0.05, "median_tpot_ms": 0.05},
    ],
)
def test_more_than_the_roofs_allow_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    status, out = imported(tmp_path, vllm(**changes))
    assert status == 2
    assert not out.exists() or not out.read_text()
    assert "H100-SXM" in capsys.readouterr().err


def test_a_model_that_is_not_known_is_said_to_be_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = imported(tmp_path, vllm(model_id="nobody/own-7b"))
    assert status == 0
    assert "nobody/own-7b" in capsys.readouterr().err
