"""Who may read what over HTTP: one rule for the controller, the agents and the console.

    Host ──► known name? ──► bearer token ──TokenReview──► caller ──SubjectAccessReview──► yes
                403             401                                     403
    no answer of the API server: 503; nothing is shown that nobody has allowed (fails closed)

How to use it: make one ``HttpAccess`` a process, ``reviewed`` in a cluster and ``insecure`` where
somebody said so (the demo, a terminal). For each request call ``admit`` with the Host and
Authorization headers as they came and what is asked for; it returns the ``Caller``. What only some
may see of an answer (pods' names) is asked afterwards with ``visible_namespaces``. Health endpoints
stay open: they call nothing here. Every refusal is an ``HttpRefusal`` that carries its status.

    caller = access.admit(headers.getlist("host"), headers.getlist("authorization"), METRICS)
    shown = access.visible_namespaces(caller, {"team-a", "team-b"})

HttpRefusal
├── UnknownHostError          403  the name in Host is not ours: a page of another site asks
├── UnauthenticatedError      401  no token, or one that the API server does not take
├── NotAllowedError           403  the caller lacks a right; names it
└── ReviewsUnavailableError   503  the API server did not answer; ask again
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattpack.clock import Clock
from wattpack.errors import InputError, PermanentError, TransientError, WattpackError
from wattpack.hosts import is_address
from wattpack.kept_answers import Keeping, KeptAnswers
from wattpack.kube.port import Access, AccessReviews, KubeError, TokenIdentity, TokenRefusedError
from wattpack.units import NS_PER_SECOND

__all__ = [
    "LIVE_VIEW",
    "METRICS",
    "Caller",
    "HttpAccess",
    "HttpRefusal",
    "NotAllowedError",
    "ReviewsUnavailableError",
    "UnauthenticatedError",
    "UnknownHostError",
    "pods_in",
]

METRICS = Access("get", path="/metrics")
LIVE_VIEW = Access("get", path="/v1/live")

# As long as the kubelet keeps the same two answers by default (KubeletConfiguration v1beta1:
# authentication.webhook.cacheTTL, authorization.webhook.cacheAuthorizedTTL and
# cacheUnauthorizedTTL); a token that was taken back works at most this much longer.
TOKENS = Keeping(120 * NS_PER_SECOND, refusal_ns=10 * NS_PER_SECOND, most=4096, at_once=8)
RIGHTS = Keeping(300 * NS_PER_SECOND, refusal_ns=30 * NS_PER_SECOND, most=16_384, at_once=8)
# A caller who may see few of very many namespaces learns of the others in the next answers.
MAX_NEW_NAMESPACES = 64
# Servers refuse headers of this size anyway; a bound service-account token is about 1.2 kB.
MAX_TOKEN_BYTES = 16_384
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+?)\.?(?::[0-9]{1,5})?")


class HttpRefusal(WattpackError):
    """The request is not answered; ``status`` is what HTTP says instead."""

    status: ClassVar[int]

    @property
    def headers(self) -> Mapping[str, str]:
        """What the answer carries beside its status."""
        return {}


class UnknownHostError(HttpRefusal, PermanentError):
    """The Host header names somebody else."""

    status = 403


class UnauthenticatedError(HttpRefusal, PermanentError):
    """Nobody knows who asks."""

    status = 401

    @property
    def headers(self) -> Mapping[str, str]:
        """How to say who one is."""
        return {"WWW-Authenticate": 'Bearer realm="wattpack"'}


class NotAllowedError(HttpRefusal, PermanentError):
    """The caller is known and lacks the right."""

    status = 403


class ReviewsUnavailableError(HttpRefusal, TransientError):
    """The API server cannot be asked now."""

    status = 503

    @property
    def headers(self) -> Mapping[str, str]:
        """When to ask again."""
        return {"Retry-After": "2"}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; without an identity anybody, because the process was told to be insecure."""

    identity: TokenIdentity | None


def pods_in(namespace: str) -> Access:
    """The right that shows the names of a namespace's pods; empty for all namespaces."""
    return Access("list", plural="pods", namespace=namespace)


class HttpAccess:
    """Admits requests. Thread-safe.

    Args:
        host_names: Names that the Host header may carry; ``*.example.org`` for any name below.
            Addresses and ``localhost`` always may: a page of another site is only ever reached by
            a name (DNS rebinding).
        reviews: Of the API server; None admits everybody (``insecure``).
        clock: Of the kept answers' age.
        audiences: One of which a token must be meant for; empty for the API server's own.
    """

    def __init__(
        self,
        host_names: Collection[str],
        reviews: AccessReviews | None,
        clock: Clock,
        audiences: Sequence[str] = (),
    ) -> None:
        self._exact = {_plain_name(name) for name in host_names if not name.startswith("*.")}
        self._below = tuple(_plain_name(name[2:]) for name in host_names if name.startswith("*."))
        self._reviews, self._audiences = reviews, tuple(audiences)
        self._tokens: KeptAnswers[bytes, TokenIdentity] = KeptAnswers(TOKENS, clock)
        self._rights: KeptAnswers[_Right, None] = KeptAnswers(RIGHTS, clock)
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()

    @classmethod
    def insecure(cls, host_names: Collection[str], clock: Clock) -> HttpAccess:
        """Everybody may read everything, under a known Host."""
        return cls(host_names, None, clock)

    def refused(self) -> Mapping[str, int]:
        """How many requests were refused, by the name of the error."""
        with self._lock:
            return dict(self._refused)

    def admit(self, hosts: list[str], authorizations: list[str], access: Access) -> Caller:
        """Who asks, if they may do this.

        Args:
            hosts: Every Host header of the request; exactly one is right.
            authorizations: Every Authorization header; exactly one is right.
            access: What is asked for.

        Raises:
            HttpRefusal: with the status to answer.
        """
        try:
            self._check_host(hosts)
            if self._reviews is None:
                return Caller(None)
            caller = Caller(self._authenticate(self._reviews, authorizations))
            self._require(caller, access)
        except HttpRefusal as refusal:
            with self._lock:
                self._refused[type(refusal).__name__] += 1
            raise
        return caller

    def allows(self, caller: Caller, access: Access) -> bool:
        """Whether the caller has a right beyond the one of ``admit``.

        Raises:
            ReviewsUnavailableError: while the API server does not answer.
        """
        try:
            self._require(caller, access)
        except NotAllowedError:
            return False
        return True

    def visible_namespaces(self, caller: Caller, namespaces: Collection[str]) -> frozenset[str]:
        """Those of the namespaces whose pods' names the caller may see.

        At most ``MAX_NEW_NAMESPACES`` are asked for at a time, the others stay hidden until the
        next call.

        Raises:
            ReviewsUnavailableError: while the API server does not answer.
        """
        if not namespaces or self.allows(caller, pods_in("")):
            return frozenset(namespaces)
        seen, new = set(), 0
        for namespace in sorted(namespaces):
            access = pods_in(namespace)
            new += not self._rights.knows(_right(caller, access))
            if new > MAX_NEW_NAMESPACES:
                break
            if self.allows(caller, access):
                seen.add(namespace)
        return frozenset(seen)

    def _check_host(self, hosts: list[str]) -> None:
        name = _host_name(hosts)
        known = name in self._exact or any(name.endswith(f".{end}") for end in self._below)
        if not (known or name == "localhost" or is_address(name)):
            raise UnknownHostError(f"Host: expected a name of this service, got {name[:80]!r}")

    def _authenticate(self, reviews: AccessReviews, authorizations: list[str]) -> TokenIdentity:
        token = _bearer_token(authorizations)
        digest = hashlib.sha256(token.encode()).digest()
        try:
            return self._tokens.get(digest, lambda: reviews.review_token(token, self._audiences))
        except TokenRefusedError as error:
            raise UnauthenticatedError(str(error)) from error
        except (KubeError, TransientError) as error:
            raise ReviewsUnavailableError(f"the token could not be reviewed: {error}") from error

    def _require(self, caller: Caller, access: Access) -> None:
        reviews, identity = self._reviews, caller.identity
        if reviews is None:
            return
        if identity is None:
            raise NotAllowedError(f"nobody in particular may not {access}")

        def ask() -> None:
            if not reviews.review_access(identity, access):
                raise NotAllowedError(f"{identity.username} may not {access}")

        try:
            self._rights.get(_right(caller, access), ask)
        except (KubeError, TransientError) as error:
            raise ReviewsUnavailableError(f"{access} could not be reviewed: {error}") from error


_Extra = tuple[tuple[str, tuple[str, ...]], ...]
_Right = tuple[str, tuple[str, ...], _Extra, Access]


def _right(caller: Caller, access: Access) -> _Right:
    """The question as a key: an authorizer may look at everything that a token says."""
    identity = caller.identity or TokenIdentity("")
    extra = tuple(sorted((key, tuple(values)) for key, values in identity.extra.items()))
    return identity.username, identity.groups, extra, access


def _plain_name(name: str) -> str:
    """A name for the allow-list as ``_host_name`` gives those of requests."""
    match = _HOST.fullmatch(name)
    if match is None or match["name"] != name.rstrip("."):
        raise InputError("http hosts", "a DNS name or *.NAME, without a port", name)
    return match["name"].lower()


def _host_name(hosts: list[str]) -> str:
    match = _HOST.fullmatch(hosts[0].strip()) if len(hosts) == 1 else None
    if match is None:
        raise UnknownHostError("Host: expected one name or address")
    return match["name"].lower()


def _bearer_token(authorizations: list[str]) -> str:
    if len(authorizations) != 1:
        raise UnauthenticatedError("Authorization: expected one bearer token")
    scheme, _, token = authorizations[0].strip().partition(" ")
    token = token.strip()
    whole = token.isascii() and token.isprintable() and " " not in token
    if scheme.lower() != "bearer" or not token or not whole or len(token) > MAX_TOKEN_BYTES:
        raise UnauthenticatedError("Authorization: expected a bearer token")
    return token
