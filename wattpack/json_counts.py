"""How much a JSON text holds, counted over its bytes before anything is made of it.

A parser makes 64 bytes and more of each ``{}``, so that a text of 3 MB can fill a gigabyte before
its entries can be counted. Here nothing is made but arrays of one block: commas and braces are
found by table, those within strings are left out, and depths are running sums.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_COUNTED", "JsonCounts", "count_json"]

LEAST_COUNTED: Final = 10_000
"""Members with fewer entries are not told by name."""

BLOCK_BYTES: Final = 256 * 1024
_KEY_BYTES: Final = 512
"""Before a member's brace, where its key is looked for; no key of ours is as long."""

_KEY: Final = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:\s*\Z')
_QUOTE, _ESCAPE, _COMMA, _OPEN, _CLOSE = range(1, 6)
_KINDS: Final = np.zeros(256, dtype=np.uint8)
for _characters, _kind in (
    (b'"', _QUOTE),
    (b"\\", _ESCAPE),
    (b",", _COMMA),
    (b"[{", _OPEN),
    (b"]}", _CLOSE),
):
    _KINDS[list(_characters)] = _kind

IntArray = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]


class JsonCounts:
    """What a text holds, if it is JSON; of another text the figures mean nothing.

    Attributes:
        values: Of all lists and objects, less one for each of them.
        entries: Values that stand in the outermost list or object, or in one of its members.
        members: Entries of lists and objects right within the outermost one, by key; only those
            with more than ``LEAST_COUNTED``. Empty keys are those that could not be read.
        largest_entry: The most values within one entry of a member.
    """

    def __init__(self) -> None:
        self.values = 0
        self.entries = 0
        self.members: Counter[str] = Counter()
        self.largest_entry = 0
        self._escaped = False
        self._quoted = False
        self._depth = 0
        self._member = ("", 0)
        self._entry = 0
        self._before = b""

    def add(self, block: bytes) -> None:
        """Go on with the next bytes."""
        at, kinds = self._structure(block)
        depth = self._depth + np.cumsum(
            (kinds == _OPEN).astype(np.int64) - (kinds == _CLOSE), dtype=np.int64
        )
        commas = kinds == _COMMA
        self.values += int(np.count_nonzero(commas))
        self.entries += int(np.count_nonzero(commas & (depth <= 2)))
        self._count_members(block, at[(kinds == _OPEN) & (depth == 2)], at[commas & (depth == 2)])
        self._measure_entries(commas & (depth > 2), depth <= 2)
        self._depth = int(depth[-1]) if depth.size else self._depth
        self._before = (self._before + block)[-_KEY_BYTES:]

    def end(self) -> None:
        """All bytes have been there."""
        self._keep_member(*self._member)

    def _structure(self, block: bytes) -> tuple[IntArray, Kinds]:
        """Commas and braces outside of strings: where they are, and what."""
        kinds: Kinds = _KINDS[np.frombuffer(block, dtype=np.uint8)]
        if self._escaped:
            kinds[0] = 0
        self._escaped = _drop_escaped(kinds)
        at: IntArray = np.flatnonzero(kinds)
        kinds = kinds[at]
        quotes = kinds == _QUOTE
        # Parity survives that the sum overflows.
        inside = (np.cumsum(quotes, dtype=np.uint8) + np.uint8(self._quoted)) & 1
        self._quoted = bool(inside[-1]) if inside.size else self._quoted
        outside = (inside == 0) & ~quotes
        return at[outside], kinds[outside]

    def _count_members(self, block: bytes, begins: IntArray, commas: IntArray) -> None:
        bounds = np.searchsorted(commas, begins)
        counts = np.diff(bounds, prepend=0, append=len(commas))
        name, before = self._member
        if not begins.size:
            self._member = (name, before + int(counts[0]))
            return
        self._keep_member(name, before + int(counts[0]))
        for each in np.flatnonzero(counts[1:-1] >= LEAST_COUNTED):
            self._keep_member(self._key(block, int(begins[each])), int(counts[1 + each]))
        self._member = (self._key(block, int(begins[-1])), int(counts[-1]))

    def _keep_member(self, name: str, commas: int) -> None:
        if commas >= LEAST_COUNTED:
            self.members[name] += commas + 1

    def _key(self, block: bytes, brace: int) -> str:
        text = block[max(0, brace - _KEY_BYTES) : brace]
        if brace < _KEY_BYTES:
            text = self._before + text
        found = _KEY.search(text)
        try:
            return str(json.loads(found[1])) if found else ""
        except ValueError:
            return ""

    def _measure_entries(self, inner: npt.NDArray[np.bool_], ends: npt.NDArray[np.bool_]) -> None:
        running = self._entry + np.cumsum(inner, dtype=np.int64)
        at_ends = running[ends]
        if at_ends.size:
            self.largest_entry = max(
                self.largest_entry, int(np.max(np.diff(at_ends, prepend=np.int64(0))))
            )
            running = running - at_ends[-1]
        self._entry = int(running[-1]) if running.size else self._entry
        self.largest_entry = max(self.largest_entry, self._entry)


def count_json(text: str | bytes) -> JsonCounts:
    """What the text holds."""
    counts = JsonCounts()
    for block in _blocks(text):
        counts.add(block)
    counts.end()
    return counts


def _blocks(text: str | bytes) -> Iterator[bytes]:
    for start in range(0, len(text), BLOCK_BYTES):
        block = text[start : start + BLOCK_BYTES]
        # Whatever is not ASCII stands in strings only, or the text is no JSON.
        yield block.encode("utf-8", "surrogatepass") if isinstance(block, str) else block


def _drop_escaped(kinds: Kinds) -> bool:
    """Backslashes and what they escape are nothing more; True if that is the next block's first."""
    slashes = np.flatnonzero(kinds == _ESCAPE)
    if not slashes.size:
        return False
    begins = np.flatnonzero(np.diff(slashes, prepend=-2) > 1)
    lengths = np.diff(begins, append=len(slashes))
    escaped = (slashes[begins] + lengths)[lengths % 2 == 1]
    kinds[slashes] = 0
    kinds[escaped[escaped < len(kinds)]] = 0
    return bool(escaped.size and escaped[-1] == len(kinds))
