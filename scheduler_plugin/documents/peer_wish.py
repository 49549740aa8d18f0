"""What a pod would rather have of other pods around it: preferred (anti-)affinity, soft spread."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scheduler_plugin.documents.value import Value

__all__ = ["PeerWish"]


class PeerWish(Value):
    """One wish; a domain is all nodes with the same value of a label, or without it.

    Attributes:
        weight: With more rather, as in core/v1.
        group: Whose pods are counted.
        topology_key: The label.
        near: One of the group at least in the pod's domain; otherwise as few of them as possible.
    """

    weight: Annotated[int, Field(ge=1, le=100)]
    group: Annotated[str, Field(min_length=1, max_length=640)]
    topology_key: Annotated[str, Field(min_length=1, max_length=640)]
    near: bool = False
