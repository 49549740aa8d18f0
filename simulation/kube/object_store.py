"""Objects, versions, watch windows and owner references; knows nothing of HTTP or kinds' rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from simulation.kube.field_ownership import Owners
from simulation.kube.watch_window import Change, History
from wattpack.kube.port import AlreadyExistsError, JsonObject, NotFoundError, Resource

# A watch whose thread does not come back in this time is held by its reader.
LEAVE_SECONDS = 2.0

# Namespace (empty for cluster-scoped kinds) and name.
Key = tuple[str, str]


@dataclass(slots=True)
class Table:
    """All objects of one kind."""

    resource: Resource
    history: History
    objects: dict[Key, JsonObject] = field(default_factory=dict)
    owners: dict[Key, Owners] = field(default_factory=dict)
    listeners: list[Callable[[], None]] = field(default_factory=list)


class Store:
    """Tables under one version counter.

    Stored objects are never changed in place: a write puts a new one. ``lock`` guards everything
    and is re-entrant, so that a caller can read, decide and write in one go.

    Args:
        window: How many changes of a kind a watch can go back.
    """

    def __init__(self, window: int) -> None:
        self.lock = threading.RLock()
        self._left = threading.Condition(self.lock)
        self.version = 0
        self.is_closed = False
        self._window = window
        self._tables: dict[tuple[str, str], Table] = {}
        self._dependents: dict[str, set[tuple[Resource, Key]]] = {}

    def table(self, resource: Resource) -> Table:
        """The kind's table, made on first use."""
        key = (resource.group, resource.plural)
        if key not in self._tables:
            self._tables[key] = Table(resource, History(self._window))
        return self._tables[key]

    def tables(self) -> Iterator[Table]:
        """All tables in use."""
        yield from self._tables.values()

    def find(self, resource: Resource, key: Key) -> JsonObject:
        """The stored object itself: copy before handing it out.

        Raises:
            NotFoundError: if there is none.
        """
        try:
            return self.table(resource).objects[key]
        except KeyError:
            raise NotFoundError(
                f'{resource.plural} "{"/".join(filter(None, key))}" not found'
            ) from None

    def insert(self, resource: Resource, key: Key, body: JsonObject, owners: Owners) -> JsonObject:
        """The object as stored.

        Raises:
            AlreadyExistsError: if the key is taken.
        """
        if key in self.table(resource).objects:
            raise AlreadyExistsError(
                f'{resource.plural} "{"/".join(filter(None, key))}" already exists'
            )
        return self._put(resource, key, None, body, owners)

    def update(self, resource: Resource, key: Key, body: JsonObject, owners: Owners) -> JsonObject:
        """The object as stored in place of the present one."""
        return self._put(resource, key, self.find(resource, key), body, owners)

    def remove(self, resource: Resource, key: Key) -> None:
        """Delete the object and, in the background sense of Kubernetes, what it alone owned."""
        table = self.table(resource)
        before = table.objects.pop(key)
        table.owners.pop(key, None)
        self._index(resource, key, before, None)
        self._record(table, Change(self._next(), before, before, True))
        for dependent, dependent_key in sorted(
            self._dependents.pop(before["metadata"]["uid"], set()), key=lambda pair: pair[1]
        ):
            self._collect(dependent, dependent_key, before["metadata"]["uid"])

    def listen(self, resource: Resource, listener: Callable[[], None]) -> Callable[[], None]:
        """Call back after every write of a kind, and at the end; returns the call that ends it."""
        with self.lock:
            listeners = self.table(resource).listeners
            listeners.append(listener)

        def end() -> None:
            with self.lock:
                listeners.remove(listener)
                self._left.notify_all()

        return end

    def close(self) -> None:
        """End all watches, and give their threads a moment to leave: time may end after this."""
        with self.lock:
            self.is_closed = True
            for table in self.tables():
                _wake(table)
            self._left.wait_for(
                lambda: not any(table.listeners for table in self.tables()), LEAVE_SECONDS
            )

    def _collect(self, resource: Resource, key: Key, owner_uid: str) -> None:
        """Drop the reference to a deleted owner, and the object with its last reference."""
        body = self.table(resource).objects.get(key)
        if body is None:
            return
        references = body["metadata"].get("ownerReferences", [])
        remaining = [reference for reference in references if reference["uid"] != owner_uid]
        if not remaining:
            self.remove(resource, key)
            return
        metadata = {**body["metadata"], "ownerReferences": remaining}
        owners = self.table(resource).owners.get(key, {})
        self._put(resource, key, body, {**body, "metadata": metadata}, owners)

    def _put(
        self,
        resource: Resource,
        key: Key,
        before: JsonObject | None,
        body: JsonObject,
        owners: Owners,
    ) -> JsonObject:
        table = self.table(resource)
        version = self._next()
        metadata = {**body["metadata"], "resourceVersion": str(version)}
        stored = {**body, "metadata": metadata}
        table.objects[key] = stored
        table.owners[key] = owners
        self._index(resource, key, before, stored)
        self._record(table, Change(version, before, stored, False))
        return stored

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _record(self, table: Table, change: Change) -> None:
        if change.deleted:
            metadata = {**change.after["metadata"], "resourceVersion": str(change.version)}
            after = {**change.after, "metadata": metadata}
            change = Change(change.version, change.before, after, True)
        table.history.record(change)
        _wake(table)

    def _index(
        self, resource: Resource, key: Key, before: JsonObject | None, after: JsonObject | None
    ) -> None:
        for body, is_now in ((before, False), (after, True)):
            for reference in (body or {"metadata": {}})["metadata"].get("ownerReferences", ()):
                dependents = self._dependents.setdefault(reference["uid"], set())
                (dependents.add if is_now else dependents.discard)((resource, key))


def _wake(table: Table) -> None:
    for listener in tuple(table.listeners):
        listener()
