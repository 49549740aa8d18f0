"""What all objects share: names of group and kinds, conditions, camel-case fields.

Python names are snake_case with unit suffix (``rating_watts``); the wire has camelCase
(``ratingWatts``). NaN and infinities are refused, always.

Strict when people write, tolerant when processes read. ``from_json`` refuses unknown fields: what
a person misspelled must not pass (files, command line, the embedded API server; a real one does
the same through the generated schemas). ``read`` leaves unknown fields out, at every depth: a CRD
is upgraded before the processes, and a default of the newer version must not stop the older ones.
A *known* field with a value that we do not understand is refused by both: acting on a guess is
worse than keeping the last good state (I8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from wattpack.errors import InputError
from wattpack.kube.port import Resource
from wattpack.named_problems import named_problem

GROUP = "wattpack.io"
VERSION = "v1alpha1"

Name = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
Watts = Annotated[float, Field(gt=0, le=1e9)]
NonNegativeWatts = Annotated[float, Field(ge=0, le=1e9)]
Fraction = Annotated[float, Field(ge=0, le=1)]
LabelValue = Annotated[str, Field(max_length=63)]
ModelName = Annotated[str, Field(min_length=1, max_length=128)]
Counter = Annotated[int, Field(ge=0)]

RFC3339_PATTERN = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})"
CLOCK_PATTERN = r"([01]\d|2[0-3]):[0-5]\d"
Rfc3339 = Annotated[str, Field(min_length=1, max_length=64, pattern=f"^{RFC3339_PATTERN}$")]
Rfc3339OrClock = Annotated[
    str, Field(max_length=64, pattern=f"^({CLOCK_PATTERN}|{RFC3339_PATTERN})$")
]
ObservedGeneration = Annotated[
    int, Field(ge=0, description="The metadata.generation that this status speaks of")
]


@dataclass(frozen=True, slots=True)
class CelRule:
    """A validator said once more in CEL, for the API server.

    Attributes:
        rule: CEL over ``self`` (and ``oldSelf`` for a rule about changes).
        message: What the user reads when it is false, as ``named_problem`` takes it: the field that
            is to change, a colon, what was expected.
    """

    rule: str
    message: str


class _WithCelRules(BaseModel):
    """Writes the class's CEL rules into its schema, beside the validators that they equal."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.cel_rules:
            schema["x-kubernetes-validations"] = [
                {"rule": rule.rule, "message": rule.message} for rule in cls.cel_rules
            ]
        return schema


class ApiModel(_WithCelRules):
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

    type: Annotated[
        str, Field(min_length=1, max_length=316, description="Type of the condition, CamelCase")
    ]
    status: Annotated[ConditionStatus, Field(description="True, False or Unknown")]
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, description="Why, one CamelCase word")
    ]
    message: Annotated[
        str, Field(max_length=32768, description="Details for people, with the figures")
    ] = ""
    observed_generation: Annotated[
        int, Field(ge=0, description="The metadata.generation that the condition speaks of")
    ] = 0
    last_transition_time: Annotated[
        str, Field(max_length=64, description="When status last changed, RFC 3339")
    ] = ""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        description="What holds now, one entry a type",
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


def _refused(error: ValidationError, source: str) -> InputError:
    """The first problem in our words; an unknown field explains the missing one beside it."""
    problems = error.errors()
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    first = (unknown or problems)[0]
    named = named_problem(first)
    field = named.field or "spec"
    if unknown:
        return InputError(field, "a known field", first["loc"][-1], source)
    if first["type"] == "missing":
        return InputError(field, "a value", None, source)
    return InputError(field, named.expected, named.got, source)


class ApiObject(_WithCelRules):
    """A whole object: subclasses add ``spec`` and ``status``."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", allow_inf_nan=False
    )
    meta: ClassVar[KindMeta]

    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """The object behind a JSON mapping, as strictly as the API server takes it.

        Raises:
            InputError: naming the first field that is unknown, missing or wrong.
        """
        source = cls._source(body)
        for key in body.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
            raise InputError(key, "only apiVersion, kind, metadata, spec, status", key, source)
        return cls._parse(body, source)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """The object that the API server holds, without fields that only newer versions know.

        Raises:
            InputError: naming the first field that is missing or wrong.
        """
        return cls._parse(body, cls._source(body), "ignore")

    @classmethod
    def _source(cls, body: Mapping[str, Any]) -> str:
        kind = cls.meta.kind
        if not isinstance(body, Mapping):
            raise InputError("object", f"a {kind} as a JSON object", body)
        metadata = body.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return f"{kind} {name}".strip()

    @classmethod
    def _parse(
        cls, body: Mapping[str, Any], source: str, extra: Literal["ignore"] | None = None
    ) -> Self:
        _require_type(body, cls.meta, source)
        try:
            text = json.dumps(_without_nulls(body))
            return cls.model_validate_json(text, strict=True, extra=extra)
        except ValidationError as error:
            raise _refused(error, source) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(cls.meta.kind, "a JSON object", str(error), source) from error

    def to_json(self) -> dict[str, Any]:
        """The whole object as the API server takes it, without unset optional fields."""
        body = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        resource = self.meta.resource
        return {"apiVersion": resource.api_version, "kind": resource.kind, **body}

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


def _without_nulls(value: Any) -> Any:  # noqa: ANN401
    """The value without null fields: like the API server, null is the same as unset."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


def _require_type(body: Mapping[str, Any], meta: KindMeta, source: str) -> None:
    expected = {"apiVersion": meta.resource.api_version, "kind": meta.kind}
    for key, value in expected.items():
        if body.get(key, value) != value:
            raise InputError(key, value, body[key], source)


AGE = PrintColumn("Age", "date", ".metadata.creationTimestamp", "Time since creation")
READY = PrintColumn(
    "Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether it does its job"
)
