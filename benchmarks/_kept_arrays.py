"""Arrays that took long to make, kept by what they were made of.

    folder/clients-ets-1440-0123456789ab.npz

The digest in the name is of data, code and libraries: what any of them changes is made again, and
what is there is whole, since a file gets its name last.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._rests_on import rests_on_digest
from wattpack.errors import InputError

__all__ = ["Arrays", "digest_of", "kept_arrays"]

Arrays = Mapping[str, npt.NDArray[Any]]


def digest_of(module: str, libraries: Sequence[str], *parts: str) -> str:
    """Of a module with all of ours behind it, versions of libraries, and whatever else counts."""
    made = hashlib.sha256(rests_on_digest(module).encode())
    for name in libraries:
        made.update(f"\0{name} {_version(name)}".encode())
    for part in parts:
        made.update(f"\0{part}".encode())
    return made.hexdigest()[:12]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"


def kept_arrays(
    folder: Path | None, name: str, digest: str, make: Callable[[], Arrays]
) -> tuple[Arrays, bool]:
    """The arrays of that name and digest, and whether they were there.

    Args:
        folder: Of finished work; None keeps nothing.
        name: Of the file, without the digest.
        digest: From ``digest_of``.
        make: Makes them if they are not there or cannot be read.

    Raises:
        InputError: if the folder cannot be written to.
    """
    if folder is None:
        return make(), False
    file = folder / f"{name}-{digest}.npz"
    try:
        with file.open("rb") as kept, np.load(kept, allow_pickle=False) as found:
            return {key: found[key] for key in found.files}, True
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        made = make()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}.part")
        with unfinished.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **dict(made))
        unfinished.rename(file)
    except OSError as error:
        raise InputError("--resume", "a folder to write to", str(folder)) from error
    return made, False
