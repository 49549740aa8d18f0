"""What changed after a version: the window from which watches are served."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wattpack.kube.port import GoneError, JsonObject


@dataclass(frozen=True, slots=True)
class Change:
    """One write, with the object before and after it.

    ``after`` of a deletion is the last state under the deletion's own version.
    """

    version: int
    before: JsonObject | None
    after: JsonObject
    deleted: bool


class History:
    """The newest changes of one kind, oldest first.

    Args:
        window: How many changes are kept; an older version is ``Gone``.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._changes: list[Change] = []
        self._forgotten = 0
        self._dropped = 0

    def record(self, change: Change) -> None:
        """Append; half of the window is dropped at a time, so that dropping stays cheap."""
        self._changes.append(change)
        if len(self._changes) > 2 * self._window:
            dropped = self._changes[: -self._window]
            self._changes = self._changes[-self._window :]
            self._forgotten = self._dropped = dropped[-1].version

    def forget_before(self, version: int) -> None:
        """Drop all changes up to a version, as etcd's compaction does."""
        kept = bisect_right(self._changes, version, key=lambda change: change.version)
        self._dropped = self._changes[kept - 1].version if kept else self._dropped
        self._changes = self._changes[kept:]
        self._forgotten = max(self._forgotten, version)

    def after(self, version: int, *, is_followed: bool = False) -> Iterator[Change]:
        """The changes after a version.

        Args:
            version: The newest that is known.
            is_followed: A watch that stands has missed nothing by a compaction; only dropped
                changes end it.

        Raises:
            GoneError: if some of them are no longer kept, or the version is compacted away.
        """
        if version < (self._dropped if is_followed else self._forgotten):
            raise GoneError(f"too old resource version: {version} (oldest {self._forgotten})")
        start = bisect_right(self._changes, version, key=lambda change: change.version)
        yield from self._changes[start:]


def as_seen(
    change: Change, matched_before: bool, matches_now: bool
) -> Literal["ADDED", "MODIFIED", "DELETED"] | None:
    """What a watcher with a selector sees of a change; None if nothing."""
    if change.deleted:
        return "DELETED" if matched_before else None
    if matches_now:
        return "MODIFIED" if matched_before else "ADDED"
    return "DELETED" if matched_before else None
