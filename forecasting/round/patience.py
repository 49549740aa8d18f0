"""How long a round goes on asking a history that fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wattpack.errors import WattpackError

MOST_FAILURES_AT_FIRST: Final = 5
"""Failures after which a round is given up if nothing was read yet: the history is away."""

MOST_FAILURES: Final = 20
"""The same once something was read: a few heavy expressions must not end the others' round, and at
ten seconds each they may cost a third of it."""


@dataclass(slots=True)
class Patience:
    """How long a round goes on asking a history that does not answer.

    Attributes:
        answers: Series that were read.
        in_a_row: Failures since the last answer that were not the series' own fault.
        last: The newest of them.
    """

    answers: int = 0
    in_a_row: int = 0
    last: WattpackError | None = None

    def answered(self) -> None:
        """A series was read."""
        self.answers += 1
        self.in_a_row = 0

    def failed(self, error: WattpackError) -> None:
        """The history did not give what a history gives."""
        self.last = error
        self.in_a_row += 1

    def spent(self) -> WattpackError | None:
        """Why not to ask any more this round; None while it is worth it."""
        limit = MOST_FAILURES if self.answers else MOST_FAILURES_AT_FIRST
        return self.last if self.in_a_row >= limit else None
