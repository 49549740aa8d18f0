"""Every result of the plant's boards names the plant by its hash (ADR 0030)."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks import _rests_on
from benchmarks._breaker_curves import row_marks
from benchmarks._rests_on import ROOT, modules_behind
from simulation.plant_hash import plant_sha256
from simulation.scenario import load_scenario

BOARDS = "simulation.capping_boards"
NAMED = ('"plant_sha256": ', "**row_marks(", '["plant_sha256"] = ')


def test_results_of_the_plants_boards_name_the_plant(monkeypatch: pytest.MonkeyPatch) -> None:
    # Most modules are behind many benchmarks: each is read once.
    imports, parse = _rests_on._imports, _rests_on.ast.parse
    monkeypatch.setattr(_rests_on, "_imports", cache(lambda *of: tuple(imports(*of))))
    monkeypatch.setattr(_rests_on.ast, "parse", cache(parse))
    silent, played = [], set()
    for file in sorted((ROOT / "benchmarks").glob("[a-z]*.py")):
        text = file.read_text(encoding="utf-8")
        if "\nSUMMARY" in text and BOARDS in modules_behind(f"benchmarks.{file.stem}"):
            played.add(file.stem)
            silent += [] if any(words in text for words in NAMED) else [file.stem]
    assert {"headroom", "response", "no_trip", "row_frontier", "serving_twin"} <= played
    assert silent == []


def test_the_hash_is_of_the_rows_own_plant() -> None:
    scenario = load_scenario(None, plant={"host_base_watts": 1234.0})
    assert row_marks(scenario)["plant_sha256"] == plant_sha256(scenario.plant)
    assert row_marks(scenario) != row_marks(load_scenario(None))
