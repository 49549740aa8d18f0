"""One table of GPU resource names, for everybody who asks whether something is a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actuator.lease_messages import DeviceCommand, LeaseCommand, Operation
from controller.app.agent_reports import describe
from telemetry.app import agent_command
from wattpack.api.inventory import GpuNodeStatus
from wattpack.errors import InputError
from wattpack.gpu_resources import (
    MAX_BOARDS,
    GpuDemand,
    GpuKind,
    board_count,
    counts_whole_boards,
    gpu_demand,
    gpu_kind,
)
from wattpack.wire.v1 import power_pb2

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("nvidia.com/gpu", GpuKind.WHOLE),
        ("amd.com/gpu", GpuKind.WHOLE),
        ("amd.com/spx_nps1", GpuKind.WHOLE),
        ("amd.com/cpx_nps4", GpuKind.SLICE),
        ("nvidia.com/gpu.shared", GpuKind.SHARED),
        ("nvidia.com/mig-1g.10gb", GpuKind.SLICE),
        ("nvidia.com/mig-1g.10gb.me", GpuKind.SLICE),
        ("nvidia.com/mig-1g.10gb.shared", GpuKind.SHARED),
        ("nvidia.com/gpu-memory", None),
        ("nvidia.com/gpuX", None),
        ("xnvidia.com/gpu", None),
        ("rdma/hca", None),
        ("cpu", None),
    ],
)
def test_the_table_knows_what_a_unit_is(resource: str, kind: GpuKind | None) -> None:
    assert gpu_kind(resource) is kind


def test_whole_boards_parts_and_claims_are_told_apart() -> None:
    amounts = {"cpu": 4, "nvidia.com/gpu": 2, "amd.com/gpu": 1, "nvidia.com/mig-1g.10gb": 3}
    demand = gpu_demand(amounts, [{"name": "nic"}])
    assert demand == GpuDemand(3, {"nvidia.com/mig-1g.10gb": 3}, ("nic",))
    assert demand.present
    assert demand.most_boards == 6
    assert not gpu_demand({"cpu": 4, "nvidia.com/gpu": 0}).present


@pytest.mark.parametrize(
    ("labels", "whole"),
    [
        ({}, True),
        ({"nvidia.com/gpu.replicas": "1"}, True),
        ({"nvidia.com/gpu.replicas": "0"}, True),
        ({"nvidia.com/gpu.replicas": "4"}, False),
        ({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-H200"}, True),
        (
            {
                "nvidia.com/mig.strategy": "single",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            },
            False,
        ),
    ],
)
def test_replicas_and_slices_under_the_name_of_boards_are_noticed(
    labels: dict[str, str], whole: bool
) -> None:
    assert counts_whole_boards(labels) is whole


@pytest.mark.parametrize(
    ("capacity", "labels", "boards"),
    [
        ({"nvidia.com/gpu": "8"}, {}, 8),
        ({"amd.com/gpu": "4"}, {}, 4),
        ({"nvidia.com/mig-1g.10gb": "7"}, {}, 7),
        ({"nvidia.com/mig-1g.10gb": "56"}, {"nvidia.com/gpu.count": "8"}, 8),
        ({"nvidia.com/gpu": "6", "nvidia.com/mig-3g.40gb": "4"}, {"nvidia.com/gpu.count": "8"}, 8),
        (
            {"nvidia.com/gpu": "32"},
            {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "4"},
            8,
        ),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.count": "2"}, 8),
        ({"rdma/hca": "1k"}, {}, 0),
    ],
)
def test_boards_are_counted_under_every_name_of_a_gpu_resource(
    capacity: dict[str, str], labels: dict[str, str], boards: int
) -> None:
    body = {"metadata": {"name": "n", "labels": labels}, "status": {"capacity": capacity}}
    assert board_count(body) == boards


PACKAGES = (
    "wattpack gpu actuator telemetry capacity forecasting controller scheduler_plugin console"
    " simulation benchmarks"
)


def test_no_other_module_knows_a_gpu_resource_by_its_name() -> None:
    name = re.compile(r"""["'](nvidia|amd)\.com/(gpu|mig-)["']""")
    named = {
        str(path.relative_to(ROOT))
        for package in PACKAGES.split()
        for path in (ROOT / package).rglob("*.py")
        # A judge shares nothing with what it judges, on purpose.
        if not path.stem.endswith("_judge") and name.search(path.read_text())
    }
    assert named == {"wattpack/gpu_resources.py"}


def test_the_bound_of_boards_on_a_node_is_one_fact() -> None:
    """What the actuator, the leader, the schema and the agent's flags take ends at one number."""
    schema = GpuNodeStatus.model_json_schema(by_alias=True)
    assert schema["properties"]["devices"]["maxItems"] == MAX_BOARDS
    hello = power_pb2.Hello(node="n")
    for i in range(MAX_BOARDS + 1):
        hello.devices.add(uuid=f"GPU-{i}")
    with pytest.raises(InputError, match=rf"hello\.devices: expected at most {MAX_BOARDS} devices"):
        describe(hello)
    commands = [DeviceCommand(f"GPU-{i}", Operation.RESET) for i in range(MAX_BOARDS + 1)]
    with pytest.raises(InputError, match=f"devices: expected 1 to {MAX_BOARDS} commands"):
        LeaseCommand(epoch=1, sequence=1, nonce=1, ttl_ms=1000, devices=tuple(commands))
    with pytest.raises(InputError, match=f"--simulated: .*{MAX_BOARDS}"):
        agent_command.main(["--local", "--simulated", str(MAX_BOARDS + 1)])
