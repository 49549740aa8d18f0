"""Names that a history does not have: told with the nearest one, where it can list its own.

A query API has no list of series; there an expression without an answer is a series without values.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from forecasting.events import PlannedEvent
from forecasting.files import TableSource
from forecasting.series_source import SeriesId, SeriesSource
from forecasting.sqlite import HistoryStore
from wattpack.errors import InputError
from wattpack.near_names import did_you_mean

_MOST_MEANT: Final = 3
"""Series that a hint names. Assumed."""


def names_of(source: SeriesSource) -> list[str] | None:
    """All series of a history, sorted; None where it cannot list them."""
    return source.names() if isinstance(source, HistoryStore | TableSource) else None


def unknown_series(
    source: SeriesSource, series: Sequence[str], field: str = "series"
) -> dict[SeriesId, InputError]:
    """Those of the series that the history does not have, each with its refusal.

    Args:
        source: The history.
        series: Names that somebody asks for.
        field: Named in the refusals.
    """
    names = names_of(source)
    if names is None:
        return {}
    known = set(names)
    return {
        SeriesId(name): InputError(field, expected_of(name, names), name)
        for name in series
        if name not in known
    }


def expected_of(name: str, names: Sequence[str]) -> str:
    """What a refusal of a name expects: ``row`` may mean ``domain_draw_watts/row``."""
    whole = [repr(one) for one in names if one.endswith(f"/{name}")][:_MOST_MEANT]
    meant = f" (did you mean {' or '.join(whole)}?)" if whole else did_you_mean(name, names)
    return f"a series of the history{meant}"


def require_known_events(source: SeriesSource, events: Sequence[PlannedEvent]) -> None:
    """Refuse events of series that the history does not have: they would change nothing, unseen.

    A pattern may match nothing: who writes one means whatever there is.

    Raises:
        InputError: naming the event, and the series that comes nearest.
    """
    names = names_of(source)
    for event in events if names is not None else ():
        for pattern in event.series:
            if set("*?") & set(pattern):
                continue
            if not any(fnmatchcase(name, pattern) for name in names or ()):
                field = f"events.{event.name}.series"
                raise InputError(field, expected_of(pattern, names or ()), pattern)
