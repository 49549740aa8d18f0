"""Finished Jobs' logs become rows and profiles; a bad log spoils its own Job alone."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from capacity.app.bench_collect import Collection, collect_rows
from capacity.bench.measurement_row import read_rows
from capacity.bench_jobs import BenchJobSettings, bench_job
from simulation.kube import EmbeddedKube
from wattpack.api import GPUProfile
from wattpack.clock import ManualClock
from wattpack.kube.port import JOBS, PODS

SETTINGS = BenchJobSettings("registry.example/bench:1", "bench")
PROFILES = Path(__file__).parents[2] / "capacity/data/profiles"
H200 = "wattpack-bench-nvidia-h200"


def shipped_lines(name: str) -> list[str]:
    return gzip.decompress((PROFILES / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()


@dataclass
class Logs:
    """What the pods printed."""

    texts: dict[str, list[str]] = field(default_factory=dict)

    def pod_log(self, name: str, namespace: str, container: str) -> tuple[bytes, ...]:
        assert (namespace, container) == ("bench", "bench")
        return tuple(line.encode() for line in self.texts[name])


def cluster(**jobs: dict[str, Any]) -> EmbeddedKube:
    """A Job and a pod for each product, in the state that is given."""
    api = EmbeddedKube(ManualClock())
    for product, status in jobs.items():
        job = bench_job(product.replace("_", "-"), SETTINGS)
        made = api.create(JOBS, job, "bench")
        api.replace(JOBS, {**job, "status": status}, "bench")
        if status.get("succeeded"):
            ended_pod(api, made, f"{job['metadata']['name']}-x", made["metadata"]["uid"])
    return api


def ended_pod(api: EmbeddedKube, job: dict[str, Any], name: str, owner_uid: str) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "any", "uid": owner_uid}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": job["spec"]["template"]["spec"],
    }
    api.create(PODS, pod, "bench")
    api.replace(PODS, {**pod, "status": {"phase": "Succeeded"}}, "bench", subresource="status")


def test_a_pod_that_only_carries_the_label_counts_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = cluster(NVIDIA_H200={"succeeded": 1})
    (job,) = api.list(JOBS, "bench").items
    logs = Logs({f"{H200}-x": shipped_lines("h200"), "forged": shipped_lines("h200-second-board")})
    ended_pod(api, job, "forged", "another-uid")
    where = Collection("bench", tmp_path, applies=False)
    assert collect_rows(api, logs, where) == 0
    assert len(read_rows(tmp_path / f"{H200}.jsonl")) == len(logs.texts[f"{H200}-x"])
    api.delete(PODS, "forged", "bench")
    ended_pod(api, job, "forged", job["metadata"]["uid"])
    assert collect_rows(api, logs, where) == 1
    assert "2 of 2" in capsys.readouterr().out


def test_a_finished_job_gives_rows_and_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = cluster(NVIDIA_H200={"succeeded": 1})
    lines = ["a library's remark", *shipped_lines("h200")]
    logs = Logs({f"{H200}-x": lines})
    assert collect_rows(api, logs, Collection("bench", tmp_path, applies=True)) == 0
    assert len(read_rows(tmp_path / f"{H200}.jsonl")) == len(lines) - 1
    written = yaml.safe_load((tmp_path / f"{H200}.gpuprofile.yaml").read_text())
    (stored,) = api.list(GPUProfile.meta.resource).items
    as_stored = without_nulls(written["spec"]) | {"sharedPairs": []}  # the server's default
    assert stored["spec"] == as_stored
    assert stored["status"] == written["status"]
    assert "GPUProfile h200-sxm applied" in capsys.readouterr().out


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def test_what_is_not_applied_is_only_written(tmp_path: Path) -> None:
    api = cluster(NVIDIA_H200={"succeeded": 1})
    logs = Logs({f"{H200}-x": shipped_lines("h200")})
    assert collect_rows(api, logs, Collection("bench", tmp_path, applies=False)) == 0
    assert api.list(GPUProfile.meta.resource).items == ()


def truncated(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1][:200]]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (truncated(shipped_lines("h200")), "one whole JSON object a line"),
        (["no row at all"], "at least one row"),
        (shipped_lines("h100"), "gpu_product"),
        (shipped_lines("h200") + shipped_lines("h200-second-board"), "gpu_uuid_hash"),
    ],
    ids=["cut off", "empty", "another type", "two boards"],
)
def test_a_bad_log_writes_nothing_and_spoils_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], words: str
) -> None:
    api = cluster(NVIDIA_H200={"succeeded": 1}, NVIDIA_H100_80GB_HBM3={"succeeded": 1})
    h100 = "wattpack-bench-nvidia-h100-80gb-hbm3"
    logs = Logs({f"{H200}-x": lines, f"{h100}-x": shipped_lines("h100")})
    assert collect_rows(api, logs, Collection("bench", tmp_path, applies=False)) == 1
    assert words in capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"{h100}.gpuprofile.yaml",
        f"{h100}.jsonl",
    ]


def test_jobs_that_have_not_ended_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"type": "Failed", "status": "True", "message": "deadline passed"}
    api = cluster(NVIDIA_H200={"active": 1}, NVIDIA_L40S={"conditions": [failed]})
    assert collect_rows(api, Logs(), Collection("bench", tmp_path, applies=False)) == 0
    said = capsys.readouterr().out
    assert "still measuring" in said
    assert "failed: deadline passed" in said
    assert not list(tmp_path.iterdir())


def test_a_cluster_without_jobs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect_rows(cluster(), Logs(), Collection("bench", tmp_path, applies=False)) == 0
    assert "no benchmark Jobs" in capsys.readouterr().out


def test_a_pod_that_is_gone_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster(NVIDIA_H200={"succeeded": 1})
    api.delete(PODS, f"{H200}-x", "bench")
    assert collect_rows(api, Logs(), Collection("bench", tmp_path, applies=False)) == 1
    assert "still there" in capsys.readouterr().out
