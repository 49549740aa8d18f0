"""Which targets are parts of one another: the power tree among the objects of a round."""

from __future__ import annotations

from collections.abc import Sequence

from forecasting.series_source import SeriesId
from forecasting.targets import Target


def parents_of(members: Sequence[Target]) -> dict[SeriesId, SeriesId]:
    """Of each domain's series that of the nearest domain above it which is forecast, too.

    Within a namespace, as pools are; of several series for one domain the first by name stands in
    the tree.
    """
    domains = {
        (member.namespace, member.subject): member
        for member in sorted(members, key=lambda m: m.name, reverse=True)
        if member.kind == "domain"
    }
    found = {}
    for (namespace, _), member in domains.items():
        wholes = (domains.get((namespace, name)) for name in member.above)
        whole = next((one for one in wholes if one is not None and one is not member), None)
        if whole is not None:
            found[member.identity] = whole.identity
    return found
