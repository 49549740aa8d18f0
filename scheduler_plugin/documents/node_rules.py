"""Taints, tolerations and node affinity, as in core/v1."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from scheduler_plugin.documents.value import Label, Value

__all__ = ["NodeTerm", "Preference", "Requirement", "Taint", "TaintEffect", "Toleration"]


class TaintEffect(StrEnum):
    """As in core/v1; PreferNoSchedule never blocks."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(Value):
    """A node refuses pods that do not tolerate this."""

    key: Label
    value: Label = ""
    effect: TaintEffect


class Toleration(Value):
    """As in core/v1: an empty key with Exists tolerates all, an empty effect means every one."""

    key: Label = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: Label = ""
    effect: TaintEffect | None = None


class Requirement(Value):
    """One expression over a node's labels, or over its name in ``match_fields``."""

    key: Label
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[Label, ...] = ()


class NodeTerm(Value):
    """All expressions must hold; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class Preference(Value):
    """Nodes that a pod would rather have; with more weight rather, as in core/v1."""

    weight: Annotated[int, Field(ge=1, le=100)]
    term: NodeTerm
