"""The results file of one run: every row is on the disk before the next point starts.

A run that was killed leaves at most one line without its end. That line is dropped when the run
goes on; any other line that cannot be read is somebody else's doing and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capacity.bench.bench_identity import SCHEMA_VERSION
from capacity.bench.measurement_row import MeasurementRow, parse_rows, row_line
from capacity.bench.row_checks import require_one_board, require_possible
from wattpack.errors import InputError

ROW_START = f'{{"schema_version":{SCHEMA_VERSION},'


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a results file holds.

    Attributes:
        dropped: A row that was not written to its end, shortened; empty if there was none.
    """

    rows: tuple[MeasurementRow, ...]
    dropped: str


def read_earlier_run(path: Path) -> EarlierRun:
    """The rows of a file that a run may go on with; nothing for a file that is not there.

    Raises:
        InputError: naming the line, for anything but our own broken last line; rows of several
            boards; rows above the roof.
    """
    if path.suffix == ".gz":
        raise InputError("--out", "a plain file: packed rows cannot be appended to", str(path))
    if not path.exists():
        return EarlierRun((), "")
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError("--out", "a file that can be read", str(path)) from error
    whole, _, tail = text.rpartition("\n")
    rows = list(parse_rows(whole.split("\n"), str(path)))
    dropped = ""
    if tail:
        try:
            rows += parse_rows([tail], f"{path}: last line")
        except InputError:
            if not (tail.startswith(ROW_START) or ROW_START.startswith(tail)):
                raise
            dropped = tail[:60]
    require_one_board(rows)
    require_possible(rows)
    return EarlierRun(tuple(rows), dropped)


class ResultsFile:
    """Appends rows; opened by ``with``.

    What an earlier run left is touched no sooner than the first new row is there, or the run ended
    well: until then it may still turn out that the file is another board's.

    Args:
        earlier: What ``read_earlier_run`` said of the path.
    """

    def __init__(self, path: Path, earlier: EarlierRun) -> None:
        self._earlier = earlier
        self._is_mended = False
        self._file = path.open("r+b" if path.exists() else "xb")

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if failure is None:
                self._mend()

    def append(self, row: MeasurementRow) -> None:
        """The row is in the file when this returns."""
        self._mend()
        self._file.write(row_line(row).encode() + b"\n")
        self._file.flush()

    def _mend(self) -> None:
        """The file ends with a whole line."""
        if self._is_mended:
            return
        if self._earlier.dropped:
            content = self._file.read()
            self._file.truncate(content.rfind(b"\n") + 1)
        self._file.seek(0, 2)
        if self._earlier.rows and not self._earlier.dropped:
            self._end_last_line()
        self._is_mended = True

    def _end_last_line(self) -> None:
        self._file.seek(-1, 2)
        if self._file.read(1) != b"\n":
            self._file.write(b"\n")


def require_continuable(earlier: Sequence[MeasurementRow], owned: Sequence[MeasurementRow]) -> None:
    """A results file holds one board's rows; a run on another one needs a file of its own.

    Raises:
        InputError: if some of the earlier rows were measured under other conditions.
    """
    if len(owned) < len(earlier):
        strange = next(row for row in earlier if row not in owned)
        raise InputError(
            "--out",
            "rows of this board, limit and software (choose another --out)",
            f"rows of {strange.identity.gpu_product} ({strange.identity.gpu_uuid_hash}), "
            f"{strange.identity.power_limit_watts:g} W, driver {strange.identity.driver}",
        )
