"""The benchmark runner refuses what it does not know before anything is measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import calibration, runner
from benchmarks.__main__ import main
from benchmarks.runner import Result, discover


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], "name a benchmark"),
        (["no-such-benchmark"], "benchmark"),
        (["allocation_scale", "--nonsense"], "--nonsense"),
        (["agent_cost", "--quick", "more"], "more"),
        (["--list", "--nonsense"], "--nonsense"),
        (["allocation_scale", "--seed", "-1"], "--seed"),
        (["allocation_scale", "--seed", "99999999999999"], "--seed"),
        (["allocation_scale", "--seed", "nan"], "--seed"),
        (["allocation_scale", "--json", "missing/out.json"], "--json"),
        (["allocation_scale", "--json", "."], "--json"),
    ],
)
def test_a_wrong_argument_is_named_with_status_2(
    arguments: list[str],
    names: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status: object = main(arguments)
    except SystemExit as end:
        status = end.code
    assert status == 2
    output = capsys.readouterr()
    assert names in output.err.splitlines()[-1]
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def test_what_is_scored_once_is_kept_apart_from_what_is_recorded_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    made = iter([1, 2, 3])
    monkeypatch.setattr(calibration, "run", lambda _: Result({"run": next(made)}))
    for arguments in ([], ["--confirmation"], []):
        assert main(["calibration", "--record", *arguments]) == 0
    capsys.readouterr()
    kept = {file.name: json.loads(file.read_text())["figures"] for file in tmp_path.iterdir()}
    assert kept == {"calibration.json": {"run": 3}, "calibration_confirmation.json": {"run": 2}}


def test_help_tells_what_a_benchmark_does_and_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["headroom", "--help"]) == 0
    told = capsys.readouterr().out
    assert "--resume" in told
    assert "It takes besides: --scenario FILE, --work FILE, --runs N" in told
    assert main(["--help"]) == 0
    assert "besides" not in capsys.readouterr().out
    assert main(["agent_cost", "--help"]) == 0
    assert "nothing besides" in capsys.readouterr().out
    assert main(["no-such-benchmark", "--help"]) == 2


def test_whatever_a_benchmark_takes_its_help_tells() -> None:
    taking = {n: m for n, m in discover().items() if getattr(m, "TAKES_ARGUMENTS", False)}
    assert len(taking) > 20
    for name, module in taking.items():
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        own = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))
        told = set(re.findall(r"--[a-z-]+", module.USAGE))
        assert module.USAGE, name
        assert own <= told, name
        if own:
            assert told == own, name
