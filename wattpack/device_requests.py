"""GPUs of dynamic resource allocation: what nodes offer and claims ask for, as counts. Pure.

Devices are counted by class and, where a claim says so, by product; no CEL is evaluated.
A device class is a resource of the name that Kubernetes gives it as an extended resource. Where a
claim asks for what cannot be counted so, it is refused by its field rather than guessed at.

Sources: ``resource.k8s.io/v1``, ``v1beta2`` and ``v1beta1`` (requests without ``exactly``, devices
in ``basic``); ``ResourceDeviceClassPrefix`` of ``k8s.io/api``; attributes and classes of NVIDIA's
k8s-dra-driver-gpu and AMD's k8s-gpu-dra-driver.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattpack.errors import InputError
from wattpack.gpu_resources import GPU_DRIVERS, NVIDIA_DRIVER
from wattpack.kube.port import JsonObject

__all__ = ["CLASS_PREFIX", "DeviceSlices", "Devices", "UncountedClaimError", "asked_for"]

CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
_MIG_CLASS = "mig.nvidia.com"
#: Classes whose devices are whole boards, by driver.
_BOARD_CLASSES = {"gpu.nvidia.com": NVIDIA_DRIVER, "gpu.amd.com": "gpu.amd.com"}
#: NVIDIA's channels between the boards of a compute domain: on every node of the driver there are
#: more than pods (its documentation; not seen by us), so they ask for no room.
_CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
_MAX_COUNT = 1000


class UncountedClaimError(InputError):
    """A claim may be good; we cannot tell how many devices of which node it needs."""


_DeviceId = tuple[str, str, str]
#: One condition of a selector that can be counted, as in ``device.attributes["d"].type == "gpu"``.
_CONDITION = re.compile(
    r"""device\.(?:(?P<driver>driver)|attributes\[(?P<q>["'])(?P<domain>[\w.-]+)(?P=q)\]"""
    r"""\.(?P<attribute>\w+))\s*==\s*(?P<r>["'])(?P<value>[^"']*)(?P=r)"""
)


@dataclass(frozen=True, slots=True)
class Devices:
    """A number of devices.

    Attributes:
        resources: Units by resource name.
        boards: How many of them are whole boards.
        products: Names of boards, any of which will do, or of those that are there; empty for any.
        cut_into: Profiles of the instances into which boards are cut as claims ask for them.
    """

    resources: Mapping[str, int] = field(default_factory=dict)
    boards: int = 0
    products: tuple[str, ...] = ()
    cut_into: tuple[str, ...] = ()

    def __add__(self, other: Devices) -> Devices:
        resources = Counter(self.resources) + Counter(other.resources)
        products = tuple(sorted({*self.products, *other.products}))
        cut_into = tuple(sorted({*self.cut_into, *other.cut_into}))
        return Devices(dict(resources), self.boards + other.boards, products, cut_into)

    @property
    def profiles(self) -> Mapping[str, int]:
        """MIG instances by profile."""
        named = f"{CLASS_PREFIX}{_MIG_CLASS}/"
        return {n.removeprefix(named): k for n, k in self.resources.items() if n.startswith(named)}

    @property
    def instances(self) -> Mapping[str, int]:
        """The same where these devices are nothing else and each has its profile; empty if not."""
        found = self.profiles
        units = sum(k for name, k in self.resources.items() if name.count("/") == 1)
        all_named = sum(found.values()) == self.resources.get(CLASS_PREFIX + _MIG_CLASS, 0) == units
        return found if all_named else {}


@dataclass(frozen=True, slots=True)
class DeviceSlices:
    """Devices of GPU drivers in all ResourceSlices.

    Attributes:
        by_node: What each node offers.
        known: What each device is.
    """

    by_node: Mapping[str, Devices] = field(default_factory=dict)
    known: Mapping[_DeviceId, Devices] = field(default_factory=dict)

    @classmethod
    def of(cls, slices: Iterable[JsonObject]) -> DeviceSlices:
        """Those of the newest generation of each pool; devices with a taint are not offered.

        Partitions that share a board's counters with others are known but not offered one by one:
        the node tells into which of them its boards are cut.
        """
        specs = [s for body in slices if (s := _spec(body)) is not None]
        newest: dict[tuple[str, str], int] = {}
        for spec in specs:
            key = str(spec["driver"]), str(spec["pool"]["name"])
            newest[key] = max(newest.get(key, 0), _generation(spec))
        by_node: dict[str, Devices] = {}
        known: dict[_DeviceId, Devices] = {}
        for spec in specs:
            driver, pool = str(spec["driver"]), str(spec["pool"]["name"])
            if _generation(spec) < newest[driver, pool]:
                continue
            for device in spec.get("devices") or ():
                body = device.get("basic") or device
                one = _one(driver, _attributes(body, driver))
                known[driver, pool, str(device.get("name"))] = one
                partition = bool(body.get("consumesCounters")) and not one.boards
                if body.get("taints"):
                    continue
                if partition:
                    one = Devices(cut_into=tuple(one.profiles))
                node = str(spec["nodeName"])
                by_node[node] = by_node.get(node, Devices()) + one
        return cls(by_node, known)

    def held(self, results: Iterable[_DeviceId]) -> Mapping[str, int]:
        """Units by resource name of allocated devices; what no slice knows counts as a board."""
        found: Counter[str] = Counter()
        for driver, pool, name in results:
            one = self.known.get((driver, pool, name)) or _one(driver, {})
            found.update(one.resources)
        return dict(found)


def asked_for(claim_spec: Mapping[str, Any]) -> Devices:
    """What a claim that is not allocated needs on a node.

    Args:
        claim_spec: ``spec`` of a ResourceClaim.

    Raises:
        UncountedClaimError: naming the field that cannot be counted.
    """
    devices = claim_spec.get("devices") or {}
    found = Devices()
    for request in devices.get("requests") or ():
        found = found + _request(request)
    if devices.get("constraints"):
        raise UncountedClaimError("devices.constraints", "none: devices are counted", "constraints")
    return found


def _request(request: Mapping[str, Any]) -> Devices:
    if request.get("firstAvailable"):
        raise UncountedClaimError("devices.requests.firstAvailable", "exactly", "alternatives")
    body = request.get("exactly") or request
    if body.get("adminAccess"):
        return Devices()
    name = str(body.get("deviceClassName") or "")
    if name == _CHANNEL_CLASS:
        return Devices()
    if name not in _BOARD_CLASSES and name != _MIG_CLASS:
        classes = ", ".join([*_BOARD_CLASSES, _MIG_CLASS])
        raise UncountedClaimError("devices.requests.deviceClassName", f"one of {classes}", name)
    mode, count = body.get("allocationMode") or "ExactCount", body.get("count", 1)
    whole = isinstance(count, int) and not isinstance(count, bool)
    if mode != "ExactCount" or not whole or not 1 <= count <= _MAX_COUNT:
        expected = f"ExactCount of 1 to {_MAX_COUNT}"
        raise UncountedClaimError("devices.requests.count", expected, f"{mode} of {count}")
    wanted = _conditions(body.get("selectors") or (), name)
    resources = {CLASS_PREFIX + name: count}
    if profile := wanted.pop("profile", ""):
        resources[f"{CLASS_PREFIX}{name}/{profile}"] = count
    product = wanted.pop("productName", "")
    if wanted:
        expected = "productName or profile alone"
        raise UncountedClaimError("devices.requests.selectors", expected, sorted(wanted))
    boards = count if name in _BOARD_CLASSES else 0
    return Devices(resources, boards, (product,) if product else ())


def _conditions(selectors: Iterable[Mapping[str, Any]], class_name: str) -> dict[str, str]:
    """Attributes that have to have a value; those that say what the class says are left out."""
    driver = _BOARD_CLASSES.get(class_name, NVIDIA_DRIVER)
    kinds = ("gpu", "amdgpu") if class_name in _BOARD_CLASSES else ("mig",)
    found: dict[str, str] = {}
    for selector in selectors:
        text = str((selector.get("cel") or {}).get("expression") or "")
        for part in (each.strip() for each in text.split("&&")):
            match = _CONDITION.fullmatch(part)
            if match is None or match["domain"] not in (None, driver):
                expected = f"attributes of {driver} == texts"
                raise UncountedClaimError("devices.requests.selectors.cel", expected, part)
            name, value = match["attribute"] or "driver", match["value"]
            if found.setdefault(name, value) != value:
                raise UncountedClaimError("devices.requests.selectors.cel", f"one {name}", value)
    implied = {"driver": (driver,), "type": kinds}
    return {k: v for k, v in found.items() if v not in implied.get(k, ())}


def _one(driver: str, attributes: Mapping[str, str]) -> Devices:
    if attributes.get("type") == "mig":
        resources = {CLASS_PREFIX + _MIG_CLASS: 1}
        if profile := attributes.get("profile"):
            resources[f"{CLASS_PREFIX}{_MIG_CLASS}/{profile}"] = 1
        return Devices(resources)
    if attributes.get("type") not in (None, "gpu", "amdgpu"):
        return Devices()
    name = next(c for c, of in _BOARD_CLASSES.items() if of == driver)
    product = attributes.get("productName", "")
    return Devices({CLASS_PREFIX + name: 1}, 1, (product,) if product else ())


def _attributes(device: Mapping[str, Any], driver: str) -> dict[str, str]:
    """Texts by name, the driver's own domain left out."""
    found = device.get("attributes") or {}
    return {
        str(name).removeprefix(f"{driver}/"): str(value["string"])
        for name, value in found.items()
        if isinstance(value, Mapping) and "string" in value
    }


def _spec(body: JsonObject) -> dict[str, Any] | None:
    """The spec of a slice of one node and a GPU driver; None for every other shape."""
    spec = body.get("spec")
    if not isinstance(spec, dict) or spec.get("driver") not in GPU_DRIVERS:
        return None
    pool = spec.get("pool")
    readable = isinstance(pool, dict) and "name" in pool and spec.get("nodeName")
    return spec if readable else None


def _generation(spec: Mapping[str, Any]) -> int:
    value = spec["pool"].get("generation", 0)
    return value if isinstance(value, int) else 0
