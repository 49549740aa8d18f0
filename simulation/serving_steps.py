"""What replicas get done in a step of the twin, and what their GPUs would draw meanwhile.

While prompts wait, iterations carry a chunk of them beside the decodes; the rest of the step they
decode alone, as long as an answer needs it. Both kinds of iteration take their time and draw from
the replica's step table. Boards that are held back lower their clock: seconds that scale with it
stretch by one depth, the others do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capacity.step_table import Iterations, IterationWork, StepTable, StepTables

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

STOPPED = 1e-6
"""Drawn over wanted watts below which a board does no work: it is lost, or has no power."""

WHOLE = 1e-6
"""Share of an iteration that rounding may leave."""

SHARED_ITERATION = 32.0
"""Answers that share an iteration where only the order of replicas matters."""

STEADY_TURNS = 30
"""The batch of a steady state is a fixed point: iterations take longer with it."""

LEAST_BATCH, MOST_BATCH = 1.0, 512.0
"""Of iterations that decode at all, and of the step tables."""


class BoardState(NamedTuple):
    """How the GPUs of each replica are held back, each (slots,).

    Attributes:
        drawn_over_wanted: Watts drawn over watts wanted at the present clock lock, of the GPU that
            is held back most; 1 where nothing is, 0 where a GPU does no work.
        clock_ratio: Lowest locked clock over highest clock, 1 without a lock.
        decode_knee_ratio: Clock ratio above which decode keeps its speed.
    """

    drawn_over_wanted: Floats
    clock_ratio: Floats
    decode_knee_ratio: float


class Queued(NamedTuple):
    """Work in front of each replica, each (slots,).

    Attributes:
        prompt_tokens: Of prompts that may be processed now.
        prompt_length: Mean length of the prompts that a waiting token belongs to.
        batch: Requests that decode.
        context: Mean tokens that each of them attends to.
        turns_left: Iterations until the longest of them is done.
    """

    prompt_tokens: Floats
    prompt_length: Floats
    batch: Floats
    context: Floats
    turns_left: Floats


class Done(NamedTuple):
    """What a step did, each (slots,).

    Attributes:
        prompt_tokens: Processed.
        prompt_share: Share of the step, from its beginning, in which iterations carried prompts.
        turns: Iterations that decoded.
        busy_share: Share of the step, from its beginning, in which iterations ran.
        busy_watts: Draw in that time without a limit, spread over the step.
    """

    prompt_tokens: Floats
    prompt_share: Floats
    turns: Floats
    busy_share: Floats
    busy_watts: Floats


class StepClock:
    """The step tables of all slots.

    Args:
        n_slots: Most replicas at one time.
    """

    def __init__(self, n_slots: int) -> None:
        self._known: dict[tuple[str, str, int], int] = {}
        self._listed: list[StepTable] = []
        self._stacked: StepTables | None = None
        self._table = np.zeros(n_slots, dtype=np.intp)
        self._chunk_tokens = np.ones(n_slots)
        self._chunk = np.ones(n_slots)  # of the iteration under way
        self._into_chunk = np.zeros(n_slots)  # tokens of it that are done; 0: none is under way
        self._token_seconds = np.ones(n_slots)
        self._turn_seconds = np.ones(n_slots)

    def put(self, slot: int, table: StepTable, chunk_tokens: int) -> None:
        """Let a slot iterate by a table."""
        if table.key not in self._known:
            self._known[table.key] = len(self._listed)
            self._listed.append(table)
            self._stacked = StepTables.of(self._listed)
        self._table[slot] = self._known[table.key]
        self._chunk_tokens[slot] = chunk_tokens
        self._into_chunk[slot] = 0.0
        chunk = table.iteration(IterationWork.of(chunk_tokens, chunk_tokens, 0, 1))
        self._token_seconds[slot] = chunk.seconds[0] / chunk_tokens
        self._turn_seconds[slot] = table.iteration(IterationWork.of(0, 1, 1, 1)).seconds[0]

    def work_seconds(self, prompt_tokens: Floats, answer_tokens: Floats) -> Floats:
        """About how long the queues take at full speed, to order replicas by, (slots,)."""
        answers = answer_tokens * self._turn_seconds / SHARED_ITERATION
        return np.asarray(prompt_tokens * self._token_seconds + answers)

    def advance(self, seconds: float, queued: Queued, boards: BoardState) -> Done:
        """What the queued work gets done in ``seconds``."""
        used = np.flatnonzero((queued.prompt_tokens > 0) | (queued.batch > 0))
        n = len(self._table)
        done = Done(*(np.zeros(n) for _ in Done._fields))
        if len(used) and self._stacked is not None:
            part = self._advance_used(used, seconds, Queued(*(column[used] for column in queued)),
                                      boards)  # fmt: skip
            for whole, values in zip(done, part, strict=True):
                whole[used] = values
        return done

    def _advance_used(
        self, used: Integers, seconds: float, queued: Queued, boards: BoardState
    ) -> Done:
        """As ``advance``, of the slots that have work, each (used,)."""
        chunk = self._chunk_sizes(used, queued)
        mixed = self._iterations(used, chunk, queued)
        plain = self._iterations(used, np.zeros(len(used)), queued)
        prompt_share = chunk / np.maximum(chunk + queued.batch, 1.0)
        mixed_seconds = self._held_seconds(used, mixed, prompt_share, boards)
        plain_seconds = self._held_seconds(used, plain, np.zeros(len(used)), boards)
        turns = np.where(chunk > 0, queued.prompt_tokens / np.maximum(chunk, 1e-9), 0.0)
        mixed_turns = np.minimum(turns, seconds / mixed_seconds)
        with_prompts = mixed_turns * mixed_seconds
        needed = np.maximum(0.0, queued.turns_left - mixed_turns) * (queued.batch > 0)
        plain_turns = np.minimum(needed, (seconds - with_prompts) / plain_seconds)
        alone = plain_turns * plain_seconds
        self._remember(used, chunk, mixed_turns * chunk, queued)
        return Done(
            prompt_tokens=mixed_turns * chunk,
            prompt_share=with_prompts / seconds,
            turns=np.where(queued.batch > 0, mixed_turns + plain_turns, 0.0),
            busy_share=(with_prompts + alone) / seconds,
            busy_watts=(with_prompts * mixed.watts + alone * plain.watts) / seconds,
        )

    def _chunk_sizes(self, used: Integers, queued: Queued) -> Floats:
        """Prompt tokens of an iteration: one that is under way keeps its size, (used,)."""
        room = np.maximum(1.0, self._chunk_tokens[used] - queued.batch)
        pieces = np.ceil(queued.prompt_tokens / room)
        fresh = queued.prompt_tokens / np.maximum(pieces, 1.0)
        size = np.where(self._into_chunk[used] > 0, self._chunk[used], fresh)
        return np.where(queued.prompt_tokens > 0, size, 0.0)

    def _remember(self, used: Integers, chunk: Floats, tokens: Floats, queued: Queued) -> None:
        """How far the iteration under way has come at the end of the step."""
        size = np.maximum(chunk, 1.0)
        turns = (self._into_chunk[used] + tokens) / size
        part = turns - np.floor(turns + WHOLE)
        under_way = (part > WHOLE) & (queued.prompt_tokens - tokens > WHOLE * size)
        self._chunk[used] = chunk
        self._into_chunk[used] = np.where(under_way, part * size, 0.0)

    def _iterations(self, used: Integers, prompt_tokens: Floats, queued: Queued) -> Iterations:
        assert self._stacked is not None
        length = np.maximum(queued.prompt_length, 1.0)
        work = IterationWork(prompt_tokens, length, queued.batch, np.maximum(queued.context, 1.0))
        return self._stacked.iterations(self._table[used], work)

    def _held_seconds(
        self, used: Integers, made: Iterations, prompt_share: Floats, boards: BoardState
    ) -> Floats:
        """Seconds of an iteration on boards as they are held back now, (used,)."""
        assert self._stacked is not None
        ratio, clock = boards.drawn_over_wanted[used], boards.clock_ratio[used]
        depth = self._stacked.depth(
            self._table[used], made.watts, made.watts * np.maximum(ratio, STOPPED)
        )
        # A locked clock slows what follows it; decode waits for memory down to a knee.
        at_knee = np.maximum(0.0, boards.decode_knee_ratio / clock - 1.0)
        locked = prompt_share * (1.0 / clock - 1.0) + (1.0 - prompt_share) * at_knee
        slowed = made.stretched_seconds(depth + locked)
        return np.asarray(np.where(ratio > STOPPED, slowed, made.seconds / STOPPED))


def steady_state(
    table: StepTable,
    requests_per_second: Floats,
    prompt_tokens: float,
    answer_tokens: float,
    chunk_tokens: float,
) -> tuple[Floats, Floats]:
    """Share of the time in which one replica iterates, and its draw without a limit spread over it.

    Prompts take the share of iterations that they need; the batch is what keeps up with the
    answers (Little's law), at most what fits the rest of the time; it is empty at times, as often
    as a Poisson count of that mean.

    Args:
        requests_per_second: That arrive at the replica, (n,).
        prompt_tokens: Mean of a request.
        answer_tokens: Mean of a request.
        chunk_tokens: Most tokens of one iteration.

    Returns:
        Busy share and watts, each (n,).
    """
    tables, n = StepTables.of([table]), len(requests_per_second)
    which, ones = np.zeros(n, dtype=np.intp), np.ones(n)
    context = ones * (prompt_tokens + 0.5 * answer_tokens)
    length = ones * max(1.0, prompt_tokens)
    batch = ones.copy()
    for _ in range(STEADY_TURNS):
        chunk = np.maximum(1.0, np.minimum(chunk_tokens - batch, prompt_tokens))
        mixed = tables.iterations(which, IterationWork(chunk, length, batch, context))
        plain = tables.iterations(which, IterationWork(0.0 * ones, length, batch, context))
        turns = requests_per_second * prompt_tokens / chunk
        prompts = np.minimum(1.0, turns * mixed.seconds)
        per_second = prompts / mixed.seconds + (1.0 - prompts) / plain.seconds
        wanted = requests_per_second * answer_tokens / per_second
        batch = np.sqrt(batch * np.clip(wanted, LEAST_BATCH, MOST_BATCH))
    alone = (1.0 - prompts) * (1.0 - np.exp(-wanted))
    return prompts + alone, prompts * mixed.watts + alone * plain.watts
