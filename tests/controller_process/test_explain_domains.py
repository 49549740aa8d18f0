"""``wattpack explain domains``: what it reads, and what it refuses by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattpack.cli import main

EXAMPLE = "manifests/examples/powerdomain.yaml"
ROW = """
apiVersion: wattpack.io/v1alpha1
kind: PowerDomain
metadata: {name: row}
spec:
  ratingWatts: 100000
  members: {nodeSelector: {row: a}}
  nonGpuPerNode: {worstWatts: 2000}
"""


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*arguments: str) -> tuple[int, str, str]:
        status = main(["explain", "domains", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return ask


def test_a_row_of_a_file_with_servers_of_a_flag(asked: Any) -> None:
    status, told, _ = asked("--domains", EXAMPLE, "--add", "60:H200-SXM:row-a")
    assert status == 0
    assert "row-a: 60 servers, 480 GPUs, rating 400.0 kW" in told
    assert "would fit   guaranteed caps up to 405 W (H200-SXM)" in told
    # Those caps fit, a watt more does not.
    for cap, expected in (("405", 0), ("NVIDIA H200=407", 1)):
        status, told, _ = asked(
            "--domains", EXAMPLE, "--add", "60:NVIDIA H200:row-a", "--guaranteed-cap", cap
        )
        assert status == expected
        assert ("TOO MUCH (I1)" in told) == bool(expected)


def node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    status = {"capacity": {"nvidia.com/gpu": "8"}}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def agent(devices: list[dict[str, Any]], count: int) -> dict[str, Any]:
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": "n1"},
        "spec": {"nodeName": "n1"},
        "status": {"gpuCount": count, "devices": devices},
    }


def test_servers_of_a_cluster_and_a_spec_that_is_not_applied_yet(
    asked: Any, tmp_path: Path
) -> None:
    devices = [
        {"uuid": f"GPU-{i}", "model": "NVIDIA H200", "index": i, "defaultLimitWatts": 600,
         "guaranteedWatts": 450}
        for i in range(8)
    ]  # fmt: skip
    product = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    nodes = [
        node("n1", {"row": "a", **product}),
        node("n2", {"row": "a"}),
        node("n3", product),
    ]
    cluster, row = tmp_path / "cluster.json", tmp_path / "row.yaml"
    cluster.write_text(json.dumps({"items": [agent(devices, 8), *nodes]}))
    row.write_text(ROW)
    status, told, _ = asked("--cluster", str(cluster), "--domains", str(row), "--json")
    assert status == 0
    document = json.loads(told)
    (found,) = document["domains"]
    assert (found["servers"], found["gpus"]) == (2, 16)
    assert document["unclaimed"] == ["n3"]
    # What an agent told counts before its type; n2's boards are of the largest type that is known.
    assert set(found["fitting_watts"]) == {"NVIDIA H200", "B200-SXM"}
    assert found["guaranteed_watts"] is None
    status, told, _ = asked("--cluster", str(cluster), "--domains", str(row))
    assert "no domain claims these servers, so they are in no sum: n3" in told
    assert "no known GPU type, counted as the largest known: n2" in told


def test_a_board_that_does_not_answer_counts_as_the_largest_of_its_neighbours(
    asked: Any, tmp_path: Path
) -> None:
    """The agent lists it (``gpuCount``) and tells nothing of it; nor does the Node object."""
    bare = {"kind": "Node", "metadata": {"name": "n1", "labels": {"row": "a"}}}
    cluster, row = tmp_path / "cluster.json", tmp_path / "row.yaml"
    row.write_text(ROW)

    def counted(*models: str) -> Any:
        devices = [{"uuid": f"GPU-{i}", "model": m, "index": i} for i, m in enumerate(models)]
        cluster.write_text(json.dumps({"items": [agent(devices, 3), bare]}))
        _, told, _ = asked("--cluster", str(cluster), "--domains", str(row), "--json")
        (found,) = json.loads(told)["domains"]
        return found["gpus"], found["default_watts"]

    hidden = counted("NVIDIA H200", "NVIDIA B200")
    assert hidden == counted("NVIDIA H200", "NVIDIA B200", "NVIDIA B200")
    assert hidden[0] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--domains: expected PowerDomains"),
        (("--domains", EXAMPLE), "--add: expected a server below a domain"),
        (("--domains", EXAMPLE, "--add", "5:H200-SXM:rowa"), "did you mean 'row-a'?"),
        (("--domains", EXAMPLE, "--add", "5:H300:row-a"), "--add: expected one of"),
        (("--domains", EXAMPLE, "--add", "x:H200-SXM:row-a"), "--add: expected N:TYPE:DOMAIN"),
        (("--domains", EXAMPLE, "--boards", "0"), "--boards: expected 1 to 64"),
        (
            ("--domains", EXAMPLE, "--add", "5:H200-SXM:row-a", "--guaranteed-cap", "45"),
            "--guaranteed-cap: expected 200 to 700 W",
        ),
        (
            ("--domains", EXAMPLE, "--add", "5:H200-SXM:row-a", "--guaranteed-cap", "450W"),
            "--guaranteed-cap: expected TYPE=WATTS",
        ),
        (
            ("--domains", EXAMPLE, "--add", "5:H200-SXM:row-a", "--guaranteed-cap", "A40=200"),
            "--guaranteed-cap: expected one for H200-SXM",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_flag(
    asked: Any, arguments: tuple[str, ...], said: str
) -> None:
    status, out, error = asked(*arguments)
    assert (status, out) == (2, "")
    assert said in error


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("100000", "100kW", "spec.ratingWatts: expected a valid number, got '100kW'"),
        ("ratingWatts", "ratingWats", "spec.ratingWats: expected a known field"),
        ("  ratingWatts: 100000\n", "", "spec.ratingWatts: expected a value"),
        ("spec:", "spec:\n  parent: hall", "row.spec.parent: expected the name of a PowerDomain"),
        ("{name: row}", "row", "document: expected Kubernetes objects with metadata"),
        ("PowerDomain", "Node", "--domains: expected at least one PowerDomain"),
    ],
)
def test_a_file_that_says_something_else_is_refused_by_field(
    asked: Any, tmp_path: Path, before: str, after: str, said: str
) -> None:
    file = tmp_path / "row.yaml"
    assert before in ROW
    file.write_text(ROW.replace(before, after))
    status, out, error = asked("--domains", str(file), "--add", "2:H200-SXM:row")
    assert (status, out) == (2, "")
    assert said in error
