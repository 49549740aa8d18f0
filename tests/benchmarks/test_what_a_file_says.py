"""Every field of a scenario file is taken by a benchmark, or told as having no meaning there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml

from benchmarks import calm, feed_loss, headroom, no_trip, response, row_costs
from benchmarks._fault_runs import one_run
from benchmarks._given_scenario import read_given
from benchmarks._row_cases import Arm, RowCase, asked_of
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import Options
from simulation.plant_constants import PlantConstants
from simulation.row_settings import RowSettings
from simulation.scenario import (
    ControlSettings,
    PriorityClassSettings,
    Scenario,
    load_scenario,
)
from wattpack.settings import Settings

ROW = {
    "groups": [{"gpu_model": "H200-SXM", "count": 3}], "racks": 1, "rated_servers": 2.4,
    "rack_rated_servers": 2.6, "external_watts": 0,
}  # fmt: skip
FEEDS = {"redundancy": "KofN", "feeds": 4, "required_feeds": 3, "use_reserve": True}
ENDS = [{"name": "low", "value": 1}, {"name": "mid", "value": 2}, {"name": "high", "value": 3}]
OF_WORK = (
    "services[].trace", "services[].replicas", "training[].pods", "batch.pods_per_hour",
    "trace_rate_factor", "faults[].kind", "history.days", "duration_seconds", "seed",
)  # fmt: skip


def written(folder: Path, **document: Any) -> Path:
    file = folder / "row.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def of(annotation: Any) -> Iterator[type[Settings]]:
    """Models inside a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for inner in get_args(annotation):
        yield from of(inner)


def keys(model: type[Settings], path: str = "") -> Iterator[str]:
    """All that a file may say, as docs/scenario.md names it."""
    for name, field in model.model_fields.items():
        inner = next(of(field.annotation), None)
        many = get_origin(field.annotation) is tuple and inner is not None
        here = f"{path}{name}" + ("[]" if many else "")
        if inner is None:
            yield here
        else:
            yield from keys(inner, f"{here}.")


EVERY_KEY = frozenset(keys(Scenario))


def document(names: frozenset[str]) -> dict[str, Any]:
    """A mapping that says something under each name, whatever it is."""
    made: dict[str, Any] = {}
    for name in names:
        at: dict[str, Any] = made
        *above, last = name.split(".")
        for part in above:
            below = at.setdefault(part.removesuffix("[]"), [{}] if part.endswith("[]") else {})
            at = below[0] if isinstance(below, list) else below
        at[last] = 1
    return made


@pytest.mark.parametrize(
    "reads",
    [ROW_READS, response.READS, headroom.READS, feed_loss.READS, no_trip.DRAWN],
    ids=["calm, row_costs", "response", "headroom", "feed_loss", "no_trip"],
)
def test_every_field_is_taken_or_told(
    reads: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"row.groups[].count", "services[].trace", "plant.host_base_watts"} <= EVERY_KEY
    monkeypatch.setattr(
        "benchmarks._given_scenario.read_yaml_mapping", lambda file: document(EVERY_KEY)
    )
    told = read_given(written(tmp_path), Options(progress=lambda _: None), reads).without_meaning
    taken = EVERY_KEY - set(told) - {"name"}
    assert set(told) <= EVERY_KEY
    for key in reads:
        assert any(one == key or one.startswith((f"{key}.", f"{key}[]")) for one in taken), key
    assert set(OF_WORK) <= set(told)


def test_a_class_between_the_lowest_and_the_highest_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    work = {"batch": {"priority_class": "low"}, "services": [], "training": []}
    file = written(tmp_path, row=ROW, priority_classes=ENDS, **work)
    asked = asked_of("calm", Options(arguments=("--scenario", str(file)), progress=lines.append), 1)
    told = str(asked.told["scenario_keys_without_meaning"]).split(", ")
    assert told == ["batch.priority_class", "services", "training", "priority_classes[mid]"]
    assert lines == [f"{file}: no meaning here: {', '.join(told)}"]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Keys of a scenario that somebody asked for, from now on."""
    seen: set[str] = set()
    places: dict[type[Settings], str] = {
        Scenario: "", RowSettings: "row.", ControlSettings: "control.", PlantConstants: "plant.",
        PriorityClassSettings: "priority_classes.",
    }  # fmt: skip
    for model, path in places.items():
        fields, found = frozenset(model.model_fields), model.__getattribute__

        def look(
            self: Any, name: str, path: str = path, fields: Any = fields, found: Any = found
        ) -> Any:
            if name in fields:
                seen.add(path + name)
            return found(self, name)

        monkeypatch.setattr(model, "__getattribute__", look)
    return seen


def test_a_run_of_the_row_looks_at_what_it_says_it_takes(
    tmp_path: Path, looked_at: set[str]
) -> None:
    file = written(tmp_path, row=ROW | FEEDS)
    options = Options(arguments=("--scenario", str(file)), progress=lambda _: None)
    case = RowCase(asked_of("calm", options, 1), 1, {})
    one_run(load_scenario(file), 1, 0, 2.0)
    looked_at.clear()  # Reading a file looks at everything.
    for driven in (case.wattpack(Arm()), case.wattpack(Arm(domain_meter=False, host_meter=True))):
        driven.run(2.0)
    case.oracle(2.0)
    one_run(case.scenario, 1, 0, 2.0)
    # ``no_trip`` alone runs the faults of a file.
    whole = {"row", "control", "plant", "priority_classes", "seed", "faults"}
    classes = {key for key in looked_at if key.startswith("priority_classes.")}
    assert looked_at - whole - classes <= set(ROW_READS)
    # What one domain's feeds carry together follows from how many are left out.
    unseen = set(ROW_READS) - looked_at
    assert unseen == set()


@pytest.mark.parametrize("module", [calm, feed_loss, headroom, no_trip, response, row_costs])
def test_the_help_says_what_of_a_file_is_taken(module: Any) -> None:
    assert "\nOf a scenario file: row" in module.__doc__
