"""A tick's findings, side by side, as reports and explanations are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from controller.bands import DomainLoads
from controller.controller_state import State
from controller.decide import Decided, Situation
from controller.orders import Orders
from controller.picture import Picture

__all__ = ["Judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Everything that ``outcome.report`` speaks about.

    Attributes:
        previous: State before the tick.
        state: State with this tick's bands, heat and trust.
        picture: What was known.
        situation: What had to be respected.
        loads: What moved the bands.
        decided: What would be commanded if every domain enforced.
        commanded: What the enforcing domains decided.
        orders: What is commanded.
    """

    previous: State
    state: State
    picture: Picture
    situation: Situation
    loads: DomainLoads
    decided: Decided
    commanded: Decided
    orders: Orders
