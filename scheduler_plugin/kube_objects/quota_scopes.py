"""Which pods a ResourceQuota counts, by its scopes. Pure.

Source: core/v1 ``ResourceQuotaSpec``; k8s.io/kubernetes, pkg/quota/v1/evaluator/core/pods.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from wattpack.kube.port import JsonObject

__all__ = ["counts"]

_BEST_EFFORT_OF: Final = ("cpu", "memory")
_POD_TERMS: Final = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def counts(quota: JsonObject, pod: JsonObject) -> bool:
    """Whether all scopes of the quota hold for the pod; one that we do not know holds for none."""
    spec = quota.get("spec") or {}
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    asked = [(str(scope), "Exists", ()) for scope in spec.get("scopes") or ()]
    asked += [
        (str(e.get("scopeName")), str(e.get("operator")), tuple(e.get("values") or ()))
        for e in selected
    ]
    return all(_holds(pod, *each) for each in asked)


def _holds(pod: JsonObject, scope: str, operator: str, values: tuple[str, ...]) -> bool:
    if scope == "PriorityClass":
        name = pod["spec"].get("priorityClassName") or None
        return {
            "Exists": name is not None,
            "DoesNotExist": name is None,
            "In": name in values,
            "NotIn": name not in values,
        }.get(operator, False)
    holds = _SCOPES.get(scope)
    return holds is not None and holds(pod["spec"], pod.get("status") or {})


def _has_deadline(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    return spec.get("activeDeadlineSeconds") is not None


def _is_best_effort(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """No container says how much CPU or memory it asks for or may use."""
    if told := status.get("qosClass"):
        return bool(told == "BestEffort")
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec)
    declared = [c.get("resources") or {} for c in containers]
    amounts = [part for d in declared for part in (d.get("requests"), d.get("limits")) if part]
    return not any(str(part.get(name, "0")) != "0" for part in amounts for name in _BEST_EFFORT_OF)


def _minds_other_namespaces(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        for terms in _POD_TERMS:
            for term in (affinity.get(kind) or {}).get(terms) or ():
                own = term.get("podAffinityTerm") or term
                if own.get("namespaces") or own.get("namespaceSelector") is not None:
                    return True
    return False


_SCOPES: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], bool]]] = {
    "Terminating": _has_deadline,
    "NotTerminating": lambda spec, status: not _has_deadline(spec, status),
    "BestEffort": _is_best_effort,
    "NotBestEffort": lambda spec, status: not _is_best_effort(spec, status),
    "CrossNamespacePodAffinity": _minds_other_namespaces,
}
