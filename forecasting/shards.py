"""Which forecaster answers for what, where several share the targets.

A shard is a forecaster of its own: it reads, learns and calibrates for the targets that it owns and
knows nothing of the others. Who owns a target depends on its name and on how many shards there
are, on nothing else, so that each shard finds its targets alone. With one shard more a share of
1 / n of the targets moves there, and the others stay with what was learned of them.

Targets that share a history are owned together, and so are the domains of a namespace: their sums
have to agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from forecasting.series_source import SeriesId
from wattpack.errors import InputError

MOST_SHARDS: Final = 1000

_JUMP: Final = 1 << 31
_FACTOR: Final = 2862933555777941757


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several forecasters.

    Attributes:
        number: From 1 on.
        of: How many there are.

    Raises:
        InputError: a number that is none of them.
    """

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of <= MOST_SHARDS:
            wanted = f"NUMBER/SHARDS, 1/1 to {MOST_SHARDS}/{MOST_SHARDS}"
            raise InputError("shard", wanted, str(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From text like ``2/3``.

        Raises:
            InputError: anything else.
        """
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if found is None:
            raise InputError("shard", "NUMBER/SHARDS, for example 2/3", text)
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        """As it is parsed."""
        return f"{self.number}/{self.of}"

    @property
    def is_first(self) -> bool:
        """Whether it does what only one of them may do."""
        return self.number == 1

    def owns(self, body: Mapping[str, Any]) -> bool:
        """Whether a DemandForecast is this shard's, one that cannot be read included."""
        return self.of == 1 or shard_number(_key_of(body), self.of) == self.number


WHOLE: Final = Shard()
"""The only one."""


def shard_number(key: str, shards: int) -> int:
    """The owner of a name, from 1 to ``shards``.

    Source: Lamping and Veach, "A fast, minimal memory, consistent hash algorithm",
    arXiv:1406.2294 (2014), section 3.
    """
    state = int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    owner, ahead = -1, 0
    while ahead < shards:
        owner = ahead
        state = (state * _FACTOR + 1) % (1 << 64)
        ahead = int((owner + 1) * _JUMP / ((state >> 33) + 1))
    return owner + 1


def split(series: Sequence[SeriesId], shards: int) -> list[list[SeriesId]]:
    """The series of each shard in their order; shards without any are left out.

    Raises:
        InputError: a number of shards that cannot be.
    """
    Shard(1, shards)
    hands: list[list[SeriesId]] = [[] for _ in range(shards)]
    for name in series:
        hands[shard_number(_key("", name), shards) - 1].append(name)
    return [hand for hand in hands if hand]


def _key(namespace: str, series: str) -> str:
    return f"{namespace}\0{series}"


def _key_of(body: Mapping[str, Any]) -> str:
    """What decides who owns an object."""
    metadata, spec = _mapping(body.get("metadata")), _mapping(body.get("spec"))
    target, namespace = _mapping(spec.get("target")), str(metadata.get("namespace", ""))
    if target.get("powerDomain") is not None:
        return _key(namespace, "\0domains")
    return _key(namespace, str(target.get("series", "")))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
