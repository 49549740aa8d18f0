"""Which GPU type suits which work: what shares of time a policy wants, and values that lead there.

    speeds (work x GPU type) ── policy (linear program) ──> shares of time ─┐
    rounds that each work has had on each type ────────────────────────────┴─> values of this round

A plan prefers placements of more value (``Pod.gpu_model_values``) among those that place as much.
Source: Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads (Gavel), OSDI 2020: effective throughput 3.1, max-min fairness 4.1, cost 4.2, rounds 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = [
    "Work",
    "due_models",
    "least_cost_shares",
    "max_min_shares",
    "round_values",
    "rounds_waited",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: A round on a type is worth this where the work is owed exactly one.
VALUE_OF_A_ROUND: Final = 1000
#: The second stage of max-min fairness may give up this share of the first.
_KEPT: Final = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Work:
    """One job, or what stands for many alike.

    Attributes:
        name: For errors.
        gpus: Of one type, that it uses together.
        speeds: Work a second of the whole job by GPU type, in any unit; types that are missing
            cannot run it.
        weight: Of max-min fairness.
        least_speed: What it needs on average, in the unit of ``speeds``; of the cost policy.
    """

    name: str
    gpus: int
    speeds: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0
    least_speed: float = 0.0

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError(f"{self.name}.gpus", "at least 1", self.gpus)
        for model, speed in self.speeds.items():
            require_number(f"{self.name}.speeds.{model}", speed, minimum=0, maximum=1e12)
        require_number(f"{self.name}.weight", self.weight, exclusive_minimum=0, maximum=1e9)
        require_number(f"{self.name}.least_speed", self.least_speed, minimum=0, maximum=1e12)


def max_min_shares(
    works: Sequence[Work],
    gpus: Mapping[str, int],
    *,
    had: Integers | None = None,
    ahead: int = 1,
) -> Floats:
    """Shares of time that raise the slowest as far as it goes, then all others together.

    A work's speed counts in multiples of what an equal share of all types would give it, over its
    weight and times its GPUs, as in 4.1: work on one GPU gets as many GPU seconds as work on eight.

    Args:
        works: All that compete.
        gpus: How many there are of each type.
        had: Rounds that each work has had on each type, shape (works, types): who got less than
            others catches up over the rounds ahead. None: nobody has run.
        ahead: Rounds for which the shares are meant.

    Returns:
        Shape (works, types) in the order of ``gpus``; rows sum to at most 1.

    Raises:
        InputError: for work that no type can run, or no GPU.
    """
    speeds, needs = _tables(works, gpus)
    equal = np.array([gpus[model] for model in gpus], dtype=np.float64) / sum(gpus.values())
    ratios = speeds * (needs / (speeds @ equal) / [work.weight for work in works])[:, None]
    before = np.zeros(len(works)) if had is None else (ratios * had).sum(axis=1)
    rows, room = _room(needs, gpus)
    # One variable more: the smallest sum of ratios over rounds.
    slowest = np.hstack([-ahead * _block_diagonal(ratios), np.ones((len(works), 1))])
    rows = np.hstack([rows, np.zeros((len(rows), 1))])
    cost = np.zeros(rows.shape[1])
    cost[-1] = -1.0
    limits = np.concatenate([room, before])
    first = _solved(cost, np.vstack([rows, slowest]), limits)
    cost[:-1], cost[-1] = -ratios.ravel(), 0.0
    second = _solved(cost, np.vstack([rows, slowest]), limits, least_last=first[-1] * _KEPT)
    return _shares(second[:-1], needs, gpus)


def least_cost_shares(
    works: Sequence[Work], gpus: Mapping[str, int], price: Mapping[str, float]
) -> Floats:
    """The cheapest shares of time in which each work gets its ``least_speed`` on average (4.2).

    Args:
        works: With what they need.
        gpus: How many there are of each type.
        price: Of an hour of one GPU of each type, in any currency.

    Returns:
        Shape (works, types) in the order of ``gpus``.

    Raises:
        InputError: for work that no type can run, or needs that do not fit together.
    """
    speeds, needs = _tables(works, gpus)
    for work in works:
        if work.least_speed > max(work.speeds.values()):
            field_name = f"{work.name}.least_speed"
            raise InputError(field_name, "at most its best speed", work.least_speed)
    rows, room = _room(needs, gpus)
    cost = needs[:, None] * np.array([price[model] for model in gpus])
    least = np.array([work.least_speed for work in works])
    matrix = np.vstack([rows, -_block_diagonal(speeds)])
    found = _solved(cost.ravel(), matrix, np.concatenate([room, -least]))
    return _shares(found, needs, gpus)


def round_values(shares: Floats, had: Integers, round_number: int) -> Integers:
    """What the next round on each type is worth to each work: the rounds that it is owed there.

    Values lead rounds of whole GPUs to the shares, since what is not given stays owed (5).

    Args:
        shares: Shape (works, types).
        had: Rounds that each work has had on each type, shape (works, types).
        round_number: Of the next one; the first is 1.

    Returns:
        Shape (works, types), ``VALUE_OF_A_ROUND`` for one round owed, never negative.
    """
    owed = np.maximum(shares * round_number - had, 0.0)
    return np.asarray(np.rint(owed * VALUE_OF_A_ROUND), dtype=np.int64)


def due_models(values: Integers, models: Sequence[str]) -> tuple[str, ...]:
    """Types on which a work's next round is due: a quarter of a round is owed there.

    For policies that leave GPUs idle, such as least cost: work without any waits for its turn.

    Args:
        values: Of one work, shape (types,).
        models: The types in order.
    """
    return tuple(m for m, v in zip(models, values, strict=True) if 4 * v >= VALUE_OF_A_ROUND)


def rounds_waited(values: Integers, share: float) -> int:
    """For how many rounds a work has waited for those that it is owed, given its share of time.

    As a priority it bounds how long anybody waits: plans place what fills most GPUs of a tier.

    Args:
        values: Of one work, shape (types,).
        share: Of time that the policy wants for it on all types together.
    """
    return int(values.sum() / (VALUE_OF_A_ROUND * share)) if share > 0.0 else 0


# -- linear programs -------------------------------------------------------------------------------


def _tables(works: Sequence[Work], gpus: Mapping[str, int]) -> tuple[Floats, Floats]:
    """Speeds, (works, types), and GPUs of each work, (works,)."""
    if not gpus or min(gpus.values()) < 0 or not sum(gpus.values()):
        raise InputError("gpus", "at least one GPU, none negative", dict(gpus))
    speeds = np.array([[work.speeds.get(model, 0.0) for model in gpus] for work in works])
    usable = np.array([count > 0 for count in gpus.values()])
    for work, row in zip(works, speeds, strict=True):
        if not (row[usable] > 0).any():
            raise InputError(f"{work.name}.speeds", "a speed on a GPU type that is there", row)
    return speeds, np.array([work.gpus for work in works], dtype=np.float64)


def _room(needs: Floats, gpus: Mapping[str, int]) -> tuple[Floats, Floats]:
    """Rows and limits: a work's time is at most all of it, a type's GPUs at most those there."""
    works, types = len(needs), len(gpus)
    time = np.repeat(np.eye(works), types, axis=1)
    boards = np.tile(np.eye(types), works) * np.repeat(needs, types)
    limits = np.concatenate([np.ones(works), np.array(list(gpus.values()), dtype=np.float64)])
    return np.vstack([time, boards]), limits


def _block_diagonal(table: Floats) -> Floats:
    """Each work's row over its own variables, shape (works, works * types)."""
    works, types = table.shape
    return np.repeat(np.eye(works), types, axis=1) * table.ravel()


def _solved(cost: Floats, rows: Floats, limits: Floats, *, least_last: float = 0.0) -> Floats:
    """The cheapest point below the limits, all variables at least 0.

    Raises:
        InputError: where there is none.
    """
    # Only here: whoever reads a snapshot would pay 25 MiB for it.
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    bounds = [(0.0, None)] * (len(cost) - 1) + [(least_last, None)]
    found = linprog(cost, A_ub=csr_array(rows), b_ub=limits, bounds=bounds, method="highs")
    if found.x is None:
        raise InputError("works", "needs that the GPUs can meet together", found.message)
    return np.asarray(found.x, dtype=np.float64)


def _shares(point: Floats, needs: Floats, gpus: Mapping[str, int]) -> Floats:
    """The point as shares, (works, types); by what the solver went beyond a limit, all give way."""
    counts = np.array(list(gpus.values()), dtype=np.float64)
    shares = np.clip(point, 0.0, 1.0).reshape(len(needs), len(counts)) * (counts > 0)
    shares /= np.maximum(1.0, shares.sum(axis=1, keepdims=True))
    return np.asarray(shares / np.maximum(1.0, needs @ shares / np.maximum(1.0, counts)))
