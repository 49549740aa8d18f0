"""PlacementPlan: what was promised to which pods, and what waits for what."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattpack.api.object_meta import (
    AGE,
    ApiModel,
    ApiObject,
    CelRule,
    Conditions,
    Counter,
    KindMeta,
    Name,
    ObservedGeneration,
    PrintColumn,
)

MAX_SHORT_DOMAINS = 16
MAX_HEADROOM_DOMAINS = 256
"""Of one plan: some 40 kB; the others have more room and are counted."""


class Promise(ApiModel):
    """One pod that will get one node."""

    pod_uid: Annotated[str, Field(min_length=1, max_length=64, description="metadata.uid")]
    namespace: Annotated[str, Field(max_length=253, description="Namespace of the pod")]
    name: Annotated[str, Field(max_length=253, description="Name of the pod")]
    node: Annotated[Name, Field(description="The node that it will get")]
    gang: Annotated[str, Field(max_length=640, description="Its gang; empty = none")] = ""
    until: Annotated[
        str,
        Field(
            max_length=64, description="When the place of a missing member is given up, RFC 3339"
        ),
    ] = ""
    cap_watts: Annotated[
        int,
        Field(ge=0, le=20000, description="Cap of its boards that the plan counts on; 0 = none"),
    ] = 0


class PendingPod(ApiModel):
    """One pod without a place, and why."""

    pod_uid: Annotated[str, Field(min_length=1, max_length=64, description="metadata.uid")]
    namespace: Annotated[str, Field(max_length=253, description="Namespace of the pod")]
    name: Annotated[str, Field(max_length=253, description="Name of the pod")]
    reason: Annotated[str, Field(max_length=64, description="Why, one CamelCase word")]
    message: Annotated[str, Field(max_length=1024, description="Why, with the figures")] = ""
    power_domains: Annotated[
        list[Name],
        Field(
            max_length=MAX_SHORT_DOMAINS,
            description="Power domains that are short above its best node, the tightest first",
        ),
    ] = []


class DomainHeadroom(ApiModel):
    """What one power domain may still take."""

    name: Annotated[Name, Field(description="The PowerDomain")]
    limit_watts: Annotated[float, Field(description="Upper edge of its cap band, AC watts")]
    counted_watts: Annotated[
        float,
        Field(description="What runs (forecast p99) and what was promised since, AC watts"),
    ]
    free_watts: Annotated[
        float, Field(description="limitWatts minus countedWatts, negative if over, AC watts")
    ]


class PlanHeadroom(ApiModel):
    """Power that is left for pods once the plan is carried out."""

    tightest: Annotated[
        str,
        Field(max_length=320, description="Kilowatts free in bindingDomain, and its name"),
    ]
    binding_domain: Annotated[Name, Field(description="The domain with the fewest free watts")]
    domains: Annotated[
        list[DomainHeadroom],
        Field(max_length=MAX_HEADROOM_DOMAINS, description="The tightest first"),
    ] = []
    omitted: Annotated[Counter, Field(description="Domains with more room that are not listed")] = 0


class PlacementPlanSpec(ApiModel):
    """Every open promise after one planning cycle; written before the first pod is patched.

    A plan with more promises than one object may hold has several parts, written before the first
    patch, too; a plan that lacks a part was never carried out.
    """

    snapshot_digest: Annotated[
        str, Field(max_length=128, description="Digest of the snapshot that was planned on")
    ]
    promises: Annotated[
        list[Promise], Field(max_length=2048, description="Pods that will get a node")
    ] = []
    pending: Annotated[
        list[PendingPod], Field(max_length=2048, description="Pods without a place, and why")
    ] = []
    part: Annotated[int, Field(ge=0, le=1000, description="Which part of the plan, from 0")] = 0
    parts: Annotated[int, Field(ge=1, le=1001, description="Parts of the plan")] = 1
    moves: Annotated[int, Field(ge=0, description="Running pods that are moved")] = 0
    gap: Annotated[float | None, Field(ge=0, le=1, description="Distance to the bound, share")] = (
        None
    )
    method: Annotated[str, Field(max_length=64, description="What made the plan")] = ""
    created_at: Annotated[
        str, Field(max_length=64, description="When the plan was made, RFC 3339")
    ] = ""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.snapshotDigest == oldSelf.snapshotDigest",
            "a plan belongs to one snapshot; make a new plan",
        ),
    )


class PlacementPlanStatus(ApiModel):
    """How far the promises are kept."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[
        Literal["Promised", "Applying", "Applied", "Expired"] | None,
        Field(description="Promised, Applying, Applied or Expired"),
    ] = None
    pods: Annotated[Counter | None, Field(description="Pods promised")] = None
    bound: Annotated[Counter | None, Field(description="Promised pods that are bound")] = None
    headroom: Annotated[
        PlanHeadroom | None, Field(description="Power left for pods, when the plan was made")
    ] = None
    conditions: Conditions = []


class PlacementPlan(ApiObject):
    """One planning cycle: promises, pending pods and the distance to the bound."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PlacementPlan",
        "placementplans",
        ("pplan",),
        False,
        (
            PrintColumn("Pods", "integer", ".status.pods", "Pods promised"),
            PrintColumn("Moves", "integer", ".spec.moves", "Running pods moved"),
            PrintColumn("Gap", "number", ".spec.gap", "Distance to the bound"),
            PrintColumn(
                "Headroom", "string", ".status.headroom.tightest", "Power left, tightest domain"
            ),
            PrintColumn("State", "string", ".status.state", "Promised, Applying, Applied, Expired"),
            AGE,
        ),
    )
    spec: Annotated[PlacementPlanSpec, Field(description="One planning cycle's promises")]
    status: Annotated[PlacementPlanStatus, Field(description="How far they are kept")] = (
        PlacementPlanStatus()
    )
