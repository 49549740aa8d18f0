"""What pods of one namespace or queue may hold together, as a value of snapshots."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import Field, field_validator, model_validator

from scheduler_plugin.documents.snapshot_amounts import Quantity, ResourceName
from scheduler_plugin.documents.value import Id, Value

__all__ = ["Quota"]

_SPELLED: Final = {"cpu": "milli_cpu", "memory": "memory_bytes", "gpu": "gpu_milli"}


class Quota(Value):
    """The most that pods which name it may hold on nodes together.

    What they hold beyond it already stays; only nothing is added.

    Attributes:
        limits: By resource: ``gpu_milli`` (parts of boards and MIG instances too), ``milli_cpu``,
            ``memory_bytes``, ``pods``, or a name as in ``resources`` of pods.
        used: Of those, by what the snapshot does not list.
    """

    name: Id
    limits: Annotated[dict[ResourceName, Quantity], Field(min_length=1)]
    used: dict[ResourceName, Quantity] = {}

    @field_validator("limits", "used")
    @classmethod
    def _in_order(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, right in _SPELLED.items():
            if name in value:
                raise ValueError(f"{right} in place of {name}")
        return dict(sorted(value.items()))

    @model_validator(mode="after")
    def _used_of_what_is_limited(self) -> Self:
        if unknown := sorted(set(self.used) - set(self.limits)):
            raise ValueError(f"used: resources of limits, {unknown[0]!r} is none")
        return self
