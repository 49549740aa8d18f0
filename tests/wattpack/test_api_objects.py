"""The API objects: what they take, what they refuse, and the CRDs made from them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from wattpack.api import (
    KINDS,
    ApiObject,
    GpuNode,
    PowerDomain,
    PowerOverride,
    PowerPolicy,
    WorkloadProfile,
)
from wattpack.api.crdgen import custom_resource_definition, structural_schema, walk
from wattpack.errors import InputError
from wattpack.generate import crds, tree

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
BY_KIND = {kind.meta.kind: kind for kind in KINDS}


SITE_BREAKER: dict[str, Any] = {
    "curve": "Points",
    "points": [{"loadRatio": 1.1, "tripSeconds": 60.0}],
    "hundredPercentRated": True,
    "heatBudgetRatio": 0.1,
}
RESERVE: dict[str, Any] = {
    "mode": "2N",
    "useReserve": True,
    "overloadCurve": [
        {"loadRatio": 1.25, "tripSeconds": 600.0},
        {"loadRatio": 1.5, "tripSeconds": 60.0},
    ],
    "feedShare": {"prometheusQuery": "max(feed_watts) / sum(feed_watts)"},
}


def domain(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "row"}, "spec": {"ratingWatts": 1000.0, **spec}}


def override(**spec: Any) -> dict[str, Any]:
    base = {
        "target": {"node": "a"},
        "capWatts": 300,
        "reason": "test",
        "expiresAt": "2030-01-01T00:00:00Z",
    }
    return {"metadata": {"name": "o"}, "spec": {**base, **spec}}


def test_the_options_are_taken_where_they_are_declared_whole() -> None:
    site = PowerDomain.from_json(domain(breaker=SITE_BREAKER)).spec
    assert site.breaker.heat_budget_ratio == 0.1
    feeds = PowerDomain.from_json(domain(redundancy=RESERVE)).spec.redundancy
    assert feeds.use_reserve
    assert feeds.feed_share is not None
    assert feeds.feed_share.max_age_seconds == 3.0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_valid_object(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        parsed = BY_KIND[document["kind"]].from_json(document)
        again = type(parsed).from_json(parsed.to_json())
        assert again == parsed


def test_every_kind_has_an_example() -> None:
    shown = {doc["kind"] for path in EXAMPLES for doc in yaml.safe_load_all(path.read_text())}
    assert shown == set(BY_KIND)


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (PowerDomain, domain(ratingWatts="1000"), "spec.ratingWatts"),
        (PowerDomain, domain(ratingWatts=True), "spec.ratingWatts"),
        (PowerDomain, domain(ratingWatts=0), "spec.ratingWatts"),
        (PowerDomain, domain(ratingWatts=-5), "spec.ratingWatts"),
        (PowerDomain, domain(ratingWatts=float("nan")), "spec.ratingWatts"),
        (PowerDomain, domain(ratingWatts=1e12), "spec.ratingWatts"),
        (PowerDomain, domain(ratingKilowatts=1), "spec.ratingKilowatts"),
        (PowerDomain, domain(enforcement="enforce"), "spec.enforcement"),
        (PowerDomain, domain(breaker={"curve": "Points"}), "spec.breaker.points"),
        (
            PowerDomain,
            domain(redundancy={"mode": "KofN", "feeds": 2, "requiredFeeds": 2}),
            "spec.redundancy.requiredFeeds",
        ),
        (PowerDomain, domain(breaker={"heatBudgetRatio": 0.1}), "spec.breaker.heatBudgetRatio"),
        (
            PowerDomain,
            domain(breaker={"heatBudgetRatio": 0.1, "hundredPercentRated": True}),
            "spec.breaker.heatBudgetRatio",
        ),
        (
            PowerDomain,
            domain(breaker={**SITE_BREAKER, "hundredPercentRated": False}),
            "spec.breaker.heatBudgetRatio",
        ),
        (
            PowerDomain,
            domain(breaker={**SITE_BREAKER, "heatBudgetRatio": 0.3}),
            "spec.breaker.heatBudgetRatio",
        ),
        *[
            (PowerDomain, domain(redundancy=redundancy), "spec.redundancy.useReserve")
            for redundancy in (
                {"mode": "2N", "useReserve": True},
                {**RESERVE, "mode": "None"},
                {**RESERVE, "overloadCurve": []},
                {**RESERVE, "feedShare": None},
            )
        ],
        (
            PowerDomain,
            domain(redundancy={**RESERVE, "overloadCurve": RESERVE["overloadCurve"][::-1]}),
            "spec.redundancy.overloadCurve",
        ),
        (
            PowerDomain,
            domain(
                redundancy={
                    **RESERVE,
                    "feedShare": {"prometheusQuery": "share", "maxAgeSeconds": 6.0},
                }
            ),
            "spec.redundancy.feedShare.maxAgeSeconds",
        ),
        (
            PowerDomain,
            domain(breaker=SITE_BREAKER, redundancy=RESERVE),
            "spec.breaker.heatBudgetRatio",
        ),
        (
            PowerDomain,
            domain(nonGpuPerNode={"worstWatts": 1, "idleWatts": 2}),
            "spec.nonGpuPerNode.idleWatts",
        ),
        *[
            (
                PowerDomain,
                domain(nonGpuPerNode={"worstWatts": 3000, "idleWatts": 1000, **line}),
                f"spec.nonGpuPerNode.{key}",
            )
            for line, key in (
                ({"worstAtRestWatts": 2000}, "wattsPerGpuWatt"),
                ({"wattsPerGpuWatt": 0.1}, "worstAtRestWatts"),
                ({"worstAtRestWatts": 3001, "wattsPerGpuWatt": 0.1}, "worstAtRestWatts"),
                ({"worstAtRestWatts": 999, "wattsPerGpuWatt": 0.1}, "worstAtRestWatts"),
            )
        ],
        (
            PowerDomain,
            domain(nonGpuPerNode={"worstWatts": 9, "worstAtRestWatts": 0, "wattsPerGpuWatt": 0.1}),
            "spec.nonGpuPerNode.worstAtRestWatts",
        ),
        (
            PowerDomain,
            domain(budgets=[{"start": "25:00", "end": "20:00", "budgetWatts": 1}]),
            "spec.budgets.0.start",
        ),
        (
            PowerDomain,
            domain(budgets=[{"start": "10:00", "end": "10:00", "budgetWatts": 1}]),
            "spec.budgets.0.end",
        ),
        (PowerDomain, {"metadata": {"name": "row"}}, "spec"),
        (PowerDomain, {**domain(), "kind": "PowerPolicy"}, "kind"),
        (PowerDomain, {**domain(), "apiVersion": "wattpack.io/v1"}, "apiVersion"),
        (PowerDomain, {**domain(), "spce": {}}, "spce"),
        (PowerOverride, override(target={}), "spec.target"),
        (PowerOverride, override(target={"node": "a", "domain": "b"}), "spec.target"),
        (PowerOverride, override(expiresAt="tomorrow"), "spec.expiresAt"),
        (PowerPolicy, {"spec": {"priority": 1.5}}, "spec.priority"),
        (GpuNode, {"metadata": {"name": "a"}, "spec": {"nodeName": "b"}}, "spec.nodeName"),
    ],
)
def test_wrong_input_is_refused_and_the_field_is_named(
    kind: type[ApiObject], body: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError) as refusal:
        kind.from_json(body)
    assert refusal.value.field == field


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.meta.kind)
def test_every_field_is_described(kind: type[ApiObject]) -> None:
    bare = [
        f"{path}.{name}"
        for path, node in walk(structural_schema(kind))
        for name, child in node.get("properties", {}).items()
        if "description" not in child and f"{path}.{name}" != ".metadata"
    ]
    assert bare == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.meta.kind)
def test_every_list_string_and_map_is_bounded(kind: type[ApiObject]) -> None:
    schema = structural_schema(kind)
    unbounded = []
    for part in ("spec", "status"):
        for path, node in walk(schema["properties"][part], part):
            bound = {"string": "maxLength", "array": "maxItems"}.get(node["type"])
            if "additionalProperties" in node:
                bound = "maxProperties"
            if bound and bound not in node and "enum" not in node:
                unbounded.append(path)
    assert unbounded == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.meta.kind)
def test_schemas_are_structural(kind: type[ApiObject]) -> None:
    text = json.dumps(custom_resource_definition(kind))
    for word in (
        '"$ref"',
        '"$defs"',
        '"anyOf"',
        '"title"',
        '"const"',
        '"additionalProperties": false',
    ):
        assert word not in text
    for path, node in walk(structural_schema(kind)):
        assert "type" in node, path
        assert not isinstance(node.get("exclusiveMinimum", True), float), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.meta.kind)
def test_a_schema_and_its_model_agree_on_required_fields_and_defaults(
    kind: type[ApiObject],
) -> None:
    for path, node in walk(structural_schema(kind)):
        defaulted = {
            name for name, child in node.get("properties", {}).items() if "default" in child
        }
        assert not defaulted & set(node.get("required", ())), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.meta.kind)
def test_a_crd_fits_the_published_schema_of_kubernetes(kind: type[ApiObject]) -> None:
    kubernetes_validate.validate(custom_resource_definition(kind), "1.37", strict=True)


def test_null_is_the_same_as_unset() -> None:
    unset = PowerDomain.from_json(domain())
    assert PowerDomain.from_json(domain(enforcement=None, parent=None, breaker=None)) == unset
    with pytest.raises(InputError):
        PowerDomain.from_json(domain(ratingWatts=None))


@pytest.mark.parametrize("package", ["wattpack.api", "simulation.kube", "wattpack.kube.client"])
def test_public_names_are_there(package: str) -> None:
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_validators_have_cel_rules_beside_them() -> None:
    rules = {
        rule["message"]
        for kind in KINDS
        for _, node in walk(structural_schema(kind))
        for rule in node.get("x-kubernetes-validations", ())
    }
    assert {
        "points: at least one with curve Points, none with a named curve",
        "points: rising loadRatio and falling tripSeconds",
        "requiredFeeds: fewer than feeds with KofN",
        "overloadCurve: rising loadRatio and falling tripSeconds",
        "useReserve: false unless there are mode 2N or KofN, overloadCurve (what a feed's UPS and "
        "transformer bear) and feedShare (how a lost feed is seen)",
        "heatBudgetRatio: 0 unless hundredPercentRated and curve Points are given, since a "
        "published fit is no site's curve",
        "breaker.heatBudgetRatio: 0 beside redundancy.useReserve, since both would spend the same "
        "heat (give one)",
        "exactly one of domain, node, gpuUuid",
        "end: a time after start",
        "spec.nodeName: the same as metadata.name",
    } <= rules


def test_no_default_holds_a_null() -> None:
    """The API server would refuse the whole definition."""
    for kind in KINDS:
        for path, node in walk(structural_schema(kind)):
            assert "null" not in json.dumps(node.get("default", {})), path


def test_a_status_carries_no_defaults_and_no_rules() -> None:
    for kind in KINDS:
        for path, node in walk(structural_schema(kind)["properties"]["status"]):
            assert "default" not in node, path
            assert "x-kubernetes-validations" not in node, path


def test_the_crds_and_their_page_in_the_tree_are_up_to_date() -> None:
    files = crds.produce(ROOT)
    assert tree.stale(ROOT, files) == {}
    assert tree.orphans(ROOT, files, crds.PATTERNS) == []


def test_a_stale_file_is_named_with_its_diff(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("old\n")
    stale = tree.stale(tmp_path, {"a.yaml": "new\n", "b.yaml": "b\n"})
    assert set(stale) == {"a.yaml", "b.yaml"}
    assert "-old" in stale["a.yaml"]
    assert "+new" in stale["a.yaml"]
    assert tree.write(tmp_path, {"a.yaml": "new\n"}) == ["a.yaml"]
    assert tree.stale(tmp_path, {"a.yaml": "new\n"}) == {}


#: Fields whose keys people choose: one more key is an entry, not a field.
MAPS = {"calls", "kernelMix", "labels", "nodeSelector", "rates", "runningReplicas"}


def with_unknown_fields(value: Any) -> Any:
    """The value as a newer version would write it: one more field in every object."""
    if isinstance(value, dict):
        known = {k: v if k in MAPS else with_unknown_fields(v) for k, v in value.items()}
        return known | {"newerField": [{"a": 1}]}
    if isinstance(value, list):
        return [with_unknown_fields(child) for child in value]
    return value


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_process_reads_the_objects_of_a_newer_version(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        kind = BY_KIND[document["kind"]]
        newer = document | {"spec": with_unknown_fields(document["spec"]), "newerTopLevel": 1}
        assert kind.read(newer).to_json()["spec"] == kind.from_json(document).to_json()["spec"]
        with pytest.raises(InputError):
            kind.from_json(newer)


def test_a_stored_profile_with_a_field_of_before_is_read() -> None:
    spec: dict[str, Any] = {"kind": "Serving", "workload": "decoder-decode"}
    body = {"metadata": {"name": "chat"}, "spec": spec}
    spec = spec | {"sloP99Slowdown": 1.2}
    assert WorkloadProfile.read(body | {"spec": spec}) == WorkloadProfile.read(body)
    with pytest.raises(InputError, match="sloP99Slowdown"):
        WorkloadProfile.from_json(body | {"spec": spec})


def test_a_status_with_unknown_fields_is_read() -> None:
    body = domain() | {"status": {"drawWatts": 5, "acceptedSpec": {"ratingWatts": 1, "new": 2}}}
    read = PowerDomain.read(body)
    assert read.status.draw_watts == 5
    assert read.status.accepted_spec is not None
    assert read.status.accepted_spec.rating_watts == 1


@pytest.mark.parametrize(
    "body", [domain(ratingWatts="1000"), domain(ratingWatts=float("nan")), {"spec": {}}, [], None]
)
def test_reading_still_refuses_what_it_cannot_understand(body: Any) -> None:
    with pytest.raises(InputError):
        PowerDomain.read(body)
