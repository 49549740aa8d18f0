"""Links between nodes as settings: in the words of a snapshot, which gets them as they are."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from scheduler_plugin.documents.link_groups import LinkGroup, LinkPair, links_hold
from scheduler_plugin.documents.snapshot_limits import MAX_LINK_GROUPS, MAX_LINK_PAIRS
from wattpack.settings import Settings

__all__ = ["LinkSettings"]


class LinkSettings(Settings):
    """What is known of links.

    Attributes:
        label: Of nodes; those with the same value share an uplink. Empty for no links.
        groups: Of nodes or of groups, with what their uplinks carry.
        pairs: Of groups, with what was measured between their nodes.
    """

    label: Annotated[str, Field(max_length=317)] = ""
    groups: Annotated[tuple[LinkGroup, ...], Field(max_length=MAX_LINK_GROUPS)] = ()
    pairs: Annotated[tuple[LinkPair, ...], Field(max_length=MAX_LINK_PAIRS)] = ()

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        links_hold(self.label, self.groups, self.pairs, "")
        return self

    @property
    def of_snapshot(self) -> dict[str, Any]:
        """The fields of a snapshot."""
        return {
            "link_label": self.label,
            "link_groups": self.groups,
            "link_pairs": self.pairs,
        }
