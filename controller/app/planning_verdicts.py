"""What becomes of CapacityPlans and WorkloadProfiles: accepted or not, and never ready.

No process plans capacity in this version; whoever writes such an object is told so, and told what
is wrong with it, instead of being left to wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from capacity.profile_book import ProfileBook
from controller.app.desired_state import ObjectId
from wattpack.api import ApiObject, CapacityPlan, Condition, WorkloadProfile
from wattpack.api.conditions import Finding, set_condition
from wattpack.api.inventory import WorkloadProfileStatus
from wattpack.api.object_meta import ApiModel
from wattpack.api.planning import CapacityPlanStatus
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject, Resource

__all__ = ["PLANNING_KINDS", "PlanningStatus", "PlanningVerdicts"]

PLANNING_KINDS: tuple[type[ApiObject], ...] = (CapacityPlan, WorkloadProfile)
_UNUSED = {
    CapacityPlan.meta.kind: (
        "no process plans capacity in this version: `wattpack plan gpus -f` answers this plan"
    ),
    WorkloadProfile.meta.kind: (
        "no process plans capacity in this version: nothing reads workload profiles"
    ),
}
# Shares are written with a few decimals; their sum is not exact.
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class PlanningStatus:
    """The status of one object."""

    resource: Resource
    namespace: str
    name: str
    status: ApiModel


class PlanningVerdicts:
    """Judges both kinds when something changed; keeps the transition times of conditions."""

    def __init__(self) -> None:
        self._conditions: dict[ObjectId, list[Condition]] = {}
        self._judged_on: tuple[Mapping[ObjectId, JsonObject], ProfileBook] | None = None
        self._refused: Mapping[ObjectId, str] = {}

    def forget(self, key: ObjectId) -> None:
        """Drop what was said of an object that is gone."""
        self._conditions.pop(key, None)

    def statuses(
        self, objects: Mapping[ObjectId, JsonObject], gpu_types: ProfileBook, wall_time_ns: int
    ) -> Iterator[PlanningStatus]:
        """The status of every object.

        Args:
            objects: The newest, as the API gave them.
            gpu_types: Every GPU type that is known.
            wall_time_ns: Now.
        """
        if self._judged_on != (objects, gpu_types):
            self._refused = _refusals(objects, gpu_types)
            self._judged_on = (objects, gpu_types)
        for key, body in objects.items():
            kind, namespace, name = key
            generation = int(body["metadata"].get("generation", 0))
            conditions = self._judged(key, body, self._refused.get(key), wall_time_ns)
            status: ApiModel
            if kind == CapacityPlan.meta.kind:
                resource = CapacityPlan.meta.resource
                status = CapacityPlanStatus(observed_generation=generation, conditions=conditions)
            else:
                resource = WorkloadProfile.meta.resource
                status = WorkloadProfileStatus(
                    observed_generation=generation, conditions=conditions
                )
            yield PlanningStatus(resource, namespace, name, status)

    def _judged(
        self, key: ObjectId, body: JsonObject, cause: str | None, wall_time_ns: int
    ) -> list[Condition]:
        conditions = self._conditions.get(key)
        if conditions is None:
            conditions = _conditions_of(body)
        if cause is None:
            accepted = (True, "Valid", "the spec is understood")
            ready = (False, "NotImplemented", _UNUSED[key[0]])
        else:
            accepted = (False, "NotUnderstood", cause)
            ready = accepted
        for kind, (holds, reason, message) in (("Accepted", accepted), ("Ready", ready)):
            conditions = set_condition(
                conditions,
                Finding(kind, holds, reason, message),
                observed_generation=int(body["metadata"].get("generation", 0)),
                wall_time_ns=wall_time_ns,
            )
        self._conditions[key] = conditions
        return conditions


def _refusals(
    objects: Mapping[ObjectId, JsonObject], gpu_types: ProfileBook
) -> dict[ObjectId, str]:
    """Why each object that cannot be used cannot; plans after the profiles that they name."""
    refused: dict[ObjectId, str] = {}
    usable: set[tuple[str, str]] = set()
    kernels = {name for profile in gpu_types.profiles() for name in profile.kernel_classes}
    for key in sorted(objects, key=lambda key: key[0] == CapacityPlan.meta.kind):
        body = {part: value for part, value in objects[key].items() if part != "status"}
        try:
            if key[0] == CapacityPlan.meta.kind:
                _require_answerable(CapacityPlan.read(body), gpu_types, usable)
            else:
                _require_shares(WorkloadProfile.read(body), kernels)
                usable.add(key[1:])
        except InputError as error:
            refused[key] = str(error)
    return refused


def _require_shares(profile: WorkloadProfile, kernels: set[str]) -> None:
    """Pass a mix of known kernel classes that takes no more than all of the time."""
    mix, source = profile.spec.kernel_mix, f"WorkloadProfile {profile.name}"
    for name in mix:
        if name not in kernels:
            wanted = f"one of the kernel classes {', '.join(sorted(kernels))}"
            raise InputError(f"spec.kernelMix.{name}", wanted, name, source)
    total = sum(mix.values())
    if total > 1 + _SUM_TOLERANCE:
        raise InputError("spec.kernelMix", "shares whose sum is at most 1", total, source)


def _require_answerable(
    plan: CapacityPlan, gpu_types: ProfileBook, usable: set[tuple[str, str]]
) -> None:
    """Pass a question about GPU types and workloads that are known."""
    source = f"CapacityPlan {plan.name}"
    for model in plan.spec.gpu_models:
        try:
            gpu_types.find(model)
        except InputError as error:
            raise InputError("spec.gpuModels", error.expected, model, source) from error
    for name in plan.spec.request_mix:
        if (plan.namespace, name) not in usable:
            wanted = "an accepted WorkloadProfile of this namespace"
            raise InputError(f"spec.requestMix.{name}", wanted, name, source)


def _conditions_of(body: JsonObject) -> list[Condition]:
    """What an earlier leader said; nothing where it cannot be read."""
    said = (body.get("status") or {}).get("conditions") or []
    try:
        return [Condition.model_validate_json(json.dumps(c), extra="ignore") for c in said]
    except (ValidationError, TypeError):
        return []
