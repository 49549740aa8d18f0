"""Who is at the other end of an agent stream: a reviewed token, bound to one node.

Tokens are reviewed by the API server (TokenReview with our audience) and the answer is kept for a
minute, so that a reconnect storm does not become a storm of reviews: agents that come back with the
token they had cost nothing, others wait their turn behind a few questions at a time.
"""

from __future__ import annotations

import hashlib

from wattpack.clock import Clock
from wattpack.kept_answers import Keeping, KeptAnswers
from wattpack.kube.port import AccessReviews, TokenIdentity, TokenRefusedError
from wattpack.units import NS_PER_SECOND

__all__ = ["AUDIENCE", "REVIEWS", "NodeAuthenticator"]

AUDIENCE = "wattpack-controller"
# As many questions at once as the API client keeps connections. A refused token is asked about
# again after two seconds: a new agent's may be younger than the API server's cache.
REVIEWS = Keeping(60 * NS_PER_SECOND, refusal_ns=2 * NS_PER_SECOND, most=20_000, at_once=16)


class NodeAuthenticator:
    """Turns a bearer token into the node that it is bound to. Thread-safe."""

    def __init__(self, api: AccessReviews, clock: Clock, agent_username: str) -> None:
        self._api, self._username = api, agent_username
        self._reviews: KeptAnswers[bytes, TokenIdentity] = KeptAnswers(REVIEWS, clock)

    def node_of(self, token: str) -> str:
        """The node's name.

        Raises:
            TokenRefusedError: for a token that is invalid, of another account, or bound to no node.
            WattpackError: if the API server gives no answer.
        """
        digest = hashlib.sha256(token.encode()).digest()
        identity = self._reviews.get(digest, lambda: self._api.review_token(token, (AUDIENCE,)))
        if self._username and identity.username != self._username:
            raise TokenRefusedError(f"{identity.username} is not the agents' service account")
        if identity.node_name is None:
            raise TokenRefusedError("the token is not bound to a node")
        return identity.node_name
