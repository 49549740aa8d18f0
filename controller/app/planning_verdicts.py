"""What becomes of WorkloadProfiles: accepted and in use, or not, and why.

One that was written from telemetry says so in a condition of its own. CapacityPlans are the
forecaster's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from capacity.catalogue.pod_works import PodWorks, is_classified
from controller.app.desired_state import ObjectId
from wattpack.api import ApiObject, Condition, WorkloadProfile
from wattpack.api.conditions import Finding, own_conditions, set_condition
from wattpack.api.inventory import WorkloadProfileStatus
from wattpack.api.object_meta import ApiModel
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject, Resource

__all__ = ["PLANNING_KINDS", "PlanningStatus", "PlanningVerdicts"]

PLANNING_KINDS: tuple[type[ApiObject], ...] = (WorkloadProfile,)
_OWN_TYPES = ("Accepted", "Ready", "Classified")
_IN_USE = (
    "controller and planner count by it for the pods whose label wattpack.io/workload names it"
)
_IN_USE_OF_OWNER = "controller and planner count by it for the pods of its owner"


@dataclass(frozen=True, slots=True)
class PlanningStatus:
    """The status of one object."""

    resource: Resource
    namespace: str
    name: str
    status: ApiModel


class PlanningVerdicts:
    """Judges them when something changed; keeps the transition times of conditions."""

    def __init__(self) -> None:
        self._conditions: dict[ObjectId, list[Condition]] = {}

    def forget(self, key: ObjectId) -> None:
        """Drop what was said of an object that is gone."""
        self._conditions.pop(key, None)

    def statuses(
        self, objects: Mapping[ObjectId, JsonObject], works: PodWorks, wall_time_ns: int
    ) -> Iterator[PlanningStatus]:
        """The status of every object.

        Args:
            objects: The newest, as the API gave them.
            works: What was read of them.
            wall_time_ns: Now.
        """
        for key, body in objects.items():
            _, namespace, name = key
            generation = int(body["metadata"].get("generation", 0))
            refusal = works.refusals.get((namespace, name))
            conditions = self._judged(key, body, refusal, wall_time_ns)
            status = WorkloadProfileStatus(observed_generation=generation, conditions=conditions)
            yield PlanningStatus(WorkloadProfile.meta.resource, namespace, name, status)

    def _judged(
        self, key: ObjectId, body: JsonObject, refusal: InputError | None, wall_time_ns: int
    ) -> list[Condition]:
        conditions = self._conditions.get(key)
        if conditions is None:
            conditions = own_conditions(_conditions_of(body), _OWN_TYPES)
        for finding in _findings(body, refusal):
            conditions = set_condition(
                conditions,
                finding,
                observed_generation=int(body["metadata"].get("generation", 0)),
                wall_time_ns=wall_time_ns,
            )
        self._conditions[key] = conditions
        return conditions


def _findings(body: JsonObject, refusal: InputError | None) -> Iterator[Finding]:
    """What is said of one object."""
    classified = is_classified(body)
    if refusal is not None:
        yield Finding("Accepted", False, "NotUnderstood", str(refusal))
        yield Finding("Ready", False, "NotUnderstood", str(refusal))
    else:
        yield Finding("Accepted", True, "Valid", "the spec is understood")
        yield Finding("Ready", True, "InUse", _IN_USE_OF_OWNER if classified else _IN_USE)
    if classified:
        sure = body["spec"].get("confidence")
        told = (
            f"with a confidence of {sure:.2f}" if isinstance(sure, float | int) else "by telemetry"
        )
        message = f"taken for its work {told}; a label wattpack.io/workload on the pods overrides"
        if sure == 0:
            message = "the pods no longer look like it: it counts as unknown work until they do"
        yield Finding("Classified", True, "Withdrawn" if sure == 0 else "FromTelemetry", message)
    elif any(c.type == "Classified" for c in _conditions_of(body)):
        yield Finding("Classified", False, "TakenOver", "people took it over: it is left alone")


def _conditions_of(body: JsonObject) -> list[Condition]:
    """What an earlier leader said; nothing where it cannot be read."""
    said = (body.get("status") or {}).get("conditions") or []
    try:
        return [Condition.model_validate_json(json.dumps(c), extra="ignore") for c in said]
    except (ValidationError, TypeError):
        return []
