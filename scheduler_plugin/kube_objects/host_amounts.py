"""Host resources and classes as annotations and labels say them; what nobody says limits nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler_plugin.documents.host_resources import HOST_RESOURCES, MAX_HOST_AMOUNT, NOT_LIMITED
from wattpack.errors import InputError
from wattpack.object_names import (
    CPU_CLASS_LABEL,
    NIC_CLASS_LABEL,
)
from wattpack.quantities import parse_quantity

__all__ = ["asked_of_host", "cpu_class", "nic_class", "offered_by_host"]

_NFD_CPU: Final = tuple(
    f"feature.node.kubernetes.io/cpu-model.{part}" for part in ("vendor_id", "family", "id")
)
"""As Node Feature Discovery says what CPU a node has."""


def asked_of_host(pod: Mapping[str, Any]) -> dict[str, int]:
    """What a pod's annotations ask of its host, by name and in units of a snapshot, rounded up.

    Raises:
        InputError: naming the annotation that is no quantity, or more than any host has.
    """
    annotations = pod["metadata"].get("annotations") or {}
    found: dict[str, int] = {}
    for name, resource in HOST_RESOURCES.items():
        if resource.annotation not in annotations:
            continue
        field = f"metadata.annotations.{resource.annotation}"
        text = annotations[resource.annotation]
        amount = -(-parse_quantity(field, text) // resource.per_unit)
        if amount > MAX_HOST_AMOUNT:
            raise InputError(field, f"at most {MAX_HOST_AMOUNT}M", text)
        if amount:
            found[name] = amount
    return found


def offered_by_host(node: Mapping[str, Any]) -> dict[str, int]:
    """The same of a node, rounded down; of what cannot be read it offers nothing: no guess."""
    annotations = node["metadata"].get("annotations") or {}
    found: dict[str, int] = {}
    for name, resource in HOST_RESOURCES.items():
        if resource.annotation in annotations:
            try:
                amount = parse_quantity(resource.annotation, annotations[resource.annotation])
            except InputError:
                amount = 0
            found[name] = min(amount // resource.per_unit, NOT_LIMITED)
    return found


def cpu_class(labels: Mapping[str, str]) -> str:
    """A node's: by its own label, else vendor, family and model as feature discovery says them."""
    parts = [labels.get(name, "") for name in _NFD_CPU]
    return labels.get(CPU_CLASS_LABEL) or ("-".join(parts) if all(parts) else "")


def nic_class(labels: Mapping[str, str]) -> str:
    """A node's."""
    return labels.get(NIC_CLASS_LABEL, "")
