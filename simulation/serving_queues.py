"""Language model servers as queues: prompts first in, first out; answers decoded together.

One replica iterates as ``capacity``'s step table says. While prompts wait, each iteration carries a
chunk of them beside one token of every answer; without, it decodes alone. Time and draw follow from
prompt tokens, batch and context as one function, and from how far the boards are held back. Within
a step of the twin the queues are fluid:

    prompts ──> chunks (FIFO, decodes beside them) ──> decode (all together) ──> done

Prompt progress is counted in tokens and decode progress in iterations since the replica began, so
each request is followed exactly: it decodes once the tokens up to it are processed, and is done
when the iterations since then reach its answer's length. Times are interpolated inside a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capacity.step_table import StepTable
from simulation.arrivals import Requests
from simulation.serving_steps import BoardState, Done, Queued, StepClock

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Replica(NamedTuple):
    """Constants of one server.

    Attributes:
        service: Whose requests it takes.
        table: Time and draw of its iterations.
        max_batch: Most requests that decode together.
        chunk_tokens: Most tokens of one iteration, prompts and decodes together.
    """

    service: int
    table: StepTable
    max_batch: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the replicas did in one step.

    Attributes:
        busy_share: Share of the step in which iterations ran, (slots,).
        busy_watts: Draw of each GPU of a replica in that time without a limit, spread over the
            whole step, (slots,).
        service: Service of each finished request, (finished,).
        latency_seconds: Arrival to last token, (finished,).
        first_token_seconds: Arrival to first token, (finished,).
        tokens: Prompt and output tokens of each finished request, (finished,).
        arrived_seconds: When each finished request came, (finished,).
        output_tokens: Of its answer, (finished,).
    """

    busy_share: Floats
    busy_watts: Floats
    service: Integers
    latency_seconds: Floats
    first_token_seconds: Floats
    tokens: Floats
    arrived_seconds: Floats
    output_tokens: Floats


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
        self._max_batch = np.ones(n_slots)
        self._clock = StepClock(n_slots)
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

    def decode_batch(self) -> Floats:
        """Requests that decode on each replica, (slots,)."""
        r = self._requests
        decoding = (r["slot"] >= 0) & np.isfinite(r["decode_target"])
        found = np.bincount(r["slot"][decoding], minlength=len(self._service))
        return found.astype(np.float64)

    def waiting_since(self, service: int) -> Floats:
        """When each request of a service that is not finished arrived, seconds."""
        mine = self._requests["service"] == service
        return np.asarray(self._requests["arrived"][mine], dtype=np.float64)

    def add(self, replica: Replica) -> int:
        """Start a replica; its slot."""
        slot = int(np.flatnonzero(self._service < 0)[0])
        self._service[slot] = replica.service
        self._max_batch[slot] = replica.max_batch
        self._clock.put(slot, replica.table, replica.chunk_tokens)
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

    def step(self, begin_seconds: float, seconds: float, boards: BoardState) -> StepResult:
        """Serve for one step.

        Args:
            begin_seconds: Start of the step.
            seconds: Its length.
            boards: How the GPUs of each slot are held back.
        """
        self._dispatch()
        decoding = (self._requests["slot"] >= 0) & np.isfinite(self._requests["decode_target"])
        queued = self._queued(decoding)
        done = self._clock.advance(seconds, queued, boards)
        result = self._advance(begin_seconds, seconds, done, decoding)
        return StepResult(done.busy_share, done.busy_watts, *result)

    def _queued(self, decoding: Bools) -> Queued:
        """The work that every replica has in front of it."""
        n, r = len(self._service), self._requests
        slot = r["slot"][decoding]
        batch = np.bincount(slot, minlength=n).astype(np.float64)
        half_done = r["prompt"][decoding] + 0.5 * r["output"][decoding]
        left = np.zeros(n)
        np.maximum.at(left, slot, r["decode_target"][decoding] - self._iterations[slot])
        waits = (r["slot"] >= 0) & ~decoding
        prompt = r["prompt"][waits]
        # A token meets a prompt as often as the prompt is long.
        long = np.bincount(r["slot"][waits], prompt**2, minlength=n)
        tokens = np.bincount(r["slot"][waits], prompt, minlength=n)
        return Queued(
            prompt_tokens=np.where(
                batch < self._max_batch, self._prompts_in - self._prompts_done, 0.0
            ),
            prompt_length=long / np.maximum(tokens, 1.0),
            batch=batch,
            context=np.bincount(slot, half_done, minlength=n) / np.maximum(batch, 1.0),
            turns_left=left,
        )

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
        answers = np.bincount(r["slot"][placed], r["output"][placed], minlength=len(self._service))
        queued = np.maximum(0.0, self._prompts_in - self._prompts_done)
        return self._clock.work_seconds(queued, answers.astype(np.float64))

    def _advance(
        self, begin: float, seconds: float, done: Done, decoding: Bools
    ) -> tuple[Integers, Floats, Floats, Floats, Floats, Floats]:
        """Move all requests by the tokens and iterations of the step; the finished ones."""
        r, tokens, turns = self._requests, done.prompt_tokens, done.turns
        done_before, turns_before = self._prompts_done.copy(), self._iterations.copy()
        self._prompts_done = np.minimum(self._prompts_in, self._prompts_done + tokens)
        self._iterations = self._iterations + turns
        slot = r["slot"]
        finished = decoding & (r["decode_target"] <= self._iterations[slot])
        share = (r["decode_target"][finished] - turns_before[slot[finished]]) / np.maximum(
            turns[slot[finished]], 1e-12
        )
        end = begin + seconds * done.busy_share[slot[finished]] * np.clip(share, 0.0, 1.0)
        gone = r[finished]  # a copy: the rows are reused below
        started = np.flatnonzero(
            (slot >= 0) & ~decoding & (r["prefill_target"] <= self._prompts_done[slot] + 1e-6)
        )
        where = slot[started]
        share = (r["prefill_target"][started] - done_before[where]) / np.maximum(
            tokens[where], 1e-12
        )
        first = begin + seconds * done.prompt_share[where] * np.clip(share, 0.0, 1.0)
        r["first_token"][started] = np.maximum(first, r["arrived"][started])
        r["decode_target"][started] = self._iterations[where] + r["output"][started] - 1.0
        if len(gone):
            kept = r[~finished]
            self._count = len(kept)
            self._buffer[: self._count] = kept
        latency = np.maximum(end - gone["arrived"], 0.0)
        waited = gone["first_token"] - gone["arrived"]
        output = gone["output"].copy()
        return (
            gone["service"].copy(),
            latency,
            waited,
            gone["prompt"] + output,
            gone["arrived"].copy(),
            output,
        )
