"""What a server takes and draws, by phase; here eight A100 with BLOOM-176B.

Measured: Splitwise's performance model (``capacity/data/phase_times``). A prompt is processed
alone; answers decode together, one token each at a time. The table's peak power is taken as the
draw of prompts and its average as the draw of decode: the average hardly moves with the prompt's
length, which the mean over a whole request would. No power is published above 16 requests and none
by batch beyond 512 tokens of prompt: there the nearest known value holds.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from capacity.profile_library import shipped_library

Floats = NDArray[np.float64]

A100_MODEL = "A100-SXM"

TDP_WATTS = 400.0
"""A100 SXM4 80 GB: default and highest power limit."""

MAX_CLOCK_MHZ = 1410.0
"""A100 SXM4: highest SM clock."""

TABLE_PROMPT_TOKENS = 512
"""Prompt length of the table's rows by batch."""

MAX_BATCH = 32
"""Requests that decode together at most: the measured rows go to 64, power to 16."""

KV_TOKENS = 58_000
"""Tokens that fit: (0.9 x 8 x 80 GB - 352 GB of weights) / (70 layers x 2 x 14336 x 2 B)."""

TOKEN_WORK_BATCH = 8
"""An answer's token counts as work what it takes at this batch, over the batch."""


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """The measured points as arrays to interpolate in, and what a server can hold.

    Attributes:
        gpu_model: Of its boards, a name of capacity's profiles.
        tdp_watts: Default limit of a board.
        idle_watts: Of a board without work.
        kv_tokens: That fit beside the weights.
        prompt_tokens: Lengths measured alone, ascending, (p,).
        prompt_seconds: Of one prompt, (p,).
        prompt_ratio: GPU draw over TDP in the prompt phase, at most 1: the boards' limit, (p,).
        token_seconds_by_batch: Of one token of every request, index = batch, (max_batch + 1,).
        token_seconds_per_context: Added for each token attended to beyond ``TABLE_PROMPT_TOKENS``
            a request.
        decode_ratio: GPU draw over TDP in decode, by context alone, (p,).
        batch_ratio: Factor on it, index = batch, (max_batch + 1,).
    """

    gpu_model: str
    tdp_watts: float
    idle_watts: float
    kv_tokens: float
    prompt_tokens: Floats
    prompt_seconds: Floats
    prompt_ratio: Floats
    token_seconds_by_batch: Floats
    token_seconds_per_context: float
    decode_ratio: Floats
    batch_ratio: Floats

    def seconds_of_prompt(self, tokens: Floats) -> Floats:
        """Full-speed seconds of prompts, (n,); beyond the table the last slope goes on."""
        inside = np.interp(tokens, self.prompt_tokens, self.prompt_seconds)
        last = np.diff(self.prompt_seconds[-2:])[0] / np.diff(self.prompt_tokens[-2:])[0]
        beyond = np.maximum(0.0, tokens - self.prompt_tokens[-1]) * last
        return np.asarray(inside + beyond, dtype=np.float64)

    def watts_of_prompt(self, tokens: Floats) -> Floats:
        """Draw of one board while prompts are processed, (n,)."""
        return np.asarray(self.tdp_watts * np.interp(tokens, self.prompt_tokens, self.prompt_ratio))

    def seconds_of_token(self, batch: NDArray[np.int64], context_tokens: Floats) -> Floats:
        """Full-speed seconds in which every request of a batch gets one token, (n,).

        Args:
            batch: Requests that decode together, (n,).
            context_tokens: Tokens that all of them attend to, summed, (n,).
        """
        beyond = context_tokens - TABLE_PROMPT_TOKENS * batch
        base = self.token_seconds_by_batch[batch]
        return np.asarray(
            np.maximum(0.9 * base, base + self.token_seconds_per_context * beyond), dtype=np.float64
        )

    def watts_of_decode(self, batch: NDArray[np.int64], context_tokens: Floats) -> Floats:
        """Draw of one board while answers decode, (n,)."""
        mean = context_tokens / np.maximum(batch, 1)
        alone = np.interp(mean, self.prompt_tokens, self.decode_ratio)
        return np.asarray(self.tdp_watts * alone * self.batch_ratio[batch], dtype=np.float64)

    @property
    def max_batch(self) -> int:
        """Requests that decode together at most."""
        return len(self.batch_ratio) - 1

    @property
    def work_seconds_per_token(self) -> float:
        """Work of one answer token, full-speed seconds."""
        return float(self.token_seconds_by_batch[TOKEN_WORK_BATCH]) / TOKEN_WORK_BATCH


@lru_cache(maxsize=1)
def bloom_on_a100() -> ServerTimes:
    """The measured table."""
    file = resources.files("capacity") / "data" / "phase_times" / "bloom_176b_a100.csv"
    rows = [
        {name: float(cell) for name, cell in row.items()}
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    ]
    alone = sorted((r for r in rows if r["batch"] == 1), key=lambda r: r["prompt_tokens"])
    by_batch = sorted(
        (r for r in rows if r["prompt_tokens"] == TABLE_PROMPT_TOKENS), key=lambda r: r["batch"]
    )
    tokens = np.array([r["prompt_tokens"] for r in alone])
    token_seconds = np.array([r["token_ms"] for r in alone]) / 1e3
    powered = [r for r in by_batch if r["average_power_ratio"] > 0]
    batches = np.arange(MAX_BATCH + 1, dtype=np.float64)
    ratios = np.array([r["average_power_ratio"] for r in powered])
    return ServerTimes(
        gpu_model=A100_MODEL,
        tdp_watts=TDP_WATTS,
        idle_watts=shipped_library().find(A100_MODEL).idle_watts,
        kv_tokens=float(KV_TOKENS),
        prompt_tokens=tokens,
        prompt_seconds=np.array([r["prompt_ms"] for r in alone]) / 1e3,
        prompt_ratio=np.minimum(1.0, [r["peak_power_ratio"] for r in alone]),
        token_seconds_by_batch=np.interp(
            batches, [r["batch"] for r in by_batch], [r["token_ms"] / 1e3 for r in by_batch]
        ),
        token_seconds_per_context=float(np.polyfit(tokens, token_seconds, 1)[0]),
        decode_ratio=np.array([r["average_power_ratio"] for r in alone]),
        batch_ratio=np.interp(batches, [r["batch"] for r in powered], ratios / ratios[0]),
    )
