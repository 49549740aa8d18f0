"""The port to a Kubernetes API: what wattpack asks of one, whoever answers.

Adapters: ``wattpack.kube.client`` (a real API server), ``simulation.kube`` (an in-process
object store with the same semantics), ``wattpack.kube.fault_injection`` (wraps either and
injects faults).

Objects are plain JSON mappings, exactly as the API server sends them.

KubeError
├── NotFoundError          404
├── AlreadyExistsError     409 on create
├── ConflictError          409: somebody wrote in between; read again, never overwrite
├── GoneError              410: the resourceVersion is too old; list again
├── InvalidError           422 or 400: the object or patch was refused; says which field
├── ForbiddenError         401 or 403: of our own account
│   └── TokenRefusedError  a token that we had reviewed is not valid, or not for us
├── ThrottledError         429: wait ``retry_after_seconds`` (evictions: a disruption budget holds)
└── UnavailableError       no answer, a broken one, or 5xx; the write may or may not have happened
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wattpack.errors import InputError, PermanentError, TransientError, WattpackError

JsonObject = dict[str, Any]


class KubeError(WattpackError):
    """The API refused or failed a call."""


class NotFoundError(KubeError, PermanentError):
    """No such object or kind."""


class AlreadyExistsError(KubeError, PermanentError):
    """An object of this name exists."""


class ConflictError(KubeError, TransientError):
    """The object changed since it was read."""


class GoneError(KubeError, TransientError):
    """The resourceVersion is no longer available: list again."""


class InvalidError(KubeError, PermanentError):
    """The object or patch was refused by validation or admission."""


class ForbiddenError(KubeError, PermanentError):
    """Not authenticated or not allowed."""


class TokenRefusedError(ForbiddenError):
    """Somebody's token was reviewed and is not valid; we ourselves are allowed to ask."""


class ThrottledError(KubeError, TransientError):
    """The server asks to wait, or a disruption budget forbids the eviction now."""


class UnavailableError(KubeError, TransientError):
    """No usable answer; a write may or may not have happened."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API serves it.

    Attributes:
        group: API group, empty for the core group.
        version: For example ``v1``.
        plural: As in the URL, for example ``pods``.
        kind: For example ``Pod``.
        namespaced: Whether objects live in namespaces.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


PODS = Resource("", "v1", "pods", "Pod", True)
NODES = Resource("", "v1", "nodes", "Node", False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
SECRETS = Resource("", "v1", "secrets", "Secret", True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True)
JOBS = Resource("batch", "v1", "jobs", "Job", True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
)


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A consistent list and the version from which a watch continues it."""

    items: tuple[JsonObject, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. A ``BOOKMARK`` carries only a newer resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: JsonObject

    @property
    def resource_version(self) -> str:
        """The version after this change."""
        return str(self.object["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Who a reviewed token belongs to."""

    username: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    uid: str = ""

    @property
    def node_name(self) -> str | None:
        """The node that the token's pod runs on, if the token is bound to one."""
        values = self.extra.get("authentication.kubernetes.io/node-name", ())
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody may or may not do, as RBAC counts it.

    Attributes:
        verb: For example ``get`` or ``list``.
        path: A path of no API object, for example ``/metrics``; empty for a resource.
        group: API group of the resource, empty for the core group.
        plural: The resource, for example ``pods``.
        namespace: Where; empty for every namespace.
    """

    verb: str
    path: str = ""
    group: str = ""
    plural: str = ""
    namespace: str = ""

    def __post_init__(self) -> None:
        if not self.verb or bool(self.path) == bool(self.plural):
            raise InputError("access", "a verb, and either a path or a resource", self)

    def to_json(self) -> JsonObject:
        """The part of a SubjectAccessReview's spec that says what is asked."""
        if self.path:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        asked = {"verb": self.verb, "group": self.group, "resource": self.plural}
        where = {"namespace": self.namespace} if self.namespace else {}
        return {"resourceAttributes": {**asked, **where}}

    def __str__(self) -> str:
        if self.path:
            return f"{self.verb} {self.path}"
        what = f"{self.plural}.{self.group}" if self.group else self.plural
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        return f"{self.verb} {what} in {where}"


class AccessReviews(Protocol):
    """Who somebody is and what they may do, in the API server's word."""

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """The identity behind a token, or ``TokenRefusedError``."""
        ...

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        """Whether the cluster's authorizers allow it."""
        ...


class PodLogs(Protocol):
    """What containers printed."""

    def pod_log(self, name: str, namespace: str, container: str) -> tuple[bytes, ...]:
        """The lines of a container's whole log; raises only ``KubeError``s."""
        ...


class KubeApi(AccessReviews, Protocol):
    """The calls that wattpack makes. Every call has a deadline and raises only ``KubeError``s."""

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """One object."""
        ...

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """All objects of a kind, of one namespace or of all."""
        ...

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        timeout_seconds: float = 300.0,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Iterator[WatchEvent]:
        """Changes after a version, with bookmarks, until the server's time-out ends the stream.

        A time-out of 0 means what is there now, without waiting (a real server: one second).

        Raises:
            GoneError: when the version is too old.
            UnavailableError: when the connection breaks, or is silent past its time-out or 150 s.
        """
        ...

    def create(
        self, resource: Resource, body: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """The object as stored."""
        ...

    def replace(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        """The object as stored; compare-and-swap on ``metadata.resourceVersion`` if present."""
        ...

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
        ...

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
        """The object after a JSON Patch; a failed ``test`` raises ``ConflictError``.

        A dry run is judged by validation and admission like the real patch and stores nothing.
        """
        ...

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
        ...

    def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """Ask for a pod's eviction through the Eviction API."""
        ...
