"""Rules about several fields of an object: each names the field that is to change."""

from __future__ import annotations

from typing import Any

import pytest

from wattpack.api import KINDS, ApiObject, DemandForecast, PowerDomain, PowerPolicy
from wattpack.api.crdgen import structural_schema, walk
from wattpack.errors import InputError

POINTS = [{"loadRatio": 1.1, "tripSeconds": 60.0}]
RESERVE: dict[str, Any] = {
    "mode": "2N",
    "useReserve": True,
    "overloadCurve": [{"loadRatio": 1.25, "tripSeconds": 600.0}],
    "feedShare": {"prometheusQuery": "share"},
}
HOST = {"worstWatts": 3000.0, "idleWatts": 1000.0}
#: Kind, spec, and what people read of it: field, expectation, value.
COMBINATIONS: list[tuple[type[ApiObject], dict[str, Any], str, str, object]] = [
    (
        PowerDomain,
        {"breaker": {"heatBudgetRatio": 0.1}},
        "breaker.heatBudgetRatio",
        "0 unless hundredPercentRated and curve Points are given, since a published fit is no "
        "site's curve",
        0.1,
    ),
    (
        PowerDomain,
        {"breaker": {"curve": "Points"}},
        "breaker.points",
        "at least one with curve Points, none with a named curve",
        None,
    ),
    (
        PowerDomain,
        {"breaker": {"curve": "Points", "points": [*POINTS, *POINTS]}},
        "breaker.points",
        "rising loadRatio and falling tripSeconds",
        [*POINTS, *POINTS],
    ),
    *[
        (
            PowerDomain,
            {"breaker": {"curve": curve, "thermalColdCurve": True}},
            "breaker.thermalColdCurve",
            "false unless curve is Points, since named curves are hot ones",
            True,
        )
        for curve in ("RackThermal", "SwitchboardThermal")
    ],
    *[
        (
            PowerDomain,
            {"breaker": {"shortTimePickupRatio": ratio}},
            "breaker.shortTimePickupRatio",
            "at least 1.25, since load may jump to 0.8 of the pick-up, and the rating must not lie "
            "above that",
            ratio,
        )
        for ratio in (0.5, 1.0, 1.2, 1.249)
    ],
    (
        PowerDomain,
        {"redundancy": {**RESERVE, "feedShare": None}},
        "redundancy.useReserve",
        "false unless there are mode 2N or KofN, overloadCurve (what a feed's UPS and transformer "
        "bear) and feedShare (how a lost feed is seen)",
        True,
    ),
    (
        PowerDomain,
        {"redundancy": {"mode": "KofN", "feeds": 2, "requiredFeeds": 2}},
        "redundancy.requiredFeeds",
        "fewer than feeds with KofN",
        2,
    ),
    (
        PowerDomain,
        {
            "breaker": {
                "curve": "Points",
                "points": POINTS,
                "hundredPercentRated": True,
                "heatBudgetRatio": 0.1,
            },
            "redundancy": RESERVE,
        },
        "breaker.heatBudgetRatio",
        "0 beside redundancy.useReserve, since both would spend the same heat (give one)",
        0.1,
    ),
    (
        PowerDomain,
        {"nonGpuPerNode": {**HOST, "worstAtRestWatts": 2000.0}},
        "nonGpuPerNode.wattsPerGpuWatt",
        "above 0 beside worstAtRestWatts (give both or neither)",
        None,
    ),
    (
        PowerDomain,
        {"nonGpuPerNode": {**HOST, "wattsPerGpuWatt": 0.1}},
        "nonGpuPerNode.worstAtRestWatts",
        "a value beside wattsPerGpuWatt (give both or neither)",
        None,
    ),
    (
        PowerDomain,
        {"nonGpuPerNode": {**HOST, "worstAtRestWatts": 3001.0, "wattsPerGpuWatt": 0.1}},
        "nonGpuPerNode.worstAtRestWatts",
        "at most worstWatts",
        3001.0,
    ),
    (
        PowerDomain,
        {"nonGpuPerNode": {**HOST, "worstAtRestWatts": 999.0, "wattsPerGpuWatt": 0.1}},
        "nonGpuPerNode.worstAtRestWatts",
        "at least idleWatts",
        999.0,
    ),
    (
        PowerDomain,
        {"budgets": [{"start": "10:00", "end": "10:00", "budgetWatts": 1.0}]},
        "budgets.0.end",
        "a time after start",
        "10:00",
    ),
    (
        PowerPolicy,
        {"floorFraction": 0.9, "requestFraction": 0.5},
        "floorFraction",
        "at most requestFraction",
        0.9,
    ),
    (
        DemandForecast,
        {"target": {"series": "s"}, "horizonSeconds": 600, "stepSeconds": 1200},
        "stepSeconds",
        "at most horizonSeconds",
        1200,
    ),
]


def described(kind: type[ApiObject], spec: dict[str, Any]) -> dict[str, Any]:
    base: dict[str, Any] = {"ratingWatts": 1000.0} if kind is PowerDomain else {}
    if kind is PowerPolicy:
        base = {"priority": 1}
    return {"metadata": {"name": "a"}, "spec": {**base, **spec}}


@pytest.mark.parametrize(("kind", "spec", "field", "expected", "got"), COMBINATIONS)
def test_a_rule_about_several_fields_names_the_one_that_is_to_change(
    kind: type[ApiObject], spec: dict[str, Any], field: str, expected: str, got: object
) -> None:
    with pytest.raises(InputError) as refused:
        kind.from_json(described(kind, spec))
    shown = f"{kind.meta.kind} a: spec.{field}: expected {expected}, got {got!r}"
    assert str(refused.value) == shown


def test_the_api_server_says_the_same_of_them() -> None:
    told = {
        rule["message"].partition(": ")[2]
        for kind in KINDS
        for _, node in walk(structural_schema(kind))
        for rule in node.get("x-kubernetes-validations", ())
    }
    assert {expected for _, _, _, expected, _ in COMBINATIONS} <= told
