"""Which boards ``value_per_watt`` compares, and what each works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks._given_scenario import Given

KINDS: Final = ("prefill", "decode", "training", "batch")
GPUS_A_NODE: Final = 8
READS: Final = (
    "row.groups", "row.gpus_per_server", "services[].replicas", "services[].tensor_parallel",
    "training[].pods", "training[].gpus_per_pod",
)  # fmt: skip
"""Keys of a scenario file that have a meaning here."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Boards and what each works on.

    Attributes:
        jobs: GPU type and kind of work, server by server.
        gpus_a_node: Boards of one server.
    """

    jobs: tuple[tuple[str, str], ...]
    gpus_a_node: int = GPUS_A_NODE

    @property
    def types(self) -> tuple[str, ...]:
        """GPU types, each once."""
        return tuple(dict.fromkeys(gpu for gpu, _ in self.jobs))


def even_fleet(types: Sequence[str]) -> Fleet:
    """Two servers of each type, a quarter of their boards with each kind of work."""
    boards = range(2 * GPUS_A_NODE)
    return Fleet(tuple((gpu, KINDS[i % len(KINDS)]) for gpu in types for i in boards))


def given_fleet(given: Given) -> Fleet:
    """Servers and mix of somebody's row.

    Raises:
        InputError: for a GPU type without a profile.
    """
    scenario = given.scenario
    row = scenario.row
    served = sum(one.replicas * one.tensor_parallel for one in scenario.services)
    trained = sum(one.pods * one.gpus_per_pod for one in scenario.training)
    rest = max(0, row.servers * row.gpus_per_server - served - trained)
    parts = dict(zip(KINDS, (served / 2, served / 2, trained, rest), strict=True))
    jobs: list[tuple[str, str]] = []
    dealt: dict[str, list[str]] = {}
    for profile in given.profiles():
        mine = dealt.setdefault(profile.model, [])
        for _ in range(row.gpus_per_server):
            mine.append(_next_kind(parts, mine))
            jobs.append((profile.model, mine[-1]))
    return Fleet(tuple(jobs), row.gpus_per_server)


def _next_kind(parts: dict[str, float], dealt: list[str]) -> str:
    """Whose share lags most behind; the first of equals."""
    whole = sum(parts.values())
    return max(parts, key=lambda kind: parts[kind] / whole * (len(dealt) + 1) - dealt.count(kind))
