"""What a backtest has finished, on disk: windows by origin, and what the forecaster had learned.

pool-HASH.jsonl    one line an origin
pool-HASH-7.npz    the state after seven of them; the one before goes when its line is there
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from forecasting.app.memory_file import read_state, write_state
from forecasting.backtest.window import Window
from forecasting.round.round_state import ForecasterState
from wattpack.errors import InputError, PermanentError


class KeptPool:
    """One pool's files.

    Args:
        stem: Their path without its ending.
    """

    def __init__(self, stem: Path) -> None:
        self._lines = stem.with_name(f"{stem.name}.jsonl")
        self._stem = stem

    def read(self, fresh: ForecasterState) -> tuple[list[list[Window]], ForecasterState]:
        """The windows of finished origins and the state after them; nothing and ``fresh`` at first.

        A line that a crash cut off is not finished, and goes.

        Raises:
            InputError: for files that no backtest wrote.
        """
        if not self._lines.exists():
            return [], fresh
        try:
            text = self._lines.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            found = [[Window.read(one) for one in json.loads(line)] for line in whole.splitlines()]
            if whole != text:
                self._lines.write_text(whole, encoding="utf-8")
            return found, self._state_after(len(found), fresh)
        except (OSError, ValueError, TypeError, RecursionError, InputError) as error:
            expected = "what a backtest keeps; remove it to begin anew"
            raise InputError("resume", expected, str(error), str(self._lines)) from error

    def keep(self, done: int, state: ForecasterState, windows: Sequence[Window]) -> None:
        """One more origin is finished: state first, so that no line is without its state.

        Args:
            done: Origins that are finished with this one.
            state: After it.
            windows: Of it.

        Raises:
            PermanentError: where nothing can be written.
        """
        line = json.dumps([window.to_json() for window in windows], separators=(",", ":"))
        try:
            self._lines.parent.mkdir(parents=True, exist_ok=True)
            write_state(self._state(done), state)
            with self._lines.open("a", encoding="utf-8") as lines:
                lines.write(line + "\n")
            self._state(done - 1).unlink(missing_ok=True)
        except OSError as error:
            raise PermanentError(f"nothing can be kept in {self._lines.parent}: {error}") from error

    def _state_after(self, done: int, fresh: ForecasterState) -> ForecasterState:
        if done == 0:
            return fresh
        if not self._state(done).exists():
            raise InputError("state", f"the state after {done} origins", str(self._state(done)))
        return read_state(self._state(done), fresh)

    def _state(self, done: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}-{done}.npz")
