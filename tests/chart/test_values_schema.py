"""values.yaml and its schema name the same keys: a typo in either would be silent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from controller.app.controller_settings import ControllerSettings
from forecasting.app.forecaster_command import ForecasterSettings
from scheduler_plugin.app.link_settings import LinkSettings
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.link_groups import LinkGroup, LinkPair
from scheduler_plugin.documents.snapshot_limits import MAX_LINK_GROUPS, MAX_LINK_PAIRS
from tests.chart.helm_render import CHART, VALUE_SETS

pytestmark = pytest.mark.helm

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
SHIPPED = sorted(path.name for path in CHART.glob("values-*.yaml"))


def declared(schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Every key that a schema names, by its path."""
    for key, below in schema.get("properties", {}).items():
        yield f"{at}{key}"
        yield from declared(below, f"{at}{key}.")


def open_to_any(schema: Mapping[str, Any], path: str) -> bool:
    """Whether the schema lets people choose the keys of an object on the way to this one."""
    for key in path.split("."):
        if key not in schema.get("properties", {}):
            return schema.get("additionalProperties", True) is not False
        schema = schema["properties"][key]
    return False


def written(values: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Every key of a values file, by its path."""
    for key, below in values.items():
        yield f"{at}{key}"
        if isinstance(below, Mapping):
            yield from written(below, f"{at}{key}.")


def test_every_value_is_in_the_schema() -> None:
    known = set(declared(SCHEMA))
    missing = [p for p in written(VALUES) if p not in known and not open_to_any(SCHEMA, p)]
    assert missing == []


def test_every_key_of_the_schema_has_a_default_that_people_can_read() -> None:
    # Helm itself hands `global` to every chart.
    assert set(declared(SCHEMA)) - set(written(VALUES)) == {"global"}


def test_every_object_of_ours_refuses_keys_that_it_does_not_know() -> None:
    def loose(schema: Mapping[str, Any], at: str) -> Iterator[str]:
        if "properties" in schema and schema.get("additionalProperties") is not False:
            yield at
        for key, below in schema.get("properties", {}).items():
            yield from loose(below, f"{at}.{key}")

    assert list(loose(SCHEMA, "values")) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_sets_only_what_the_chart_reads(name: str) -> None:
    values = yaml.safe_load((CHART / name).read_text(encoding="utf-8"))
    known = set(declared(SCHEMA))
    assert [p for p in written(values) if p not in known and not open_to_any(SCHEMA, p)] == []


def test_every_shipped_file_is_linted_and_rendered_like_the_others() -> None:
    names = {name.removeprefix("values-").removesuffix(".yaml") for name in SHIPPED}
    assert names
    assert names <= set(VALUE_SETS)


def test_every_value_is_read_by_a_template() -> None:
    text = "".join(
        file.read_text(encoding="utf-8") for file in sorted((CHART / "templates").iterdir())
    )
    top = [key for key in VALUES if f".Values.{key}" not in text]
    assert top == []


def test_settings_of_the_scheduler_are_refused_before_its_process_would_refuse_them() -> None:
    """All but those that the chart sets itself: two homes of one setting could differ."""
    by_the_chart = {"mode", "policy", "gpu_prices", "cap_levels", "peaks", "moves", "namespace"}
    by_the_chart |= {"objective", "carbon_grams_per_kwh", "provisioning", "risk_below_priority"}
    bounds = ("type", "minimum", "maximum", "exclusiveMinimum")
    wanted = {
        f"^{name}$": {each: field[each] for each in bounds if each in field}
        for name, field in PlacementSettings.model_json_schema()["properties"].items()
        if name not in by_the_chart | {"links"}
    }
    schema = SCHEMA["properties"]["scheduler"]["properties"]["settings"]
    plain = {name: rule for name, rule in schema["patternProperties"].items() if name != "^links$"}
    assert plain == wanted
    assert schema["additionalProperties"] is False


def test_settings_of_the_controller_are_refused_before_its_process_would_refuse_them() -> None:
    """A typo in one that asks BMCs would leave a row at its declared worst."""
    told = ("description", "type", "minimum", "maximum", "exclusiveMinimum")
    fields = ControllerSettings.model_json_schema()["properties"]
    schema = SCHEMA["properties"]["controller"]["properties"]["settings"]
    assert schema["patternProperties"] == {
        f"^{name}$": {each: field[each] for each in told if each in field}
        for name, field in fields.items()
    }
    assert schema["additionalProperties"] is False


def test_settings_of_the_forecaster_are_refused_before_its_process_would_refuse_them() -> None:
    """All but those that the chart gives on the command line, where they would win silently."""
    by_the_chart = {"history_file", "prometheus_url", "state_file", "metrics_port", "shard"}
    by_the_chart |= {"kubeconfig"}
    told = ("description", "type", "minimum", "maximum", "exclusiveMinimum")
    told += ("enum", "items", "maxItems")
    fields = ForecasterSettings.model_json_schema()["properties"]
    schema = SCHEMA["properties"]["forecaster"]["properties"]["settings"]
    assert schema["patternProperties"] == {
        f"^{name}$": {each: field[each] for each in told if each in field}
        for name, field in fields.items()
        if name not in by_the_chart
    }
    assert schema["additionalProperties"] is False


def test_settings_of_every_process_are_checked() -> None:
    checked = {
        process: below["properties"]["settings"].get("additionalProperties")
        for process, below in SCHEMA["properties"].items()
        if "settings" in below.get("properties", {})
    }
    assert checked == {"controller": False, "scheduler": False, "forecaster": False}


def test_settings_of_links_are_refused_before_the_scheduler_would_refuse_them() -> None:
    settings = SCHEMA["properties"]["scheduler"]["properties"]["settings"]
    told = settings["patternProperties"]["^links$"]
    assert told["patternProperties"].keys() == {f"^{name}$" for name in LinkSettings.model_fields}
    most = {"^groups$": MAX_LINK_GROUPS, "^pairs$": MAX_LINK_PAIRS}
    for kind, items in ((LinkGroup, "^groups$"), (LinkPair, "^pairs$")):
        assert told["patternProperties"][items]["maxItems"] == most[items]
        schema = told["patternProperties"][items]["items"]
        assert schema["additionalProperties"] is False
        assert schema["patternProperties"].keys() == {f"^{name}$" for name in kind.model_fields}
        needed = {name for name, field in kind.model_fields.items() if field.is_required()}
        assert set(schema["required"]) == needed
