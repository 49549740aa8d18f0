"""Kubernetes quantities as exact integers, and what a pod asks for in total."""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from wattpack.errors import InputError
from wattpack.object_names import GPU_RESOURCE

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
}
_LARGEST = Decimal(2**62)
#: Columns of a request, and what one unit of the quantity is in the column's unit.
_COLUMNS = {"cpu": 1000, "memory": 1, GPU_RESOURCE: 1000}


def parse_quantity(field: str, text: object, scale: int = 1) -> int:
    """The quantity times ``scale``, rounded up.

    Args:
        field: For the error.
        text: For example ``"250m"``, ``"64Gi"``, ``"8"``, ``2``.
        scale: 1000 gives thousandths.

    Raises:
        InputError: for anything that Kubernetes would not accept, or that is negative.
    """
    expected = "a Kubernetes quantity that is not negative"
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise InputError(field, expected, text)
    digits = str(text).strip()
    suffix = next(
        (s for s in sorted(_SUFFIXES, key=len, reverse=True) if s and digits.endswith(s)), ""
    )
    number = digits[: len(digits) - len(suffix)]
    try:
        value = Decimal(number) * _SUFFIXES[suffix] * scale
    except InvalidOperation as error:
        raise InputError(field, expected, text) from error
    if not value.is_finite() or value < 0 or value > _LARGEST:
        raise InputError(field, expected, text)
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def resources(field: str, quantities: dict[str, Any]) -> Counter[str]:
    """milliCPU, bytes and milliGPU under the keys ``cpu``, ``memory`` and the GPU resource."""
    return Counter(
        {
            key: parse_quantity(f"{field}.{key}", quantities[key], scale)
            for key, scale in _COLUMNS.items()
            if key in quantities
        }
    )


def pod_requests(pod: dict[str, Any]) -> Counter[str]:
    """What kube-scheduler reserves for the pod.

    Its containers together, or its largest moment during start (init containers one by one beside
    the sidecars started so far), plus overhead.
    """
    spec = pod["spec"]
    together: Counter[str] = Counter()
    for i, container in enumerate(spec.get("containers") or ()):
        together += _container(f"spec.containers.{i}", container)
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for i, container in enumerate(spec.get("initContainers") or ()):
        request = _container(f"spec.initContainers.{i}", container)
        if container.get("restartPolicy") == "Always":
            sidecars += request
            peak |= sidecars
        else:
            peak |= sidecars + request
    total = (together + sidecars) | peak
    return total + resources("spec.overhead", spec.get("overhead") or {})


def _container(field: str, container: dict[str, Any]) -> Counter[str]:
    """Requests; a limit without a request is the request."""
    declared = container.get("resources") or {}
    quantities = (declared.get("limits") or {}) | (declared.get("requests") or {})
    return resources(f"{field}.resources", quantities)
