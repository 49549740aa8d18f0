"""``KubeApi`` on a real API server: paths, parameters and bodies, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattpack.kube.client.failures import status_failure
from wattpack.kube.client.transport import Transport, parse
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import (
    PODS,
    Access,
    ConflictError,
    GoneError,
    InvalidError,
    JsonObject,
    ObjectList,
    Resource,
    TokenIdentity,
    UnavailableError,
    WatchEvent,
)
from wattpack.kube.reviews import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    access_review,
    reviewed_access,
    reviewed_identity,
    token_review,
)

PAGE_SIZE = 500
LIST_READ_SECONDS = 30.0
# A watch that the server has not ended this long after the time asked for is a dead connection;
# one that lasts longer is given up after this silence. Bookmarks prove nothing: the API server
# sends none for a kind in which nothing has changed since it started.
ENDS_LATE_SECONDS = 10.0
SILENCE_SECONDS = 150.0
APPLY_TYPE = "application/apply-patch+yaml"
JSON_PATCH_TYPE = "application/json-patch+json"
# All that the API server says of a JSON Patch whose operation or test failed (a generic 422).
PATCH_REFUSED = "the server rejected our request due to an error in our request"


class ClientKube:
    """An API server over HTTP. Safe for use by several threads.

    Args:
        transport: Connection to the server.
        field_manager: Owner of fields written by create, replace and patch.
    """

    def __init__(self, transport: Transport, field_manager: str = "wattpack") -> None:
        self._transport = transport
        # Strict: an unknown field is an error, not something to be dropped in silence.
        self._writing = {"fieldManager": field_manager, "fieldValidation": "Strict"}

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """One object."""
        return self._transport.exchange("GET", _path(resource, namespace, name))

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """All objects of a kind, in pages of one consistent version."""
        query = {"limit": str(PAGE_SIZE), **_selectors(label_selector, field_selector)}
        try:
            return self._pages(resource, namespace, query)
        except GoneError:
            # The version aged while we paged: once more in one piece.
            del query["limit"]
            return self._pages(resource, namespace, query)

    def _pages(
        self, resource: Resource, namespace: str | None, query: dict[str, str]
    ) -> ObjectList:
        items: list[JsonObject] = []
        path = _path(resource, namespace)
        token = ""
        while True:
            page = self._transport.exchange(
                "GET",
                path,
                {**query, **({"continue": token} if token else {})},
                read_seconds=LIST_READ_SECONDS,
            )
            items += [_typed(resource, item) for item in page.get("items") or ()]
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return ObjectList(tuple(items), str(metadata.get("resourceVersion", "")))

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        timeout_seconds: float = 300.0,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Iterator[WatchEvent]:
        """Changes after a version until the server's time-out, at least one second."""
        seconds = max(1, round(timeout_seconds))
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
            **_selectors(label_selector, field_selector),
        }
        path = _path(resource, namespace)
        patience = min(SILENCE_SECONDS, seconds + ENDS_LATE_SECONDS)
        with self._transport.stream(path, query, patience) as lines:
            for line in lines:
                yield _event(parse(line))

    def create(
        self, resource: Resource, body: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """The object as stored."""
        where = namespace or _metadata(body).get("namespace")
        path = _path(resource, where)
        return self._transport.exchange("POST", path, self._writing, _typed(resource, body))

    def replace(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        """The object as stored; compare-and-swap on ``metadata.resourceVersion`` if present."""
        metadata = _metadata(body)
        where = namespace or metadata.get("namespace")
        path = _path(resource, where, _name(metadata), subresource)
        return self._transport.exchange("PUT", path, self._writing, _typed(resource, body))

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
        metadata = _metadata(body)
        where = namespace or metadata.get("namespace")
        return self._transport.exchange(
            "PATCH",
            _path(resource, where, _name(metadata), subresource),
            {**self._writing, "fieldManager": field_manager, "force": str(force).lower()},
            _typed(resource, body),
            content_type=APPLY_TYPE,
        )

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
        try:
            return self._transport.exchange(
                "PATCH",
                _path(resource, namespace, name, subresource),
                {**self._writing, **({"dryRun": "All"} if dry_run else {})},
                list(operations),
                content_type=JSON_PATCH_TYPE,
            )
        except InvalidError as error:
            if PATCH_REFUSED not in str(error):
                raise
            # The server does not say which operation failed: try them here on what is there now.
            apply_json_patch(self.get(resource, name, namespace), operations)
            raise ConflictError(f"{name} changed while it was patched") from error

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
        options: JsonObject = {"propagationPolicy": "Background", **_preconditions(uid)}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        self._transport.exchange("DELETE", _path(resource, namespace, name), None, body)

    def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """Ask for a pod's eviction; ``ThrottledError`` while a disruption budget holds it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _preconditions(uid),
        }
        self._transport.exchange("POST", _path(PODS, namespace, name, "eviction"), None, body)

    def pod_log(self, name: str, namespace: str, container: str) -> tuple[bytes, ...]:
        """The lines of a container's log; a kubelet keeps the last 10 MB of it."""
        path = _path(PODS, namespace, name, "log")
        with self._transport.stream(path, {"container": container}, LIST_READ_SECONDS) as lines:
            return tuple(lines)

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """The identity behind a token, or ``TokenRefusedError``."""
        answer = self._transport.exchange(
            "POST", TOKEN_REVIEWS, None, token_review(token, audiences)
        )
        return reviewed_identity(answer, audiences)

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        """Whether the cluster's authorizers allow it."""
        body = access_review(identity, access)
        return reviewed_access(self._transport.exchange("POST", ACCESS_REVIEWS, None, body))


def _path(
    resource: Resource, namespace: str | None, name: str | None = None, subresource: str = ""
) -> tuple[str, ...]:
    group = ("apis", resource.group) if resource.group else ("api",)
    place = ("namespaces", namespace) if resource.namespaced and namespace else ()
    if name is not None and not name:
        raise InvalidError("metadata.name: required")
    if name is not None and resource.namespaced and not namespace:
        raise InvalidError(f"metadata.namespace: required for {resource.plural}")
    last = tuple(part for part in (name, subresource) if part)
    return (*group, resource.version, *place, resource.plural, *last)


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value}


def _preconditions(uid: str) -> JsonObject:
    return {"preconditions": {"uid": uid}} if uid else {}


def _metadata(body: JsonObject) -> JsonObject:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise InvalidError(f"metadata: expected an object, got {metadata!r}")
    return metadata


def _name(metadata: JsonObject) -> str:
    return str(metadata.get("name") or "")


def _typed(resource: Resource, body: JsonObject) -> JsonObject:
    """The object with its type, which items of a list do not carry."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _event(line: JsonObject) -> WatchEvent:
    kind, body = line.get("type"), line.get("object")
    if not isinstance(body, dict):
        raise UnavailableError(f"a watch event without an object: {str(line)[:200]}")
    if kind == "ERROR":
        raise status_failure(int(body.get("code") or 500), body)
    if kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}:
        raise UnavailableError(f"a watch event of unknown type {kind!r}")
    return WatchEvent(kind, body)
