"""A kept result says what it rests on, so that two results of the same world can be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__, runner, take_over
from benchmarks._rests_on import rests_on_digest
from benchmarks.runner import Result


def test_a_kept_result_names_its_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    assert __main__.main(["fisher_protocol", "--quick", "--seed", "3", "--record"]) == 0
    kept = json.loads((tmp_path / "fisher_protocol.json").read_text(encoding="utf-8"))
    assert kept["rests_on"] == rests_on_digest("benchmarks.fisher_protocol")
    assert kept["seed"] == 3


def test_another_setting_is_kept_beside_the_plain_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    arguments = ["fisher_protocol", "--quick", "--seed", "201", "--record-as", "held_out"]
    assert __main__.main(arguments) == 0
    kept = json.loads((tmp_path / "fisher_protocol_held_out.json").read_text(encoding="utf-8"))
    assert (kept["benchmark"], kept["seed"]) == ("fisher_protocol_held_out", 201)
    assert kept["rests_on"] == rests_on_digest("benchmarks.fisher_protocol")
    assert [file.name for file in tmp_path.iterdir()] == ["fisher_protocol_held_out.json"]


def test_a_word_that_is_no_part_of_a_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    with pytest.raises(SystemExit):
        __main__.main(["fisher_protocol", "--quick", "--record-as", "../other"])
    assert "--record-as: expected a-z, 0-9 and single _" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_was_skipped_takes_no_older_results_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(take_over, "run", lambda _: Result({"skipped": "etcd is not built"}))
    assert __main__.main(["take_over", "--record"]) == 0
    assert "not kept: nothing was measured" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
