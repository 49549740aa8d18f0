"""What a gang would need that waits for one topology domain which holds all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler_plugin.documents.plan_changes import (
    RANKS,
    AddNodes,
    Change,
    DropGangTopology,
    EvictPod,
    FreeOnNode,
    LowerGuarantees,
    MovePod,
    RaiseLimit,
    WidenUplink,
)
from scheduler_plugin.explain.link_remedies import gang_number, in_one_group, wider_uplinks
from scheduler_plugin.explain.more_nodes import more_nodes
from scheduler_plugin.explain.remedies import Remedies
from scheduler_plugin.explain.static_needs import ANY
from scheduler_plugin.explain.trial import Part, Trial
from scheduler_plugin.packing.problem import BoolArray
from scheduler_plugin.room.resource_columns import GPUS
from scheduler_plugin.rules.gang_domains import GangDomain

__all__ = ["for_gang"]

TRIED_DOMAINS: Final = 6
"""Topology domains that are looked at, those with most free GPUs first."""

Wanted = Sequence[tuple[int, int]]


def for_gang(remedies: Remedies, trial: Trial, gang: str, wanted: Wanted) -> list[Part] | None:
    """The set that asks least of others, in one of the domains or without that requirement.

    Args:
        remedies: On the trial.
        trial: As the plan leaves it.
        gang: Its id.
        wanted: Class and count of the members that wait, the largest first.

    Returns:
        None where nothing that we know lets it in.

    Raises:
        TimeoutError: when time was over before it was found.
    """
    domain = trial.problem.domains_of_gangs.get(gang)
    number, found = gang_number(trial, gang), list[list[Part]]()
    if number is not None and (wider := wider_uplinks(trial, number, wanted, domain)):
        found.append(wider)
    if domain is None or not domain.required:
        anywhere = _anywhere(remedies, trial, gang, wanted)
        if anywhere is not None:
            found.append(anywhere)
        return min(found, key=_asked_of_others, default=None)
    try:
        for inside_only in _domains(trial, domain):
            trial.only = inside_only
            inside = _anywhere(remedies, trial, gang, wanted)
            if inside is not None:
                found.append(inside)
    finally:
        trial.only = None
    anywhere = None if trial.requests_stay else _anywhere(remedies, trial, gang, wanted)
    if anywhere is not None:
        found.append([Part(DropGangTopology(waiting=ANY)), *anywhere])
    return min(found, key=_asked_of_others, default=None)


def _anywhere(remedies: Remedies, trial: Trial, gang: str, wanted: Wanted) -> list[Part] | None:
    """On all nodes that the trial looks at; who sends over uplinks, in one of their groups."""

    def look() -> list[Part] | None:
        found = remedies.smallest(wanted)
        return more_nodes(trial, wanted) if found is None else found

    number = gang_number(trial, gang)
    if number is None:
        return look()
    return min(in_one_group(trial, number, look), key=_asked_of_others, default=None)


def _domains(trial: Trial, domain: GangDomain) -> list[BoolArray]:
    """Nodes of each domain that the gang may be in, shape (n,)."""
    free = trial.packing.free[:, GPUS]
    numbers = sorted(domain.home or set(domain.of_node.tolist()) - {-1})
    masks = [np.asarray(domain.of_node == number) for number in numbers]
    return sorted(masks, key=lambda mask: -int(free[mask].sum()))[:TRIED_DOMAINS]


def _asked_of_others(parts: Sequence[Part]) -> tuple[int, ...]:
    """The worst rank first: how much is asked of each."""
    asked = [0] * (1 + max(RANKS.values()))
    for part in parts:
        asked[RANKS[part.change.kind]] += _amount(part.change)
    return tuple(reversed(asked))


def _amount(change: Change) -> int:
    match change:
        case RaiseLimit() | LowerGuarantees():
            return change.watts
        case WidenUplink():
            return change.megabits
        case MovePod():
            return 1 + change.gpu_seconds
        case EvictPod():
            return 1
        case FreeOnNode():
            return 1 + 1000 * change.gpus
        case AddNodes():
            return change.count
        case _:
            return 1
