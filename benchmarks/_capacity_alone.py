"""A recorded server as capacity's serving model alone tells it: no queues of the twin, no plant.

What ``wattpack plan serving`` asks (``Deployment``: kernels' prices, its engine's constants, the
regulator's hold on the limit) is asked here for the very requests of a recording, at their times,
with the server's own batching. The way to a server behind a network (15 ms) is left out: this one
got its requests in its own process. Nothing is fitted to the recordings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks._served_runs import Floats, ServedRun
from benchmarks._twin_server import Batching
from capacity.kernels import NumberFormat
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import BatchingRules
from capacity.serving.run_energy import board_watts
from capacity.serving.served_requests import OpenLoop, Size
from capacity.serving.server_simulation import simulate

NUMBER_FORMAT: Final[NumberFormat] = "bf16"
"""Of the recorded server's weights and caches (``data/h200_served/PROVENANCE.md``)."""


@dataclass(frozen=True, slots=True)
class CapacityRun:
    """What the model says of one run.

    Attributes:
        watts: Means over seconds of the run, (n_seconds,).
        first_token_seconds: Of requests that ended within the run, (n_ended,).
        per_token_seconds: Of those with more than one token, (n_further,).
    """

    watts: Floats
    first_token_seconds: Floats
    per_token_seconds: Floats


def capacity_alone(
    gpu: str, language_model: str, served: ServedRun, batching: Batching
) -> CapacityRun:
    """The model's own server on one board under the recording's requests."""
    rules = BatchingRules(
        batching.chunk_tokens, chunked=True, largest_batch=batching.max_batch, admission="whole"
    )
    model = find_language_model(language_model)
    deployment = Deployment(model, gpu, 1, NUMBER_FORMAT, NUMBER_FORMAT, rules=rules)
    asked = served.requests
    sizes = [
        Size(int(prompt), int(output))
        for prompt, output in zip(asked.prompt_tokens, asked.output_tokens, strict=True)
    ]
    run = simulate(
        OpenLoop(asked.arrival_seconds.tolist(), sizes),
        deployment.clock(),
        rules,
        deployment.cache_tokens,
        limit=deployment.governor(),
    )
    means, spans = board_watts(deployment, run)
    seconds = np.repeat(means, spans.astype(np.int64))
    rest = np.full(max(0, round(served.seconds) - len(seconds)), deployment.prices.gap_watts)
    ended = [one for one in run.requests if one.last <= served.seconds]
    return CapacityRun(
        np.concatenate([seconds, rest])[: round(served.seconds)],
        np.array([one.ttft for one in ended]),
        np.array([one.tpot for one in ended if one.output > 1]),
    )
