"""A measurement that was cut off goes on with the case that it had not finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.runner import Options, Row, finished_rows
from wattpack.errors import InputError


class Cases:
    """Counts which cases were run; one of them ends the run."""

    def __init__(self, broken: int | None = None) -> None:
        self.run: list[int] = []
        self._broken = broken

    def __call__(self, seed: int, number: int) -> Row:
        if number == self._broken:
            raise KeyboardInterrupt
        self.run.append(number)
        return {"square": number**2 + seed}


def test_finished_cases_are_not_run_again(tmp_path: Path) -> None:
    options = Options(seed=3, resume=tmp_path / "new" / "folder")
    with pytest.raises(KeyboardInterrupt):
        finished_rows(options, "squares", Cases(broken=2), 4)
    rest = Cases()
    rows = finished_rows(options, "squares", rest, 4)
    assert rest.run == [2, 3]
    assert [row["square"] for row in rows] == [3, 4, 7, 12]
    assert len(finished_rows(options, "squares", rest, 1)) == 1


def test_a_file_is_no_folder_to_resume_from(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="--resume"):
        finished_rows(Options(resume=tmp_path / "file"), "squares", Cases(), 1)
