"""What becomes of WorkloadProfiles: accepted or not, and never ready.

No process plans by them in this version; whoever writes such an object is told so, and told what is
wrong with it, instead of being left to wait. CapacityPlans are the forecaster's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.profile_book import ProfileBook
from controller.app.desired_state import ObjectId
from wattpack.api import ApiObject, Condition, WorkloadProfile
from wattpack.api.conditions import Finding, set_condition
from wattpack.api.inventory import WorkloadProfileStatus
from wattpack.api.object_meta import ApiModel
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject, Resource

__all__ = ["PLANNING_KINDS", "PlanningStatus", "PlanningVerdicts"]

PLANNING_KINDS: tuple[type[ApiObject], ...] = (WorkloadProfile,)
_UNUSED = (
    "shown for pods whose label wattpack.io/workload names it; "
    "nothing plans by workload profiles in this version"
)
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
    """Judges them when something changed; keeps the transition times of conditions."""

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
            _, namespace, name = key
            generation = int(body["metadata"].get("generation", 0))
            conditions = self._judged(key, body, self._refused.get(key), wall_time_ns)
            status = WorkloadProfileStatus(observed_generation=generation, conditions=conditions)
            yield PlanningStatus(WorkloadProfile.meta.resource, namespace, name, status)

    def _judged(
        self, key: ObjectId, body: JsonObject, cause: str | None, wall_time_ns: int
    ) -> list[Condition]:
        conditions = self._conditions.get(key)
        if conditions is None:
            conditions = _conditions_of(body)
        if cause is None:
            accepted = (True, "Valid", "the spec is understood")
            ready = (False, "NotImplemented", _UNUSED)
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
    """Why each object that cannot be used cannot."""
    refused: dict[ObjectId, str] = {}
    kernels = {name for profile in gpu_types.profiles() for name in profile.kernel_classes}
    for key, given in objects.items():
        body = {part: value for part, value in given.items() if part != "status"}
        try:
            _require_shares(WorkloadProfile.read(body), kernels)
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
    entry = profile.spec.workload
    if entry and entry not in shipped_catalogue():
        raise InputError("spec.workload", "an entry of `wattpack workloads`", entry, source)
    total = sum(mix.values())
    if total > 1 + _SUM_TOLERANCE:
        raise InputError("spec.kernelMix", "shares whose sum is at most 1", total, source)


def _conditions_of(body: JsonObject) -> list[Condition]:
    """What an earlier leader said; nothing where it cannot be read."""
    said = (body.get("status") or {}).get("conditions") or []
    try:
        return [Condition.model_validate_json(json.dumps(c), extra="ignore") for c in said]
    except (ValidationError, TypeError):
        return []
