"""Targets that are computed together, and what a round has read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forecasting.engine_memory import Pool
from forecasting.engine_question import Beside, Shape
from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.round.target_tree import parents_of
from forecasting.series_source import History, SeriesId
from forecasting.targets import Target


@dataclass(frozen=True, slots=True)
class RoundGroup:
    """One group of a round.

    Attributes:
        members: Who was read, at least one.
        history: Of these, one row each.
        pools: Of the whole group: who was not read this time is remembered all the same.
        asides: What goes with the draw of some of them.
    """

    members: Sequence[Target]
    history: History
    pools: Mapping[SeriesId, Pool]
    asides: Mapping[SeriesId, DrawAside]

    @property
    def shape(self) -> Shape:
        """What is asked of its engine."""
        return Shape(*self.members[0].group)

    @property
    def beside(self) -> Beside:
        """What is known of its members beside their histories."""
        known = {name: self.asides[name] for name in self.history.series if name in self.asides}
        return Beside(parents_of(self.members), known)

    def rows(self, kept: Sequence[int]) -> RoundGroup:
        """Some of its members; the pools stay those of all."""
        members = [self.members[i] for i in kept]
        return replace(self, members=members, history=self.history.rows(kept))

    def alone(self, row: int) -> RoundGroup:
        """One member as if no other were forecast."""
        member = self.members[row]
        return replace(self.rows([row]), pools={member.identity: member.pool})
