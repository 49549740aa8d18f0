"""Who a token belongs to and what they may do: the embedded API's answers to reviews."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from wattpack.kube.port import Access, TokenIdentity, TokenRefusedError


class IdentityBook:
    """Tokens and permissions as they were registered; nothing else is valid or allowed."""

    def __init__(self) -> None:
        self._book = threading.Lock()
        self._tokens: dict[str, tuple[TokenIdentity, frozenset[str]]] = {}
        self._allowed: set[tuple[str, Access]] = set()

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """The identity registered for a token, or ``TokenRefusedError``."""
        with self._book:
            identity, accepted = self._tokens.get(token, (None, frozenset()))
        if identity is None or (audiences and not accepted & set(audiences)):
            raise TokenRefusedError("the token is unknown or not meant for this audience")
        return identity

    def register_token(
        self, token: str, identity: TokenIdentity, audiences: Sequence[str] = ()
    ) -> None:
        """Let ``review_token`` answer with this identity for these audiences."""
        with self._book:
            self._tokens[token] = (identity, frozenset(audiences))

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        """Whether ``allow`` was told of it, for the user or one of the groups."""
        rules = (access, replace(access, namespace=""))
        who = {identity.username, *identity.groups}
        with self._book:
            return any((name, rule) in self._allowed for name in who for rule in rules)

    def allow(self, who: str, access: Access) -> None:
        """Let a user or group do this from now on, as a role binding does."""
        with self._book:
            self._allowed.add((who, access))

    def forbid(self, who: str, access: Access) -> None:
        """Take back what was allowed."""
        with self._book:
            self._allowed.discard((who, access))
