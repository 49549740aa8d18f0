"""When verdicts about an owner's pods are worth an object: agreement that lasts (docs/adr/0026).

verdicts of all pods of an owner ──> smoothed shares of classes ──> candidate ──> due(written)

A verdict jitters by the minute. Shares of the classes are averaged over ``SMOOTHING_NS``; a class
with two thirds is the candidate. What is written may lower what planners count, so trust is slow
and doubt is not: another class has to stay the candidate for ``CHANGE_NS``, the same one with
another entry or confidence waits ``REVISION_NS``, but what is no longer seen is withdrawn at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from capacity.catalogue.pod_works import SURE
from controller.work_seen import PodWork
from wattpack.units import seconds_to_ns

SMOOTHING_NS: Final = seconds_to_ns(275)
"""Time constant: one class alone has two thirds after ``ln 3`` of it, five minutes."""

CHANGE_NS: Final = seconds_to_ns(900)
REVISION_NS: Final = seconds_to_ns(3600)

AGREEMENT: Final = 2 / 3
"""Share of the smoothed verdicts, those that say ``unknown`` counted in."""

CONFIDENCE_STEP: Final = 0.05
"""Confidence is written in these steps, downwards: it is calibrated to about two points."""

_UNKNOWN: Final = "unknown"
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Classified:
    """What a classified profile says.

    Attributes:
        bound: What binds the work.
        workload: Catalogue entry.
        confidence: That a verdict about any of the owner's pods says ``bound`` and is right, in
            steps; 0 where the class is no longer agreed on.
    """

    bound: str
    workload: str
    confidence: float


@dataclass(slots=True)
class OwnerVerdicts:
    """What was seen of one owner's pods; changes with each look.

    Attributes:
        candidate: Class with enough agreement, empty for none.
        since_ns: When it became that.
        told_ns: When the owner's object was last written, or first met.
    """

    candidate: str = ""
    since_ns: int = 0
    told_ns: int | None = None
    #: Smoothed share, and that times confidence, of each class and entry.
    _seen: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _looked_ns: int | None = None

    def look(self, works: Sequence[PodWork], now_ns: int) -> None:
        """Take the newest verdict of each of the owner's pods in."""
        passed = 0 if self._looked_ns is None else now_ns - self._looked_ns
        self._looked_ns = now_ns
        kept = math.exp(-passed / SMOOTHING_NS)
        self._seen = {
            what: (share * kept, sure * kept) for what, (share, sure) in self._seen.items()
        }
        weight = (1 - kept) / len(works)
        for work in works:
            share, sure = self._seen.get((work.bound, work.workload), (0.0, 0.0))
            now = (share + weight, sure + weight * work.confidence)
            self._seen[work.bound, work.workload] = now
        shares = self._shares()
        found = max(sorted(shares), key=lambda bound: shares[bound])
        if found == _UNKNOWN or shares[found] < AGREEMENT:
            # What was agreed on before is not disproved by doubt: it stays the candidate.
            return
        if found != self.candidate:
            self.candidate, self.since_ns = found, now_ns

    def due(self, written: Classified | None, now_ns: int) -> Classified | None:
        """What to write now; None for nothing.

        Args:
            written: What the owner's object says; None without one.
        """
        if written is None:
            first = self._said(self.candidate) if self.candidate else None
            return first if first is not None and first.confidence > 0 else None
        if self.told_ns is None:
            self.told_ns = now_ns
        if self._is_doubted(written):
            doubted = self._said(written.bound, written.workload)
            same = doubted.workload == written.workload
            return doubted if same else replace(doubted, confidence=0.0)
        if not self.candidate:
            return None
        said = self._said(self.candidate)
        if written.bound != said.bound:
            stayed = said.confidence > 0 and now_ns - self.since_ns >= CHANGE_NS
            return said if stayed else None
        revised = said != written and now_ns - self.told_ns >= REVISION_NS
        return said if revised else None

    def _is_doubted(self, written: Classified) -> bool:
        """Whether enough was seen against what planners may count on; a new leader has seen none.

        Unsure profiles lower nothing: of them only the class is disproved.
        """
        if written.confidence <= 0:
            return False
        seen = sum(share for share, _ in self._seen.values())
        mine = self._entries(written.bound)
        if seen - sum(share for share, _ in mine.values()) > 1 - AGREEMENT + _ROUNDING:
            return True
        if written.confidence < SURE:
            return False
        unlike = seen - sum(sure for _, sure in mine.values())
        return unlike > 1 - SURE + _ROUNDING or self._names_another(written)

    def _names_another(self, written: Classified) -> bool:
        """Whether another entry of the class is seen more, and for long enough to tell."""
        mine = self._entries(written.bound)
        most = max((share for share, _ in mine.values()), default=0.0)
        kept, _ = mine.get(written.workload, (0.0, 0.0))
        return most > max(kept, 1 - AGREEMENT) + _ROUNDING

    def _shares(self) -> dict[str, float]:
        shares: dict[str, float] = {}
        for (bound, _), (share, _) in self._seen.items():
            shares[bound] = shares.get(bound, 0.0) + share
        return shares

    def _entries(self, wanted: str) -> dict[str, tuple[float, float]]:
        return {entry: seen for (bound, entry), seen in self._seen.items() if bound == wanted}

    def _said(self, bound: str, unseen: str = "") -> Classified:
        """Of a class as it is seen now.

        Args:
            unseen: Entry to name where none of the class was seen.
        """
        mine = self._entries(bound)
        # Names break ties, so that two leaders say the same.
        workload = max(sorted(mine), key=lambda entry: mine[entry][0], default=unseen)
        total = sum(share for share, _ in self._seen.values())
        share, sure = (sum(of) for of in zip(*mine.values(), strict=True)) if mine else (0.0, 0.0)
        agreed = share >= AGREEMENT * total
        steps = math.floor(sure / total / CONFIDENCE_STEP + _ROUNDING) if agreed else 0
        return Classified(bound, workload, round(steps * CONFIDENCE_STEP, 2))
