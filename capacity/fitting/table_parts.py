"""The excerpt of an iteration's priced kernels that ships as a step table."""

from __future__ import annotations

import numpy as np

from capacity.serving.step_costs import PricedSteps, StepCosts
from capacity.step_table import (
    BATCHES,
    CONTEXTS,
    PART_SHAPES,
    SEQUENCES,
    TOKENS,
    Floats,
    StepPart,
)


def table_parts(priced: PricedSteps) -> dict[str, StepPart]:
    """The four parts of one GPU's share of a decoder, on the grids of step tables."""
    seconds, joules, clock = (
        _parts(costs) for costs in (priced.seconds, priced.joules, priced.clock)
    )
    return {name: StepPart(seconds[name], joules[name], clock[name]) for name in PART_SHAPES}


def _parts(costs: StepCosts) -> dict[str, Floats]:
    tokens = np.array(TOKENS)
    batch, context = np.meshgrid(BATCHES, CONTEXTS, indexing="ij")
    decodes = costs.decode_attention_of(batch.ravel(), context.ravel().astype(np.float64))
    return {
        "layers": costs.products[tokens] + costs.sums[tokens] + costs.passes[tokens],
        "head": costs.outputs[np.array(SEQUENCES)],
        "prompt_attention": costs.piece_attention,
        "decode_attention": decodes.reshape(batch.shape),
    }
