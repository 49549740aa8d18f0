"""Reading the reference CSV files, with every cell checked."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
from collections.abc import Sequence
from pathlib import Path

from wattpack.errors import InputError

Row = dict[str, str]


def read_csv(file: Path, columns: Sequence[str]) -> list[Row]:
    """The rows of a CSV file (gzip when the name ends in .gz).

    Raises:
        InputError: if it cannot be read, is truncated, lacks a column or has no row.
    """
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        reader = csv.DictReader(io.StringIO(raw.decode("utf-8")), strict=True)
        rows = list(reader)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("file", "a readable CSV file", str(error), str(file)) from error
    for column in columns:
        if column not in (reader.fieldnames or ()):
            raise InputError(column, "a column", reader.fieldnames, str(file))
    if not rows:
        raise InputError("rows", "at least one row", 0, str(file))
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError(
                f"line {number}", f"{len(reader.fieldnames or ())} cells", row, str(file)
            )
    return rows


def number(row: Row, column: str, file: str) -> float:
    """A finite positive number out of a row.

    Raises:
        InputError: naming the column.
    """
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(column, "a finite number >= 0", row[column], file)
    return value


def reference_sha256(folder: Path) -> str:
    """A hash over the names and bytes of all CSV files of the folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.csv*")):
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
