"""Devices that nodes offer and claims ask for, as counts; what cannot be counted is refused."""

from __future__ import annotations

from typing import Any

import pytest

from wattpack.device_requests import (
    CLASS_PREFIX,
    Devices,
    DeviceSlices,
    UncountedClaimError,
    asked_for,
)
from wattpack.kube.port import JsonObject

GPU, MIG = f"{CLASS_PREFIX}gpu.nvidia.com", f"{CLASS_PREFIX}mig.nvidia.com"


def device(name: str, **attributes: str) -> JsonObject:
    return {"name": name, "attributes": {k: {"string": v} for k, v in attributes.items()}}


def piece(*devices: JsonObject, generation: int = 1, **spec: Any) -> JsonObject:
    pool = {"name": "pool", "generation": generation, "resourceSliceCount": 1}
    body = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": list(devices)}
    return {"metadata": {"name": "s"}, "spec": body | spec}


def offered(*slices: JsonObject) -> tuple[dict[str, int], int, tuple[str, ...]]:
    found = DeviceSlices.of(slices).by_node.get("n")
    return ({}, 0, ()) if found is None else (dict(found.resources), found.boards, found.products)


def test_boards_and_instances_are_counted_by_class_and_told_by_product() -> None:
    boards = [device(f"gpu-{i}", type="gpu", productName="NVIDIA H200") for i in range(2)]
    instance = device("gpu-2-mig", type="mig", profile="1g.18gb", productName="NVIDIA H200")
    resources = {GPU: 2, MIG: 1, f"{MIG}/1g.18gb": 1}
    assert offered(piece(*boards, instance)) == (resources, 2, ("NVIDIA H200",))


def test_attributes_may_carry_the_drivers_domain_and_lie_in_basic() -> None:
    attributes = {"gpu.nvidia.com/type": {"string": "gpu"}}
    assert offered(piece({"name": "a", "basic": {"attributes": attributes}}))[0] == {GPU: 1}


@pytest.mark.parametrize(
    "slices",
    [
        (piece(device("a", type="gpu")), piece(generation=2)),
        (piece(device("a", type="gpu") | {"taints": [{"key": "bad", "effect": "NoExecute"}]}),),
        (piece(device("a", type="vfio")),),
        (piece(device("a", type="gpu"), driver="nic.example.com"),),
        (piece(device("a", type="gpu"), nodeName=None, allNodes=True),),
        (piece(device("m", type="mig") | {"consumesCounters": [{"counterSet": "c"}]}),),
        ({"metadata": {"name": "s"}, "spec": None},),
    ],
    ids=["old generation", "taint", "passed through", "NIC", "no node", "partition", "no spec"],
)
def test_what_nobody_can_have_as_a_gpu_of_a_node_is_not_offered(
    slices: tuple[JsonObject, ...],
) -> None:
    assert offered(*slices) == ({}, 0, ())


def test_a_board_that_can_be_cut_is_offered_whole() -> None:
    whole = device("g", type="gpu") | {"consumesCounters": [{"counterSet": "c"}]}
    assert offered(piece(whole))[:2] == ({GPU: 1}, 1)


def test_allocated_devices_count_in_the_class_of_what_they_are() -> None:
    slices = DeviceSlices.of([piece(device("g", type="gpu"), device("m", type="mig"))])
    ids = [("gpu.nvidia.com", "pool", name) for name in ("g", "m", "unknown")]
    assert slices.held(ids) == {GPU: 2, MIG: 1}


def request(**fields: Any) -> JsonObject:
    return {"devices": {"requests": [{"name": "r", "exactly": fields}]}}


def cel(*expressions: str, name: str = "gpu.nvidia.com", **fields: Any) -> JsonObject:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return request(deviceClassName=name, selectors=selectors, **fields)


#: Where a request has its fields without ``exactly``.
V1BETA1 = {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu.nvidia.com"}]}}
COUNTED: list[tuple[JsonObject, dict[str, int], int, tuple[str, ...]]] = [
    (request(deviceClassName="gpu.nvidia.com"), {GPU: 1}, 1, ()),
    (request(deviceClassName="gpu.nvidia.com", count=4), {GPU: 4}, 4, ()),
    (request(deviceClassName="gpu.amd.com"), {f"{CLASS_PREFIX}gpu.amd.com": 1}, 1, ()),
    (request(deviceClassName="mig.nvidia.com", count=2), {MIG: 2}, 0, ()),
    (V1BETA1, {GPU: 1}, 1, ()),
    (request(deviceClassName="gpu.nvidia.com", adminAccess=True), {}, 0, ()),
    (request(deviceClassName="compute-domain-default-channel.nvidia.com"), {}, 0, ()),
    ({}, {}, 0, ()),
    (
        cel(
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
        ),
        {GPU: 1},
        1,
        (),
    ),
    (
        cel('device.attributes["gpu.nvidia.com"].productName == "NVIDIA H200"', count=2),
        {GPU: 2},
        2,
        ("NVIDIA H200",),
    ),
    (
        cel("device.attributes['gpu.nvidia.com'].profile == '1g.18gb'", name="mig.nvidia.com"),
        {MIG: 1, f"{MIG}/1g.18gb": 1},
        0,
        (),
    ),
]


@pytest.mark.parametrize(("spec", "resources", "boards", "products"), COUNTED)
def test_a_claim_asks_for_a_number_of_devices(
    spec: JsonObject, resources: dict[str, int], boards: int, products: tuple[str, ...]
) -> None:
    found = asked_for(spec)
    assert (dict(found.resources), found.boards, found.products) == (resources, boards, products)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (request(deviceClassName="large-gpu"), "deviceClassName"),
        (request(deviceClassName="gpu.nvidia.com", allocationMode="All"), "count"),
        (request(deviceClassName="gpu.nvidia.com", count=0), "count"),
        (request(deviceClassName="gpu.nvidia.com", count=10**6), "count"),
        (request(deviceClassName="gpu.nvidia.com", count="2"), "count"),
        (cel("device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))"), "cel"),
        (cel("device.attributes['gpu.nvidia.com'].type == 'mig'"), "selectors"),
        (cel("device.attributes['other.com'].productName == 'x'"), "cel"),
        (cel("device.driver == 'a'", "device.driver == 'b'"), "cel"),
        ({"devices": {"requests": [{"name": "r", "firstAvailable": [{}]}]}}, "firstAvailable"),
        (request(deviceClassName="gpu.nvidia.com") | {"x": 1}, ""),
    ],
)
def test_what_cannot_be_counted_is_refused_by_its_field(spec: JsonObject, field: str) -> None:
    if not field:
        spec["devices"]["constraints"] = [{"matchAttribute": "x"}]
        field = "constraints"
    with pytest.raises(UncountedClaimError) as refusal:
        asked_for(spec)
    assert refusal.value.field.endswith(field)


def test_a_node_tells_into_what_its_boards_are_cut() -> None:
    counters = {"consumesCounters": [{"counterSet": "c"}]}
    whole = device("g", type="gpu") | counters
    parts = [device(f"m{i}", type="mig", profile=p) | counters
             for i, p in enumerate(["1g.18gb", "1g.18gb", "2g.35gb"])]  # fmt: skip
    found = DeviceSlices.of([piece(whole, *parts)])
    assert found.by_node["n"].cut_into == ("1g.18gb", "2g.35gb")
    assert dict(found.by_node["n"].resources) == {GPU: 1}
    held = found.held([("gpu.nvidia.com", "pool", "m0"), ("gpu.nvidia.com", "pool", "m2")])
    assert Devices(held).instances == {"1g.18gb": 1, "2g.35gb": 1}
    assert Devices(dict(held) | {GPU: 1}).instances == {}
    assert Devices({MIG: 2, f"{MIG}/1g.18gb": 1}).instances == {}
