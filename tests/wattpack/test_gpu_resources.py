"""One table of GPU resource names, for everybody who asks whether something is a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattpack.gpu_resources import GpuDemand, GpuKind, counts_whole_boards, gpu_demand, gpu_kind

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
        if name.search(path.read_text())
    }
    assert named == {"wattpack/gpu_resources.py"}
