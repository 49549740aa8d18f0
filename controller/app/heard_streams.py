"""Which of a node's streams is heard while one agent follows another on the node (I3, I4). Pure.

During a rolling update the new agent is there before the old one goes. Both speak of the same
boards and of the same actuator, which alone keeps leases, so either may be heard; but only one is,
and nothing that an agent does by itself changes which:

    the process that is heard comes again  -> its newest stream, at once
    another process beside it              -> waits; is heard when the first one ends, when it was
                                              silent for 2 s, or when the node was booted anew
    a third one                            -> is refused while the other two speak

A process tells itself apart by the ``instance`` in its hello. Agents of before that field have an
empty one: two of them are one process, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from wattpack.units import NS_PER_SECOND

__all__ = ["SILENT_NS", "Change", "HeardStreams", "Place", "Voice"]

SILENT_NS = 2 * NS_PER_SECOND
"""Two reports of the ordinary period. A lease (3.5 s) runs from the newest report that was
answered, so who waits is heard and answered, a report later, before the lease has run out."""

S = TypeVar("S")


class Place(StrEnum):
    """What a stream is to its node."""

    HEARD = "heard"
    WAITS = "waits"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Voice(Generic[S]):
    """One agent process of a node and its newest stream.

    Attributes:
        spoke_ns: When its newest report came, or else when the stream opened.
        answerable_ns: The same of reports with a nonce: only they can be answered by a lease.
    """

    stream: S
    instance: str
    boot_id: str
    spoke_ns: int
    answerable_ns: int


@dataclass(slots=True)
class Change(Generic[S]):
    """What follows from a stream's opening, report or end.

    Attributes:
        heard: The stream that is heard from now on, None if that stays as it was.
        ended: Streams that have to be ended.
        refused: The new stream was not taken.
        silent: Another process is heard because the one before it said nothing.
    """

    heard: S | None = None
    ended: list[S] = field(default_factory=list)
    refused: bool = False
    silent: bool = False


@dataclass(slots=True)
class _Node(Generic[S]):
    heard: Voice[S]
    waiting: Voice[S] | None = None


class HeardStreams(Generic[S]):
    """The streams of all nodes: at most one heard and one waiting for each."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node[S]] = {}

    def __len__(self) -> int:
        """Nodes of which a stream is heard."""
        return len(self._nodes)

    def heard(self, node: str) -> S | None:
        """The stream whose reports count, and which is answered."""
        known = self._nodes.get(node)
        return known.heard.stream if known is not None else None

    def waiting(self) -> int:
        """Streams that wait beside another."""
        return sum(known.waiting is not None for known in self._nodes.values())

    def all(self) -> list[S]:
        """Every stream, those that are heard last: an end makes nobody heard for a moment only."""
        known = list(self._nodes.values())
        return [n.waiting.stream for n in known if n.waiting is not None] + [
            n.heard.stream for n in known
        ]

    def place(self, node: str, stream: S) -> Place:
        """What a stream is to its node."""
        known = self._nodes.get(node)
        if known is not None and known.heard.stream is stream:
            return Place.HEARD
        if known is not None and known.waiting is not None and known.waiting.stream is stream:
            return Place.WAITS
        return Place.UNKNOWN

    def opened(self, node: str, stream: S, instance: str, boot_id: str, now_ns: int) -> Change[S]:
        """A process of the node opened a stream."""
        voice = Voice(stream, instance, boot_id, now_ns, now_ns)
        known = self._nodes.get(node)
        if known is None:
            self._nodes[node] = _Node(voice)
            return Change(heard=stream)
        if known.heard.instance == instance or known.heard.boot_id != boot_id:
            # What the process said before its connection broke, or before the node was booted.
            ended = [known.heard.stream]
            if known.heard.boot_id != boot_id and known.waiting is not None:
                ended.append(known.waiting.stream)
                known.waiting = None
            known.heard = voice
            return Change(heard=stream, ended=ended)
        if now_ns - known.heard.spoke_ns >= SILENT_NS:
            ended = [known.heard.stream]
            if known.waiting is not None and known.waiting.instance == instance:
                ended.append(known.waiting.stream)
                known.waiting = None
            known.heard = voice
            return Change(heard=stream, ended=ended, silent=True)
        return self._waits(known, voice, now_ns)

    @staticmethod
    def _waits(known: _Node[S], voice: Voice[S], now_ns: int) -> Change[S]:
        before = known.waiting
        another = before is not None and before.instance != voice.instance
        if before is not None and another and now_ns - before.spoke_ns < SILENT_NS:
            return Change(refused=True)
        known.waiting = voice
        return Change(ended=[before.stream] if before is not None else [])

    def spoke(self, node: str, stream: S, nonce: int, now_ns: int) -> Change[S]:
        """A report came by a stream; by the one that is heard, only reports that were accepted.

        Args:
            node: Of the stream.
            stream: That it came by.
            nonce: Of the report; 0 means that no lease can answer it.
            now_ns: When it came.
        """
        place, known = self.place(node, stream), self._nodes.get(node)
        if known is None or place is Place.UNKNOWN:
            return Change()
        voice = known.heard if place is Place.HEARD else known.waiting
        assert voice is not None
        voice.spoke_ns = now_ns
        if nonce:
            voice.answerable_ns = now_ns
        if voice is known.heard:
            return Change()
        last_ns = known.heard.answerable_ns if nonce else known.heard.spoke_ns
        if now_ns - last_ns < SILENT_NS:
            return Change()
        # It is not ended: if it speaks again it waits, as whoever comes second does.
        known.heard, known.waiting = voice, known.heard
        return Change(heard=stream, silent=True)

    def closed(self, node: str, stream: S) -> Change[S]:
        """A stream ended; who waited beside it is heard."""
        known = self._nodes.get(node)
        if known is None:
            return Change()
        if known.waiting is not None and known.waiting.stream is stream:
            known.waiting = None
        elif known.heard.stream is stream:
            if known.waiting is None:
                del self._nodes[node]
                return Change()
            known.heard, known.waiting = known.waiting, None
            return Change(heard=known.heard.stream)
        return Change()
