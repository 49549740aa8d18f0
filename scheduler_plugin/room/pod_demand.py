"""What one pod takes of a node."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.room.board_neighbours import Sharer
from scheduler_plugin.room.board_states import Part
from scheduler_plugin.room.resource_columns import GPUS

__all__ = ["Demand"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod takes of a node; pods that ask for the same are one demand.

    Attributes:
        amounts: By column, shape (r,); column ``GPUS`` counts whole boards.
        share_milli: Of one board, from 1 to 999; 0 for none.
        mig_profiles: Of each MIG instance, by name.
        sharer: What neighbours on shared boards feel of it.
        runs_as: Tells apart pods of which some run on boards of their own; -1 without such.
    """

    amounts: tuple[int, ...]
    share_milli: int = 0
    mig_profiles: tuple[str, ...] = ()
    sharer: Sharer | None = None
    runs_as: int = -1

    @property
    def whole_boards(self) -> int:
        """Boards for itself."""
        return self.amounts[GPUS]

    @property
    def asks_for_boards(self) -> bool:
        """Whether it asks for boards or parts of any."""
        return bool(self.share_milli or self.amounts[GPUS] or self.mig_profiles)

    @property
    def asks_for_part(self) -> bool:
        """Whether it asks for part of a board, so that boards have to be told apart."""
        return bool(self.share_milli or self.mig_profiles)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Of boards, in the order of their places."""
        if self.mig_profiles:
            return self.mig_profiles
        return (self.share_milli,) if self.share_milli else (MILLI_PER_GPU,) * self.amounts[GPUS]
