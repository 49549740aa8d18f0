"""A watch: what changed, as it changes, with bookmarks while nothing does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulation.kube import requests
from simulation.kube.object_store import Store
from simulation.kube.selectors import Predicate
from simulation.kube.watch_window import as_seen
from wattpack.clock import Clock
from wattpack.kube.port import Resource, WatchEvent
from wattpack.units import seconds_to_ns

# How often an idle watch tells the newest version; as the API server does.
BOOKMARK_SECONDS = 60.0


def follow(
    store: Store,
    clock: Clock,
    resource: Resource,
    version: int,
    matches: Predicate,
    deadline_ns: int,
) -> Iterator[WatchEvent]:
    """Changes of matching objects after a version until the deadline, then a bookmark.

    Raises:
        GoneError: if the version is no longer in the window.
    """
    wake = clock.new_wake()
    unlisten = store.listen(resource, wake.set)
    is_followed = False
    try:
        while not store.is_closed:
            events, version = _changes(store, resource, version, matches, is_followed)
            is_followed = True
            yield from events
            now_ns = clock.monotonic_ns()
            if now_ns >= deadline_ns:
                break
            bookmark_ns = now_ns + seconds_to_ns(BOOKMARK_SECONDS)
            if not clock.wait_until(min(deadline_ns, bookmark_ns), wake):
                events, version = _changes(store, resource, version, matches, is_followed)
                yield from events
                yield requests.bookmark(resource, version)
        yield requests.bookmark(resource, version)
    finally:
        unlisten()


def _changes(
    store: Store, resource: Resource, version: int, matches: Predicate, is_followed: bool
) -> tuple[Sequence[WatchEvent], int]:
    events = []
    with store.lock:
        changes = tuple(store.table(resource).history.after(version, is_followed=is_followed))
        newest = store.version
    for change in changes:
        before = change.before is not None and matches(change.before)
        seen = as_seen(change, before, not change.deleted and matches(change.after))
        if seen is not None:
            events.append(WatchEvent(seen, requests.detached(change.after)))
    return events, max(version, newest)
