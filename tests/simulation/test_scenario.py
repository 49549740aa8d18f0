"""Scenario files: defaults, overrides, and every way of getting one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from capacity.profile_library import shipped_library
from simulation.plant_constants import frozen_plant, plant_from_json
from simulation.plant_hash import plant_sha256
from simulation.reference import ROOT, YAML, produce
from simulation.scenario import load_scenario
from wattpack.errors import InputError
from wattpack.generate import tree


def write(path: Path, text: str) -> Path:
    file = path / "scenario.yaml"
    file.write_text(text)
    return file


def test_the_reference_file_says_the_defaults() -> None:
    assert load_scenario(ROOT / YAML) == load_scenario()


def test_the_reference_file_schema_and_page_are_up_to_date() -> None:
    assert tree.stale(ROOT, produce()) == {}


def test_a_file_overrides_single_numbers_at_any_depth(tmp_path: Path) -> None:
    file = write(
        tmp_path, "seed: 9\nrow: {meter: {delay_seconds: 5}}\nplant: {fan_lag_seconds: 30}"
    )
    scenario = load_scenario(file, duration_seconds=60.0, seed=None)
    assert (scenario.seed, scenario.duration_seconds) == (9, 60.0)
    assert scenario.row.meter.delay_seconds == 5
    assert scenario.row.racks == load_scenario().row.racks
    assert scenario.plant.fan_lag_seconds == 30
    assert not scenario.plant_frozen
    assert plant_sha256(scenario.plant) != plant_sha256(frozen_plant())


def test_the_reference_row_has_52_servers_behind_a_breaker_for_40() -> None:
    scenario = load_scenario()
    assert scenario.row.servers == 52
    assert scenario.row_rating_watts == 40 * scenario.row.rated_server_watts
    assert len({group.gpu_model for group in scenario.row.groups}) > 1
    assert scenario.plant_frozen


def test_the_plant_is_frozen() -> None:
    # A change needs an ADR and new baselines of everything that was measured on the twin.
    frozen = "f5ab6e692baaf3e4a1c487d393a43b67f2ebf7a5171dc90a7128f89dd4678715"
    assert plant_sha256(frozen_plant()) == frozen


@pytest.mark.parametrize(
    ("gpu_model", "idle", "context", "limit", "lowest_limit"),
    [
        ("A100-SXM", 62.0, 80.0, 400.0, 100.0),
        ("H100-SXM", 72.0, 122.0, 700.0, 200.0),
        ("H200-SXM", 76.0, 114.0, 700.0, 200.0),
    ],
)
def test_what_profiles_tell_of_the_plants_boards_is_frozen_as_well(
    gpu_model: str, idle: float, context: float, limit: float, lowest_limit: float
) -> None:
    # No part of the hash, and as much of the plant: the same ADR, the same new baselines.
    board = shipped_library().find(gpu_model)
    assert (board.idle_watts, board.context_watts) == (idle, context)
    assert (board.default_limit_watts, board.min_limit_watts) == (limit, lowest_limit)


def test_a_server_at_full_load_stays_within_its_nameplate() -> None:
    plant, row = frozen_plant(), load_scenario().row
    full = plant.worst_host_watts + 1.05 * plant.fan_full_gpu_watts
    assert full / plant.supply_efficiency <= row.rated_server_watts


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("trace_rate_facto: 3", "trace_rate_facto", "did you mean 'trace_rate_factor'"),
        ("row: {ratedservers: 3}", "row.ratedservers", "did you mean 'rated_servers'"),
        (
            "services: [{name: a, trace: code, priority_class: high, replica: 3}]",
            "services.0.replica",
            "did you mean 'replicas'",
        ),
        ("plant: {host_base_wats: 3}", "plant.host_base_wats", "did you mean 'host_base_watts'"),
        ("seed: -1", "seed", "greater than or equal to 0"),
        ("seed: seven", "seed", "integer"),
        ("duration_seconds: .nan", "duration_seconds", "finite"),
        ("duration_seconds: .inf", "duration_seconds", "finite"),
        ("duration_seconds: 0", "duration_seconds", "greater than 0"),
        ("duration_seconds: 1e30", "duration_seconds", "less than or equal"),
        ("duration_seconds: 10 min", "duration_seconds", "number"),
        ("row: {groups: []}", "row.groups", "at least 1"),
        ("row: 7", "row", "dictionary"),
        ("row: {racks: 99}", "row.racks", "at most the number"),
        ("faults: [{kind: gremlins, at_seconds: 1}]", "faults.0.kind", "'feed_loss'"),
        (
            "row: {racks: 1, groups: [{gpu_model: H300, count: 1}]}",
            "row.groups[].gpu_model",
            "one of A100-SXM",
        ),
        ("faults: [{kind: feed_loss}]", "faults.0.at_seconds", "required"),
        ("batch: {priority_class: urgent}", "batch.priority_class", "'urgent' is none"),
        ("batch: {min_load_ratio: 0.9, max_load_ratio: 0.1}", "batch.min_load_ratio", "at most"),
        ("training: [{name: chat, pods: 2}]", "Scenario", "is there twice"),
        ("a: 1\n b: [", "file", "valid YAML"),
        ("- 1\n- 2", "file", "mapping"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(
    tmp_path: Path, text: str, field: str, hint: str
) -> None:
    with pytest.raises(InputError) as problem:
        load_scenario(write(tmp_path, text))
    assert problem.value.field == field
    assert hint in problem.value.expected
    assert "scenario.yaml" in str(problem.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="readable"):
        load_scenario(tmp_path / "none.yaml")


def test_every_constant_of_the_plant_names_its_source() -> None:
    with pytest.raises(InputError, match=r"sources\.host_base_watts"):
        plant_from_json(
            '{"constants": ' + frozen_plant().model_dump_json() + ', "sources": '
            '{"supply_efficiency": "x"}}'
        )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"constants": {}}', '{"constants": [], "sources": {}}']
)
def test_a_damaged_plant_file_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        plant_from_json(text, "plant.json")
