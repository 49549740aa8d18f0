"""When to leave a plan for a better one: not for a pause, and only where the gain pays the moves.

Caps and links change for a while that nobody knows beforehand. A change has to have lasted longer
than the move takes, and than two minutes, so that a pause never causes one. Then the job moves if
what it loses now, over the time that such changes still last on average, is worth the way there and
back; or, as in the ski rental, once that much has been lost already.

Source: Karlin et al. 1988, Competitive snoopy caching (Algorithmica 3, section 2) for the rental.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from capacity.training.link_matrix import LinkMatrix
from capacity.training.plan_values import ParallelPlan
from capacity.training.training_job import TrainingJob
from capacity.training.training_memory import MASTER_BYTES, WEIGHT_BYTES
from wattpack.units import require_number

__all__ = ["ReplanRule", "reshard_seconds"]

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

    def moves(self, price_seconds: float, remaining_seconds: float = REMAINING_SECONDS) -> bool:
        """Whether to re-plan now.

        Args:
            price_seconds: Of the move, one way.
            remaining_seconds: That the present state is expected to last on; its known end where
                there is one.
        """
        if self.elapsed_seconds <= max(price_seconds, DWELL_SECONDS) or self.lost_seconds <= 0:
            return False
        ahead = self.lost_seconds / self.elapsed_seconds * remaining_seconds
        return max(ahead, self.lost_seconds) >= 2 * price_seconds


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
    cut = (old.layout.tensor, old.layout.zero_stage, old.layout.replicas)
    alike = cut == (new.layout.tensor, new.layout.zero_stage, new.layout.replicas)
    fetched = after & ~before if alike else after
    most = float(fetched.sum(axis=1).max())
    state = WEIGHT_BYTES + MASTER_BYTES + 2 * job.optimizer_bits / 8
    size = most * job.parameters_per_layer / new.layout.tensor * state
    off = ~np.eye(links.gpus, dtype=np.bool_)
    slowest = links.bytes_per_second[off].min() if links.gpus > 1 else np.inf
    return RESTART_SECONDS + size / float(slowest)


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
