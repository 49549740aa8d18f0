"""How large a snapshot may be, told before anything is made of its text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Final

from wattpack.errors import InputError
from wattpack.json_counts import LEAST_COUNTED, count_json

__all__ = [
    "MAX_GPUS",
    "MAX_HOLDS",
    "MAX_LINK_GROUPS",
    "MAX_LINK_PAIRS",
    "MAX_NODES",
    "MAX_PAIRS",
    "MAX_PODS",
    "MAX_QUOTAS",
    "MAX_TEXT_BYTES",
    "MAX_VALUES",
    "SNAPSHOT_MEMBERS",
    "read_bounded",
    "refuse_huge",
]

MAX_NODES: Final = 20_000
MAX_PODS: Final = 200_000
MAX_GPUS: Final = 1000
"""More on one node or in one pod is no GPU node any more, but a virtual one of a whole cluster."""
MAX_PAIRS: Final = 250_000
"""Every pair of the kinds of work that share boards, both ways; far beyond any real cluster."""
MAX_QUOTAS: Final = 20_000
"""Two of each namespace of a cluster that has as many as Kubernetes is tested with."""
MAX_HOLDS: Final = 1_000
"""One a root of the power tree; no cluster comes near."""
MAX_LINK_GROUPS: Final = 5_000
MAX_LINK_PAIRS: Final = 30_000
"""Every pair of 244 groups. All lists together stay below 10**6, which is refused (test)."""
MAX_TEXT_BYTES: Final = 128 * 1024 * 1024
"""200,000 pods of 450 bytes, as they are written where each has a selector and tolerations, and
20,000 nodes of 2 kB; little enough to be read from a pipe and refused in 256 MiB."""
MAX_VALUES: Final = 12_000_000
"""Of a whole document: one in 11 bytes of the longest text (assumed); a pod of 450 bytes has 25."""
MAX_ENTRY_VALUES: Final = 100_000
"""Of one pod or node: every node's name, which quarantine may list, and 80,000 more."""
SNAPSHOT_MEMBERS: Final = {
    "nodes": MAX_NODES,
    "pods": MAX_PODS,
    "gangs": MAX_PODS,
    "domains": MAX_NODES,
    "slow_downs": MAX_PAIRS,
    "cap_options": MAX_PAIRS,
    "quotas": MAX_QUOTAS,
    "holds": MAX_HOLDS,
    "link_groups": MAX_LINK_GROUPS,
    "link_pairs": MAX_LINK_PAIRS,
}


def refuse_huge(
    text: str | bytes,
    source: str = "",
    members: Mapping[str, int] = SNAPSHOT_MEMBERS,
    entry_values: int = MAX_ENTRY_VALUES,
) -> None:
    """Nothing, unless the text is longer than any snapshot or holds more than any.

    Of 10**6 pods a parser makes gigabytes before it can count them, however they are spelled.

    Args:
        text: A JSON document.
        source: Of the text.
        members: The most entries of lists and objects right within the document, by key.
        entry_values: The most values of one of their entries.

    Raises:
        InputError: naming the limit.
    """
    _refuse_longer(len(text), source)
    if len(text) < 2 * LEAST_COUNTED:
        return
    counts = count_json(text)
    for name, count in counts.members.items():
        most = members.get(name, max(members.values()))
        if count > most:
            raise InputError(name or "document", f"at most {most} {name}".strip(), count, source)
    if counts.entries > sum(members.values()) + len(members):
        expected = f"at most {sum(members.values())} entries in all"
        raise InputError("document", expected, counts.entries, source)
    if counts.largest_entry > entry_values:
        expected = f"at most {entry_values} values in one entry"
        raise InputError("document", expected, counts.largest_entry, source)
    if counts.values > MAX_VALUES:
        raise InputError("document", f"at most {MAX_VALUES} values", counts.values, source)


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
