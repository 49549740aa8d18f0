"""Which series of a history are the draw of a PowerDomain, told by their names.

In a cluster a DemandForecast says so (``spec.target.powerDomain``). A command has no objects, but
the controller names what it keeps, and its metrics name their domain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from forecasting.engine_question import DOMAIN
from forecasting.series_source import SeriesId
from forecasting.targets import Target

DRAW_SERIES: Final = "domain_draw_watts/"
"""Begins the names of draws in a controller's history file; the domain's name ends them."""

NAME_OF_DOMAIN: Final = "{domain}"
"""In the name of a series beside a draw: the domain's name stands there."""

Kinds = Literal["auto", "domain", "series"]

_QUERY: Final = re.compile(
    r"""\s*(?:(?:max|avg)\s*(?:by\s*\(\s*domain\s*\)\s*)?\(\s*)?
    wattpack_domain_(?:measured|draw)_watts\s*\{[^{}]*\bdomain\s*=\s*"(?P<domain>[^"\\]+)"[^{}]*\}
    \s*\)?\s*""",
    re.VERBOSE,
)
"""The draw of one domain as the docs ask Prometheus for it."""


@dataclass(frozen=True, slots=True)
class DomainDraw:
    """A series that is the draw of a PowerDomain.

    Attributes:
        domain: Its name.
        held_series: Share of each bin in which caps held its work back; None for unknown.
        above: The PowerDomain that feeds it; empty for unknown.
    """

    domain: str
    held_series: SeriesId | None = None
    above: str = ""


def domain_draws(
    series: Sequence[SeriesId], kinds: Kinds = "auto", held: str | None = None
) -> dict[SeriesId, DomainDraw]:
    """The series that are draws of domains.

    Args:
        series: Names.
        kinds: What they are: told by each name, or all the same.
        held: Name of the series of held bins, ``NAME_OF_DOMAIN`` for the domain's; None for none.
    """
    found = {}
    for name in series:
        domain = None if kinds == "series" else domain_of(name)
        if domain is None and kinds == "domain":
            domain = name
        if domain is not None:
            own = None if held is None else SeriesId(held.replace(NAME_OF_DOMAIN, domain))
            found[name] = DomainDraw(domain, own)
    return found


def domain_of(series: str) -> str | None:
    """Whose draw a series is by its name; None for any other series."""
    if series.startswith(DRAW_SERIES):
        return series.removeprefix(DRAW_SERIES) or None
    asked = _QUERY.fullmatch(series)
    return None if asked is None else asked["domain"]


def as_domains(targets: Sequence[Target], draws: Mapping[SeriesId, DomainDraw]) -> list[Target]:
    """The targets, those of draws by the rules of domains.

    Boards, pods and loads stay unknown: only a cluster tells them.
    """
    return [
        target
        if (draw := draws.get(target.series)) is None
        else replace(
            target, kind=DOMAIN, subject=draw.domain, held_series=draw.held_series,
            above=(draw.above,) if draw.above else (),
        )
        for target in targets
    ]  # fmt: skip
