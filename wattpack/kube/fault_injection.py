"""An API that fails on purpose: wraps any adapter and injects faults by seed.

| fault | what the caller meets |
|---|---|
| conflict | 409 before a write: somebody else was first |
| throttled | 429 with a time to wait |
| server_error | 500; nothing happened |
| stalled | no answer within the deadline; nothing happened |
| lost_answer | the write happened, its answer did not arrive |
| gone | 410 when a watch starts |
| broken_watch | a watch ends with an error after an event |
| dropped_event | a watch leaves out an event; a real server never does, lossy caches do |
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from wattpack.clock import Clock
from wattpack.kube.port import (
    Access,
    ConflictError,
    GoneError,
    JsonObject,
    KubeApi,
    ObjectList,
    Resource,
    ThrottledError,
    TokenIdentity,
    UnavailableError,
    WatchEvent,
)
from wattpack.units import require_number, seconds_to_ns

RETRY_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probability of each fault, per call (of an event, for the last two)."""

    conflict: float = 0.0
    throttled: float = 0.0
    server_error: float = 0.0
    stalled: float = 0.0
    lost_answer: float = 0.0
    gone: float = 0.0
    broken_watch: float = 0.0
    dropped_event: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            require_number(field.name, getattr(self, field.name), minimum=0.0, maximum=1.0)


class FaultyKube:
    """``KubeApi`` that fails sometimes.

    Args:
        api: Who answers otherwise.
        rates: How often which fault; assign ``rates`` anew to change it while running.
        seed: Of the choices.
        clock: If given, a stalled call takes ``stall_seconds`` on it.
        stall_seconds: Deadline of a stalled call.
    """

    def __init__(
        self,
        api: KubeApi,
        rates: FaultRates,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        stall_seconds: float = 10.0,
    ) -> None:
        self._api = api
        self._random = random.Random(seed)
        self._clock = clock
        self._stall_seconds = stall_seconds
        self.rates = rates
        self.is_down = False
        self.injected: Counter[str] = Counter()

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """One object, or a fault."""
        self._before_read()
        return self._api.get(resource, name, namespace)

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """All objects of a kind, or a fault."""
        self._before_read()
        return self._api.list(resource, namespace, label_selector, field_selector)

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        timeout_seconds: float = 300.0,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Iterator[WatchEvent]:
        """Changes after a version, some of them missing, until it ends or breaks."""
        self._before_read()
        if self._strikes("gone"):
            raise GoneError("injected: too old resource version")
        stream = self._api.watch(
            resource, resource_version, namespace, timeout_seconds, label_selector, field_selector
        )
        for event in stream:
            if event.type != "BOOKMARK" and self._strikes("dropped_event"):
                continue
            yield event
            if self.is_down or self._strikes("broken_watch"):
                raise UnavailableError("injected: the watch broke")

    def create(
        self, resource: Resource, body: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """The object as stored, or a fault."""
        self._before_write()
        return self._after_write(self._api.create(resource, body, namespace))

    def replace(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        """The object as stored, or a fault."""
        self._before_write()
        return self._after_write(self._api.replace(resource, body, namespace, subresource))

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
        """The object after server-side apply, or a fault."""
        self._before_write()
        applied = self._api.apply(
            resource,
            body,
            field_manager=field_manager,
            namespace=namespace,
            subresource=subresource,
            force=force,
        )
        return self._after_write(applied)

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
        """The object after a JSON Patch, or a fault."""
        self._before_write()
        patched = self._api.patch_json(
            resource, name, operations, namespace, subresource, dry_run=dry_run
        )
        return self._after_write(patched)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Accepted, or a fault."""
        self._before_write()
        self._api.delete(
            resource, name, namespace, uid=uid, grace_period_seconds=grace_period_seconds
        )
        self._after_write({})

    def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """Accepted, or a fault."""
        self._before_write()
        self._api.evict(name, namespace, uid=uid)
        self._after_write({})

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """The identity behind a token, or a fault."""
        self._before_read()
        return self._api.review_token(token, audiences)

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        """The authorizers' word, or a fault."""
        self._before_read()
        return self._api.review_access(identity, access)

    def _strikes(self, fault: str) -> bool:
        # One draw a question keeps a run the same when another fault's rate changes.
        rate: float = getattr(self.rates, fault)
        strikes = self._random.random() < rate
        if strikes:
            self.injected[fault] += 1
        return strikes

    def _before_read(self) -> None:
        if self.is_down:
            raise UnavailableError("injected: the API server is down")
        if self._strikes("throttled"):
            raise ThrottledError("injected: too many requests", RETRY_AFTER_SECONDS)
        if self._strikes("server_error"):
            raise UnavailableError("injected: internal error")
        if self._strikes("stalled"):
            if self._clock is not None:
                pause_ns = seconds_to_ns(self._stall_seconds)
                self._clock.wait_until(self._clock.monotonic_ns() + pause_ns)
            raise UnavailableError("injected: no answer within the deadline")

    def _before_write(self) -> None:
        self._before_read()
        if self._strikes("conflict"):
            raise ConflictError("injected: the object has been modified")

    def _after_write(self, stored: JsonObject) -> JsonObject:
        if self._strikes("lost_answer"):
            raise UnavailableError("injected: the answer was lost, the write happened")
        return stored
