"""A server of eight H100 or H200 with a language model, in the form of ``ServerTimes``.

Times and draws come from capacity's step tables, which rest on kernels measured on such boards: one
iteration of a whole prompt at the default limit, and iterations of decode by batch and context. A
token of context takes the same time at any batch here, and batch and context move the draw
independently; the tables know better, by ``TIME_ERROR`` and ``DRAW_ERROR`` at most where batches
are up to 64 and contexts those of the row's requests (test).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from capacity.phase_times import TABLE_PROMPT_TOKENS, Floats, ServerTimes
from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork, StepTable

LANGUAGE_MODEL: Final = "llama-3.1-70b"
"""At tensor parallelism 8, so that a server is one replica as in the published row."""

BOARDS: Final = 8

PROMPT_TOKENS: Final = (128, 256, 512, 1024, 2048, 4096, 8192)
MAX_BATCH: Final = 128
"""Requests that decode together at most; assumed. Loads that keep first tokens within 0.5 s stay
below it."""

CONTEXT_TOKENS: Final = (512, 4096)
CONTEXT_BATCH: Final = 32
"""Where the cost of a token of context is taken from."""

DRAW_CONTEXT_TOKENS: Final = 3072.0
"""Where the draw by batch is taken from: about the mean context of POLCA's classes."""

TIME_ERROR: Final = 0.02
DRAW_ERROR: Final = 0.12

KV_BYTES_PER_TOKEN: Final = 80 * 2 * 8 * 128 * 2
"""Llama 3.1 70B: layers, keys and values, key-value heads, head size, 16 bit."""

WEIGHT_BYTES: Final = 70.6e9
"""Llama 3.1 70B in 8 bit, as the tables' precision is."""

MEMORY_SHARE: Final = 0.9


@lru_cache(maxsize=4)
def step_table_times(gpu_model: str, memory_bytes: float) -> ServerTimes:
    """A server of eight such boards.

    Args:
        gpu_model: A GPU type with a table of ``LANGUAGE_MODEL`` on eight boards.
        memory_bytes: Of one board.

    Raises:
        InputError: for a type without such a table.
    """
    table = shipped_step_tables().find(gpu_model, LANGUAGE_MODEL, BOARDS)
    limit = table.default_limit_watts
    tokens = np.array(PROMPT_TOKENS, dtype=np.float64)
    nothing = np.zeros(len(tokens))
    prompts = table.iteration(IterationWork(tokens, tokens, nothing, nothing + 1.0))
    batches = np.arange(1, MAX_BATCH + 1, dtype=np.float64)
    by_batch = _decode(table, batches, np.full(MAX_BATCH, float(TABLE_PROMPT_TOKENS)))[0]
    ends = np.array(CONTEXT_TOKENS, dtype=np.float64)
    of_context = _decode(table, np.full(2, float(CONTEXT_BATCH)), ends)[0]
    alone = _decode(table, np.ones(len(tokens)), tokens)[1]
    draws = _decode(table, batches, np.full(MAX_BATCH, DRAW_CONTEXT_TOKENS))[1]
    room = MEMORY_SHARE * BOARDS * memory_bytes - WEIGHT_BYTES
    return ServerTimes(
        gpu_model=gpu_model,
        tdp_watts=limit,
        idle_watts=shipped_library().find(gpu_model).idle_watts,
        kv_tokens=room / KV_BYTES_PER_TOKEN,
        prompt_tokens=tokens,
        prompt_seconds=table.limited_seconds(prompts, limit),
        prompt_ratio=np.minimum(1.0, prompts.watts / limit),
        token_seconds_by_batch=_from_none(by_batch),
        token_seconds_per_context=float(np.diff(of_context)[0] / np.diff(ends)[0] / CONTEXT_BATCH),
        decode_ratio=np.minimum(1.0, alone / limit),
        batch_ratio=_from_none(draws / draws[0]),
    )


def _decode(table: StepTable, batch: Floats, context: Floats) -> tuple[Floats, Floats]:
    """Seconds at the default limit and watts of decode iterations, (n,) each."""
    nothing = np.zeros(len(batch))
    made = table.iteration(IterationWork(nothing, nothing + 1.0, batch, context))
    return table.limited_seconds(made, table.default_limit_watts), made.watts


def _from_none(by_batch: Floats) -> Floats:
    """With a value for batch 0 before that of 1, (n + 1,)."""
    return np.concatenate([by_batch[:1], by_batch])
