"""Patches that the API does not answer: a server whose other webhooks fail may do so for ever."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from scheduler_plugin.app.waiting_pods import REFUSED, Cause
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

__all__ = ["Unanswered"]

TELL_NS: Final = 10 * NS_PER_SECOND
"""Who waits for an answer for as long is told (assumed)."""


class Unanswered:
    """Since when patches of a pod are not answered, and what came in place of the last answer.

    Args:
        clock: For these times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, str]] = {}

    def note(self, uid: str, text: str) -> None:
        """One more patch of a pod was not answered."""
        since_ns, _ = self._known.get(uid, (self._clock.monotonic_ns(), ""))
        self._known[uid] = since_ns, text

    def ended(self, uid: str) -> None:
        """What became of the pod is known."""
        self._known.pop(uid, None)

    def causes(self, promised: Container[str]) -> dict[str, Cause]:
        """Reason and message, by uid, of promised pods that wait for nothing else."""
        self._known = {uid: each for uid, each in self._known.items() if uid in promised}
        latest_ns = self._clock.monotonic_ns() - TELL_NS
        return {
            uid: (REFUSED, f"no answer to the patch, it is sent again: {text}")
            for uid, (since_ns, text) in self._known.items()
            if since_ns <= latest_ns
        }
