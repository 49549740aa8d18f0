"""The benchmark runner refuses what it does not know before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main


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
