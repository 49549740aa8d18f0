"""Who belongs to a gang now: its declared size less members that will never wait for a place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.gangs import GangRef, GangSources, gang_of
from wattpack.kube.port import JsonObject


class GangCensus:
    """Gangs of all pods.

    Args:
        pods: All pods, as the API server shows them.
        sources: Sizes that owners declare.
    """

    def __init__(self, pods: Iterable[JsonObject], sources: GangSources) -> None:
        self._sources = sources
        self._alive: dict[str, set[str]] = defaultdict(set)
        self._elsewhere: Counter[str] = Counter()
        self._finished: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in pods:
            self._count(pod)

    def gang(self, pod: JsonObject) -> GangRef | None:
        """The gang that the pod waits with, by its size now; None if it waits with nobody.

        Raises:
            InputError: if the size, or what the pod asks for, cannot be read.
        """
        found = gang_of(pod, self._sources)
        if found is None or not pod_facts.may_ask_for_gpus(pod):
            return None
        if found.size is None or not found.is_declared:
            return found
        alive = self._alive.get(found.id, set())
        done = self._finished.get(found.id, Counter[str]())
        finished = sum(count for owner, count in done.items() if owner in alive)
        return replace(found, size=max(1, found.size - self._elsewhere[found.id] - finished))

    def _count(self, pod: JsonObject) -> None:
        try:
            found = gang_of(pod, self._sources)
            if found is None or not found.is_declared:
                return
            waits_for_us = pod_facts.may_ask_for_gpus(pod)
        except InputError:
            return
        owner, phase = pod_facts.owner_key(pod), (pod.get("status") or {}).get("phase")
        if phase == "Succeeded":
            # Only beside living pods of the same owner: a gang's name may be used again.
            self._finished[found.id][owner] += 1
        elif phase != "Failed" and waits_for_us:
            self._alive[found.id].add(owner)
        elif phase != "Failed":
            self._elsewhere[found.id] += 1
