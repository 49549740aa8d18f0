"""ResourceQuotas and ElasticQuotas as quotas of a snapshot. Pure.

A ResourceQuota counts pods when they are created, so that one that exists is within it. It keeps
out members of gangs that do not exist yet, and pods that wait since before it was lowered. An
ElasticQuota counts pods that have a node, and only what it has as ``max`` is read.

Source: core/v1 ``ResourceQuota``; scheduling.x-k8s.io/v1alpha1 ``ElasticQuota``.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler_plugin.documents.snapshot import MAX_QUANTITY, Pod, PodState, Quota
from scheduler_plugin.documents.snapshot_pod import MAX_QUOTAS_OF_A_POD
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.quota_scopes import counts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.quantities import resources

__all__ = ["QuotaBook"]

log = logging.getLogger(__name__)
_FIELDS: Final = {"cpu": "milli_cpu", "memory": "memory_bytes"}


@dataclass(frozen=True, slots=True)
class _Limits:
    """One object.

    Attributes:
        name: In snapshots.
        body: With the scopes.
        limits: By resource, as in snapshots.
        used: Of those, by all pods that exist; nothing where only pods with a node count.
    """

    name: str
    body: JsonObject
    limits: Mapping[str, int]
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QuotaBook:
    """Quotas by namespace."""

    by_namespace: Mapping[str, Sequence[_Limits]] = field(default_factory=dict)

    @classmethod
    def of(cls, created: Iterable[JsonObject], elastic: Iterable[JsonObject]) -> QuotaBook:
        """From objects as the API server shows them; one that cannot be read limits nothing.

        Args:
            created: ResourceQuotas.
            elastic: ElasticQuotas.
        """
        found: dict[str, list[_Limits]] = defaultdict(list)
        for kind, bodies in ((True, created), (False, elastic)):
            for body in bodies:
                try:
                    one = _created(body) if kind else _elastic(body)
                except (InputError, AttributeError, TypeError) as error:
                    log.warning("quota %s is not read: %r", pod_facts.key(body), error)
                    continue
                if one.limits:
                    found[pod_facts.namespace(body)].append(one)
        return cls(found)

    def of_pod(self, pod: JsonObject) -> tuple[str, ...]:
        """Names of the quotas that count the pod."""
        there = self.by_namespace.get(pod_facts.namespace(pod), ())
        names = [one.name for one in there if counts(one.body, pod)]
        return tuple(names[:MAX_QUOTAS_OF_A_POD])

    def applied(self, pods: Sequence[Pod]) -> tuple[tuple[Quota, ...], list[Pod]]:
        """Those that could keep a pod out, and the pods without the names of all others.

        Args:
            pods: All of a snapshot, with the names of what counts them.
        """
        asked: Counter[tuple[str, str]] = Counter()
        exist: Counter[tuple[str, str]] = Counter()
        for pod in pods:
            if not pod.quotas:
                continue
            amounts = _amounts(pod)
            there = pod.state is not PodState.ABSENT and "#" not in pod.uid
            for name in pod.quotas:
                for resource, amount in amounts.items():
                    asked[name, resource] += amount
                    exist[name, resource] += amount * there
        named = {name for name, _ in asked}
        binding: list[Quota] = []
        for one in (each for there in self.by_namespace.values() for each in there):
            others = {
                what: min(MAX_QUANTITY, max(0, one.used.get(what, 0) - exist[one.name, what]))
                for what in one.limits
            }
            if one.name in named and any(
                others[what] + asked[one.name, what] > limit for what, limit in one.limits.items()
            ):
                binding.append(Quota(name=one.name, limits=dict(one.limits), used=others))
        names = {quota.name for quota in binding}
        return tuple(binding), [_with_only(pod, names) for pod in pods]


def _with_only(pod: Pod, names: set[str]) -> Pod:
    kept = tuple(name for name in pod.quotas if name in names)
    return pod if kept == pod.quotas else pod.model_copy(update={"quotas": kept})


def _created(body: JsonObject) -> _Limits:
    status = body.get("status") or {}
    # The API server admits by what its controller has taken over into the status.
    hard = status.get("hard") or (body.get("spec") or {}).get("hard") or {}
    used = status.get("used") or {}
    return _Limits(pod_facts.key(body), body, _of_pods("hard", hard), _of_pods("used", used))


def _elastic(body: JsonObject) -> _Limits:
    most = (body.get("spec") or {}).get("max") or {}
    name = f"{pod_facts.namespace(body)}/elasticquota/{body['metadata']['name']}"
    return _Limits(name, {}, _by_field("max", most), {})


def _of_pods(what: str, quantities: Mapping[str, Any]) -> dict[str, int]:
    """What limits pods; where a resource is named twice, the lower figure."""
    found: dict[str, int] = {}
    for key, text in quantities.items():
        if name := _name(key):
            for resource, amount in _by_field(what, {name: text}).items():
                found[resource] = min(amount, found.get(resource, amount))
    return found


def _name(key: str) -> str:
    """What a key of a ResourceQuota limits of pods; empty for another kind of limit."""
    if key in ("pods", "count/pods"):
        return "pods"
    asked = key.removeprefix("requests.")
    if asked in ("cpu", "memory", "ephemeral-storage") or asked.startswith("hugepages-"):
        return asked
    is_extended = asked != key and "/" in asked and ".storageclass.storage.k8s.io/" not in asked
    return asked if is_extended else ""


def _by_field(what: str, quantities: Mapping[str, Any]) -> dict[str, int]:
    amounts = resources(what, quantities)
    return {_FIELDS.get(name, name): min(n, MAX_QUANTITY) for name, n in amounts.items()}


def _amounts(pod: Pod) -> dict[str, int]:
    named = {"milli_cpu": pod.milli_cpu, "memory_bytes": pod.memory_bytes, "pods": 1}
    return {**pod.resources, **named}
