"""What code answers: a worker of another release would answer in its own way."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_LEFT_OUT: Final = frozenset({"__pycache__"})


@cache
def packages_digest(*packages: str) -> str:
    """Of all files of some installed packages, wherever they lie.

    Args:
        packages: Names that can be imported.
    """
    made = hashlib.sha256()
    for name in packages:
        spec = find_spec(name)
        folders = () if spec is None else spec.submodule_search_locations or ()
        for folder in map(Path, folders):
            for file in sorted(folder.rglob("*")):
                parts = file.relative_to(folder).parts
                if file.is_file() and not _LEFT_OUT.intersection(parts):
                    made.update("/".join((name, *parts)).encode() + b"\0" + file.read_bytes())
    return made.hexdigest()[:12]
