"""I6 in the small row of ``lease_safety``: a raise waits for lower caps that were read back.

What each board may hold, as far as anybody can know it: its limit when its actuator's newest
status was made, the command in force by then, and all that was said since. A cap that was lowered
later, or only by word, frees nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks._lease_breakers import Breakers
from benchmarks._lease_row import Row
from wattpack.units import NS_PER_MS

__all__ = ["RaiseJudge"]

#: Messages are under way for no longer: what was said before a status may come after it.
_UNDER_WAY_NS = 200 * NS_PER_MS
_ROUNDING_WATTS = 1.5


@dataclass(slots=True)
class _Known:
    """Of one board.

    Attributes:
        proven_watts: The most that it held or was to take when its newest status was made.
        accepted_watts: Cap of the newest command that its actuator took.
        until_ns: End of that command's lease.
        said: When which caps were put on the wire.
    """

    proven_watts: float
    accepted_watts: float = 0.0
    until_ns: int = 0
    said: list[tuple[int, float]] = field(default_factory=list)

    def highest(self) -> float:
        """What it may hold."""
        return max([self.proven_watts, *(watts for _, watts in self.said)])


class RaiseJudge:
    """Follows limits, statuses and batches.

    Args:
        breakers: What they bear, as hot as they are.
        guaranteed: By board, in watts; always counted.
        uuids: Of all boards, in the same order.
        lease_ns: For so long a new leader raises nothing, so it may count too little.

    Attributes:
        row: What is judged, once it was looked at.
    """

    def __init__(
        self,
        breakers: Breakers,
        guaranteed: Sequence[float],
        uuids: Sequence[str],
        lease_ns: int,
    ) -> None:
        self.row: Row | None = None
        self._lease_ns, self._epoch, self._led_from_ns = lease_ns, 0, 0
        self._breakers = breakers
        pairs = list(zip(uuids, guaranteed, strict=True))
        self._floor = dict(pairs)
        self._known = {uuid: _Known(watts) for uuid, watts in pairs}
        self.raises = 0

    def read_back(self, node: int, now_ns: int) -> None:
        """An actuator tells the state of its boards: from now on anybody may know it."""
        if self.row is None:
            return
        for uuid, board in self.row.nodes[node].boards.items():
            known = self._known[uuid]
            in_force = known.accepted_watts if now_ns <= known.until_ns else 0.0
            known.proven_watts = max(board.limit_watts, board.written_watts, in_force)
            known.said = [one for one in known.said if one[0] >= now_ns - _UNDER_WAY_NS]

    def accepted(self, caps: Mapping[str, float], until_ns: int) -> None:
        """An actuator took a command: what it lowers is not yet written."""
        for uuid, watts in caps.items():
            self._known[uuid].accepted_watts, self._known[uuid].until_ns = watts, until_ns

    def spoke(self, caps: Mapping[str, float], now_ns: int) -> Iterator[str]:
        """A batch is put on the wire; each breaker that it may lift over what it bears."""
        raised = any(
            watts > max(self._known[uuid].highest(), self._floor[uuid]) + _ROUNDING_WATTS
            for uuid, watts in caps.items()
        )
        before = self._held()
        for uuid, watts in caps.items():
            self._known[uuid].said.append((now_ns, watts))
        if not raised:
            return
        self.raises += 1
        after = self._held()
        house = self._breakers.house
        for domain in house.domains():
            worst = house.worst(domain, after)
            more = worst > house.worst(domain, before) + _ROUNDING_WATTS
            if more and not self._breakers.bears(domain, worst):
                yield f"a raise lets domain {domain} draw {worst:.0f} W"

    def counted(self, highest: Sequence[float], now_ns: int) -> Iterator[str]:
        """The leader counts this of each board; those that hold more, once it may raise."""
        if self.row is None:
            return
        if self.row.epoch != self._epoch:
            # Its newest reports may be older than the last commands of who led before.
            self._epoch, self._led_from_ns = self.row.epoch, now_ns + self._lease_ns
        if now_ns < self._led_from_ns:
            return
        for board, watts in zip(self.row.boards, highest, strict=True):
            if board.limit_watts > watts + _ROUNDING_WATTS:
                held = f"{board.identity.uuid} holds {board.limit_watts:.0f} W"
                yield f"{held} and is counted at {watts:.0f} W"

    def _held(self) -> list[float]:
        return [max(known.highest(), self._floor[uuid]) for uuid, known in self._known.items()]
