"""Which pods must start together, and how many of them there will be.

Size counts members that do not exist yet, because some owners (leader-first start) create the
others only once the first one runs. Members that have finished, and those that ask for no GPU and
so never wait for us, do not count. Who belongs to what: ``wattpack.gang_sources``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wattpack.gang_sizes import GangSize, Topology
from wattpack.gang_sources import (
    PREFERRED_TOPOLOGY_ANNOTATION,
    REQUIRED_TOPOLOGY_ANNOTATION,
    GangSource,
    Marks,
    sources_of,
)

__all__ = ["GangRef", "GangSources", "gang_of", "source_of"]


@dataclass(frozen=True, slots=True)
class GangRef:
    """A pod's gang.

    Attributes:
        size: Members that start together; None where only an object that we could not read knows.
        is_declared: Somebody wrote the size down once: it counts every member, also those that ask
            for no GPU and those that have finished. Otherwise it was counted from templates.
        is_elastic: Members beyond ``size`` may follow one by one.
        most: Members of an elastic gang; None for whoever carries its mark.
        topology: A domain that members share.
    """

    id: str
    size: int | None
    is_declared: bool = True
    is_elastic: bool = False
    most: int | None = None
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class GangSources:
    """Sizes from owners, by the source's name, then ``namespace/name``."""

    sizes: Mapping[str, Mapping[str, GangSize]] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> GangSources:
        """Only what pods themselves carry."""
        return cls()

    def of(self, source: GangSource, owner: str) -> GangSize | None:
        """What the owner says; None if it could not be read."""
        return self.sizes.get(source.name, {}).get(owner)


def gang_of(pod: Mapping[str, Any], sources: GangSources) -> GangRef | None:
    """The pod's gang, by the first source that names one; None for a single pod.

    Raises:
        InputError: if a declared size is not a whole number from 1 to 100,000, or two of them.
    """
    marks = Marks.of(pod)
    space = str(pod["metadata"].get("namespace", "default"))
    for source in sources_of(marks):
        found = source.member(marks)
        if found is not None:
            size = found.size or sources.of(source, f"{space}/{found.owner}")
            return _ref(f"{space}/{found.id}", source, size, marks)
    return None


def source_of(pod: Mapping[str, Any]) -> tuple[GangSource, str] | None:
    """The source whose mark the pod carries, and the id of the gang that it names.

    Raises:
        InputError: as ``gang_of``.
    """
    marks = Marks.of(pod)
    space = str(pod["metadata"].get("namespace", "default"))
    for source in sources_of(marks):
        found = source.member(marks)
        if found is not None:
            return source, f"{space}/{found.id}"
    return None


def _ref(gang_id: str, source: GangSource, size: GangSize | None, marks: Marks) -> GangRef | None:
    """One member is no gang, unless somebody says so."""
    if size is None:
        return GangRef(gang_id, None, source.is_declared)
    if size.least <= 1 and (size.is_elastic or not source.is_declared):
        return None
    topology = _own_topology(marks) or size.topology
    declared = source.is_declared
    return GangRef(gang_id, size.least, declared, size.is_elastic, size.most, topology)


def _own_topology(marks: Marks) -> Topology | None:
    required = marks.annotations.get(REQUIRED_TOPOLOGY_ANNOTATION)
    preferred = marks.annotations.get(PREFERRED_TOPOLOGY_ANNOTATION)
    key = required or preferred
    return Topology(key, required=bool(required)) if key else None
