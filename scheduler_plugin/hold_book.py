"""Which overdue work has room held for it, and for how long (ADR 41).

Work is a gang, or a pod without one. It is overdue once it waited for the patience. Room is held
for work that would fit if what runs with GPUs at its priority and below ended. Below each root of
the power tree the first in line has nodes and watts held, and those after it nodes alone, as long
as few of the root's are: what else they need might be what the first one waits for. In line stand
the most important first, then who has a hold already, then who is overdue or had its turn or was
found to fit nowhere for the longest time.

A turn ends when the work starts or goes, or once what it lacks has not become less for a patience,
or after ``LONGEST_AT_FIRST`` of them, each twice as long in every further turn up to
``LONGEST_TURN``; then it rests as long as the turn was, so that what never fits costs at most half
of the time. While room is not held, for more important work say, the time of a turn stands still.

Nodes are held whole. So work that could start now, which this plan might give up for equals, has a
hold only if it had one before or leaves no GPU of its nodes to others, or once a plan gave it up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from scheduler_plugin.documents.snapshot import Hold, Snapshot
from scheduler_plugin.overdue_rooms import Lack, OverdueRooms, Room, WaitingWork, waiting_work
from scheduler_plugin.packing.domain_rooms import ancestors

__all__ = ["LONGEST_TURN", "HoldBook"]

LONGEST_TURN: Final = 16
"""Patiences; 16 of the default 10 minutes outlast most batch pods (assumed)."""
LONGEST_AT_FIRST: Final = 4
"""Patiences of a first turn that comes closer all the time (assumed)."""
CLOSER_WATTS_SHARE: Final = 0.05
"""Of held watts, by which less has to be lacking to count; measured draw moves by about 1 %."""
MOST_TRIED: Final = 16
"""Works a cycle for which room is looked for: each costs a few times what placing it costs."""
LOOKED_AGAIN_SECONDS: Final = 60.0
"""Work for which there was no room, however empty the nodes, is asked about again after this."""
MOST_HELD_SHARE: Final = 0.125
"""Of a root's nodes, beyond which only the first in line has a hold (assumed)."""


class HoldBook:
    """Turns of overdue work, from cycle to cycle of one planner; a new one begins them anew.

    Args:
        patience_seconds: 0 holds nothing.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._holds: dict[str, Hold] = {}
        self._progress: dict[str, _Progress] = {}
        self._turns: Counter[str] = Counter()
        self._rests_until: dict[str, float] = {}
        #: Who was first in line below a root.
        self._first: frozenset[str] = frozenset()
        #: Who could start in a cycle before, and did not.
        self._could_start: set[str] = set()
        #: Since when work stands in line again, Unix time.
        self._again_since: dict[str, float] = {}

    def applied(
        self, snapshot: Snapshot, since_seconds: Mapping[str, float], now_seconds: float
    ) -> Snapshot:
        """The snapshot with what is held now; the same one where nothing is.

        Args:
            snapshot: Without holds.
            since_seconds: Unix time by uid since when pods wait.
            now_seconds: Unix time.
        """
        if not self._patience:
            return snapshot
        works = waiting_work(snapshot, since_seconds)
        self._forget({work.name for work in works})
        self._end_turns(now_seconds)
        roots = _Roots(snapshot)
        line = self._in_line(works, now_seconds)
        holds = tuple(self._chosen(OverdueRooms(snapshot, line), roots, line, now_seconds))
        self._holds = {hold.work: hold for hold in holds}
        self._first = frozenset(roots.first)
        if not holds:
            return snapshot
        in_order = tuple(sorted(holds, key=lambda hold: hold.work))
        return snapshot.model_copy(update={"holds": in_order})

    def _forget(self, waiting: set[str]) -> None:
        """Who waits no more."""
        lines = (self._turns, self._rests_until, self._again_since)
        for table in (self._holds, self._progress, *lines):
            for gone in table.keys() - waiting:
                del table[gone]
        self._could_start &= waiting

    def _end_turns(self, now: float) -> None:
        for work, hold in list(self._holds.items()):
            if hold.until_unix_seconds <= now:
                self._turns[work] += 1
                length = hold.until_unix_seconds - hold.since_unix_seconds
                self._rests_until[work] = now + length
                self._again_since[work] = now
                del self._holds[work], self._progress[work]

    def _in_line(self, works: Sequence[WaitingWork], now: float) -> list[WaitingWork]:
        """Who is overdue and does not rest, first who is first; so many as a cycle asks about."""

        def place(work: WaitingWork) -> tuple[int, bool, bool, float]:
            overdue = work.since_seconds + self._patience
            since = self._again_since.get(work.name, overdue)
            return -work.priority, work.name not in self._first, work.name not in self._holds, since

        due = [
            work
            for work in works
            if now - work.since_seconds >= self._patience
            and now >= self._rests_until.get(work.name, now)
        ]
        return sorted(due, key=place)[:MOST_TRIED]

    def _chosen(
        self, rooms: OverdueRooms, roots: _Roots, line: Sequence[WaitingWork], now: float
    ) -> Iterator[Hold]:
        """What is held, in turn."""
        for work in line:
            nodes = roots.open_to(work)
            before = self._holds.get(work.name)
            at = before.nodes if before else ()
            starts = rooms.start(work, nodes, at) if nodes else None
            if starts is not None:
                if before or starts.is_wasteless or work.name in self._could_start:
                    held = roots.of_starter(starts.hold)
                    yield self._in_turn(held, Room(starts.hold, Lack(0, 0)), now)
                self._could_start.add(work.name)
                continue
            later = rooms.room(work, nodes, at) if nodes else None
            if later is not None and roots.has_space_for(later.hold):
                yield self._in_turn(roots.of_waiter(later.hold), later, now)
            elif later is None and not rooms.would_fit(work):
                self._rests_until[work.name] = now + min(self._patience, LOOKED_AGAIN_SECONDS)
                self._again_since[work.name] = now

    def _in_turn(self, hold: Hold, room: Room, now: float) -> Hold:
        """The hold with when its turn began, and when it ends at the latest unless it comes closer.

        Args:
            hold: What is held now.
            room: What the work needs in all, and what of it is not free yet.
            now: Unix time.
        """
        work = hold.work
        progress = self._progress.get(work) or _Progress(now, now, now, room.lack)
        if work not in self._holds:
            progress = progress.later_by(now - progress.held_seconds)
        progress = progress.with_lack(room, now)
        self._progress[work] = progress
        longer = 2 ** min(self._turns[work], 10)
        longest = min(LONGEST_AT_FIRST * longer, LONGEST_TURN)
        ends = (
            progress.since_seconds + longest * self._patience,
            progress.closer_seconds + min(longer, LONGEST_TURN) * self._patience,
        )
        turn = {
            "since_unix_seconds": int(progress.since_seconds),
            "until_unix_seconds": int(min(ends)) + 1,
        }
        return hold.model_copy(update=turn)


class _Progress(NamedTuple):
    """Of one turn, Unix time.

    Attributes:
        since_seconds: When it began.
        closer_seconds: When so little was lacking for the first time.
        held_seconds: When room was held last.
        least: Of GPUs and of watts what was lacking at least.
    """

    since_seconds: float
    closer_seconds: float
    held_seconds: float
    least: Lack

    def later_by(self, seconds: float) -> _Progress:
        """As if it had begun later by a time in which nothing was held."""
        return self._replace(
            since_seconds=self.since_seconds + seconds, closer_seconds=self.closer_seconds + seconds
        )

    def with_lack(self, room: Room, now: float) -> _Progress:
        """With what is lacking now, which is closer if it never was so little in this turn."""
        lack, least = room.lack, self.least
        step = CLOSER_WATTS_SHARE * max(room.hold.watts.values(), default=0)
        if lack.gpu_milli >= least.gpu_milli and lack.watts >= least.watts - step:
            return self._replace(held_seconds=now)
        least = Lack(min(lack.gpu_milli, least.gpu_milli), min(lack.watts, least.watts))
        return _Progress(self.since_seconds, now, now, least)


class _Roots:
    """What is held below each root of the power tree in one cycle.

    Below a root that one work waits for, or that an equal starts below, further works have nodes
    held without watts, others than these, and few of them.

    Attributes:
        first: Works that are first in line below a root.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        domains = {domain.name: domain for domain in snapshot.domains}
        self._of_domain = {"": ""} | {name: ancestors(domains, name)[-1] for name in domains}
        self._of_node = {node.name: self._of_domain[node.domain] for node in snapshot.nodes}
        self._size = Counter(self._of_node.values())
        self._held: set[str] = set()
        self._held_below: Counter[str] = Counter()
        self._waited_for: set[str] = set()
        self._started_at: defaultdict[int, set[str]] = defaultdict(set)
        self.first: set[str] = set()

    def open_to(self, work: WaitingWork) -> frozenset[str]:
        """Nodes that may be held for work."""
        starters = self._started_at[work.priority]
        full = {root for root in self._taken(work.priority) if self._space(root) < 1}
        return frozenset(
            node
            for node, root in self._of_node.items()
            if root not in full and node not in self._held and node not in starters
        )

    def has_space_for(self, hold: Hold) -> bool:
        """Whether it is the first, or one of few, wherever it is."""
        asked = Counter(self._of_node[node] for node in hold.nodes)
        taken = self._taken(hold.priority) & asked.keys()
        return all(asked[root] <= self._space(root) for root in taken)

    def of_starter(self, hold: Hold) -> Hold:
        """The same without watts that others wait for; its equals leave its place alone."""
        held = self._without_taken(hold)
        self._started_at[hold.priority] |= set(hold.nodes)
        return held

    def of_waiter(self, hold: Hold) -> Hold:
        """The same without watts that others wait for; all that come after it leave it alone."""
        held, roots = self._without_taken(hold), {self._of_node[node] for node in hold.nodes}
        if roots - self._taken(hold.priority):
            self.first.add(hold.work)
        self._waited_for |= roots
        self._held |= set(hold.nodes)
        self._held_below.update(self._of_node[node] for node in hold.nodes)
        return held

    def _taken(self, priority: int) -> set[str]:
        """Roots below which somebody comes before work of a priority."""
        return self._waited_for | {self._of_node[node] for node in self._started_at[priority]}

    def _space(self, root: str) -> float:
        """Nodes that may be held beside those that are."""
        return self._size[root] * MOST_HELD_SHARE - self._held_below[root]

    def _without_taken(self, hold: Hold) -> Hold:
        taken = self._taken(hold.priority)
        kept = {name: w for name, w in hold.watts.items() if self._of_domain[name] not in taken}
        return hold.model_copy(update={"watts": kept})
