"""Open issues in files of their own beside a state file: each is written once, not every round.

    state.npz                      what changes: written anew every round
    state.npz.864000-0.issue       an issue of that time; goes when the state names it no more

An issue of 10,000 series is 50 MB and stays what it is for six hours; only which of its promises
are broken changes, and that is in the state.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from forecasting.open_issues import OpenIssue
from wattpack.errors import InputError

LARGEST_BYTES: Final = 2_000_000_000
"""Of all arrays unpacked: more is no state of ours, and would not fit into memory."""

LASTING_ARRAYS: Final = (
    "steps", "told_steps", "by_tier", "peaks", "told_peaks", "scale", "change", "judged",
)  # fmt: skip

CHANGING_ARRAYS: Final = ("broken", "counted")
"""Of an issue, in the state itself: the first changes, the second came later than the files."""

_ENDING: Final = ".issue"


class IssueFiles:
    """Files of the open issues of one state file; for one writer.

    Args:
        state_file: Beside which they lie.
    """

    def __init__(self, state_file: Path) -> None:
        self._state_file = state_file
        self._written: dict[str, OpenIssue] = {}

    def name_of(self, issue: OpenIssue) -> str:
        """The file of an issue; written now if there is none yet.

        Raises:
            OSError: it cannot be written.
        """
        for name, written in self._written.items():
            if all(getattr(issue, part) is getattr(written, part) for part in LASTING_ARRAYS):
                return name
        path = self._free(issue.begin_seconds)
        with path.open("wb") as file:
            arrays = {part: getattr(issue, part) for part in LASTING_ARRAYS}
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        self._written[path.name] = issue
        return path.name

    def keep_only(self, names: Collection[str]) -> None:
        """Delete the files that the state names no more, a dead process's included."""
        self._written = {name: one for name, one in self._written.items() if name in names}
        for path in self._state_file.parent.glob(f"{self._state_file.name}.*{_ENDING}"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _free(self, begin_seconds: int) -> Path:
        """A name that nothing has: what an older state needs is never written over."""
        stem, number = f"{self._state_file.name}.{begin_seconds}", 0
        while (path := self._state_file.with_name(f"{stem}-{number}{_ENDING}")).exists():
            number += 1
        return path


def read_issue_file(state_file: Path, name: str) -> Mapping[str, np.ndarray]:
    """The arrays of an issue.

    Args:
        state_file: Beside which the file lies.
        name: As the state tells it.

    Raises:
        InputError: no name of such a file, or too large.
        KeyError, ValueError, EOFError, zipfile.BadZipFile: damaged.
        OSError: it cannot be read.
    """
    if not re.fullmatch(re.escape(state_file.name) + r"\.\d+-\d+" + re.escape(_ENDING), name):
        raise InputError("stateFile.issue", f"{state_file.name}.NUMBER-NUMBER{_ENDING}", name)
    path = state_file.with_name(name)
    refuse_large(path)
    with np.load(path, allow_pickle=False) as arrays:
        return {part: arrays[part] for part in LASTING_ARRAYS}


def refuse_large(path: Path) -> None:
    """Nothing is unpacked that does not fit into memory.

    Raises:
        InputError: it is too large.
        zipfile.BadZipFile: it is no archive.
        OSError: it cannot be read.
    """
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > LARGEST_BYTES:
            raise InputError("stateFile", f"at most {LARGEST_BYTES} bytes unpacked", str(path))
