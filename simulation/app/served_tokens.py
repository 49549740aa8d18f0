"""Tokens a second of each service, as its servers would tell them, and what fills a board.

    finished requests (Ledger, a counter) ──> TokenMeter ──> tokens a second ──> history

The counter is what ``vllm:prompt_tokens_total`` and ``vllm:generation_tokens_total`` tell together.
It begins anew with the accounts at the end of the warm-up, as one does when a server restarts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork
from simulation.scenario import Scenario, ServiceSettings
from simulation.traces import shipped_trace
from simulation.world import World
from wattpack.units import NS_PER_SECOND


def token_series(service: str) -> str:
    """Name of a service's load in the history, prompt and answer tokens a second."""
    return f"workload_served_tokens/{service}"


def usual_tokens_per_second(scenario: Scenario, service: ServiceSettings) -> float:
    """Mean over the trace of what a service serves, tokens a second; 0 without replicas."""
    if not service.replicas:
        return 0.0
    trace = shipped_trace(service.trace)
    tokens = float(trace.prompt_tokens.sum() + trace.output_tokens.sum())
    return tokens / trace.length_seconds * scenario.trace_rate_factor * service.rate_weight


def full_tokens_per_board(world: World, service: ServiceSettings) -> float:
    """What one GPU of a service serves at its default limit, prompt and answer tokens a second.

    Its replica's batch is full all the time: iterations with a chunk of a prompt as often as
    prompts need them, the others decode alone as often as answers need them beside.

    Args:
        world: The type of its first server counts for all.
        service: With mean prompts and answers of its trace.
    """
    trace = shipped_trace(service.trace)
    prompt, answer = float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean())
    profile = world.profiles[world.profile_of_node[0]]
    table = shipped_step_tables().find(
        profile.model, service.language_model, service.tensor_parallel
    )
    batch = float(service.max_batch)
    # An iteration that has no room for a prompt beside the decodes carries one token of it.
    chunk = max(1.0, service.prefill_chunk_tokens - batch)
    context = prompt + 0.5 * answer
    mixed = table.iteration(IterationWork.of(chunk, max(1.0, prompt), batch, context))
    plain = table.iteration(IterationWork.of(0.0, max(1.0, prompt), batch, context))
    with_prompts = prompt / chunk
    alone = max(0.0, answer / batch - with_prompts)
    seconds = with_prompts * float(mixed.seconds[0]) + alone * float(plain.seconds[0])
    return (prompt + answer) / seconds / service.tensor_parallel


class TokenMeter:
    """Rates out of the counters of finished tokens.

    Args:
        world: Whose services are metered.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: tuple[int, NDArray[np.float64]] | None = None

    def rates(self, wall_time_ns: int) -> dict[str, float]:
        """Tokens a second since the last call by service; empty at the first.

        Args:
            wall_time_ns: Now; an earlier call's or the same tells nothing.
        """
        counts = np.array(self._world.ledger.tokens, dtype=np.float64)
        last, self._last = self._last, (wall_time_ns, counts)
        if last is None or wall_time_ns <= last[0]:
            return {}
        # A counter that fell began anew at zero.
        rises = np.where(counts < last[1], counts, counts - last[1])
        seconds = (wall_time_ns - last[0]) / NS_PER_SECOND
        names = [workload.name for workload in self._world.workloads]
        return dict(zip(names, (rises / seconds).tolist(), strict=True))
