from __future__ import annotations

from pathlib import Path

import pytest

from capacity.app.workloads_command import entry_schema, workload_profile
from capacity.catalogue.catalogue_files import catalogue_with, read_catalogue, shipped_catalogue
from tests.capacity.catalogue.entries import entry, write
from wattpack.api import WorkloadProfile
from wattpack.errors import InputError

SLOWEST = {"kernel": "stream", "buffer_bytes": 1e9, "efficiency": 1e-300}
SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "workload.schema.json"


def test_the_shipped_catalogue_has_every_kind_of_work_that_the_documentation_names() -> None:
    names = set(shipped_catalogue())
    assert len(names) >= 70
    assert {
        "decoder-prefill", "decoder-decode", "moe-prefill", "moe-decode", "serve-mixed-batching",
        "serve-kv-retrieval", "decode-speculative", "decode-parallel", "decode-4bit",
        "decode-8bit", "diffusion-image", "video-streaming", "train-data-parallel",
        "train-tensor-parallel", "train-pipeline-parallel", "train-sequence-parallel",
        "train-offload-host", "train-offload-nvme", "train-low-bandwidth",
        "train-heterogeneous-nic", "rl-rollout", "finetune", "gnn-relational", "rnn-sequential",
        "lm-matmul-free", "sim-jax", "neural-operator", "vision-sparse", "text-to-sql",
    } <= names  # fmt: skip
    assert not any(name.endswith("-base") for name in names)


def test_an_own_entry_extends_a_shipped_one_key_by_key(tmp_path: Path) -> None:
    own = {"extends": "decode-4bit", "parameters": {"weight_bits": 3}, "source": "a test"}
    catalogue = catalogue_with(write(tmp_path / "own", mine=own))
    mine, base = catalogue["mine"], catalogue["decode-4bit"]
    assert mine.parameters.weight_bits == 3
    assert (mine.phases, mine.startup, mine.slo) == (base.phases, base.startup, base.slo)
    assert mine.shape is None, "what another entry was found to draw says nothing of this one"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kernel_mix": {}}, "kernel_mix"),
        ({"parameters": {"weight_bit": 4}}, "weight_bits"),
        ({"parameters": {"weight_bits": 0}}, "weight_bits"),
        ({"parameters": {"weight_bits": 17}}, "weight_bits"),
        ({"parameters": {"weight_bits": 2.5}}, "weight_bits"),
        ({"parameters": {"library": "nvidia/cublas/12"}}, "library"),
        ({"parameters": {"kernel_efficiency": {"cublas": {"gemm": 1}}}}, "vendor|cublas"),
        ({"parameters": {"multiprocessor_share": 1e-300}}, "multiprocessor_share"),
        ({"checkpoint": {"mode": "synchronous"}}, "interval_seconds"),
        ({"memory": {"cache_bytes": float("nan")}}, "cache_bytes"),
        ({"memory": {"cache_bytes": -1}}, "cache_bytes"),
        ({"memory": {"cache_bytes": True}}, "memory.cache_bytes"),
        ({"parameters": {"weight_bits": True}}, "parameters.weight_bits"),
        ({"gpus": True}, "gpus"),
        ({"slo": {"target_seconds": True}}, "slo.target_seconds"),
        ({"phases": [{"name": "x", "bound": "deadline", "wait_seconds": True}]}, "wait_seconds"),
        ({"parameters": {"kernel_efficiency": {"a/b/1": {"gemm": True}}}}, "kernel_efficiency"),
        ({"phases": []}, "phases"),
        ({"model": ""}, "model"),
        ({"phases": [{"name": "x", "bound": "bandwidth", "kernels": [SLOWEST]}]}, "efficiency"),
        ({"phases": [{"name": "x", "bound": "deadline", "wait_seconds": 1e20}]}, "wait_seconds"),
        ({"phases": [{"name": "idle", "bound": "deadline"}]}, "phases.0"),
        ({"phases": [{"name": "x", "bound": "gpu", "wait_seconds": 1}]}, "phases.0.bound"),
        ({"extends": "nobody"}, "extends"),
        ({"extends": "only"}, "extends"),
        ({"name": "other"}, "name"),
        ({"evidence": "measured"}, "profile_hash"),
        ({"malleability": {"min_gpus": 4}}, "max_gpus"),
    ],
)
def test_what_an_entry_may_not_say_is_refused_by_file_entry_and_key(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    folder = write(tmp_path / "own", only=entry(**changes))
    with pytest.raises(InputError, match=named) as refused:
        read_catalogue(folder)
    assert "own.yaml" in str(refused.value)
    assert "only" in str(refused.value)


def test_a_circle_of_extensions_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", a={"extends": "b"}, b={"extends": "a"})
    with pytest.raises(InputError, match="circle"):
        read_catalogue(folder)


def test_an_own_entry_may_not_take_the_name_of_a_shipped_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="decode-4bit"):
        catalogue_with(write(tmp_path / "own", **{"decode-4bit": entry()}))


def test_the_documented_schema_is_that_of_the_code() -> None:
    assert SCHEMA.read_text() == entry_schema(), "wattpack workloads --schema"


def test_every_entry_is_a_workload_profile_that_the_api_takes() -> None:
    for shipped in shipped_catalogue().values():
        made = WorkloadProfile.from_json(workload_profile(shipped))
        assert (made.spec.workload, made.spec.kind) == (shipped.name, shipped.kind)
