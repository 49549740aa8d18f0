"""``wattpack plan serving`` answers in a table or JSON, and refuses by field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattpack.cli import main

QUICK = ["--prompt-tokens", "256", "--output-tokens", "32"]


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["plan", "serving", *arguments, *QUICK, "--json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


def test_loads_are_answered_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, "llama-3.1-8b", "--concurrency", "2", "16")
    assert [row["concurrency"] for row in rows] == [2, 16]
    assert rows[0]["tokensPerSecond"] < rows[1]["tokensPerSecond"]  # type: ignore[operator]


def test_limits_on_latency_ask_for_the_largest_rate_at_each_power_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = ["--ttft-seconds", "1", "--tpot-seconds", "0.03", "--limit-watts", "700", "350"]
    free, held = asked(capsys, "llama-3.1-8b", *wanted)
    assert held["requestsPerSecond"] < free["requestsPerSecond"]  # type: ignore[operator]
    assert held["p99Watts"] <= 350  # type: ignore[operator]
    (none,) = asked(capsys, "llama-3.1-8b", "--ttft-seconds", "1", "--tpot-seconds", "1e-5")
    assert none["requestsPerSecond"] == 0


def test_the_fewest_gpus_that_hold_the_weights_are_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = asked(capsys, "llama-3.1-405b", "--concurrency", "1")
    assert row["tensorParallel"] == 4
    assert main(["plan", "serving", "llama-3.1-8b", *QUICK, "--concurrency", "4"]) == 0
    shown = capsys.readouterr().out
    assert "J/token" in shown
    assert "wait for room" not in shown


def test_clients_that_wait_for_room_in_the_cache_are_told_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["plan", "serving", "llama-3.1-8b", "--prompt-tokens", "60000"]
    asked += ["--output-tokens", "16", "--concurrency", "64"]
    assert main([*asked, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert 0 < row["cacheHolds"] < 64
    assert main(asked) == 0
    assert f"the cache holds {row['cacheHolds']} of the largest" in capsys.readouterr().out


MIXED = ["llama-3.1-8b", "--gpu", "H100-SXM", "--gpu", "H200-SXM"]
SIZES = ["--requests", "256+32:3", "4096+32"]
FAST = ["--ttft-seconds", "1", "--tpot-seconds", "0.03"]


def test_sizes_of_one_stream_are_answered_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = asked(capsys, "llama-3.1-8b", *SIZES, *FAST)
    buckets = row["buckets"]
    assert [(b["promptTokens"], b["share"]) for b in buckets] == [(256, 0.75), (4096, 0.25)]  # type: ignore[attr-defined]
    assert all(b["attainment"] >= 0.95 for b in buckets)  # type: ignore[attr-defined]
    assert sum(b["goodputPerSecond"] for b in buckets) <= row["requestsPerSecond"]  # type: ignore[attr-defined, operator]
    assert main(["plan", "serving", "llama-3.1-8b", *SIZES, "--concurrency", "4"]) == 0
    shown = capsys.readouterr().out
    assert "by request size" in shown
    assert "waits for its host" in shown


def test_buckets_of_a_demand_bring_their_own_limits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    demand = tmp_path / "mix.yaml"
    chat = {"name": "chat", "requestsPerSecond": 3, "inputTokens": 256, "outputTokens": 32}
    digest = chat | {"name": "digest", "requestsPerSecond": 1, "inputTokens": 8192}
    slow = {"timeToFirstTokenSeconds": 2.0}
    body = {"apiVersion": "wattpack.io/gpu-mix/v1", "buckets": [chat, digest | slow]}
    demand.write_text(json.dumps(body))
    (row,) = asked(capsys, "llama-3.1-8b", "--demand", str(demand), *FAST)
    chat_row, digest_row = row["buckets"]  # type: ignore[misc]
    assert (chat_row["share"], digest_row["share"]) == (0.75, 0.25)
    assert digest_row["attainment"] >= 0.95
    del digest["inputTokens"]
    demand.write_text(json.dumps(body | {"buckets": [chat, digest]}))
    assert main(["plan", "serving", "llama-3.1-8b", "--demand", str(demand)]) == 2
    assert "buckets.digest.inputTokens" in capsys.readouterr().err


def test_a_split_is_told_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    question = ["plan", "serving", "llama-3.1-8b", "--split", "--servers", "2", *QUICK, *FAST]
    assert main([*question, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["verdict"].partition(":")[0] in ("split", "together")
    assert [pool["phase"] for pool in made["split"][0]["pools"]] == ["prefill", "decode"]
    assert made["together"][0]["gpus"] == 2


def test_graphs_come_from_the_catalogue_and_from_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "graph.yaml"
    stages = [
        {"name": "plan", "prompt_tokens": 300, "output_tokens": 10},
        {"name": "tool", "seconds": 0.1},
        {"name": "answer", "prompt_tokens": 300, "output_tokens": 10, "calls": 2},
    ]
    body = {"apiVersion": "wattpack.io/request-graph/v1", "stages": stages}
    file.write_text(json.dumps(body))
    question = ["plan", "serving", "llama-3.1-8b", "--servers", "1", "--graph"]
    limits = ["--limit-watts", "700", "300"]
    assert main([*question, str(file), "--deadline-seconds", "0.5", *limits, "--json"]) == 0
    free, held = json.loads(capsys.readouterr().out)
    assert [one["calls"] for one in free["stages"]] == [1, 0, 2]
    assert free["stages"][-1]["deadlineSeconds"] == 0.5
    assert held["byUrgency"]["meanWatts"] < free["byUrgency"]["meanWatts"]
    assert main([*question, "workflow-fanout", "--deadline-seconds", "0.2"]) == 0
    assert "none keeps it" in capsys.readouterr().out
    assert main([*question, str(file)]) == 2
    assert "deadline_seconds" in capsys.readouterr().err
    stages[0]["after"] = ["answer"]
    file.write_text(json.dumps(body))
    assert main([*question, str(file), "--deadline-seconds", "1"]) == 2
    assert f"{file}: stages.plan.after" in capsys.readouterr().err


def test_the_documented_graph_can_be_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving-model.md").read_text("utf-8")
    _, _, rest = page.partition("```yaml\napiVersion: wattpack.io/request-graph/v1")
    file = tmp_path / "graph.yaml"
    file.write_text("apiVersion: wattpack.io/request-graph/v1" + rest.partition("```")[0])
    question = ["plan", "serving", "llama-3.1-8b", "--servers", "1", "--graph", str(file)]
    assert main(question) == 0
    assert "6 s over the stages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["llama-3.1-8b", "--graph", "decoder-decode"], "text-to-sql"),
        (["llama-3.1-8b", "--graph", "/nowhere.yaml"], "file"),
        (["llama-3.1-8b", "--graph", "text-to-sql", "--servers", "0"], "servers"),
        ([*MIXED, "--graph", "text-to-sql", "--servers", "1"], "servers"),
        (["llama-3.1-8b", "--split"], "split"),
        (["llama-3.1-8b", "--split", *FAST, "--servers", "1"], "servers"),
        (["llama-3.1-8b", "--split", *FAST, "--budget-watts", "100"], "budget_watts"),
        (["llama-3.1-8b", "--requests", "0+5"], "prompt_tokens"),
        (["llama-3.1-8b", "--requests", "5+5:1000", "9+9:1"], "requests.weight"),
        (["llama-3.1-8b", "--demand", "/nowhere.yaml"], "file"),
        (["gpt-9"], "language_model"),
        (["llama-3.1-8b", "--gpu", "A100"], "--format: expected one that A100-SXM has (bf16)"),
        (["llama-3.1-8b", "--gpu", "Z900"], "gpu"),
        (["llama-3.1-8b", "--tensor-parallel", "3"], "tensor_parallel"),
        (["llama-3.1-405b", "--tensor-parallel", "1"], "tensor_parallel"),
        (["llama-3.1-8b", "--concurrency", "0"], "concurrency"),
        (["llama-3.1-8b", "--prompt-tokens", "-5"], "prompt_tokens"),
        (["llama-3.1-8b", "--prompt-tokens", "4000000"], "prompt_tokens"),
        (["llama-3.1-8b", "--reused", "nan"], "reused"),
        (["llama-3.1-8b", "--limit-watts", "5"], "limit_watts"),
        (["llama-3.1-8b", "--limit-watts", "700", "5000"], "limit_watts"),
        (["llama-3.1-8b", "--gpu", "L4", "--limit-watts", "5"], "limit_watts"),
        (["llama-3.1-8b", "--gpu", "L4", "--limit-watts", "73"], "limit_watts"),
    ],
)
def test_impossible_questions_end_with_two_and_name_the_field(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "serving", *arguments]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("plan serving llama-3.1-8B-instrct", "did you mean 'llama-3.1-8b'?"),
        ("plan serving llama-3.1-8b --gpu h200sxm", "did you mean 'H200-SXM'?"),
        ("workloads --gpu h200sxm", "did you mean 'H200-SXM'?"),
        ("workloads decoder-decod", "did you mean 'decoder-decode'?"),
        ("profiles h200sxm", "did you mean 'H200-SXM'?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    command: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert meant in capsys.readouterr().err


def test_a_bare_generation_is_its_sxm_board(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = asked(capsys, "llama-3.1-8b", "--gpu", "H100", "--concurrency", "1")
    assert row["gpu"] == "H100-SXM"


def test_a_graph_that_calls_no_model_is_no_question(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "graph.yaml"
    head = "apiVersion: wattpack.io/request-graph/v1\ndeadline_seconds: 10\n"
    file.write_text(head + "stages: [{name: tool, seconds: 5}]\n")
    assert main(["plan", "serving", "llama-3.1-8b", "--graph", str(file)]) == 2
    assert "stages: expected one with prompt_tokens" in capsys.readouterr().err


def test_one_latency_limit_alone_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "serving", "llama-3.1-8b", "--ttft-seconds", "1"])
    assert ended.value.code == 2
    assert "together" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--requests", "5"],
        ["--requests", "5+-1"],
        ["--requests", "5+5", "--demand", "x.yaml"],
        ["--graph", "text-to-sql", "--split"],
    ],
)
def test_flags_that_say_no_size_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "serving", "llama-3.1-8b", *arguments])
    assert ended.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_clients_that_drive_one_another_out_for_ever_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """512 answers of 100,000 tokens on a cache of five: who comes drives another out."""
    monkeypatch.setattr("capacity.serving.served_requests.MOST_STRIDES", 500)
    asked = ["--prompt-tokens", "1", "--output-tokens", "100000", "--concurrency", "512"]
    assert main(["plan", "serving", "llama-3.1-8b", "--gpu", "H100-SXM", *asked]) == 2
    assert "concurrency: expected a load that ends within 500 strides" in capsys.readouterr().err
