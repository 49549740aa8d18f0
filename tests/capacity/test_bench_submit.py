"""One Job on a whole GPU of each type without a profile, and none that asks for more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from capacity.app.bench_command import build_parser
from capacity.app.bench_submit import submit_jobs
from capacity.bench_jobs import BenchJobSettings, bench_job, job_name, types_without_profile
from simulation.kube import EmbeddedKube
from wattpack.api import GPUProfile
from wattpack.clock import ManualClock
from wattpack.kube.port import JOBS, NODES

ROOT = Path(__file__).parents[2]
SETTINGS = BenchJobSettings("registry.example/bench:1", "bench")


def node(name: str, product: str | None, gpus: object = "8", **labels: str) -> dict[str, Any]:
    told = {"nvidia.com/gpu.product": product} if product else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**told, **labels}},
        "status": {"allocatable": {"nvidia.com/gpu": gpus}},
    }


def profile(*products: str) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"productNames": list(products)}}


@pytest.mark.parametrize(
    ("nodes", "profiles", "wanted"),
    [
        ([], [], ()),
        ([node("a", "NVIDIA-H200"), node("b", "NVIDIA-H200")], [], ("NVIDIA-H200",)),
        ([node("a", "NVIDIA-H200")], [profile("NVIDIA H200")], ()),
        ([node("a", "NVIDIA-H200")], [profile("NVIDIA H100")], ("NVIDIA-H200",)),
        ([node("a", "NVIDIA-H200", 0)], [], ()),
        ([node("a", "NVIDIA-H200", "lots")], [], ()),
        ([node("a", None)], [], ()),
        ([node("a", "NVIDIA-H200-SHARED", **{"nvidia.com/gpu.replicas": "4"})], [], ()),
        (
            [node("a", "NVIDIA-H200-MIG-1g.18gb", **{"nvidia.com/mig.strategy": "single"})],
            [],
            (),
        ),
    ],
)
def test_types_that_lack_a_profile(
    nodes: list[Any], profiles: list[Any], wanted: tuple[str, ...]
) -> None:
    assert types_without_profile(nodes, profiles) == wanted


def test_a_job_is_valid_and_asks_for_one_whole_gpu_and_no_rights() -> None:
    job = bench_job("NVIDIA-H200", SETTINGS)
    kubernetes_validate.validate(job, "1.37", strict=True)
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("quick", [True, False])
def test_the_pod_s_command_line_is_understood(quick: bool) -> None:
    job = bench_job("NVIDIA-H200", BenchJobSettings("image", "bench", quick))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["wattpack"]
    verb, *rest = container["args"]
    assert verb == "bench"
    args = build_parser().parse_args([a.replace("/results", "/tmp") for a in rest])
    assert args.quick is quick
    assert args.print_rows


@pytest.mark.parametrize("product", ["NVIDIA-H200", "Tesla V100/32 (PCIe)", "x" * 100, "-A-"])
def test_names_of_jobs_are_names(product: str) -> None:
    job = bench_job(product, SETTINGS)
    name = job_name(product)
    assert name == job["metadata"]["name"]
    assert len(name) <= 63
    assert name.replace("-", "").isalnum()
    assert not name.endswith("-")


def cluster() -> EmbeddedKube:
    api = EmbeddedKube(ManualClock())
    for body in (node("a", "NVIDIA-H200"), node("b", "NVIDIA-H100-80GB-HBM3")):
        api.create(NODES, body)
        api.replace(NODES, body, subresource="status")
    return api


def test_jobs_are_created_once(capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster()
    assert submit_jobs(api, SETTINGS, dry_run=False) == 0
    assert capsys.readouterr().out.count("created") == 2
    assert submit_jobs(api, SETTINGS, dry_run=False) == 0
    assert capsys.readouterr().out.count("is there already") == 2
    assert len(api.list(JOBS, "bench").items) == 2


def test_a_type_with_a_profile_object_gets_no_job() -> None:
    api = cluster()
    text = (ROOT / "manifests/examples/gpuprofile.yaml").read_text()
    example = yaml.safe_load(text)
    example["spec"]["productNames"] = ["NVIDIA H200"]
    api.create(GPUProfile.meta.resource, example)
    assert submit_jobs(api, SETTINGS, dry_run=False) == 0
    (job,) = api.list(JOBS, "bench").items
    assert job["metadata"]["name"] == "wattpack-bench-nvidia-h100-80gb-hbm3"


def test_a_dry_run_prints_what_would_be_created(capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster()
    assert submit_jobs(api, SETTINGS, dry_run=True) == 0
    text = capsys.readouterr().out
    assert "&id" not in text
    printed = list(yaml.safe_load_all(text))
    assert [job["metadata"]["name"] for job in printed] == [
        "wattpack-bench-nvidia-h100-80gb-hbm3",
        "wattpack-bench-nvidia-h200",
    ]
    assert api.list(JOBS, "bench").items == ()


def test_a_cluster_whose_types_all_have_profiles_gets_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = EmbeddedKube(ManualClock())
    assert submit_jobs(api, SETTINGS, dry_run=False) == 0
    assert "every whole GPU" in capsys.readouterr().out
