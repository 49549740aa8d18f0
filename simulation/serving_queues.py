"""Language model servers as queues: prompts first in, first out; answers decoded together.

One replica iterates as ``capacity`` says: base + prompt tokens + context tokens, each divided by
the speed that its GPUs have now (a cap lowers it). Within a step of the twin the queues are fluid:

    prompts ──> prefill (FIFO, a share of each iteration) ──> decode (all together) ──> done

Prompt progress is counted in tokens and decode progress in iterations since the replica began, so
each request is followed exactly: it decodes once the tokens up to it are processed, and is done
when the iterations since then reach its answer's length. Times are interpolated inside a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capacity.serving_model import ServingTimes
from simulation.arrivals import Requests

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the replicas did in one step.

    Attributes:
        prefill_share: Share of the step spent on prompts, (slots,).
        decode_share: Share of the step spent on answers alone, (slots,).
        service: Service of each finished request, (finished,).
        latency_seconds: Arrival to last token, (finished,).
        first_token_seconds: Arrival to first token, (finished,).
        tokens: Prompt and output tokens of each finished request, (finished,).
        arrived_seconds: When each finished request came, (finished,).
    """

    prefill_share: Floats
    decode_share: Floats
    service: Integers
    latency_seconds: Floats
    first_token_seconds: Floats
    tokens: Floats
    arrived_seconds: Floats


_REQUEST = np.dtype(
    [
        ("service", np.int64),
        ("slot", np.int64),  # -1: waits for a replica
        ("arrived", np.float64),
        ("prompt", np.float64),
        ("output", np.float64),
        ("prefill_target", np.float64),
        ("first_token", np.float64),
        ("decode_target", np.float64),  # infinite until its prompt is processed
    ]
)


class ServingFleet:
    """All replicas of all services; a slot number stays with a replica while it lives.

    Args:
        n_slots: Most replicas at one time.
    """

    def __init__(self, n_slots: int) -> None:
        self._service = np.full(n_slots, -1, dtype=np.int64)
        self._base_seconds = np.ones(n_slots)
        self._prefill_seconds = np.ones(n_slots)
        self._context_seconds = np.zeros(n_slots)
        self._max_batch = np.ones(n_slots)
        self._chunk_tokens = np.ones(n_slots)
        self._prompts_in = np.zeros(n_slots)  # tokens queued since the replica began
        self._prompts_done = np.zeros(n_slots)
        self._iterations = np.zeros(n_slots)
        self._buffer: NDArray[np.void] = np.zeros(1024, dtype=_REQUEST)
        self._count = 0

    @property
    def _requests(self) -> NDArray[np.void]:
        """A view of the requests under way."""
        return self._buffer[: self._count]

    @property
    def in_flight(self) -> int:
        """Requests that arrived and are not finished."""
        return self._count

    def waiting_since(self, service: int) -> Floats:
        """When each request of a service that is not finished arrived, seconds."""
        mine = self._requests["service"] == service
        return np.asarray(self._requests["arrived"][mine], dtype=np.float64)

    def add(
        self, service: int, times: ServingTimes, max_batch: int, prefill_chunk_tokens: int
    ) -> int:
        """Start a replica; its slot."""
        slot = int(np.flatnonzero(self._service < 0)[0])
        self._service[slot] = service
        self._base_seconds[slot] = times.base_seconds
        self._prefill_seconds[slot] = times.prefill_seconds_per_token
        self._context_seconds[slot] = times.context_seconds_per_token
        self._max_batch[slot] = max_batch
        self._chunk_tokens[slot] = prefill_chunk_tokens
        self._prompts_in[slot] = self._prompts_done[slot] = self._iterations[slot] = 0.0
        return slot

    def remove(self, slot: int) -> None:
        """Stop a replica; its requests begin again elsewhere, their waiting goes on."""
        self._service[slot] = -1
        lost = self._requests["slot"] == slot
        self._requests["slot"][lost] = -1
        self._requests["first_token"][lost] = np.nan
        self._requests["decode_target"][lost] = np.inf

    def arrive(self, service: int, requests: Requests) -> None:
        """Queue new requests of a service."""
        end = self._count + len(requests)
        if end > len(self._buffer):
            larger = np.zeros(2 * end, dtype=_REQUEST)
            larger[: self._count] = self._requests
            self._buffer = larger
        new = self._buffer[self._count : end]
        new["service"] = service
        new["slot"] = -1
        new["arrived"] = requests.arrival_seconds
        new["prompt"] = requests.prompt_tokens
        new["output"] = requests.output_tokens
        new["first_token"] = np.nan
        new["decode_target"] = np.inf
        self._count = end

    def step(
        self, begin_seconds: float, seconds: float, prefill_speed: Floats, decode_speed: Floats
    ) -> StepResult:
        """Serve for one step.

        Args:
            begin_seconds: Start of the step.
            seconds: Its length.
            prefill_speed: Relative speed of prompt work at the present caps, (slots,).
            decode_speed: Relative speed of decode work, (slots,).
        """
        self._dispatch()
        r = self._requests
        slot = r["slot"]
        placed = slot >= 0
        decoding = placed & np.isfinite(r["decode_target"])
        batch, context = self._batch(r[decoding])
        turn_seconds = (self._base_seconds + context * self._context_seconds) / decode_speed
        token_seconds = self._prefill_seconds / prefill_speed
        prompt_work = (self._prompts_in - self._prompts_done) * token_seconds
        most = self._chunk_tokens * token_seconds
        share = np.where(batch > 0, most / (most + turn_seconds), 1.0)
        # A full batch takes no new prompts.
        share = np.where(batch >= self._max_batch, 0.0, share)
        prefill = np.minimum(prompt_work, share * seconds)
        decode = np.where(batch > 0, seconds - prefill, 0.0)
        tokens = prefill / token_seconds
        turns = decode / turn_seconds
        result = self._advance(begin_seconds, seconds, tokens, turns, decoding)
        return StepResult(prefill / seconds, decode / seconds, *result)

    def _batch(self, decoding: NDArray[np.void]) -> tuple[Floats, Floats]:
        """Requests that decode and tokens of context that they read, each (slots,)."""
        n = len(self._service)
        slot = decoding["slot"]
        batch = np.bincount(slot, minlength=n).astype(np.float64)
        context = np.bincount(slot, decoding["prompt"] + 0.5 * decoding["output"], minlength=n)
        return batch, context.astype(np.float64)

    def _dispatch(self) -> None:
        """Give waiting requests to the replicas of their service with the least work ahead."""
        waiting = np.flatnonzero(self._requests["slot"] < 0)
        if not len(waiting):
            return
        load = self._work_ahead_seconds()
        for service in np.unique(self._requests["service"][waiting]):
            slots = np.flatnonzero(self._service == service)
            mine = waiting[self._requests["service"][waiting] == service]
            if len(slots):
                order = slots[np.argsort(load[slots], kind="stable")]
                self._assign(mine, order[np.arange(len(mine)) % len(order)])

    def _assign(self, index: NDArray[np.intp], slots: Integers) -> None:
        r = self._requests
        r["slot"][index] = slots
        prompts = r["prompt"][index]
        # Targets of requests that share a slot follow one another in order of arrival.
        order = np.argsort(slots, kind="stable")
        sums = np.cumsum(prompts[order])
        first = np.searchsorted(slots[order], slots[order])
        before = np.where(first > 0, sums[first - 1], 0.0)
        r["prefill_target"][index[order]] = self._prompts_in[slots[order]] + sums - before
        np.add.at(self._prompts_in, slots, prompts)

    def _work_ahead_seconds(self) -> Floats:
        """Seconds of work that each replica has in its queues, at full speed, (slots,)."""
        r = self._requests
        placed = r["slot"] >= 0
        n = len(self._service)
        answers = np.bincount(r["slot"][placed], r["output"][placed], minlength=n)
        queued = (self._prompts_in - self._prompts_done) * self._prefill_seconds
        # About 32 requests share an iteration; only the order of replicas matters here.
        return np.asarray(queued + answers * self._base_seconds / 32.0, dtype=np.float64)

    def _advance(
        self, begin: float, seconds: float, tokens: Floats, turns: Floats, decoding: Bools
    ) -> tuple[Integers, Floats, Floats, Floats, Floats]:
        """Move all requests by the tokens and iterations of the step; the finished ones."""
        r = self._requests
        done_before, turns_before = self._prompts_done.copy(), self._iterations.copy()
        self._prompts_done = np.minimum(self._prompts_in, self._prompts_done + tokens)
        self._iterations = self._iterations + turns
        slot = r["slot"]
        finished = decoding & (r["decode_target"] <= self._iterations[slot])
        share = (r["decode_target"][finished] - turns_before[slot[finished]]) / np.maximum(
            turns[slot[finished]], 1e-12
        )
        end = begin + seconds * np.clip(share, 0.0, 1.0)
        gone = r[finished]  # a copy: the rows are reused below
        started = np.flatnonzero(
            (slot >= 0) & ~decoding & (r["prefill_target"] <= self._prompts_done[slot] + 1e-6)
        )
        where = slot[started]
        share = (r["prefill_target"][started] - done_before[where]) / np.maximum(
            tokens[where], 1e-12
        )
        first = begin + seconds * np.clip(share, 0.0, 1.0)
        r["first_token"][started] = np.maximum(first, r["arrived"][started])
        r["decode_target"][started] = self._iterations[where] + r["output"][started] - 1.0
        if len(gone):
            kept = r[~finished]
            self._count = len(kept)
            self._buffer[: self._count] = kept
        latency = np.maximum(end - gone["arrived"], 0.0)
        waited = gone["first_token"] - gone["arrived"]
        tokens_done = gone["prompt"] + gone["output"]
        return gone["service"].copy(), latency, waited, tokens_done, gone["arrived"].copy()
