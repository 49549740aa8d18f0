"""How long requests are, as the last round told it, for decisions that have no newer lengths.

Lengths change within hours, demand within minutes. While nobody tells new ones, a minute's decision
and the rounds go on with the last ones, and say until when these were told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from forecasting.targets import Target, TargetKey, TokenSource
from forecasting.tokens import LengthStatistics
from forecasting.tokens.binned_lengths import LONGEST
from forecasting.told_time import told_seconds
from wattpack.api.forecast_subject import ForecastTokens
from wattpack.kube.port import JsonObject
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

LENGTHS_AWAY: Final = "lengths-away"
"""Flag of a target whose newest requests nobody tells the lengths of: a series that ended or cannot
be read, or fewer requests than tell anything."""

_AWAITING: Final = "AwaitingRound"
"""Reason of an object whose figures are of an older spec."""


@dataclass(frozen=True, slots=True)
class ToldLengths:
    """Of one target's requests.

    Attributes:
        of: Mean, second moment and p99.
        until_seconds: End of the newest bin that told them, Unix time.
        are_away: Whether requests came since whose lengths nobody told.
    """

    of: LengthStatistics
    until_seconds: float
    are_away: bool = False

    def __str__(self) -> str:
        told = f"{self.of.mean:.4g} tokens a request"
        if not self.are_away:
            return told
        return f"{told}, none told since {rfc3339(seconds_to_ns(self.until_seconds))}"


class LastLengths:
    """The last ones of every target, as long as it asks the same series for them."""

    def __init__(self) -> None:
        self._known: dict[TargetKey, tuple[TokenSource, ToldLengths]] = {}

    def put(self, target: Target, lengths: ToldLengths) -> None:
        """Remember what a round has read."""
        if target.tokens is not None:
            self._known[target.key] = target.tokens, lengths

    def of(self, target: Target, body: JsonObject) -> ToldLengths | None:
        """What the object's status says, else what was remembered; None for nothing.

        Args:
            target: Of the object.
            body: As it was read.
        """
        if target.tokens is None:
            return None
        if (stored := stored_lengths(body)) is not None:
            self.put(target, stored)
            return stored
        series, lengths = self._known.get(target.key, (None, None))
        return lengths if series == target.tokens else None

    def keep(self, keys: Iterable[TargetKey]) -> None:
        """Forget all others."""
        wanted = set(keys)
        self._known = {key: known for key, known in self._known.items() if key in wanted}


def stored_lengths(body: Mapping[str, Any]) -> ToldLengths | None:
    """What a status says of its newest spec; None where it does not, or cannot be read."""
    status = body.get("status") or {}
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    is_of_this_spec = (
        status.get("observedGeneration") == (body.get("metadata") or {}).get("generation")
        and ready
        and ready[0].get("reason") != _AWAITING
    )
    if not is_of_this_spec or "tokens" not in status:
        return None
    try:
        told = ForecastTokens.model_validate(status["tokens"])
    except ValidationError:
        return None
    until_seconds = told_seconds(told.lengths_until)
    if until_seconds is None or not 0 < told.mean <= LONGEST:
        return None
    square = min(max(told.second_moment, told.mean**2), float(LONGEST) ** 2)
    lengths = LengthStatistics(told.mean, square, told.request_p99)
    return ToldLengths(lengths, until_seconds, LENGTHS_AWAY in (status.get("flags") or ()))
