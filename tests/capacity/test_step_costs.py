"""What an iteration's surfaces answer between their nodes, beside the kernels priced one by one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from capacity.decoder_kernels import DecoderShare, TokenGroup
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import EngineConstants, find_engine
from capacity.serving.step_costs import IterationLoads

SERVERS = [("llama-3.1-8b", "H200-SXM", 1), ("llama-3.1-70b", "H100-SXM", 2)]
CHUNKS = [
    (16, 8000), (16, 65_000), (24, 120_000), (100, 30_000), (512, 0), (512, 15_872),
    (700, 3000), (2048, 30_000), (3000, 0), (6000, 1000), (8192, 8192), (8192, 57_000),
]  # fmt: skip
"""Tokens of a prompt in one iteration, and those of it that came before."""


def pairs_of(tokens: int, before: int) -> float:
    return tokens * (before + (tokens + 1) / 2)


@lru_cache(maxsize=4)
def served(model: str, gpu: str, gpus: int, prompt_attention: float = 1.0) -> Deployment:
    constants = EngineConstants(prompt_attention=prompt_attention, launch_layer_seconds=0.0)
    engine = replace(find_engine("vllm"), constants=constants)
    return Deployment(find_language_model(model), gpu, gpus, engine=engine)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: "-".join(map(str, server)))
def test_a_chunk_costs_what_its_own_kernels_do(server: tuple[str, str, int]) -> None:
    """Few tokens of a long prompt read all its keys: a whole prompt of as many pairs does not."""
    whole, without = served(*server), served(*server, prompt_attention=0.0)
    share = DecoderShare(whole.model, whole.tensor_parallel, whole.number_format)
    groups = [TokenGroup("prefill", 1, tokens, tokens + before) for tokens, before in CHUNKS]
    [kernels, counts] = zip(
        *(part for group in groups for part in share.attention(group)), strict=True
    )
    priced = whole.prices.price(kernels)
    direct = np.array(counts) * priced.seconds
    wanted = np.stack([direct, direct * priced.watts, direct * priced.clock_share], axis=1)

    def costs(deployment: Deployment) -> np.ndarray:
        clock = deployment.clock()
        return np.array([clock.prompt(0, 0.0, 1, t, pairs_of(t, before)) for t, before in CHUNKS])

    np.testing.assert_allclose(costs(whole) - costs(without), wanted, rtol=0.1)


def test_the_fit_of_the_constants_sees_the_same_seconds_as_the_simulation() -> None:
    deployment = served(*SERVERS[0])
    draw = np.random.default_rng(3)
    loads = IterationLoads(
        draw.integers(0, 300, 60),
        draw.integers(1, 9, 60),
        draw.integers(20, 20_000, 60),
        draw.uniform(1e4, 1e9, 60),
        draw.uniform(100, 100_000, 60),
    )
    constants = deployment.engine.constants.as_array()[:9]
    seconds = deployment.steps.seconds.terms(loads) @ constants
    clock = deployment.clock()
    for index, value in enumerate(seconds.tolist()):
        one = clock.prompt(
            int(loads.decodes[index]), float(loads.context[index]), int(loads.prompts[index]),
            int(loads.prompt_tokens[index]), float(loads.pairs[index]),
        )  # fmt: skip
        assert one[0] == pytest.approx(value, rel=1e-9)
