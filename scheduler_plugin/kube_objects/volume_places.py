"""Where a pod's volumes let it go: node affinity of PersistentVolumes that its claims are bound to.

A claim without a volume waits for its first consumer, and where its storage can be made is
kube-scheduler's to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["NodeTerms", "VolumePlaces", "claim_keys"]

_Key = tuple[str, str]
NodeTerms = list[Mapping[str, Any]]


def claim_keys(pod: JsonObject) -> list[_Key]:
    """Namespace and name of the PersistentVolumeClaims that a pod mounts, ephemeral ones too."""
    space, name = pod_facts.namespace(pod), pod["metadata"].get("name", "")
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            found.append((space, str(claim)))
        elif volume.get("ephemeral"):
            found.append((space, f"{name}-{volume.get('name')}"))
    return found


@dataclass(frozen=True, slots=True)
class VolumePlaces:
    """Claims and volumes.

    Attributes:
        volume_of: Name of a claim's volume, empty for one that is not bound. None where claims
            cannot be read: then volumes are left to kube-scheduler.
        terms_of: Node terms by volume, empty where any node will do.
    """

    volume_of: Mapping[_Key, str] | None = None
    terms_of: Mapping[str, NodeTerms] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[JsonObject], volumes: Iterable[JsonObject]) -> VolumePlaces:
        """From objects as the API server shows them."""
        names = {
            (pod_facts.namespace(c), str(c["metadata"]["name"])): str(
                (c.get("spec") or {}).get("volumeName") or ""
            )
            for c in claims
        }
        terms: dict[str, NodeTerms] = {}
        for volume in volumes:
            affinity = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
            terms[str(volume["metadata"]["name"])] = list(affinity.get("nodeSelectorTerms") or ())
        return cls(names, terms)

    def of_pod(self, pod: JsonObject) -> list[NodeTerms]:
        """Alternatives of node terms, each of which has to hold.

        Raises:
            InputError: naming a claim that is not there.
        """
        if self.volume_of is None:
            return []
        found: list[NodeTerms] = []
        for key in claim_keys(pod):
            if key not in self.volume_of:
                raise InputError("spec.volumes", "a PersistentVolumeClaim that is there", key[1])
            terms = self.terms_of.get(self.volume_of[key], [])
            found += [terms] if terms else []
        return found
