"""What a pod's claims of dynamic resource allocation ask for, or hold, in a snapshot's terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_plugin.documents.mig_geometry import geometry_of
from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.device_requests import Devices, DeviceSlices, UncountedClaimError, asked_for
from wattpack.kube.port import JsonObject
from wattpack.resource_claims import ClaimBook, ClaimEntry, asks_for_claims

__all__ = ["CLAIM_NOT_COUNTED", "ClaimObjects", "PodClaims"]

#: Reason of a pod whose claims cannot be told in counts: it is let go at once.
CLAIM_NOT_COUNTED = "ClaimNotCounted"
NodeTerms = list[Mapping[str, Any]]
"""Alternatives of core/v1, as in ``nodeSelectorTerms``."""


@dataclass(frozen=True, slots=True)
class ClaimObjects:
    """What is read for claims.

    Attributes:
        slices: Devices of all nodes; none while no waiting pod has a claim.
        templates: ResourceClaimTemplates by namespace and name.
    """

    slices: DeviceSlices = field(default_factory=DeviceSlices)
    templates: Mapping[tuple[str, str], JsonObject] = field(default_factory=dict)


class PodClaims:
    """Claims of all pods.

    Args:
        pods: That are alive.
        book: Claims, held by them.
        objects: Devices and templates.
    """

    def __init__(self, pods: Iterable[JsonObject], book: ClaimBook, objects: ClaimObjects) -> None:
        self._book, self._objects = book, objects
        self._users: Counter[tuple[str, str]] = Counter()
        for pod in filter(asks_for_claims, pods):
            named = {e.name for e in book.entries(pod) if e.name and not e.template}
            self._users.update((_space(pod), name) for name in named)

    def held(self, pod: JsonObject) -> Devices:
        """Devices that count for a pod with a node."""
        boards = self._book.held(pod)
        if not boards:
            return Devices()
        # A part of a board counts as a board, too: nobody else may have the rest.
        return Devices(self._objects.slices.held(self._book.held_devices(pod)), boards)

    def cut_into(self, node: str = "") -> frozenset[str]:
        """Profiles into which boards are cut on a node, or on any while no such instance exists."""
        offered = self._objects.slices.by_node
        if node:
            known = offered.get(node, Devices()).cut_into
            return frozenset(known) if geometry_of(known) else frozenset()
        cut = {p for o in offered.values() if geometry_of(o.cut_into) for p in o.cut_into}
        return frozenset(cut - {p for o in offered.values() for p in o.profiles})

    def asked(self, pod: JsonObject) -> tuple[Devices, list[NodeTerms]]:
        """What a pod without a node needs there, and where claims that it shares have to be.

        Raises:
            UncountedClaimError: if a claim cannot be told in counts.
        """
        needed, places = Devices(), list[NodeTerms]()
        for entry in self._book.entries(pod):
            status = (entry.body or {}).get("status") or {}
            if allocation := status.get("allocation"):
                terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms")
                places += [list(terms)] if terms else []
                if entry.allocated and entry.allocated.counts_for(pod_facts.uid(pod)):
                    held = self._objects.slices.held(entry.allocated.devices)
                    needed = needed + Devices(held, entry.allocated.gpus)
            else:
                needed = needed + asked_for(self._spec(pod, entry))
        if len(needed.products) > 1:
            raise UncountedClaimError("spec.resourceClaims", "one product", needed.products)
        return needed, places

    def _spec(self, pod: JsonObject, entry: ClaimEntry) -> Mapping[str, Any]:
        """Of a claim that is not allocated."""
        if not entry.template and self._users[_space(pod), entry.name] > 1:
            expected = "an allocated claim, or one of the pod's own"
            raise UncountedClaimError("spec.resourceClaims", expected, entry.name)
        if entry.body is not None:
            spec: Mapping[str, Any] = entry.body.get("spec") or {}
            return spec
        template = self._objects.templates.get((_space(pod), entry.template))
        if template is None:
            expected = "a claim or template that is there"
            raise UncountedClaimError("spec.resourceClaims", expected, entry.name or entry.template)
        made: Mapping[str, Any] = (template.get("spec") or {}).get("spec") or {}
        return made


def _space(pod: JsonObject) -> str:
    return str(pod["metadata"].get("namespace", ""))
