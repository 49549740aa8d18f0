"""Time and draw of one iteration of a language model server, as a continuous function.

What an iteration computes falls into four parts whose seconds and joules add up (so do those of
kernels, ``capacity.model.step_model``), each tabled on a grid and interpolated in logarithms::

    layers (tokens)  +  head (sequences)  +  prompt attention (tokens, prompt)
                     +  decode attention (batch, context)  +  what the host takes

``tokens`` counts prompt tokens and decoding sequences together. There are no classes: an iteration
of decodes alone, of a prompt alone and every mixture of both come out of the same sum. Each part
holds a third figure, the seconds that scale with the clock, so that one depth of throttling gives
the time under any limit (``capacity.model.regulator``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from capacity.gpu_profile import Provenance
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

TOKENS: Final = (
    1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192,
    16384,
)  # fmt: skip
SEQUENCES: Final = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512)
CHUNKS: Final = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PROMPTS: Final = (64, 256, 1024, 4096, 16384, 65536)
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXTS: Final = (64, 256, 1024, 2048, 4096, 16384, 65536)

GRIDS: Final[Mapping[str, tuple[tuple[int, ...], ...]]] = {
    "layers": (TOKENS,),
    "head": (SEQUENCES,),
    "prompt_attention": (CHUNKS, PROMPTS),
    "decode_attention": (BATCHES, CONTEXTS),
}

PART_SHAPES: Final = {name: tuple(len(axis) for axis in axes) for name, axes in GRIDS.items()}

SWEPT_CAPS: Final = tuple(round(0.1 + 0.05 * i, 2) for i in range(19))
"""Cap over the draw at the default limit, in even steps to 1."""

LEAST: Final = 1e-12
"""Stands for no seconds where a logarithm follows."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of an iteration on its grid, arrays of one shape.

    Attributes:
        seconds: At full clock.
        joules: Drawn meanwhile, without a limit.
        clock_seconds: Of the seconds, those that scale with the clock.
    """

    seconds: Floats
    joules: Floats
    clock_seconds: Floats


@dataclass(frozen=True, slots=True)
class HeldBoard:
    """How a board that is held back slows its work.

    Near the limit its own rows tell (``capacity.model.regulator``); they never wanted more than 1.4
    times what they got. Of deeper caps only sweeps of other types know, so the larger of the two
    depths counts.

    Attributes:
        reach: Depth for work that would draw twice what the board is held at.
        bend: How depth grows with the excess.
        held_share: Mean draw over limit while the board regulates.
        swept_depth: Of the swept types at ``SWEPT_CAPS``, falling to 0.
    """

    reach: float
    bend: float
    held_share: float
    swept_depth: tuple[float, ...]

    def depth(
        self, wanted_watts: Floats, drawn_watts: Floats, default_limit_watts: float
    ) -> Floats:
        """As ``StepTables.depth``, of one board."""
        n = len(wanted_watts)
        response = _Responses.of([self], [default_limit_watts])
        return response.depth(np.zeros(n, dtype=np.intp), wanted_watts, drawn_watts)


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Mean absolute relative errors, each held out; what was held out stands in ``kind``.

    Attributes:
        time: Of an iteration's seconds at the limit it was measured under.
        draw: Of its mean draw, where the limit does not set it.
        cap_response: Of the slow-down at the limit.
        kind: What was predicted from what.
    """

    time: float
    draw: float
    cap_response: float
    kind: str


@dataclass(frozen=True, slots=True)
class StepTable:
    """One language model on one GPU type at one parallelism; seconds and joules are of each GPU.

    Attributes:
        gpu: Model name of the GPU profile.
        language_model: For example ``llama-3.1-70b``.
        precision: Of the weights and of the products.
        tensor_parallel: GPUs that work as one server.
        parts: By the names of ``PART_SHAPES``.
        host_seconds: What an iteration takes besides its kernels.
        host_watts: Drawn meanwhile.
        held: The board's response to its limit.
        default_limit_watts: Of the type.
        errors: Of time, draw and cap response apart.
        provenance: The weakest of what the figures rest on.
        source: Which rows and which rule, in words.
    """

    gpu: str
    language_model: str
    precision: str
    tensor_parallel: int
    parts: Mapping[str, StepPart]
    host_seconds: float
    host_watts: float
    held: HeldBoard
    default_limit_watts: float
    errors: StepErrors
    provenance: Provenance
    source: str

    def iteration(self, work: IterationWork) -> Iterations:
        """Iterations of this one table."""
        which = np.zeros(len(work.batch), dtype=np.intp)
        return StepTables.of([self]).iterations(which, work)

    def limited_seconds(self, made: Iterations, limit_watts: float) -> Floats:
        """What iterations of this one table take under a limit, (n,)."""
        tables, which = StepTables.of([self]), np.zeros(len(made.seconds), dtype=np.intp)
        held = tables.held_watts(which, np.full(len(made.seconds), limit_watts))
        depth = tables.depth(which, made.watts, np.minimum(made.watts, held))
        return made.stretched_seconds(depth)

    @property
    def key(self) -> tuple[str, str, int]:
        """GPU, language model and parallelism."""
        return self.gpu, self.language_model, self.tensor_parallel


@dataclass(frozen=True, slots=True)
class IterationWork:
    """What iterations compute, each array (n,).

    Attributes:
        prompt_tokens: Tokens of prompts; 0 for decode alone.
        prompt_length: Length of the prompts that they belong to.
        batch: Sequences that decode; 0 for prompts alone.
        context: Mean tokens that each of them attends to.
    """

    prompt_tokens: Floats
    prompt_length: Floats
    batch: Floats
    context: Floats

    @classmethod
    def of(cls, prompt_tokens: float, prompt_length: float, batch: float, context: float) -> Self:
        """One iteration."""
        values = (prompt_tokens, prompt_length, batch, context)
        return cls(*(np.array([float(value)]) for value in values))


@dataclass(frozen=True, slots=True)
class Iterations:
    """Iterations at full clock without a limit, each array (n,).

    Attributes:
        seconds: Of one iteration.
        joules: Of each GPU.
        clock_seconds: Of the seconds, those that scale with the clock.
    """

    seconds: Floats
    joules: Floats
    clock_seconds: Floats

    @property
    def watts(self) -> Floats:
        """Mean draw of each GPU without a limit, (n,)."""
        return self.joules / self.seconds

    def stretched_seconds(self, depth: Floats) -> Floats:
        """Seconds with the clock that far down, (n,)."""
        return np.asarray(self.seconds + depth * self.clock_seconds)


@dataclass(frozen=True, slots=True)
class _Responses:
    """Several boards' responses to being held back; the first axis is the board."""

    reach: Floats
    bend: Floats
    held_share: Floats
    default_held_watts: Floats
    swept_depth: Floats

    @classmethod
    def of(cls, boards: Sequence[HeldBoard], default_limit_watts: Sequence[float]) -> Self:
        shares = np.array([board.held_share for board in boards])
        return cls(
            np.array([board.reach for board in boards]),
            np.array([board.bend for board in boards]),
            shares,
            shares * np.array(default_limit_watts),
            np.array([board.swept_depth for board in boards]),
        )

    def depth(self, which: Integers, wanted_watts: Floats, drawn_watts: Floats) -> Floats:
        """See ``StepTables.depth``."""
        at_default = np.minimum(wanted_watts, self.default_held_watts[which])
        near = self._own(which, wanted_watts / drawn_watts)
        base = self._own(which, wanted_watts / at_default)
        deep = (1.0 + base) * (1.0 + self._swept(which, drawn_watts / at_default)) - 1.0
        return np.asarray(np.maximum(near, deep))

    def _own(self, which: Integers, wanted_over_drawn: Floats) -> Floats:
        excess = np.maximum(0.0, wanted_over_drawn - 1.0)
        return np.asarray(self.reach[which] * excess ** self.bend[which])

    def _swept(self, which: Integers, cap_share: Floats) -> Floats:
        """The sweeps' depth; below their lowest caps speed falls in proportion."""
        lowest, steps = SWEPT_CAPS[0], len(SWEPT_CAPS) - 1
        inside = np.clip(cap_share, lowest, 1.0)
        place = (inside - lowest) / (1.0 - lowest) * steps
        low = np.minimum(place.astype(np.intp), steps - 1)
        depth = self.swept_depth[which, low] * (1.0 - (place - low))
        depth += self.swept_depth[which, low + 1] * (place - low)
        below = inside / np.clip(cap_share, LEAST, inside)
        return np.asarray((1.0 + depth) * below - 1.0)


@dataclass(frozen=True, slots=True)
class StepTables:
    """Several tables as arrays; the first axis is the table.

    Attributes:
        tables: In order.
    """

    tables: tuple[StepTable, ...]
    _logs: dict[str, Floats]
    _host_seconds: Floats
    _host_joules: Floats
    _responses: _Responses

    @classmethod
    def of(cls, tables: Sequence[StepTable]) -> Self:
        """These tables.

        Raises:
            InputError: none, or a grid of another shape.
        """
        if not tables:
            raise InputError("tables", "at least one table", 0)
        logs = {}
        for name, shape in PART_SHAPES.items():
            stacked = np.array([
                [table.parts[name].seconds, table.parts[name].joules,
                 table.parts[name].clock_seconds]
                for table in tables
            ])  # fmt: skip
            if stacked.shape != (len(tables), 3, *shape):
                raise InputError(name, f"arrays of shape {shape}", stacked.shape)
            logs[name] = np.log(np.maximum(stacked, LEAST))

        def column(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=np.float64)

        host = column([table.host_seconds for table in tables])
        return cls(
            tuple(tables),
            logs,
            host,
            host * column([table.host_watts for table in tables]),
            _Responses.of(
                [table.held for table in tables], [table.default_limit_watts for table in tables]
            ),
        )

    def iterations(self, which: Integers, work: IterationWork) -> Iterations:
        """One iteration each, (n,).

        Args:
            which: Table of each, (n,).
            work: What they compute; an iteration without tokens takes the host's time alone.
        """
        sequences = work.batch + work.prompt_tokens / np.maximum(work.prompt_length, 1.0)
        total = (
            self._line("layers", TOKENS, which, work.prompt_tokens + work.batch)
            + self._line("head", SEQUENCES, which, sequences)
            + self._plane("prompt_attention", (CHUNKS, PROMPTS), which,
                          (work.prompt_tokens, work.prompt_length))
            + self._plane("decode_attention", (BATCHES, CONTEXTS), which,
                          (work.batch, work.context))
        )  # fmt: skip
        return Iterations(
            total[0] + self._host_seconds[which], total[1] + self._host_joules[which], total[2]
        )

    def depth(self, which: Integers, wanted_watts: Floats, drawn_watts: Floats) -> Floats:
        """How far the clock of held boards falls, 0 where nothing is held back, (n,).

        Args:
            which: Table of each, (n,).
            wanted_watts: What the work would draw without a limit, (n,).
            drawn_watts: What the board lets it draw, (n,).
        """
        return self._responses.depth(which, wanted_watts, drawn_watts)

    def held_watts(self, which: Integers, limit_watts: Floats) -> Floats:
        """Mean draw of boards that regulate at a limit, (n,)."""
        return np.asarray(self._responses.held_share[which] * limit_watts)

    def _line(self, part: str, grid: Sequence[float], which: Integers, at: Floats) -> Floats:
        """Seconds, joules and clock seconds of a part with one axis, (3, n)."""
        low, share = _place(grid, at)
        logs = self._logs[part]
        left, right = logs[which, :, low].T, logs[which, :, low + 1].T
        return np.exp(left + share * (right - left)) * (at > 0)

    def _plane(
        self, part: str, grids: tuple[Sequence[float], Sequence[float]], which: Integers,
        at: tuple[Floats, Floats],
    ) -> Floats:  # fmt: skip
        """The same of a part with two axes."""
        (i, a), (j, b) = (_place(grid, values) for grid, values in zip(grids, at, strict=True))
        logs = self._logs[part]
        near = logs[which, :, i, j].T * (1 - b) + logs[which, :, i, j + 1].T * b
        far = logs[which, :, i + 1, j].T * (1 - b) + logs[which, :, i + 1, j + 1].T * b
        # Below the smallest size the part shrinks with it.
        return np.exp(near + a * (far - near)) * (at[0] > 0)


def _place(grid: Sequence[float], at: Floats) -> tuple[Integers, Floats]:
    """Lower grid point of each value and how far it lies towards the next, in logarithms.

    Beyond the grid the last two points go on as a power law; below it the first holds.
    """
    points = np.log(np.asarray(grid, dtype=np.float64))
    x = np.maximum(np.log(np.maximum(at, LEAST)), points[0])
    low = np.clip(np.searchsorted(points, x, side="right") - 1, 0, len(points) - 2)
    return low, (x - points[low]) / (points[low + 1] - points[low])
