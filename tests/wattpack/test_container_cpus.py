"""CPUs of a container: its limit counts, not the machine's size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wattpack.container_cpus import available_cpus


@pytest.fixture(autouse=True)
def _many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(96)))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("max 100000\n", 96),
        ("9999999 100000\n", 96),
        ("-1 100000\n", 96),
        ("100000 0\n", 96),
        ("", 96),
        ("nan nan\n", 96),
        ("inf 100000\n", 96),
        ("two 100000\n", 96),
    ],
)
def test_version_2(tmp_path: Path, limit: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    assert available_cpus(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("400000", 4), ("-1", 96)])
def test_version_1(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert available_cpus(tmp_path) == expected


def test_without_a_control_group_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path) == 96
