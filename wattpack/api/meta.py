"""What all objects share: names of group and kinds, conditions, camel-case fields.

Python names are snake_case with unit suffix (``rating_watts``); the wire has camelCase
(``ratingWatts``). Unknown fields, NaN and infinities are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from wattpack.kube.port import Resource

GROUP = "wattpack.io"
VERSION = "v1alpha1"

Name = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
Watts = Annotated[float, Field(gt=0, le=1e9)]
NonNegativeWatts = Annotated[float, Field(ge=0, le=1e9)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class ApiModel(BaseModel):
    """A part of an object's spec or status."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    def to_json(self) -> dict[str, Any]:
        """The camelCase mapping, without unset optional fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ConditionStatus(StrEnum):
    """As in metav1.Condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: ConditionStatus
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)] = ""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    last_transition_time: Annotated[str, Field(max_length=64)] = ""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


@dataclass(frozen=True, slots=True)
class PrintColumn:
    """A column of ``kubectl get``; priority 1 shows only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    description: str
    priority: int = 0
    format: str = ""


@dataclass(frozen=True, slots=True)
class KindMeta:
    """What a CRD needs beyond the schema."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrintColumn, ...]

    @property
    def resource(self) -> Resource:
        """The kind as the API port names it."""
        return Resource(GROUP, VERSION, self.plural, self.kind, self.namespaced)


class ApiObject(BaseModel):
    """A whole object: subclasses add ``spec`` and ``status``."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", allow_inf_nan=False
    )
    meta: ClassVar[KindMeta]

    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, empty for cluster-scoped kinds."""
        return str(self.metadata.get("namespace", ""))

    @property
    def generation(self) -> int:
        """``metadata.generation``."""
        return int(self.metadata.get("generation", 0))


AGE = PrintColumn("Age", "date", ".metadata.creationTimestamp", "Time since creation")
READY = PrintColumn(
    "Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether it does its job"
)
