"""A local copy of one kind, kept by list and watch.

Level-triggered: handlers learn that an object changed from what they last knew to what is now;
states in between may be missed. A broken or too old watch is answered by a new list and the
difference to it, so that no change is lost for good.

In a thread (``start``) on a real clock, or step by step (``pump``) where one thread owns virtual
time: ``pump`` takes what is there now and never waits.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from wattpack.clock import Clock
from wattpack.kube.backoff import backoff_seconds
from wattpack.kube.port import GoneError, JsonObject, KubeApi, KubeError, Resource, WatchEvent
from wattpack.units import NS_PER_SECOND, seconds_to_ns

log = logging.getLogger(__name__)

# Old and new state; None for "did not exist" and "exists no more". Both are shared: do not change.
Handler = Callable[[JsonObject | None, JsonObject | None], None]
Key = tuple[str, str]

# Watches end at different times, so that their restarts spread over the server's time. They end
# before a client gives a silent connection up (150 s): a server owes a quiet kind no bookmark.
WATCH_SECONDS = (100.0, 140.0)
# A list this often repairs what a watch may have lost without saying so.
RELIST_SECONDS = 600.0


# After a failure the first watch is short: its end says that the server answers again.
PROBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Broken:
    """Since when, on the informer's clock, and why the copy is not being kept up to date."""

    since_ns: int
    cause: str


class Informer:
    """The objects of one kind.

    Args:
        api: Where they lie.
        clock: For back-off and thread mode.
        resource: The kind.
        namespace: One namespace, or None for all.
        seed: Of time-outs and back-off; give each process its own.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        resource: Resource,
        *,
        namespace: str | None = None,
        seed: int = 0,
    ) -> None:
        self._api = api
        self._clock = clock
        self._resource = resource
        self._namespace = namespace
        self._random = random.Random(seed)
        self._handlers: list[Handler] = []
        self._objects: dict[Key, JsonObject] = {}
        self._lock = threading.Lock()
        self._version = ""
        self._relist_at_ns = 0
        self._failures = 0
        self._retry_at_ns = clock.monotonic_ns()
        self._wake = clock.new_wake()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._broken: Broken | None = None
        self.failure: Exception | None = None
        self.lists = 0

    def add_handler(self, handler: Handler) -> None:
        """Call ``handler(old, new)`` for every change from now on, in the informer's thread."""
        self._handlers.append(handler)

    def synced(self) -> bool:
        """Whether a list has been taken over and no handler has failed."""
        return self.lists > 0 and self.failure is None

    def broken(self) -> Broken | None:
        """Since when the server could not be followed; None while list and watch stand."""
        return self._broken

    def get(self, name: str, namespace: str = "") -> JsonObject | None:
        """The object as last seen; shared, do not change it."""
        with self._lock:
            return self._objects.get((namespace, name))

    def list(self) -> tuple[JsonObject, ...]:
        """All objects as last seen, by namespace and name; shared, do not change them."""
        with self._lock:
            return tuple(self._objects[key] for key in sorted(self._objects))

    def pump(self) -> int:
        """Take over what changed until now; how many changes handlers were told of.

        Does nothing while it backs off after a failure.
        """
        if self._clock.monotonic_ns() < self._retry_at_ns:
            return 0
        return self._cycle(0.0)

    def start(self) -> None:
        """Follow in a thread until ``stop``."""
        self._stopping = False
        name = f"informer-{self._resource.plural}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread at its next event, bookmark or wait; does not wait for that."""
        self._stopping = True
        self._wake.set()

    def join(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.follow_once()
        except Exception as error:
            # A handler failed: a copy whose users stumble is worse than one that says it is broken.
            self.failure = error
            self._broken = Broken(self._clock.monotonic_ns(), f"handler failed: {error}")
            level = logging.INFO if self._stopping else logging.ERROR
            log.log(level, "informer of %s ends", self._resource.plural, exc_info=True)

    def follow_once(self) -> None:
        """One watch to its end, and the pause after it if it failed; what the thread repeats."""
        self._cycle(self._random.uniform(*WATCH_SECONDS))
        if self._clock.monotonic_ns() < self._retry_at_ns:
            self._clock.wait_until(self._retry_at_ns, self._wake)

    def _cycle(self, watch_seconds: float) -> int:
        """List if needed, then watch until it ends; failures set the time of the next try."""
        told = 0
        try:
            if not self._version or self._clock.monotonic_ns() >= self._relist_at_ns:
                told += self._relist()
            seconds = min(watch_seconds, PROBE_SECONDS) if self._broken else watch_seconds
            stream = self._api.watch(self._resource, self._version, self._namespace, seconds)
            for event in stream:
                told += self._take(event)
                self._answered()
                if self._stopping:
                    break
            self._answered()
        except GoneError as error:
            self._version = ""
            self._fail(error)
        except KubeError as error:
            self._fail(error)
        return told

    def _answered(self) -> None:
        self._failures, self._broken = 0, None

    def _fail(self, error: KubeError) -> None:
        self._failures += 1
        retry_after = getattr(error, "retry_after_seconds", None)
        # The first 410 is ordinary ageing: list at once. A second in a row is a storm.
        is_ageing = isinstance(error, GoneError) and self._failures == 1
        if not is_ageing:
            since_ns = self._broken.since_ns if self._broken else self._clock.monotonic_ns()
            self._broken = Broken(since_ns, str(error)[:200])
        pause = 0.0 if is_ageing else backoff_seconds(self._failures, self._random, retry_after)
        self._retry_at_ns = self._clock.monotonic_ns() + seconds_to_ns(pause)
        tell = log.info if is_ageing else log.warning
        tell("informer of %s: %s; again in %.1f s", self._resource.plural, error, pause)

    def _relist(self) -> int:
        listed = self._api.list(self._resource, self._namespace)
        found = {_key(body): body for body in listed.items}
        changes = []
        with self._lock:
            known, self._objects = self._objects, found
            for key in sorted(known.keys() | found.keys()):
                before, after = known.get(key), found.get(key)
                if before is None or after is None or _version(before) != _version(after):
                    changes.append((before, after))
        self._version = listed.resource_version
        pause = RELIST_SECONDS * self._random.uniform(0.8, 1.2)
        self._relist_at_ns = self._clock.monotonic_ns() + round(pause * NS_PER_SECOND)
        self.lists += 1
        for before, after in changes:
            self._tell(before, after)
        return len(changes)

    def _take(self, event: WatchEvent) -> int:
        self._version = event.resource_version
        if event.type == "BOOKMARK":
            return 0
        key = _key(event.object)
        after = None if event.type == "DELETED" else event.object
        with self._lock:
            before = self._objects.get(key)
            if after is None:
                self._objects.pop(key, None)
            else:
                self._objects[key] = after
        if before is None and after is None:
            return 0
        self._tell(before, after)
        return 1

    def _tell(self, before: JsonObject | None, after: JsonObject | None) -> None:
        for handler in self._handlers:
            handler(before, after)


def _key(body: JsonObject) -> Key:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _version(body: JsonObject) -> str:
    return str(body["metadata"]["resourceVersion"])
