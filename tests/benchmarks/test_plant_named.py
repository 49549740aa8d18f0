"""Every result names the plant by its hash (ADR 0030), and its breakers by their curves."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest

from benchmarks import _rests_on, inference_row
from benchmarks._breaker_curves import row_marks
from benchmarks._rests_on import ROOT, modules_behind
from benchmarks.runner import RESULTS, Options
from simulation.inference_row.row_power import RATED_SERVERS, ServerPower
from simulation.inference_row.row_under_policy import polca_scenario
from simulation.plant_hash import plant_sha256
from simulation.scenario import load_scenario

BOARDS = "simulation.capping_boards"
SERVERS_AROUND = "simulation.inference_row.uncapped_row"
"""The plant's servers and supplies around boards that nothing holds: no board of it is stepped."""
Texts = Mapping[str, tuple[str, frozenset[str]]]

NAMED = ('"plant_sha256": ', "**row_marks(", '["plant_sha256"] = ')
CURVES = ('"breaker_curves": ', "**row_marks(")
NO_BREAKER = ("consumer_losses", "value_per_watt")
"""Nothing runs behind a breaker there; only a budget binds."""


@pytest.fixture(scope="module")
def texts() -> Iterator[Texts]:
    """Text and modules of every benchmark."""
    # Most modules are behind many benchmarks: each is read once.
    imports, parse = _rests_on._imports, ast.parse
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_rests_on, "_imports", cache(lambda *of: tuple(imports(*of))))
        patch.setattr(ast, "parse", cache(parse))
        files = sorted((ROOT / "benchmarks").glob("[a-z]*.py"))
        told = {file.stem: file.read_text(encoding="utf-8") for file in files}
        yield {
            name: (text, frozenset(modules_behind(f"benchmarks.{name}")))
            for name, text in told.items()
            if "\nSUMMARY" in text
        }


def silent(texts: Texts, played: set[str], words: Sequence[str]) -> set[str]:
    return {name for name in played if not any(word in texts[name][0] for word in words)}


def test_results_of_the_plant_name_it(texts: Texts) -> None:
    plant = {BOARDS, SERVERS_AROUND}
    played = {name for name, (_, behind) in texts.items() if plant & behind}
    assert {
        "inference_row",
        "headroom",
        "response",
        "no_trip",
        "row_frontier",
        "serving_twin",
    } <= played
    assert silent(texts, played, NAMED) == set()


def test_records_of_the_plant_name_it(texts: Texts) -> None:
    plant = {BOARDS, SERVERS_AROUND}
    records = [json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.glob("*.json")]
    kept = [one for one in records if plant & texts.get(one["benchmark"], ("", frozenset()))[1]]
    assert {"no_trip", "serving_draw", "row_frontier"} <= {one["benchmark"] for one in kept}
    assert [one["benchmark"] for one in kept if not one["figures"].get("plant_sha256")] == []


def test_results_of_the_controller_name_the_curves_of_its_breakers(texts: Texts) -> None:
    played = {name for name, (_, behind) in texts.items() if "controller.step" in behind}
    played |= {"take_over"}  # in processes of its own
    assert {"headroom", "row_costs", "priority", "allocation_scale", *NO_BREAKER} <= played
    assert silent(texts, played, CURVES) == set(NO_BREAKER)
    assert "no curve of a breaker" in texts["value_per_watt"][0]


def test_the_row_without_a_policy_is_of_the_plant_that_policies_are_judged_on() -> None:
    asked = Options(quick=True, progress=lambda _: None)
    found = inference_row.run(asked).figures["plant_sha256"]
    row = polca_scenario(RATED_SERVERS, asked.seed, ServerPower.of())
    assert found == row_marks(row)["plant_sha256"]


def test_the_hash_is_of_the_rows_own_plant() -> None:
    scenario = load_scenario(None, plant={"host_base_watts": 1234.0})
    assert row_marks(scenario)["plant_sha256"] == plant_sha256(scenario.plant)
    assert row_marks(scenario) != row_marks(load_scenario(None))
