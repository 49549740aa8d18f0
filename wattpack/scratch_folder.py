"""Temporary folders that go with the process, also when it is told twice to end."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from wattpack.ending import last_step


class ScratchFolder:
    """A private folder until ``close``.

    Args:
        prefix: Of its name, so that people know whose it is.
    """

    def __init__(self, prefix: str = "wattpack-") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=prefix)
        self.path = Path(self._folder.name)
        self._take_back = last_step(self._leave_nothing)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it with everything in it."""
        self._folder.cleanup()
        self._take_back()

    def _leave_nothing(self) -> None:
        # Under its new name nobody else finds it, and nothing more comes into it.
        gone = self.path.with_name(f"{self.path.name}.gone")
        self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


@functools.cache
def lifelong_folder() -> Path:
    """The folder for what libraries keep in files as long as the process lives."""
    folder = ScratchFolder()
    atexit.register(folder.close)
    return folder.path
