"""How many selectors pods may be asked about, so that one namespace holds up no plan.

A selector is asked of the pods that have a label which it looks for, and of all where it looks for
none. Rules that differ from pod to pod multiply with pods whose labels differ: 300 pods with 100
rules each beside 1,500 others took minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.pod_selections import Selection, labels_of
from wattpack.kube.port import JsonObject

__all__ = ["RuleBudget"]

FEW: Final = 300
"""Selectors that nobody counts: a third of a second beside 1,500 pods that all differ."""
MOST_ASKS: Final = 200_000
"""Of the selectors beyond, how often those of one namespace may be asked (assumed; 0.3 s)."""


class RuleBudget:
    """Of one snapshot.

    Args:
        pods: Who may be asked.
    """

    def __init__(self, pods: Sequence[JsonObject]) -> None:
        self._pods = pods
        self._crowd: _Crowd | None = None
        self._known: set[str] = set()
        self._spent: Counter[str] = Counter()

    def __len__(self) -> int:
        """Selectors that were let in."""
        return len(self._known)

    def admits(self, pod: JsonObject, selections: Iterable[Selection]) -> bool:
        """Whether the selectors of one more waiting pod may be asked; then they are let in."""
        new = {selection.name: selection for selection in selections}
        for name in new.keys() & self._known:
            del new[name]
        if len(self._known) + len(new) > FEW:
            self._crowd = self._crowd or _Crowd(self._pods)
            space = pod_facts.namespace(pod)
            asks = self._spent[space] + sum(map(self._crowd.asked, new.values()))
            if asks > MOST_ASKS:
                return False
            self._spent[space] = asks
        self._known |= new.keys()
        return True


class _Crowd:
    """Kinds of pods, alike in labels and namespace, by label."""

    def __init__(self, pods: Iterable[JsonObject]) -> None:
        kinds = {(pod_facts.namespace(pod), *sorted(labels_of(pod))) for pod in pods}
        self._all = len(kinds)
        self._with: Counter[object] = Counter()
        for _, *labels in kinds:
            self._with.update(labels)
            self._with.update(key for key, _ in labels)

    def asked(self, selection: Selection) -> int:
        """How many kinds have to be asked about a selector."""
        if labels := selection.wanted_labels():
            return sum(self._with[label] for label in labels)
        key = selection.wanted_key()
        return self._with[key] if key else self._all
