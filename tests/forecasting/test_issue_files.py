"""Open issues beside the state: written once each, gone when nobody needs them, never half read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.app.issue_files import CHANGING_ARRAYS, LASTING_ARRAYS, IssueFiles
from forecasting.app.memory_file import read_state, write_state
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.targets import Target
from wattpack.errors import InputError

DAY = 144
NAMES = ("a", "b")


def _source() -> MemorySource:
    t = np.arange(13 * DAY)
    wave = 100 + 40 * np.sin(2 * np.pi * t / DAY)
    noise = np.random.default_rng(3).normal(0, 4, (2, len(t)))
    values = wave + noise
    values[0, 10 * DAY + 4 :] *= 2
    return MemorySource(dict(zip(NAMES, values, strict=True)))


def _targets(names: tuple[str, ...] = NAMES) -> list[Target]:
    return [Target("ns", n, SeriesId(n), "workload", 36, 600, (0.5, 0.99), None, 1) for n in names]


def _issue_files(path: Path) -> dict[str, int]:
    return {one.name: one.stat().st_ino for one in path.parent.glob("*.issue")}


def _open_issues(state: ForecasterState) -> list[dict[str, Any]]:
    (engine,) = state.engines.values()
    return [
        {part: getattr(one, part).tobytes() for part in (*LASTING_ARRAYS, *CHANGING_ARRAYS)}
        | {"begin": one.begin_seconds, "series": one.series, "tiers": one.tiers}
        for one in engine.memory.open_issues
    ]


def test_each_issue_is_written_once_and_goes_when_it_is_over(tmp_path: Path) -> None:
    path, source, state = tmp_path / "state.npz", _source(), ForecasterState()
    issues, seen = IssueFiles(path), []
    for day in (10, 10 + 6 / DAY, 10.125, 10.25, 10.375):
        state, _ = step(state, day * 86400, source, _targets())
        write_state(path, state, issues)
        seen.append(_issue_files(path))
        again = read_state(path, ForecasterState())
        assert _open_issues(again) == _open_issues(state)
    assert [len(files) for files in seen] == [1, 1, 2, 2, 2]
    assert seen[1] == seen[0], "an issue that is there was written again"
    assert seen[2].items() >= seen[1].items()
    assert not seen[4].items() & seen[0].items(), "what is over still lies there"


@pytest.mark.parametrize("beside", [False, True])
def test_a_state_that_counted_every_window_is_read_as_one_of_windows_in_turn(
    tmp_path: Path, beside: bool
) -> None:
    path, source, state = tmp_path / "state.npz", _source(), ForecasterState()
    for day in (10, 10.125, 10.25, 10.375):
        state, _ = step(state, day * 86400, source, _targets())
    write_state(path, state, IssueFiles(path) if beside else None)
    with np.load(path) as stored:
        older = {name: stored[name] for name in stored.files if not name.endswith("/counted")}
    assert len(older) < len(stored.files)
    np.savez_compressed(path, **older)
    for read, told in zip(
        _open_issues(read_state(path, ForecasterState())), (True, False), strict=True
    ):
        assert read["counted"] == np.full(len(NAMES), told).tobytes()


def test_what_is_broken_later_is_in_the_state(tmp_path: Path) -> None:
    path, source, issues = tmp_path / "state.npz", _source(), IssueFiles(tmp_path / "state.npz")
    state, _ = step(ForecasterState(), 10 * 86400, source, _targets())
    write_state(path, state, issues)
    files = _issue_files(path)
    state, _ = step(state, (10 + 7 / DAY) * 86400, source, _targets())
    write_state(path, state, issues)
    (kept,) = _open_issues(read_state(path, ForecasterState()))
    assert b"\x01" in kept["broken"]
    assert _issue_files(path) == files


def test_a_series_that_is_gone_is_gone_from_the_files(tmp_path: Path) -> None:
    path, source, issues = tmp_path / "state.npz", _source(), IssueFiles(tmp_path / "state.npz")
    state, _ = step(ForecasterState(), 10 * 86400, source, _targets())
    write_state(path, state, issues)
    before = _issue_files(path)
    state, _ = step(state, (10 + 1 / DAY) * 86400, source, _targets(("b",)))
    write_state(path, state, issues)
    (kept,) = _open_issues(read_state(path, ForecasterState()))
    assert kept["series"] == tuple(target.identity for target in _targets(("b",)))
    assert not _issue_files(path).keys() & before.keys()


def test_another_process_takes_over_and_clears_what_the_dead_one_left(tmp_path: Path) -> None:
    path, source = tmp_path / "state.npz", _source()
    state, _ = step(ForecasterState(), 10 * 86400, source, _targets())
    write_state(path, state, IssueFiles(path))
    (tmp_path / "state.npz.77-0.issue").write_bytes(b"cut off")
    other = tmp_path / "other.npz.77-0.issue"
    other.write_bytes(b"somebody else's")
    again = read_state(path, ForecasterState())
    write_state(path, again, IssueFiles(path))
    assert len(_issue_files(path)) == 2
    assert other.exists()
    assert _open_issues(read_state(path, ForecasterState())) == _open_issues(state)


def _header(path: Path) -> tuple[dict[str, Any], Any]:
    with np.load(path) as stored:
        arrays: dict[str, Any] = dict(stored)
    return arrays, json.loads(bytes(arrays["header"]))


@pytest.mark.parametrize("name", ["../state.npz.1-0.issue", "state.npz", "/etc/passwd", "x.issue"])
def test_a_state_names_issues_beside_itself_and_no_other_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "state.npz"
    state, _ = step(ForecasterState(), 10 * 86400, _source(), _targets())
    write_state(path, state, IssueFiles(path))
    arrays, header = _header(path)
    header["groups"][0]["open_issues"][0]["file"] = name
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    with pytest.raises(InputError, match=r"stateFile\.issue"):
        read_state(path, ForecasterState())


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_a_damaged_or_missing_issue_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "state.npz"
    state, _ = step(ForecasterState(), 10 * 86400, _source(), _targets())
    write_state(path, state, IssueFiles(path))
    (issue,) = tmp_path.glob("*.issue")
    if content is None:
        issue.unlink()
    else:
        issue.write_bytes(content)
    with pytest.raises((InputError, FileNotFoundError)):
        read_state(path, ForecasterState())
