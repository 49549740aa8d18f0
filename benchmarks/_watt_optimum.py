"""What a budget of watts can buy at most, and what plain divisions of it buy.

The optimum knows the truth of every board: weights over all ways to hold each board, one linear
program over all boards (HiGHS), so that no step of value and no order of filling is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from benchmarks._watt_plant import Board, Floats
from wattpack.errors import InputError


def optimum(boards: Sequence[Board], budget_watts: float, *, locks: bool) -> float:
    """Work of all boards, in boards at full speed.

    Raises:
        InputError: where not even the lowest limits fit.
    """
    ways = [board.points(locks=locks) for board in boards]
    draws, speeds = (np.concatenate(part) for part in zip(*ways, strict=True))
    owner = np.repeat(np.arange(len(boards)), [len(draw) for draw, _ in ways])
    one = coo_array((np.ones(len(owner)), (owner, np.arange(len(owner)))))
    found = linprog(
        -speeds, A_ub=vstack([coo_array(draws[np.newaxis])]), b_ub=[budget_watts],
        A_eq=one, b_eq=np.ones(len(boards)), bounds=(0, None), method="highs",
    )  # fmt: skip
    if not found.success:
        raise InputError("budget_watts", "watts that the lowest limits fit into", budget_watts)
    return float(-found.fun)


def work_at(boards: Sequence[Board], caps: Floats) -> tuple[float, float]:
    """Work and true watts of all boards under these limits."""
    held = np.array([board.at(cap, 1.0) for board, cap in zip(boards, caps, strict=True)])
    return float(held[:, 0].sum()), float(held[:, 1].sum())


def uniform_caps(boards: Sequence[Board], share: float) -> Floats:
    """Every board at one share of its default limit."""
    return np.array([max(board.caps[0], share * board.caps[-1]) for board in boards])


def uniform_work_of(boards: Sequence[Board], watts: float) -> float:
    """Work under uniform caps that let this much be drawn, all of it where no cap is needed."""
    least, most = 0.0, 1.0
    for _ in range(40):
        share = (least + most) / 2
        fits = work_at(boards, uniform_caps(boards, share))[1] <= watts
        least, most = (share, most) if fits else (least, share)
    return work_at(boards, uniform_caps(boards, least))[0]


def proportional_caps(boards: Sequence[Board], budget_watts: float) -> Floats:
    """The budget in proportion to what each board draws without a limit, inside its range."""
    asked = np.array([board.draw[-1] / board.gain for board in boards])
    low = np.array([board.caps[0] for board in boards])
    high = np.array([board.caps[-1] for board in boards])
    least, most = 0.0, float((high / asked).max())
    for _ in range(60):
        level = (least + most) / 2
        fits = np.clip(level * asked, low, high).sum() <= budget_watts
        least, most = (level, most) if fits else (least, level)
    return np.clip(least * asked, low, high)
