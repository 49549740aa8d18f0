"""Who is at the other end of an agent stream: a reviewed token, bound to one node.

Tokens are reviewed by the API server (TokenReview with our audience) and the answer is kept for a
minute, so that a reconnect storm does not become a storm of reviews. A refusal is never kept.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

from wattpack.clock import Clock
from wattpack.kube.port import ForbiddenError, KubeApi
from wattpack.units import NS_PER_SECOND

AUDIENCE = "wattpack-controller"
REVIEW_TTL_NS = 60 * NS_PER_SECOND
MAX_CACHED = 20_000


@dataclass(frozen=True, slots=True)
class _Review:
    node: str
    until_ns: int


class NodeAuthenticator:
    """Turns a bearer token into the node that it is bound to. Thread-safe."""

    def __init__(self, api: KubeApi, clock: Clock, agent_username: str) -> None:
        self._api, self._clock, self._username = api, clock, agent_username
        self._lock = threading.Lock()
        self._reviews: dict[bytes, _Review] = {}

    def node_of(self, token: str) -> str:
        """The node's name.

        Raises:
            ForbiddenError: for a token that is invalid, of another account, or bound to no node.
        """
        digest = hashlib.sha256(token.encode()).digest()
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            known = self._reviews.get(digest)
        if known is not None and now_ns < known.until_ns:
            return known.node
        identity = self._api.review_token(token, (AUDIENCE,))
        if self._username and identity.username != self._username:
            raise ForbiddenError(f"{identity.username} is not the agents' service account")
        if identity.node_name is None:
            raise ForbiddenError("the token is not bound to a node")
        with self._lock:
            if len(self._reviews) >= MAX_CACHED:
                self._reviews.clear()
            self._reviews[digest] = _Review(identity.node_name, now_ns + REVIEW_TTL_NS)
        return identity.node_name
