"""``wattpack.io/gpu-mix/v1``: the question as people write it in a file, and the printed answer.

The file has the fields of a CapacityPlan's spec, so that what was tried on the command line can be
put into a cluster as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from capacity.mix.mix_explain import Explanation
from capacity.mix.mix_solution import MixSolution
from wattpack.api.capacity_plan import CountedRates
from wattpack.api.capacity_question import CapacityPlanSpec
from wattpack.errors import InputError
from wattpack.settings import validate

__all__ = ["MixDocument", "answer_json", "asked_by", "parse_mix"]


class MixDocument(CapacityPlanSpec):
    """The whole file."""

    api_version: Literal["wattpack.io/gpu-mix/v1"]


def parse_mix(document: object, source: str = "") -> MixDocument:
    """The document behind parsed YAML or JSON.

    Raises:
        InputError: naming the first field that is unknown, missing or wrong.
    """
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise InputError("file", "a mapping of names to values", document, source)
    return validate(MixDocument, document, source)


def asked_by(spec: CapacityPlanSpec, table: MixDocument) -> CapacityPlanSpec:
    """The plan's question with what the table knows: its shapes win, the rest fills gaps.

    A bucket of both has what the plan says of it and, for what the plan leaves out, the table's.
    """
    known = {bucket.name: bucket for bucket in table.buckets}
    buckets = [
        known[bucket.name].model_copy(
            update={name: getattr(bucket, name) for name in bucket.model_fields_set}
        )
        if bucket.name in known
        else bucket
        for bucket in spec.buckets
    ]
    named = {bucket.name for bucket in buckets}
    shapes = [
        shape.model_copy(
            update={"rates": {name: rates for name, rates in shape.rates.items() if name in named}}
        )
        for shape in table.shapes
    ]
    own = spec.model_fields_set
    filled = {
        name: getattr(table, name)
        for name in table.model_fields_set & set(CapacityPlanSpec.model_fields)
        if name not in own
    }
    return spec.model_copy(update={**filled, "buckets": buckets, "shapes": shapes or spec.shapes})


def answer_json(
    solution: MixSolution,
    explanation: Explanation | None = None,
    counted: CountedRates | None = None,
) -> dict[str, Any]:
    """The answer as ``wattpack.io/gpu-mix-plan/v1``: every figure with its unit in the key."""
    costs = solution.costs
    body: dict[str, Any] = {
        "apiVersion": "wattpack.io/gpu-mix-plan/v1",
        "replicas": [asdict(row) for row in solution.replicas],
        "served": [asdict(row) for row in solution.served],
        "servedFraction": solution.served_fraction,
        "dollarsPerHour": {**asdict(costs), "total": costs.total},
        "meanWatts": solution.mean_watts,
        "p99Watts": solution.p99_watts,
        "kwhPerHour": solution.mean_watts / 1000,
        "operationalGramsPerHour": solution.operational_grams_per_hour,
        "embodiedGramsPerHour": solution.embodied_grams_per_hour,
        "bound": solution.bound,
        "gap": solution.gap,
        "countedRates": None if counted is None else counted.to_json(),
    }
    if explanation is not None:
        body["constraintCosts"] = [
            {"constraint": c.constraint, "gain": c.gain, "leastGain": c.least_gain}
            for c in explanation.costs
        ]
        body["constraintsThatCostNothing"] = list(explanation.free)
        body["constraintsNotAsked"] = list(explanation.unasked)
    return body
