"""Builders of agent messages."""

from __future__ import annotations

from typing import Any

from wattpack.wire.v1 import power_pb2


def make_hello(node: str = "node-1", *, gpus: int = 2, **fields: Any) -> power_pb2.Hello:
    values: dict[str, Any] = {"versions": [1], "boot_id": "boot-1", "host_unit": True} | fields
    return power_pb2.Hello(
        node=node,
        devices=[
            power_pb2.DeviceDescription(
                uuid=f"{node}-gpu-{i}",
                model="NVIDIA H200",
                index=i,
                default_limit_watts=700.0,
                min_limit_watts=200.0,
                max_limit_watts=700.0,
                max_clock_mhz=1980,
            )
            for i in range(gpus)
        ],
        **values,
    )


def make_reading(uuid: str, **fields: Any) -> power_pb2.DeviceReading:
    values: dict[str, Any] = {
        "state": power_pb2.DEVICE_STATE_OK,
        "draw_watts": 300.0,
        "energy_joules": 1000.0,
        "limit_watts": 700.0,
        "enforced_limit_watts": 700.0,
        "guaranteed_watts": 400.0,
    } | fields
    return power_pb2.DeviceReading(uuid=uuid, **values)


def make_report(
    node: str = "node-1", *, gpus: int = 2, sequence: int = 1, **fields: Any
) -> power_pb2.NodeReport:
    readings = fields.pop("devices", None) or [make_reading(f"{node}-gpu-{i}") for i in range(gpus)]
    values: dict[str, Any] = {"boot_id": "boot-1", "nonce": 7, "clock_ns": sequence * 10**9}
    return power_pb2.NodeReport(node=node, sequence=sequence, devices=readings, **(values | fields))
