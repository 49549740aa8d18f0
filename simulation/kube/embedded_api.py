"""``KubeApi`` on an in-process store, with the semantics of a real API server.

Like the real one: optimistic concurrency, watch windows with 410, bookmarks, selectors,
generations, the status subresource, server-side apply with field owners, finalizers, owner
references, gated pods, schemas of our kinds. Unlike it: namespaces need not exist, disruption
budgets do not hold evictions, CEL is judged by the pydantic validators that it equals.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from simulation.kube import kinds, pod_rules, requests
from simulation.kube.field_ownership import Owner, Owners, apply_configuration, update_owners
from simulation.kube.identity_book import IdentityBook
from simulation.kube.object_store import Key, Store
from simulation.kube.watch_stream import follow
from wattpack.clock import Clock
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import (
    EVENTS,
    PODS,
    PRIORITY_CLASSES,
    ConflictError,
    InvalidError,
    JsonObject,
    NotFoundError,
    ObjectList,
    Resource,
    WatchEvent,
)
from wattpack.kube.values import canonical, copy_json, same
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND, seconds_to_ns

# How long the API server keeps an event (its --event-ttl).
EVENT_TTL_NS = 3600 * NS_PER_SECOND


class EmbeddedKube(IdentityBook):
    """An API server in a variable.

    Args:
        clock: For timestamps and for watches that wait.
        seed: Of the uids and generated names: same seed and calls, same objects.
        history_window: How many changes of a kind a watch can go back before 410.
        field_manager: The owner of fields written by create, replace and patch.
        kubelet_confirms_deletion: True: a bound pod stays, terminating, until somebody deletes
            it with grace period 0, as kubelets do. False: it is gone at once.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        history_window: int = 2_000,
        field_manager: str = "wattpack",
        kubelet_confirms_deletion: bool = False,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._random = random.Random(seed)
        self._store = Store(history_window)
        self._updater = Owner(field_manager, "Update")
        self._kubelet_confirms_deletion = kubelet_confirms_deletion
        self._events: deque[tuple[int, Key]] = deque()

    # Reading

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """One object."""
        with self._store.lock:
            found = self._store.find(resource, requests.key(resource, name, namespace))
        return requests.detached(found)

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """All objects of a kind, by namespace and name."""
        matches = requests.predicate(resource, namespace, label_selector, field_selector)
        with self._store.lock:
            objects = self._store.table(resource).objects
            found = [objects[key] for key in sorted(objects) if matches(objects[key])]
            version = str(self._store.version)
        return ObjectList(tuple(map(requests.detached, found)), version)

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        timeout_seconds: float = 300.0,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Iterator[WatchEvent]:
        """Changes after a version until the time-out; 0 seconds: those that are there now."""
        matches = requests.predicate(resource, namespace, label_selector, field_selector)
        version = requests.version(resource_version)
        deadline_ns = self._clock.monotonic_ns() + seconds_to_ns(timeout_seconds)
        return follow(self._store, self._clock, resource, version, matches, deadline_ns)

    # Writing

    def create(
        self, resource: Resource, body: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """The object as stored."""
        given = canonical(body, resource.kind)
        with self._store.lock:
            return self._create(resource, given, namespace, self._updater)

    def replace(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        """The object as stored; compare-and-swap on ``metadata.resourceVersion`` if present."""
        given = canonical(body, resource.kind)
        metadata = requests.metadata(given)
        if not metadata.get("resourceVersion") and kinds.needs_resource_version(resource):
            raise InvalidError("metadata.resourceVersion: must be specified for an update")
        key = requests.key(resource, metadata.get("name"), namespace or metadata.get("namespace"))
        return self._rewrite(resource, key, lambda _: given, subresource)

    def patch_json(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[JsonObject],
        namespace: str | None = None,
        subresource: str = "",
        *,
        dry_run: bool = False,
    ) -> JsonObject:
        """The object after a JSON Patch; a failed ``test`` raises ``ConflictError``."""
        key = requests.key(resource, name, namespace)
        return self._rewrite(
            resource,
            key,
            lambda live: apply_json_patch(live, operations),
            subresource,
            dry_run=dry_run,
        )

    def apply(
        self,
        resource: Resource,
        body: JsonObject,
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str = "",
        force: bool = True,
    ) -> JsonObject:
        """The object after server-side apply; fields that we no longer name are given up."""
        if not field_manager:
            raise InvalidError("fieldManager: required for apply")
        given = canonical(body, resource.kind)
        requests.check_type(resource, given)
        metadata = requests.metadata(given)
        key = requests.key(resource, metadata.get("name"), namespace or metadata.get("namespace"))
        who = Owner(field_manager, "Apply", subresource)
        with self._store.lock:
            table = self._store.table(resource)
            if key not in table.objects:
                if subresource:
                    raise NotFoundError(f'{resource.plural} "{key[1]}" not found')
                return self._create(resource, given, namespace, who)
            live = table.objects[key]
            requests.check_preconditions(live, metadata)
            config = requests.configuration(resource, given, subresource)
            merged, owners = apply_configuration(
                live, config, table.owners.get(key, {}), who, force
            )
            return self._commit(resource, key, live, merged, subresource, owners)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Returns once deletion is accepted; ``uid`` is a precondition."""
        key = requests.key(resource, name, namespace)
        with self._store.lock:
            live = self._store.find(resource, key)
            requests.check_preconditions(live, {"uid": uid})
            grace = self._grace(resource, live, grace_period_seconds)
            if not live["metadata"].get("finalizers") and not grace:
                self._store.remove(resource, key)
                return
            if live["metadata"].get("deletionTimestamp") and grace_period_seconds is None:
                return
            metadata = {
                **live["metadata"],
                "deletionTimestamp": self._now(),
                "deletionGracePeriodSeconds": grace,
            }
            owners = self._store.table(resource).owners.get(key, {})
            self._store.update(resource, key, {**live, "metadata": metadata}, owners)

    def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """Delete a pod as the Eviction API does; disruption budgets are not looked at."""
        self.delete(PODS, name, namespace, uid=uid)

    def bind(self, name: str, namespace: str, node: str) -> JsonObject:
        """Give a pod its node, as kube-scheduler's Binding does.

        Raises:
            ConflictError: if the pod is gated or already bound.
        """
        key = requests.key(PODS, name, namespace)
        with self._store.lock:
            bound = copy_json(self._store.find(PODS, key))
            try:
                pod_rules.bind(bound, node, self._now())
            except InvalidError as error:
                raise ConflictError(str(error)) from error
            owners = self._store.table(PODS).owners.get(key, {})
            return requests.detached(self._store.update(PODS, key, bound, owners))

    # Upkeep

    def compact(self) -> None:
        """Forget the history, as etcd does every five minutes: older watches get 410."""
        with self._store.lock:
            for table in self._store.tables():
                table.history.forget_before(self._store.version)

    def field_owners(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> Mapping[Owner, frozenset[tuple[object, ...]]]:
        """Who owns which fields; what ``metadata.managedFields`` tells on a real server."""
        with self._store.lock:
            owners = self._store.table(resource).owners.get(
                requests.key(resource, name, namespace), {}
            )
            return dict(owners)

    def close(self) -> None:
        """End all watches."""
        self._store.close()

    # Inside

    def _now(self) -> str:
        return rfc3339(self._clock.wall_time_ns())

    def _grace(self, resource: Resource, live: JsonObject, asked: int | None) -> int:
        if resource != PODS or not self._kubelet_confirms_deletion:
            return 0
        if not live["spec"].get("nodeName"):
            return 0
        return int(live["spec"]["terminationGracePeriodSeconds"]) if asked is None else asked

    def _create(
        self, resource: Resource, given: JsonObject, namespace: str | None, who: Owner
    ) -> JsonObject:
        requests.check_type(resource, given)
        metadata = dict(requests.metadata(given))
        if metadata.get("resourceVersion"):
            raise InvalidError("metadata.resourceVersion: may not be set on a new object")
        for system in requests.SYSTEM_METADATA:
            metadata.pop(system, None)
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = f"{self._random.getrandbits(24):05x}"[-5:]
            metadata["name"] = f"{metadata['generateName']}{suffix}"
        kinds.check_name(metadata.get("name"))
        kinds.check_metadata(metadata)
        key = requests.key(resource, metadata["name"], namespace or metadata.get("namespace"))
        if resource.namespaced:
            metadata["namespace"] = key[0]
        body: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind, **given}
        body["metadata"] = metadata
        if kinds.has_status(resource):
            body.pop("status", None)
        owned = requests.configuration(resource, body, "")
        if resource == PODS:
            classes = self._store.table(PRIORITY_CLASSES).objects
            pod_rules.complete(
                body, {name: item for (_, name), item in classes.items()}, self._now()
            )
        body = kinds.validated(resource, body, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self._now()
        if kinds.counts_generations(resource):
            metadata["generation"] = 1
        owners = update_owners({}, owned, {}, who)
        if resource == EVENTS:
            self._expire_events(key)
        return requests.detached(self._store.insert(resource, key, body, owners))

    def _expire_events(self, newest: Key) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._events and now_ns - self._events[0][0] >= EVENT_TTL_NS:
            _, expired = self._events.popleft()
            if expired in self._store.table(EVENTS).objects:
                self._store.remove(EVENTS, expired)
        self._events.append((now_ns, newest))

    def _rewrite(
        self,
        resource: Resource,
        key: Key,
        change: Callable[[JsonObject], JsonObject],
        subresource: str,
        *,
        dry_run: bool = False,
    ) -> JsonObject:
        with self._store.lock:
            live = self._store.find(resource, key)
            wanted = change(live)
            requests.check_type(resource, wanted)
            requests.check_preconditions(live, requests.metadata(wanted))
            if dry_run:
                return requests.detached(self._judged(resource, live, wanted, subresource))
            return self._commit(resource, key, live, wanted, subresource, None)

    def _judged(
        self, resource: Resource, live: JsonObject, wanted: JsonObject, subresource: str
    ) -> JsonObject:
        """What the change makes of the object, if the rules of its kind allow it."""
        result = requests.combined(resource, live, wanted, subresource)
        if resource == PODS and not subresource:
            pod_rules.check_update(live, result)
            pod_rules.settle(live, result)
        return kinds.validated(resource, result, live)

    def _commit(
        self,
        resource: Resource,
        key: Key,
        live: JsonObject,
        wanted: JsonObject,
        subresource: str,
        owners: Owners | None,
    ) -> JsonObject:
        """Judge and store a change; a change of nothing is not a write.

        Args:
            resource: The kind.
            key: The object.
            live: What is stored.
            wanted: What the caller wants to be stored.
            subresource: ``status``, or empty for everything but status.
            owners: The field owners after the change; None to derive them from it.
        """
        result = self._judged(resource, live, wanted, subresource)
        known = self._store.table(resource).owners.get(key, {})
        if same(live, result):
            if owners is not None:
                self._store.table(resource).owners[key] = owners
            return requests.detached(live)
        if kinds.counts_generations(resource) and not requests.same_desire(live, result):
            metadata = result["metadata"]
            result["metadata"] = {**metadata, "generation": metadata.get("generation", 0) + 1}
        if owners is None:
            who = Owner(self._updater.manager, "Update", subresource)
            owners = update_owners(requests.owned(live), requests.owned(result), known, who)
        stored = self._store.update(resource, key, result, owners)
        self._remove_if_released(resource, key, stored)
        return requests.detached(stored)

    def _remove_if_released(self, resource: Resource, key: Key, stored: JsonObject) -> None:
        """Finish a deletion that waited for finalizers."""
        metadata = stored["metadata"]
        is_released = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        grace = metadata.get("deletionGracePeriodSeconds")
        if is_released and not self._grace(resource, stored, grace):
            self._store.remove(resource, key)
