"""Kubernetes quantities as exact integers, and what a pod asks for in total."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from functools import lru_cache
from typing import Any

from wattpack.errors import InputError

#: apimachinery, resource.Quantity: ``<signedNumber><suffix>``, the sign and the point free.
_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d+))", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
#: The API server keeps nothing larger: it caps what is written at this.
LARGEST = 2**63 - 1
#: What a pod-level request replaces (kube-scheduler, IsSupportedPodLevelResource).
_POD_LEVEL = re.compile(r"cpu|memory|hugepages-.+")


def parse_quantity(field: str, text: object, scale: int = 1) -> int:
    """The quantity times ``scale``, rounded up; what is above 2^63 - 1 counts as that.

    Args:
        field: For the error.
        text: For example ``"250m"``, ``"64Gi"``, ``"1e3"``, ``"8"``, ``2``.
        scale: 1000 gives thousandths.

    Raises:
        InputError: for anything that Kubernetes would not accept, or that is negative.

    Source: k8s.io/apimachinery/pkg/api/resource/quantity.go.
    """
    expected = "a Kubernetes quantity that is not negative"
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise InputError(field, expected, text)
    digits = str(text)
    # Only what a cluster repeats is kept: a long text would fill the cache's memory.
    amount = (_kept if len(digits) <= 32 else _parsed)(digits, scale)
    if amount is None:
        raise InputError(field, expected, text)
    return amount


def _parsed(text: str, scale: int) -> int | None:
    """The amount, or None for what is refused."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    sign, number, suffix, exponent = match.groups()
    if not number.strip("0."):
        return 0
    if sign == "-":
        return None
    digits = (exponent or "0").lstrip("+-").lstrip("0") or "0"
    if len(digits) > 9:
        return 1 if str(exponent).startswith("-") else LARGEST * scale
    return min(_scaled(number, suffix or "", int(exponent or 0), scale), LARGEST * scale)


_kept = lru_cache(maxsize=8192)(_parsed)


def _scaled(number: str, suffix: str, exponent: int, scale: int) -> int:
    """``number`` in base units times ``scale``, rounded up; beyond the largest it is cut short."""
    value = Decimal(number)
    power = exponent + _DECIMAL.get(suffix, 0)
    if value.adjusted() + power > 30:
        return LARGEST * scale
    if value.adjusted() + power < -30:
        return 1
    context = Context(len(number) + 60, ROUND_CEILING, MIN_EMIN, MAX_EMAX)
    exact = context.multiply(context.scaleb(value, power), 2 ** _BINARY.get(suffix, 0) * scale)
    return int(exact.to_integral_value(ROUND_CEILING, context))


def resources(field: str, quantities: Mapping[str, Any]) -> Counter[str]:
    """Every resource: thousandths of ``cpu``, bytes or whole units of all others.

    Raises:
        InputError: naming the resource, also for a part of an extended one.
    """
    return Counter({key: _amount(f"{field}.{key}", key, q) for key, q in quantities.items()})


def _amount(field: str, resource: str, text: object) -> int:
    if resource == "cpu":
        return parse_quantity(field, text, 1000)
    amount = parse_quantity(field, text)
    # Extended resources cannot be divided (core validation: "must be an integer").
    if "/" in resource and amount < LARGEST and parse_quantity(field, text, 1000) != amount * 1000:
        raise InputError(field, "a whole number", text)
    return amount


def pod_requests(pod: Mapping[str, Any]) -> Counter[str]:
    """What kube-scheduler reserves for the pod, by resource; ``cpu`` in thousandths.

    Its containers together, or its largest moment during start (init containers one by one beside
    the sidecars started so far), replaced by what the pod as a whole asks for, plus overhead.

    Raises:
        InputError: naming the resource that cannot be read.

    Source: k8s.io/component-helpers/resource/helpers.go, PodRequests.
    """
    spec = pod["spec"]
    held = _held(pod)
    together: Counter[str] = Counter()
    for i, container in enumerate(spec.get("containers") or ()):
        together += _container(f"spec.containers.{i}", container, held)
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for i, container in enumerate(spec.get("initContainers") or ()):
        request = _container(f"spec.initContainers.{i}", container, held)
        if container.get("restartPolicy") == "Always":
            sidecars += request
            peak |= sidecars
        else:
            peak |= sidecars + request
    total = (together + sidecars) | peak
    total.update(_pod_level(spec.get("resources") or {}, total))
    return total + resources("spec.overhead", spec.get("overhead") or {})


def _pod_level(declared: Mapping[str, Any], containers: Counter[str]) -> Counter[str]:
    """What to add to the containers' sum so that it becomes what the pod as a whole asks for."""
    requests, limits = declared.get("requests") or {}, declared.get("limits") or {}
    # A limit becomes the request where nothing else asks (API defaults of pod-level resources).
    asked = {key: q for key, q in limits.items() if key not in containers} | dict(requests)
    supported = {key: q for key, q in asked.items() if _POD_LEVEL.fullmatch(key)}
    difference = resources("spec.resources", supported)
    difference.subtract({key: containers[key] for key in supported})
    return difference


def _container(
    field: str, container: Mapping[str, Any], held: Mapping[str, Counter[str]]
) -> Counter[str]:
    """Requests, a limit without one is the request; not less than it holds during a resize."""
    declared = container.get("resources") or {}
    quantities = (declared.get("limits") or {}) | (declared.get("requests") or {})
    now = held.get(str(container.get("name")), Counter())
    return resources(f"{field}.resources", quantities) | now


def _held(pod: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """What running containers hold now, by name: more than they ask for while they shrink."""
    status = pod.get("status") or {}
    found: dict[str, Counter[str]] = {}
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind) or ():
            requests = (container.get("resources") or {}).get("requests") or {}
            found[str(container.get("name"))] = resources(f"status.{kind}", requests)
    return found
