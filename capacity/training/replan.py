"""When to leave a plan for a better one: not for a pause, and only where the gain pays the moves.

Caps and links change for a while that nobody knows beforehand. A change has to have lasted longer
than the move takes, and than two minutes, so that a pause never causes one. Then the job moves if
what it loses now, over the time that such changes still last on average, is worth the way there and
back; or, as in the ski rental, once that much has been lost already.

Source: Karlin et al. 1988, Competitive snoopy caching (Algorithmica 3, section 2) for the rental.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from capacity.training.link_matrix import LinkMatrix
from capacity.training.plan_values import ParallelPlan
from capacity.training.training_job import ParallelLayout, TrainingJob
from capacity.training.training_memory import MASTER_BYTES, WEIGHT_BYTES
from wattpack.units import require_number

__all__ = ["Move", "ReplanRule", "best_move", "reshard_seconds"]

RESTART_SECONDS: Final = 30.0
"""Draining the step, new process groups, first step anew; assumed."""


DWELL_SECONDS: Final = 120.0
"""A change no longer than this is a pause whatever a move costs: caps go up and down by the minute
(restoring dwells 30 to 60 s), and waiting costs a few seconds of the hour that a move is for."""

REMAINING_SECONDS: Final = 1800.0
"""That a change which has outlived a pause lasts on, whatever its age; assumed."""


@dataclass(frozen=True, slots=True)
class ReplanRule:
    """What has been lost since one plan became the best one; a value, one a tick.

    Attributes:
        target: Name of that plan.
        elapsed_seconds: Since then; ``lost_seconds`` of its time were lost by not running it.
    """

    target: str = ""
    elapsed_seconds: float = 0.0
    lost_seconds: float = 0.0

    def after(
        self, elapsed_seconds: float, target: str, step_seconds: float, best_step_seconds: float
    ) -> Self:
        """The rule once this much time has passed on the running plan.

        Args:
            target: The best plan known for present caps and links. Another one than before starts
                the count again: what was lost to another state says nothing about this one.
            step_seconds: Of the running plan under present caps and links.
            best_step_seconds: Of the target.
        """
        require_number("elapsed_seconds", elapsed_seconds, minimum=0)
        require_number("best_step_seconds", best_step_seconds, exclusive_minimum=0)
        require_number("step_seconds", step_seconds, exclusive_minimum=0)
        share = max(0.0, 1 - best_step_seconds / step_seconds)
        before = self if target == self.target else type(self)(target)
        return replace(
            before,
            elapsed_seconds=before.elapsed_seconds + elapsed_seconds,
            lost_seconds=before.lost_seconds + share * elapsed_seconds,
        )

    def moves(self, price_seconds: float, remaining_seconds: float | None = None) -> bool:
        """Whether to re-plan now.

        Args:
            price_seconds: Of the move, one way.
            remaining_seconds: To the end of the present state, None where nobody knows it. What
                has been lost already says nothing about a state whose end is known.
        """
        if self.elapsed_seconds <= max(price_seconds, DWELL_SECONDS) or self.lost_seconds <= 0:
            return False
        share = self.lost_seconds / self.elapsed_seconds
        if remaining_seconds is not None:
            return share * remaining_seconds >= 2 * price_seconds
        return max(share * REMAINING_SECONDS, self.lost_seconds) >= 2 * price_seconds


@dataclass(frozen=True, slots=True)
class Move:
    """A plan that a job could go over to.

    Attributes:
        step_seconds: Under present caps and links; ``lost_share`` of the running plan's time is
            lost by staying, negative where the running plan is the faster one.
        price_seconds: Without work, one way.
    """

    plan: ParallelPlan
    step_seconds: float
    price_seconds: float
    lost_share: float

    def gain_seconds(self, lasting_seconds: float) -> float:
        """Of work if the state lasts on for this long, the way there and back paid."""
        return self.lost_share * lasting_seconds - 2 * self.price_seconds

    @property
    def pays_after_seconds(self) -> float:
        """How long a state has to last on for the move to pay; infinite if it never does."""
        return 2 * self.price_seconds / self.lost_share if self.lost_share > 0 else float("inf")

    def begins_seconds(self, lasting_seconds: float | None = None) -> float:
        """After the change, when the rule moves; infinite if it never does.

        Args:
            lasting_seconds: Of the change, None where nobody knows.
        """
        earliest = max(self.price_seconds, DWELL_SECONDS)
        if self.lost_share <= 0:
            return float("inf")
        if lasting_seconds is not None:
            pays = lasting_seconds - earliest >= self.pays_after_seconds
            return earliest if pays else float("inf")
        return earliest if self.pays_after_seconds <= REMAINING_SECONDS else self.pays_after_seconds


def best_move(
    job: TrainingJob,
    links: LinkMatrix,
    running: ParallelPlan,
    plans: Sequence[ParallelPlan],
    lasting_seconds: float = REMAINING_SECONDS,
) -> Move:
    """The faster plan that gains the most: often one that moves few layers, not the fastest.

    Staying, where none is faster.

    Args:
        running: The job's plan, and ``plans`` others, as priced under present caps and links.
        lasting_seconds: That these are expected to last on.
    """
    others = [
        Move(
            plan,
            plan.step_seconds,
            reshard_seconds(job, running, plan, links),
            1 - plan.step_seconds / running.step_seconds,
        )
        for plan in plans
    ]
    faster = [move for move in others if move.lost_share > 0]
    if not faster:
        return Move(running, running.step_seconds, 0.0, 0.0)
    return max(faster, key=lambda move: move.gain_seconds(lasting_seconds))


def reshard_seconds(
    job: TrainingJob, old: ParallelPlan, new: ParallelPlan, links: LinkMatrix
) -> float:
    """Seconds without work when the job goes over from one plan to the other.

    Each GPU fetches the layers that it did not hold, from another one over the slowest link there
    is; cuts that differ inside a layer fetch all of it. Then the job restarts.
    """
    if _same(old, new):
        return 0.0
    before, after = _held(old, links.gpus), _held(new, links.gpus)
    alike = _cut(old.layout) == _cut(new.layout)
    fetched = after & ~before if alike else after
    most = float(fetched.sum(axis=1).max())
    state = WEIGHT_BYTES + MASTER_BYTES + 2 * job.optimizer_bits / 8
    dealt = job.expert_parameters_per_layer
    each = job.parameters_per_layer - dealt + dealt / new.layout.expert
    size = most * each / new.layout.tensor * state
    off = ~np.eye(links.gpus, dtype=np.bool_)
    slowest = links.bytes_per_second[off].min() if links.gpus > 1 else np.inf
    return RESTART_SECONDS + size / float(slowest)


def _cut(layout: ParallelLayout) -> tuple[int, ...]:
    """What decides which part of a layer a rank holds."""
    return layout.tensor, layout.zero_stage, layout.replicas, layout.expert


def _same(old: ParallelPlan, new: ParallelPlan) -> bool:
    return (
        old.layout == new.layout
        and old.layers == new.layers
        and np.array_equal(old.ranks, new.ranks)
    )


def _held(plan: ParallelPlan, gpus: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which GPU holds a share of which layer, shape (n_gpus, n_layers)."""
    held = np.zeros((gpus, sum(plan.layers)), dtype=np.bool_)
    first = 0
    for stage, count in zip(plan.ranks, plan.layers, strict=True):
        held[stage.ravel(), first : first + count] = True
        first += count
    return held
