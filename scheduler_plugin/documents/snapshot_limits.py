"""How large a snapshot may be, told before anything is made of its text."""

from __future__ import annotations

import os
from typing import IO, Final

from wattpack.errors import InputError

__all__ = ["MAX_GPUS", "MAX_NODES", "MAX_PODS", "MAX_TEXT_BYTES", "read_bounded", "refuse_huge"]

MAX_NODES: Final = 20_000
MAX_PODS: Final = 200_000
MAX_GPUS: Final = 1000
"""More on one node or in one pod is no GPU node any more, but a virtual one of a whole cluster."""
MAX_TEXT_BYTES: Final = 128 * 1024 * 1024
"""200,000 pods of 450 bytes, as they are written where each has a selector and tolerations, and
20,000 nodes of 2 kB; little enough to be read from a pipe and refused in 256 MiB."""


def refuse_huge(text: str | bytes, source: str = "") -> None:
    """Nothing, unless the text is longer than any snapshot or names more pods than any.

    Of 10**6 pods a parser makes gigabytes before it can count them.

    Raises:
        InputError: naming the limit.
    """
    _refuse_longer(len(text), source)
    # Twice the number: a label or a selector may have that name, too.
    named = text.count('"uid"') if isinstance(text, str) else text.count(b'"uid"')
    if named > 2 * MAX_PODS:
        raise InputError("pods", f"at most {MAX_PODS} pods", f"{named} uids", source)


def read_bounded(stream: IO[bytes], source: str = "") -> str:
    """The stream's text; of a file that is too long nothing is read, of a pipe no more than fits.

    Raises:
        InputError: naming the limit.
        OSError: if it cannot be read.
        UnicodeDecodeError: if it is not UTF-8.
    """
    _refuse_longer(os.fstat(stream.fileno()).st_size, source)
    data = stream.read(MAX_TEXT_BYTES + 1)
    refuse_huge(data, source)
    return data.decode("utf-8")


def _refuse_longer(count: int, source: str) -> None:
    if count > MAX_TEXT_BYTES:
        raise InputError("snapshot", f"at most {MAX_TEXT_BYTES} bytes", count, source)
