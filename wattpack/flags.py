"""Types of command-line flags: what argparse refuses by the flag's name, with status 2."""

from __future__ import annotations

import argparse
import urllib.parse
from pathlib import Path

from wattpack.errors import InputError, PermanentError
from wattpack.units import require_number

__all__ = ["host_port", "http_url", "output_file", "port", "positive", "write_output"]


def port(text: str) -> int:
    """A TCP port, 0 to let the system choose."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """A finite number above zero."""
    try:
        return require_number("value", float(text), exclusive_minimum=0.0, maximum=1e9)
    except (ValueError, InputError) as error:
        expected = "a number above 0, at most 1e9"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from error


def host_port(text: str) -> str:
    """``HOST:PORT`` as one text."""
    host, _, number = text.rpartition(":")
    if not host or port(number) == 0:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return text


def http_url(text: str) -> str:
    """An address that begins with http:// or https:// and names a host."""
    try:
        parts = urllib.parse.urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError(f"expected an http:// or https:// address, got {text!r}")
    return text


def output_file(text: str) -> Path:
    """A file that can be written, tried before the work that fills it begins; none is left."""
    file = Path(text)
    try:
        is_new = not file.exists()
        file.open("ab").close()
        if is_new:
            file.unlink()
    except (OSError, ValueError) as error:
        expected = "a file that can be written, in a folder that is there"
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r} ({error})") from error
    return file


def write_output(file: Path, content: str | bytes) -> None:
    """The content is in the file, all of it or none; text as UTF-8.

    Raises:
        PermanentError: where it was writable before the run and is not any more.
    """
    try:
        if file.exists() and not file.is_file():
            _put(file, content)  # a pipe or a terminal: nothing to replace
            return
        draft = file.resolve().with_name(f"{file.name}.part")
        try:
            _put(draft, content)
            draft.replace(file.resolve())
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise PermanentError(f"the result above is not in {file}: {error}") from error


def _put(file: Path, content: str | bytes) -> None:
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content, encoding="utf-8")
