"""Get, create and apply one object over ``http.client``; one connection a call.

An agent writes a few times an hour, so nothing is kept open, and authority and token are read anew
each time: both rotate. Watches and lists are not here; use ``wattpack.kube.client`` for them.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from wattpack.clock import Clock
from wattpack.kube.client.failures import failure
from wattpack.kube.client.transport import parse
from wattpack.kube.light.server_address import Server
from wattpack.kube.port import (
    Access,
    InvalidError,
    JsonObject,
    Resource,
    TokenIdentity,
    UnavailableError,
)
from wattpack.kube.reviews import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    access_review,
    reviewed_access,
    reviewed_identity,
    token_review,
)
from wattpack.kube.user_agent import user_agent
from wattpack.units import NS_PER_SECOND

DEADLINE_SECONDS = 10.0
#: No answer to our calls is larger than the largest object that etcd takes.
MAX_ANSWER_BYTES = 1_572_864
_CHUNK_BYTES = 65536


class LightKube:
    """The part of ``KubeApi`` that a node agent needs; raises the same errors.

    Args:
        server: Address and credentials.
        clock: Bounds the reading of an answer.
        deadline_seconds: Of each step of a call (connect, send, first byte) and of its answer.
    """

    def __init__(
        self, server: Server, clock: Clock, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._server = server
        self._clock = clock
        self._deadline_seconds = deadline_seconds

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """One object."""
        return self._exchange("GET", _path(resource, namespace, name))

    def create(
        self, resource: Resource, body: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """The object as stored."""
        query = {"fieldManager": "wattpack", "fieldValidation": "Strict"}
        return self._exchange("POST", _path(resource, namespace), query, body, "application/json")

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
        query = {
            "fieldManager": field_manager,
            "fieldValidation": "Strict",
            "force": str(force).lower(),
        }
        path = _path(resource, namespace, str(body["metadata"]["name"]), subresource)
        return self._exchange("PATCH", path, query, body, "application/apply-patch+yaml")

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """The identity behind a token, or ``TokenRefusedError``."""
        answer = self._ask("/".join(("", *TOKEN_REVIEWS)), token_review(token, audiences))
        return reviewed_identity(answer, audiences)

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        """Whether the cluster's authorizers allow it."""
        return reviewed_access(
            self._ask("/".join(("", *ACCESS_REVIEWS)), access_review(identity, access))
        )

    def _ask(self, path: str, body: JsonObject) -> JsonObject:
        return self._exchange("POST", path, None, body, "application/json")

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content_type: str = "",
    ) -> JsonObject:
        url = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else _encoded(body)
        headers = {"Accept": "application/json", "User-Agent": user_agent()}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            headers["Authorization"] = f"Bearer {self._server.bearer_token()}"
            connection = self._connection()
            try:
                connection.request(method, url, data, {**headers, "Connection": "close"})
                response = connection.getresponse()
                answer = self._read(response)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            cause = f"{type(error).__name__}: {error}"
            raise UnavailableError(f"{method} {path}: {cause}") from error
        if not 200 <= response.status < 300:
            raise failure(response.status, answer, dict(response.headers))
        return parse(answer)

    def _connection(self) -> http.client.HTTPConnection:
        server, seconds = self._server, self._deadline_seconds
        if not server.tls:
            return http.client.HTTPConnection(server.host, server.port, timeout=seconds)
        context = ssl.create_default_context(cafile=server.ca_file, cadata=server.ca_pem or None)
        return http.client.HTTPSConnection(
            server.host, server.port, timeout=seconds, context=context
        )

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """The whole answer, within the deadline and of a bounded size."""
        until_ns = self._clock.monotonic_ns() + round(self._deadline_seconds * NS_PER_SECOND)
        declared, parts, size = response.length, list[bytes](), 0
        while declared is None or size < declared:
            part = response.read1(_CHUNK_BYTES)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise UnavailableError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            if self._clock.monotonic_ns() > until_ns:
                raise UnavailableError(f"no whole answer within {self._deadline_seconds:g} s")
        if declared is not None and size < declared:
            raise UnavailableError(f"the answer ends after {size} of {declared} bytes")
        return b"".join(parts)


def _path(
    resource: Resource, namespace: str | None, name: str | None = None, subresource: str = ""
) -> str:
    if resource.namespaced != bool(namespace):
        where = "required" if resource.namespaced else "not allowed"
        raise InvalidError(f"metadata.namespace: {where} for {resource.plural}")
    if name == "":
        raise InvalidError("metadata.name: required")
    group = ("apis", resource.group) if resource.group else ("api",)
    place = ("namespaces", namespace) if namespace else ()
    last = [part for part in (name, subresource) if part]
    parts = (*group, resource.version, *place, resource.plural, *last)
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _encoded(body: JsonObject) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"the body cannot be said in JSON: {error}") from error
