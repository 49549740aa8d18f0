"""PowerPolicy and PowerOverride: what caps may do to work, and what people decide by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from wattpack.api.object_meta import (
    AGE,
    READY,
    ApiModel,
    ApiObject,
    CelRule,
    Conditions,
    Counter,
    Fraction,
    KindMeta,
    LabelValue,
    Name,
    ObservedGeneration,
    PrintColumn,
    Rfc3339,
    Watts,
)
from wattpack.times import parse_rfc3339


class WorkSelector(ApiModel):
    """Which pods a policy speaks of; empty parts match everything."""

    priority_classes: Annotated[
        list[Name], Field(max_length=64, description="PriorityClass names, any of them")
    ] = []
    namespaces: Annotated[
        list[Name], Field(max_length=256, description="Namespaces, any of them")
    ] = []
    labels: Annotated[
        dict[str, LabelValue], Field(max_length=16, description="Pod labels, all of them")
    ] = {}


class Actuator(StrEnum):
    """How a GPU's power may be reduced."""

    POWER_LIMIT = "PowerLimit"
    CLOCK_LOCK = "ClockLock"


class PowerPolicySpec(ApiModel):
    """What caps may do to a class of work."""

    selector: Annotated[WorkSelector, Field(description="Which pods; empty matches all")] = (
        WorkSelector()
    )
    priority: Annotated[
        int, Field(ge=-1000000, le=1000000, description="Higher is capped later; no default")
    ]
    floor_fraction: Annotated[
        Fraction | None,
        Field(
            description="Floor as share of the default limit, at most requestFraction. Unset: the "
            "GPU type's knee, or requestFraction where that is lower; never below the board's "
            "lowest limit"
        ),
    ] = None
    request_fraction: Annotated[
        Fraction,
        Field(
            description="Request as share of the default limit; never below the board's lowest "
            "limit"
        ),
    ] = 1.0
    interactive: Annotated[
        bool,
        Field(
            description="Somebody waits for answers. Decides only which of two policies of equal "
            "priority a pod gets; caps go by priority alone, so give such work a higher one"
        ),
    ] = False
    malleable: Annotated[
        bool,
        Field(
            description="May be shrunk or suspended at a checkpoint. Recorded, not acted on yet: "
            "nothing is shrunk or suspended for power"
        ),
    ] = False
    allowed_actuators: Annotated[
        list[Actuator],
        Field(
            min_length=1,
            max_length=2,
            description="How power may be reduced; with both, what is known of the work decides",
        ),
    ] = [Actuator.POWER_LIMIT]
    disruptions_per_hour: Annotated[
        int,
        Field(
            ge=0,
            le=10000,
            description="Evictions allowed each hour to save power. Recorded, not acted on yet: "
            "nothing is evicted for power",
        ),
    ] = 0

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.floorFraction) || !has(self.requestFraction)"
            " || self.floorFraction <= self.requestFraction",
            "floorFraction: at most requestFraction",
        ),
    )

    @model_validator(mode="after")
    def _floor_lies_within_the_request(self) -> Self:
        if self.floor_fraction is not None and self.floor_fraction > self.request_fraction:
            raise ValueError("floorFraction: at most requestFraction")
        return self


class PowerPolicyStatus(ApiModel):
    """Which work matches."""

    observed_generation: ObservedGeneration = 0
    matched_gpus: Annotated[
        Counter | None, Field(description="GPUs whose work matches. Not filled in yet")
    ] = None
    conditions: Conditions = []


class PowerPolicy(ApiObject):
    """What caps may do to a class of work: order, floor, actuators."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PowerPolicy",
        "powerpolicies",
        ("ppol",),
        False,
        (
            PrintColumn("Priority", "integer", ".spec.priority", "Higher is capped later"),
            PrintColumn("Floor", "number", ".spec.floorFraction", "Share of the default limit"),
            PrintColumn(
                "Actuator", "string", ".spec.allowedActuators[0]", "First of those allowed"
            ),
            READY,
            AGE,
        ),
    )
    spec: Annotated[PowerPolicySpec, Field(description="What caps may do")]
    status: Annotated[PowerPolicyStatus, Field(description="What the controller found")] = (
        PowerPolicyStatus()
    )


class OverrideTarget(ApiModel):
    """Exactly one of the three."""

    domain: Annotated[Name | None, Field(description="A PowerDomain by name")] = None
    node: Annotated[Name | None, Field(description="A node by name: each of its GPUs")] = None
    gpu_uuid: Annotated[
        str | None, Field(min_length=1, max_length=128, description="One GPU by its UUID")
    ] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "[has(self.domain), has(self.node), has(self.gpuUuid)].filter(x, x).size() == 1",
            "exactly one of domain, node, gpuUuid",
        ),
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(x is not None for x in (self.domain, self.node, self.gpu_uuid)) != 1:
            raise ValueError("exactly one of domain, node, gpuUuid")
        return self


class PowerOverrideSpec(ApiModel):
    """A manual cap, with a reason and an end."""

    target: Annotated[OverrideTarget, Field(description="What is capped; it cannot be changed")]
    cap_watts: Annotated[
        Watts, Field(description="Per GPU for node and gpuUuid; of the whole domain for domain")
    ]
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, description="Why, for those who read it later")
    ]
    expires_at: Annotated[Rfc3339, Field(description="When it ends, RFC 3339")]

    @field_validator("expires_at")
    @classmethod
    def _is_a_moment(cls, text: str) -> str:
        """The pattern of the schema lets the 45th of a month through."""
        parse_rfc3339(text)
        return text

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("self.target == oldSelf.target", "target cannot be changed; make a new override"),
    )


class PowerOverrideStatus(ApiModel):
    """Whether it rules now."""

    observed_generation: ObservedGeneration = 0
    active: Annotated[bool | None, Field(description="Whether it rules now")] = None
    conditions: Conditions = []


class PowerOverride(ApiObject):
    """A manual cap with a reason and an expiry."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PowerOverride",
        "poweroverrides",
        ("pover",),
        False,
        (
            PrintColumn("Target", "string", ".spec.target.*", "Domain, node or GPU by name"),
            PrintColumn("Cap", "number", ".spec.capWatts", "Watts"),
            PrintColumn("Expires", "string", ".spec.expiresAt", "When it ends"),
            READY,
            AGE,
        ),
    )
    spec: Annotated[PowerOverrideSpec, Field(description="What is capped, how far and until when")]
    status: Annotated[PowerOverrideStatus, Field(description="What the controller found")] = (
        PowerOverrideStatus()
    )
