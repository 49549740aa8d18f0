"""Shards of the six weeks summed up, so that they can be kept: a file a policy, some 100 kB.

    folder/polca-52-seed-1-0123456789ab.json.gz    {"numbers": [7, 9, …], "row": their sum}

A shard's row is too large to keep hundreds of them, and all that is asked of them are sums, the
highest of some figures, and quantiles of all requests together.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from simulation.inference_row.request_time_counts import dense, sparse
from wattpack.errors import InputError

__all__ = ["Summed", "read_summed", "summed", "write_summed"]

Row = dict[str, Any]
HIGHEST: Final = frozenset({"peak_ratio", "max_heat"})
FARTHEST: Final = "calm_"
"""Figures of an agreement: of several the one farthest from 0."""


class Summed(NamedTuple):
    """Shards that are in, and their sum; None of none."""

    numbers: frozenset[int]
    row: Row | None


def summed(rows: Iterable[Mapping[str, Any]]) -> Row | None:
    """One row for several; a row without ``shards`` is one shard."""
    total: Row | None = None
    for row in rows:
        one = {"shards": 1, **row}
        total = one if total is None else _sum(total, one)
    return total


def _sum(one: Row, other: Row) -> Row:
    made = one | other
    for name in one.keys() & other.keys():
        old, new = one[name], other[name]
        if name in HIGHEST:
            made[name] = max(old, new)
        elif name.startswith(FARTHEST):
            made[name] = max(old, new, key=abs)
        elif isinstance(old, dict):
            made[name] = {key: sparse(dense(old[key]) + dense(new[key])) for key in old}
        elif isinstance(old, list):
            made[name] = [a + b for a, b in zip(old, new, strict=True)]
        else:
            made[name] = old + new
    return made


def read_summed(file: Path) -> Summed:
    """What a file holds; nothing of one that is not there.

    Raises:
        InputError: for a file that holds something else.
    """
    if not file.exists():
        return Summed(frozenset(), None)
    try:
        kept = json.loads(gzip.decompress(file.read_bytes()))
        return Summed(frozenset(kept["numbers"]), kept["row"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError("kept shards", "a file of summed shards", str(error), str(file)) from error


def write_summed(file: Path, kept: Summed) -> None:
    """Replace a file, whole or not at all; equal sums make equal files."""
    text = json.dumps({"numbers": sorted(kept.numbers), "row": kept.row})
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".part")
    half.write_bytes(gzip.compress(text.encode(), mtime=0))
    half.rename(file)
