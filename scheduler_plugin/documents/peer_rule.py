"""What a pod wants of other pods around it: required (anti-)affinity and topology spread.

Selectors are resolved when the snapshot is built: a group is what one selector selects in its
namespaces, and a pod lists the groups that it belongs to. Only groups that a waiting pod is
concerned with are there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from scheduler_plugin.documents.value import Value

__all__ = ["PeerKind", "PeerRule"]


class PeerKind(StrEnum):
    """As in core/v1, the required forms.

    ``apart``: no pod of the group in the domain, and none of the group joins afterwards;
    ``together``: one at least, unless the pod is the first of its own group anywhere;
    ``spread``: with this pod the domain holds at most ``max_skew`` more of the group than the
    emptiest one.
    """

    APART = "apart"
    TOGETHER = "together"
    SPREAD = "spread"


class PeerRule(Value):
    """One rule. A domain is all nodes with the same value of a label.

    Attributes:
        group: Whose pods are counted.
        topology_key: The label; a node without it is no domain: ``apart`` holds there, the others
            do not.
        max_skew: Of ``spread``.
        min_domains: With fewer domains than this the emptiest one counts as empty (``spread``).
        any_node: Domains are also those that the pod's selector and affinity exclude (``spread``
            with ``nodeAffinityPolicy: Ignore``).
        only_tolerated: Domains are only those of nodes whose taints the pod tolerates
            (``nodeTaintsPolicy: Honor``).
    """

    kind: PeerKind
    group: Annotated[str, Field(min_length=1, max_length=640)]
    topology_key: Annotated[str, Field(min_length=1, max_length=640)]
    max_skew: Annotated[int, Field(ge=1, le=100_000)] = 1
    min_domains: Annotated[int, Field(ge=1, le=100_000)] = 1
    any_node: bool = False
    only_tolerated: bool = False
