"""How boards of a type are known to compute, from the rows that ship with wattpack.

A profile that is replayed under another GPU's name, or a board that is not what it says, computes
other bits under the same software. Types may compute alike (H100 and H200 are of one architecture):
what tells those apart is the memory's rate (``row_checks.require_own_name``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from capacity.bench.bench_identity import BenchIdentity
from capacity.bench.row_checks import rounds_alike
from capacity.bench.shipped_rows import shipped_rows, shipped_runs
from wattpack.errors import InputError


@lru_cache(maxsize=1)
def shipped_identities() -> tuple[BenchIdentity, ...]:
    """The boards of the shipped rows that say how they round, one each file."""
    found = (shipped_rows(run)[0].identity for run in shipped_runs())
    return tuple(who for who in found if who.numeric_fingerprint)


def require_known_numbers(
    identity: BenchIdentity, known: Iterable[BenchIdentity] | None = None
) -> None:
    """A board rounds as some known board of its name does under the same software.

    Args:
        known: The shipped ones if None.

    Raises:
        InputError: if there are such boards and it rounds as none of them.
    """
    boards = shipped_identities() if known is None else tuple(known)
    alike = [who for who in boards if _same_type_and_software(who, identity)]
    if alike and not any(rounds_alike(who, identity) for who in alike):
        told = sorted({who.numeric_fingerprint for who in alike})
        raise InputError(
            "numeric_fingerprint",
            f"{' or '.join(told)}, as {identity.gpu_product} computes under this software",
            identity.numeric_fingerprint,
        )


def _same_type_and_software(one: BenchIdentity, other: BenchIdentity) -> bool:
    def key(who: BenchIdentity) -> tuple[str, ...]:
        return who.gpu_product, who.architecture, who.cuda, who.torch

    return key(one) == key(other)
