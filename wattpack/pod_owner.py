"""What survives a pod's replacement: its controller, or the pod itself where it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PodOwner:
    """As an owner reference names it."""

    api_version: str
    kind: str
    name: str
    uid: str


def owner_of(pod: Mapping[str, Any]) -> PodOwner:
    """The pod's controller, else the pod."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return PodOwner(
                str(owner.get("apiVersion", "")),
                str(owner.get("kind", "")),
                str(owner.get("name", "")),
                str(owner["uid"]),
            )
    return PodOwner("v1", "Pod", str(metadata["name"]), str(metadata.get("uid", "")))
