"""An amount that was decided, and what decided it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Binding = Literal["cost", "risk", "tail", "limit", "hold", "rate"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do.

    Attributes:
        amount: In the unit of what was forecast, or in replicas, as the function says.
        shortfall_share: Share of the paths whose need lies above the amount: the stated risk.
        binding: What held the amount where it is: the price of a shortfall (``cost``), the budget
            of violations (``risk``), the depth of the worst cases (``tail``), a bound (``limit``),
            or steadiness (``hold``, ``rate``).
        reason: One sentence with the figures.
    """

    amount: float
    shortfall_share: float
    binding: Binding
    reason: str

    def because(self, binding: Binding, amount: float, reason: str) -> Decision:
        """The decision moved by something that came after it."""
        return replace(self, amount=amount, binding=binding, reason=f"{reason}; {self.reason}")
