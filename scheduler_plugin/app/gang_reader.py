"""Reads the objects that know how large gangs are: only while a pod waits that needs them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.gang_sizes import ODD_SHAPES, GangSize
from wattpack.gang_sources import GangSource
from wattpack.gangs import GangSources, source_of
from wattpack.kube.port import (
    JOBS,
    JsonObject,
)

__all__ = ["GangReader"]

log = logging.getLogger(__name__)


class GangReader:
    """Sizes of gangs, from whichever version of a kind the cluster serves.

    Args:
        kinds: That the cluster may serve.
    """

    def __init__(self, kinds: ServedKinds) -> None:
        self._kinds = kinds

    def sources(
        self, pods: Iterable[JsonObject], kept: Collection[str] = frozenset()
    ) -> GangSources:
        """Sizes of all owners of the kinds that a pod without a node names.

        Args:
            pods: All pods.
            kept: Gangs for which places are kept: these matter also while all their pods run.

        Raises:
            KubeError: if the API does not answer.
        """
        needed = _sources_of(pods, kept)
        objects = cache(self._kinds.objects)
        jobs: dict[str, list[JsonObject]] = defaultdict(list)
        if any(source.reads_jobs for source in needed.values()):
            for job in objects((JOBS,)):
                jobs[pod_facts.namespace(job)].append(job)
        return GangSources(
            {
                name: _sizes(source, objects(source.kinds), jobs)
                for name, source in needed.items()
                if source.sizes is not None
            }
        )


def _sources_of(pods: Iterable[JsonObject], kept: Collection[str]) -> dict[str, GangSource]:
    found: dict[str, GangSource] = {}
    spaces = {gang.partition("/")[0] for gang in kept}
    for pod in pods:
        waits = not pod_facts.node_name(pod)
        if not waits and pod_facts.namespace(pod) not in spaces:
            continue
        try:
            named = source_of(pod)
        except InputError:
            continue
        if named is not None and (waits or named[1] in kept):
            found[named[0].name] = named[0]
    return found


def _sizes(
    source: GangSource, owners: Sequence[JsonObject], jobs: Mapping[str, list[JsonObject]]
) -> dict[str, GangSize]:
    """Size by ``namespace/name``; one that cannot be read is left out and told."""
    assert source.sizes is not None
    found: dict[str, GangSize] = {}
    for body in owners:
        space = pod_facts.namespace(body)
        around: list[Mapping[str, Any]] = list(jobs.get(space, ()))
        try:
            sizes = source.sizes(body, around)
        except (InputError, *ODD_SHAPES) as error:
            log.warning("%s/%s: no gang size: %r", space, body["metadata"]["name"], error)
            continue
        found |= {f"{space}/{name}": size for name, size in sizes.items() if size is not None}
    return found
