"""What one pod takes of a node."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_plugin.board_neighbours import Sharer
from scheduler_plugin.resource_columns import GPUS

__all__ = ["Demand"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod takes of a node; pods that ask for the same are one demand.

    Attributes:
        amounts: By column, shape (r,); column ``GPUS`` counts whole boards.
        share_milli: Of one board, from 1 to 999; 0 for none.
        sharer: What neighbours on shared boards feel of it.
        runs_as: Tells apart pods of which some run on boards of their own; -1 without such.
    """

    amounts: tuple[int, ...]
    share_milli: int = 0
    sharer: Sharer | None = None
    runs_as: int = -1

    @property
    def whole_boards(self) -> int:
        """Boards for itself."""
        return self.amounts[GPUS]

    @property
    def asks_for_boards(self) -> bool:
        """Whether it asks for boards or a share of one."""
        return bool(self.share_milli or self.amounts[GPUS])
