"""``wattpack profiles`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capacity.app.profiles_command import main

ROOT = Path(__file__).parents[2]


def test_the_table_names_source_and_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert "H200-SXM" in text
    assert "derived" in text
    assert "No licensed cap sweep" in text


def test_json_prints_api_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "NVIDIA H200"]) == 0
    (body,) = json.loads(capsys.readouterr().out)
    assert body["kind"] == "GPUProfile"
    assert body["spec"]["productNames"] == ["NVIDIA H200"]


def test_an_unknown_model_exits_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["NVIDIA H100 PCIe"]) == 2
    assert "expected one of" in capsys.readouterr().err


def test_a_broken_file_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.json"
    file.write_text("{", encoding="utf-8")
    assert main(["--file", str(file)]) == 2
    assert "p.json" in capsys.readouterr().err


def test_a_model_that_looks_like_markup_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "capacity" / "data" / "profiles.json").read_text(encoding="utf-8")
    file = tmp_path / "p.json"
    file.write_text(text.replace("H200-SXM", "[/red]"), encoding="utf-8")
    assert main(["--file", str(file)]) == 0
    assert "[/red]" in capsys.readouterr().out
