"""A probe finds out whether the watchdog still looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_plugin.app.watchdog_beat import HANGS_AFTER_NS, beat, is_beating
from scheduler_plugin.app.watchdog_command import main
from wattpack.clock import SystemClock

NOW_NS = 10 * HANGS_AFTER_NS


@pytest.mark.parametrize(
    ("text", "beats"),
    [
        (str(NOW_NS), True),
        (str(NOW_NS - HANGS_AFTER_NS), True),
        (str(NOW_NS - HANGS_AFTER_NS - 1), False),
        # From before the node was restarted.
        (str(NOW_NS + 1), False),
        ("", False),
        ("soon", False),
        ("9" * 5000, False),
        (None, False),
    ],
    ids=["now", "a moment ago", "too long ago", "ahead", "empty", "text", "endless", "missing"],
)
def test_only_a_recent_look_is_a_sign_of_life(
    tmp_path: Path, text: str | None, beats: bool
) -> None:
    file = tmp_path / "beat"
    if text is not None:
        file.write_text(text)
    assert is_beating(file, NOW_NS) is beats


def test_bytes_that_are_no_text_are_no_sign_of_life(tmp_path: Path) -> None:
    file = tmp_path / "beat"
    file.write_bytes(b"\xff\xfe")
    assert not is_beating(file, NOW_NS)


def test_the_probe_s_exit_status_tells_whether_it_looks(tmp_path: Path) -> None:
    file, clock = tmp_path / "beat", SystemClock()
    assert main(["--check", f"--beat-file={file}"]) == 1
    beat(file, clock.monotonic_ns())
    assert main(["--check", f"--beat-file={file}"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["beat"]


def test_a_check_without_a_file_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--check"])
    assert ended.value.code == 2
    assert "--beat-file" in capsys.readouterr().err
