"""A demo that cannot start ends whatever it had started."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from simulation.app import running_demo
from simulation.app.running_demo import DemoRow
from simulation.scenario import Scenario
from wattpack.errors import InputError

PARTS = ["DemoControl.start", "DemoNodes.start", "DemoRow._start_webhook", "DemoWork.start"]


@pytest.mark.parametrize("part", PARTS)
def test_a_demo_whose_start_fails_leaves_no_folder_and_no_thread(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InputError("part", "one that starts", part)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name, method = part.split(".")
    monkeypatch.setattr(getattr(running_demo, name), method, refuse)
    before = set(threading.enumerate())
    row = DemoRow(Scenario(), speed=None)
    with pytest.raises(InputError, match="one that starts"):
        row.start()
    row.stop()
    assert list(tmp_path.iterdir()) == []
    # gRPC has a thread of its own, one for the whole process. Ours may still be on their last line.
    ours = {t for t in threading.enumerate() if "_poll_wrapper" not in t.name} - before
    for thread in ours:
        thread.join(10.0)
    assert {thread.name for thread in ours if thread.is_alive()} == set()
