"""``wattpack plan serving`` answers in a table or JSON, and refuses by field."""

from __future__ import annotations

import json

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
    assert "J/token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["gpt-9"], "language_model"),
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


def test_one_latency_limit_alone_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "serving", "llama-3.1-8b", "--ttft-seconds", "1"])
    assert ended.value.code == 2
    assert "together" in capsys.readouterr().err
