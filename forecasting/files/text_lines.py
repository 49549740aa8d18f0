"""Lines of a text file, plain or gzip, one after the other: files may be larger than memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO, Final, cast

from wattpack.errors import InputError

CHUNK_BYTES: Final = 1 << 20
MAX_LINE_BYTES: Final = 8 << 20
"""A table of 100,000 columns; without it a small gzip file could fill memory with one line."""

Progress = Callable[[float], None]
"""Told the share of the file that was read, 0 to 1."""


def regular_file(file: Path) -> Path:
    """The file, if it is one.

    Raises:
        InputError: for what is missing, a folder, or a pipe that nobody may ever write to.
    """
    if not file.is_file():
        raise InputError("file", "a file that is there", str(file), str(file))
    return file


def text_lines(file: Path, progress: Progress | None = None) -> Generator[str, None, None]:
    """Every line without its end; who stops before the last closes it, and so the file.

    Args:
        file: UTF-8, with or without a byte order mark, plain or gzip.
        progress: Told how far it is, about once a mebibyte.

    Raises:
        InputError: a file that is missing, truncated, not UTF-8 or one endless line.
    """
    try:
        with regular_file(file).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            size = max(1, file.stat().st_size)
            opened = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw)
            number, rest = 0, b""
            while chunk := opened.read(CHUNK_BYTES):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                if len(rest) > MAX_LINE_BYTES:
                    expected = f"at most {MAX_LINE_BYTES} bytes"
                    raise InputError(f"line {number + len(lines) + 1}", expected, "more", str(file))
                for line in lines:
                    number += 1
                    yield _text(line, number, file)
                if progress is not None:
                    progress(min(1.0, raw.tell() / size))
            if rest:
                yield _text(rest, number + 1, file)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError("file", "a whole file, gzip or plain", str(error), str(file)) from error


def _text(line: bytes, number: int, file: Path) -> str:
    """One line as text."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"line {number}", "UTF-8 text", str(error), str(file)) from error
    return (text.removeprefix("\ufeff") if number == 1 else text).removesuffix("\r")
