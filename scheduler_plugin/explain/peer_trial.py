"""What a waiting pod would have to stop wanting of other pods, and how it is if it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from scheduler_plugin.documents.peer_rule import PeerKind
from scheduler_plugin.packing.problem import BoolArray
from scheduler_plugin.rules.peer_counts import PeerCounts

__all__ = ["PeerTrial"]


class PeerTrial:
    """Rules of waiting pods among each other, which may be given up by kind.

    Args:
        counts: Of the packing that is tried on; rules are taken out there and put back.
    """

    def __init__(self, counts: PeerCounts) -> None:
        self._counts = counts

    def binds(self, class_index: int) -> bool:
        """Whether other pods matter for the class, so that its pods go one by one."""
        return self._counts.binds(class_index)

    def closed(self, class_index: int) -> BoolArray:
        """Nodes that others keep a pod of the class off, whatever it wants itself, (n,)."""
        return ~self._with(class_index, ())

    def broken(self, class_index: int) -> dict[PeerKind, BoolArray]:
        """Of each kind of rules that the class has, the nodes where one does not hold, (n,)."""
        kinds = {rule.kind for rule in self._counts.peers.classes[class_index].rules}
        return {kind: ~self._with(class_index, (kind,)) for kind in sorted(kinds)}

    def give_up(self, classes: Iterable[int], kind: PeerKind) -> Callable[[], None]:
        """Take rules out of some classes; what is returned puts them back."""
        before = self._counts.peers
        for c in classes:
            kept = {rule.kind for rule in self._counts.peers.classes[c].rules} - {kind}
            self._keep(c, kept)

        def put_back() -> None:
            self._counts.peers = before

        return put_back

    def _with(self, class_index: int, kinds: Iterable[PeerKind]) -> BoolArray:
        before = self._counts.peers
        self._keep(class_index, frozenset(kinds))
        try:
            return np.asarray(self._counts.allowed(class_index))
        finally:
            self._counts.peers = before

    def _keep(self, class_index: int, kinds: Iterable[PeerKind]) -> None:
        kept = set(kinds)
        classes = list(self._counts.peers.classes)
        one = classes[class_index]
        pairs = zip(one.rules, one.countable, strict=True)
        left = [(rule, countable) for rule, countable in pairs if rule.kind in kept]
        classes[class_index] = replace(
            one, rules=tuple(r for r, _ in left), countable=tuple(c for _, c in left)
        )
        self._counts.peers = replace(self._counts.peers, classes=tuple(classes))
