"""A kept result says what it rests on, so that two results of the same world can be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__, runner
from benchmarks._rests_on import rests_on_digest


def test_a_kept_result_names_its_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    assert __main__.main(["fisher_protocol", "--quick", "--seed", "3", "--record"]) == 0
    kept = json.loads((tmp_path / "fisher_protocol.json").read_text(encoding="utf-8"))
    assert kept["rests_on"] == rests_on_digest("benchmarks.fisher_protocol")
    assert kept["seed"] == 3
