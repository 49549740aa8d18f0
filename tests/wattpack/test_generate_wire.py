"""The agent stream's generated messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattpack.errors import PermanentError
from wattpack.generate import tree, wire_messages
from wattpack.generate.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


def test_the_messages_in_the_tree_are_up_to_date() -> None:
    files = wire_messages.produce(ROOT)
    assert tree.stale(ROOT, files) == {}
    assert tree.orphans(ROOT, files, wire_messages.PATTERNS) == []


def test_the_command_finds_nothing_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert "stale" not in capsys.readouterr().out


def test_a_broken_proto_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "proto/wattpack/v1"
    folder.mkdir(parents=True)
    (folder / "power.proto").write_text('syntax = "proto3"; message {')
    with pytest.raises(PermanentError, match="protoc"):
        wire_messages.produce(tmp_path)


def test_messages_survive_a_round_trip() -> None:
    from wattpack.wire.v1 import power_pb2

    report = power_pb2.NodeReport(node="a", sequence=3)
    assert power_pb2.NodeReport.FromString(report.SerializeToString()) == report
