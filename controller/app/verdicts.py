"""What becomes of each object that operators write: accepted or not, and why, within seconds.

refusals, newest objects ──> Verdict ──> status conditions Accepted and Ready

PowerDomains that run get their status from the tick (``domain_status``); here are those that do
not run, policies, overrides and GPU profiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from capacity.gpu_profile import GpuProfile
from controller.app.desired_state import Objects, Refusal
from controller.app.odd_servers import MEMBERS_UNDERSTOOD
from controller.budget import override_active, override_notice, override_objection
from controller.tick_values import Topology
from forecasting.forecast_book import FORECAST_TRUSTED
from wattpack.api import GPUProfile, PowerDomain, PowerOverride, PowerPolicy
from wattpack.api.conditions import Finding, own_conditions, set_condition
from wattpack.api.inventory import GPUProfileStatus
from wattpack.api.object_meta import ApiModel, Condition
from wattpack.api.policy import PowerOverrideStatus, PowerPolicyStatus
from wattpack.api.power_domain import PowerDomainStatus
from wattpack.kube.port import Resource

__all__ = ["OWN_TYPES", "Verdict", "VerdictBook"]

#: Conditions that the controller tells; a domain that runs has all of them.
OWN_TYPES = frozenset({"Accepted", "Ready", "Degraded", FORECAST_TRUSTED, MEMBERS_UNDERSTOOD})

ObjectKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is found of one object.

    Attributes:
        accepted: None while nothing can be judged yet.
        reason: One CamelCase word.
        message: For people, never empty.
        generation: That was judged.
    """

    accepted: bool | None
    reason: str
    message: str
    generation: int


class VerdictBook:
    """Statuses of the objects that the tick says nothing of; keeps their transition times."""

    def __init__(self) -> None:
        self._conditions: dict[ObjectKey, list[Condition]] = {}

    def statuses(
        self,
        objects: Objects,
        profiles: Mapping[str, GpuProfile],
        refusals: Sequence[Refusal],
        topology: Topology | None,
        wall_time_ns: int,
    ) -> Iterator[tuple[Resource, str, ApiModel]]:
        """Kind, name and status of each object that has to be told.

        Args:
            objects: The newest that could be read.
            profiles: What is used of each GPUProfile object, by its name.
            refusals: What does not run, also what could not be read.
            topology: What runs; None before anything does.
            wall_time_ns: Now.
        """
        told = {(r.kind, r.name): _refused(r) for r in refusals}
        running = set(topology.tree.names) if topology is not None else set()
        for name in _names(PowerDomain.meta.kind, objects.domains, told):
            if name not in running:
                yield self._domain(name, objects.domains.get(name), told, wall_time_ns)
        for name in _names(PowerPolicy.meta.kind, objects.policies, told):
            yield self._policy(name, objects.policies.get(name), told, wall_time_ns)
        for name in _names(PowerOverride.meta.kind, objects.overrides, told):
            override = objects.overrides.get(name)
            yield self._override(name, override, told, topology, wall_time_ns)
        for name in _names(GPUProfile.meta.kind, profiles, told):
            yield self._profile(name, objects, profiles.get(name), told, wall_time_ns)

    def forget(self, kind: str, name: str) -> None:
        """Drop what was said of an object that is gone."""
        self._conditions.pop((kind, name), None)

    def _domain(
        self,
        name: str,
        domain: PowerDomain | None,
        told: Mapping[ObjectKey, Verdict],
        wall_time_ns: int,
    ) -> tuple[Resource, str, ApiModel]:
        key = (PowerDomain.meta.kind, name)
        generation = domain.generation if domain is not None else 0
        verdict = told.get(key) or Verdict(
            None,
            "WaitingForAgents",
            "judged as soon as the first agent has reported: until then nothing is known of what "
            "hangs below",
            generation,
        )
        earlier = domain.status if domain is not None else PowerDomainStatus()
        status = PowerDomainStatus(
            observed_generation=verdict.generation,
            # What a leader before this one accepted stays accepted until this one knows better.
            accepted_spec=earlier.accepted_spec,
            conditions=self._judged(key, earlier.conditions, verdict, wall_time_ns),
        )
        return PowerDomain.meta.resource, name, status

    def _policy(
        self,
        name: str,
        policy: PowerPolicy | None,
        told: Mapping[ObjectKey, Verdict],
        wall_time_ns: int,
    ) -> tuple[Resource, str, ApiModel]:
        key = (PowerPolicy.meta.kind, name)
        verdict = told.get(key) or _fine(policy.generation if policy is not None else 0)
        earlier = policy.status.conditions if policy is not None else []
        conditions = self._judged(key, earlier, verdict, wall_time_ns)
        status = PowerPolicyStatus(observed_generation=verdict.generation, conditions=conditions)
        return PowerPolicy.meta.resource, name, status

    def _override(
        self,
        name: str,
        override: PowerOverride | None,
        told: Mapping[ObjectKey, Verdict],
        topology: Topology | None,
        wall_time_ns: int,
    ) -> tuple[Resource, str, ApiModel]:
        key = (PowerOverride.meta.kind, name)
        verdict = told.get(key)
        if verdict is None and override is not None:
            objection = override_objection(override, topology)
            verdict = _fine(override.generation)
            if objection:
                is_target = objection.startswith("spec.target")
                reason = "NoSuchTarget" if is_target else "NotUnderstood"
                verdict = Verdict(False, reason, objection, override.generation)
            elif notice := override_notice(override, topology, wall_time_ns):
                verdict = Verdict(True, verdict.reason, notice, override.generation)
        verdict = verdict or _fine(0)
        earlier = override.status.conditions if override is not None else []
        rules = override is not None and override_active(override, wall_time_ns)
        status = PowerOverrideStatus(
            observed_generation=verdict.generation,
            active=bool(rules and verdict.accepted),
            conditions=self._judged(key, earlier, verdict, wall_time_ns),
        )
        return PowerOverride.meta.resource, name, status

    def _profile(
        self,
        name: str,
        objects: Objects,
        used: GpuProfile | None,
        told: Mapping[ObjectKey, Verdict],
        wall_time_ns: int,
    ) -> tuple[Resource, str, ApiModel]:
        key = (GPUProfile.meta.kind, name)
        metadata = objects.plain_profiles.get(name, {}).get("metadata", {})
        verdict = told.get(key) or _fine(int(metadata.get("generation", 0)))
        classes = used.kernel_classes if used is not None else {}
        measured = sorted(k for k, c in classes.items() if c.provenance == "measured")
        status = GPUProfileStatus(
            observed_generation=verdict.generation,
            source=f"measured: {', '.join(measured) or 'nothing'}"[:256] if used else None,
            error_fraction=max((c.error_mape for c in classes.values()), default=None),
            conditions=self._judged(key, (), verdict, wall_time_ns),
        )
        return GPUProfile.meta.resource, name, status

    def _judged(
        self, key: ObjectKey, earlier: Sequence[Condition], verdict: Verdict, wall_time_ns: int
    ) -> list[Condition]:
        conditions = self._conditions.get(key, own_conditions(earlier, OWN_TYPES))
        for kind in ("Accepted", "Ready"):
            conditions = set_condition(
                conditions,
                Finding(kind, verdict.accepted, verdict.reason, verdict.message),
                observed_generation=verdict.generation,
                wall_time_ns=wall_time_ns,
            )
        self._conditions[key] = conditions
        return conditions


def _names(kind: str, known: Mapping[str, object], told: Mapping[ObjectKey, Verdict]) -> list[str]:
    """Objects of a kind, also those that could never be read."""
    return sorted({*known, *(name for k, name in told if k == kind)})


def _refused(refusal: Refusal) -> Verdict:
    message = refusal.message or f"{refusal.reason}; what ran before runs on"
    return Verdict(False, refusal.reason, message, refusal.generation)


def _fine(generation: int) -> Verdict:
    return Verdict(True, "Valid", "the newest spec is in use", generation)
