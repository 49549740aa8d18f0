"""Links between nodes: groups that share an uplink, and what was measured between groups."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from scheduler_plugin.documents.snapshot_references import known, shallow_tree, unique
from scheduler_plugin.documents.value import Id, Label, Value

__all__ = ["MAX_MEGABITS", "LinkGroup", "LinkPair", "Megabits", "gigabits_text", "links_hold"]

#: Terabits a second of a million; sums over 200,000 pods stay below 64 bits.
MAX_MEGABITS: Final = 2**40
Megabits = Annotated[int, Field(ge=0, le=MAX_MEGABITS)]


class LinkGroup(Value):
    """Nodes with one value of the snapshot's ``link_label``, or groups of them.

    Attributes:
        name: The label's value; of a group of groups any other name.
        parent: The group above it, empty for none.
        uplink_megabits: Megabits a second that its uplink carries one way; None for no limit.
        used_megabits: Of these, what others than gangs of the snapshot use.
    """

    name: Id
    parent: Label = ""
    uplink_megabits: Megabits | None = None
    used_megabits: Megabits = 0


class LinkPair(Value):
    """What was measured between nodes of two groups, or of one, both ways alike.

    Attributes:
        megabits: A second, between two nodes.
    """

    one: Id
    other: Id
    megabits: Megabits
    latency_microseconds: Annotated[int, Field(ge=0, le=10**9)] = 0


def gigabits_text(megabits: int) -> str:
    """For people: ``400 Gbit/s``."""
    return f"{megabits / 1000:,.10g} Gbit/s"


def links_hold(
    label: str, groups: tuple[LinkGroup, ...], pairs: tuple[LinkPair, ...], field: str = "link_"
) -> None:
    """Raise a ValueError unless every name and pair is there once, and every parent is there."""
    if (groups or pairs) and not label:
        raise ValueError(f"{field}label: a label of nodes beside {field}groups or {field}pairs")
    names = [group.name for group in groups]
    unique(f"{field}groups.name", names)
    known(f"{field}groups.parent", {group.parent for group in groups} - {""}, set(names))
    shallow_tree(f"{field}groups.parent", {group.name: group.parent for group in groups})
    unique(f"{field}pairs", ["/".join(sorted((pair.one, pair.other))) for pair in pairs])
