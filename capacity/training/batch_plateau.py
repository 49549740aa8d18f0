"""Whether a batch is of a size at which every sequence still teaches.

Source: the step law of Li et al. 2025 (Predictable Scale, arXiv 2503.04715), section 3: the best
batch is 0.58 D^0.571 tokens for a run of D tokens, with a flat optimum around it.
"""

from __future__ import annotations

from typing import Final

from capacity.training.training_job import ParallelLayout, TrainingJob

__all__ = ["batch_warnings", "best_batch_tokens"]

PLATEAU: Final = 2.0
"""A batch within this factor of the best one costs little; read off the paper's loss surfaces."""


def best_batch_tokens(training_tokens: float) -> float:
    """Tokens a step with the least final loss."""
    return 0.58 * float(training_tokens**0.571)


def batch_warnings(job: TrainingJob, layout: ParallelLayout) -> tuple[str, ...]:
    """What to say of the batch, empty if the run's length is not known."""
    if job.training_tokens is None:
        return ()
    best = best_batch_tokens(job.training_tokens)
    least = layout.data * layout.micro_batch * job.sequence_tokens
    said = []
    if not best / PLATEAU <= job.tokens <= best * PLATEAU:
        side = "above" if job.tokens > best else "below"
        said.append(
            f"{job.tokens:,} tokens a step lie {side} the plateau around {best:,.0f} that a run of "
            f"{job.training_tokens:.2g} tokens has"
        )
    if least > best * PLATEAU:
        said.append(
            f"data {layout.data} x micro-batch {layout.micro_batch} alone are {least:,} tokens: "
            "fewer replicas would stay on the plateau"
        )
    return tuple(said)
