"""How much of a board a workload takes alone, and what several such workloads do to one another.

Where nothing but profiles is known, contention is that of the roofline: the unit that is asked for
beyond its whole is divided, and everybody who works there is slowed alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capacity.work_mix import WorkMix
from wattpack.errors import InputError


@dataclass(frozen=True, slots=True)
class BoardShare:
    """Of one board, alone on it, averaged over time; each from 0 to 1.

    Attributes:
        compute: Busy time of the multiprocessors.
        bandwidth: Bytes moved over those that the memory could move.
    """

    compute: float
    bandwidth: float

    def __post_init__(self) -> None:
        for name in ("compute", "bandwidth"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:  # NaN is refused, too
                raise InputError(name, "a share of one board from 0 to 1", value)


def share_of_mix(mix: WorkMix) -> BoardShare:
    """What a kind of work keeps busy of a board alone, by its parts (assumed, not measured).

    Compute is all time in which kernels run, since boards that are shared by time slices run
    nobody else's then; bandwidth is the part of it that memory or launches hold up.
    """
    busy = [(part, part.time_share * part.busy_share) for part in mix.parts]
    bound = sum(share for part, share in busy if part.kernel_class == "decode")
    return BoardShare(min(1.0, sum(share for _, share in busy)), min(1.0, bound))


def slow_down(members: Sequence[BoardShare], boards: int = 1) -> float:
    """Time over time alone, at least 1, of each member while all of them work.

    Args:
        members: Who shares the boards.
        boards: How many they spread over evenly.

    Raises:
        InputError: for no board.
    """
    if boards < 1:
        raise InputError("boards", "at least one", boards)
    compute = sum(member.compute for member in members)
    bandwidth = sum(member.bandwidth for member in members)
    return max(1.0, compute / boards, bandwidth / boards)
