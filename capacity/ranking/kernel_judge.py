"""The trial of one kernel: right on everything, then timed, by a judge that believes nothing.

The clock that ranks is the judge's own: it starts with the word to run and stops when the judge
holds a copy of all results, less what the same costs with no runs at all. Work that was put
elsewhere (a stream, a thread, a lazy value) is either in that time or missing from the results.
Every timed run has operands of its own that did not exist before, and each round's results are
checked on runs that the judge picks afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np

from capacity.bench.measurement_row import CacheState
from capacity.bench.quality import ROOF_TOLERANCE
from capacity.ranking.input_styles import NORMAL, InputStyle, styles
from capacity.ranking.kernel_host import Inspection, KernelHost, Memory, RoundReport, Sync, Trial
from capacity.ranking.kernel_source import KernelSource, require_fair_source
from capacity.ranking.kernel_verdict import (
    Doubt,
    KernelRefused,
    ShapeResult,
    Timing,
    Verdict,
)
from capacity.ranking.output_check import OutputError, output_error, require_right, untold
from capacity.ranking.ranked_task import Expected, RankedTask
from capacity.ranking.slot_layout import SlotLayout, operand_bytes, slot_bytes, slot_layout
from wattpack.errors import InputError

STREAM_RATIO: Final = 1.5
"""A round that waits for the whole device may take this much longer than one that waits for the
kernel's stream; CUDA-L2 refuses at the same ratio."""

WHOLE_TASK: Final = 0.9
"""A library call that does this share of the task's operations is the library, not a kernel."""

COLD_FACTOR: Final = 3
UNSTABLE: Final = 0.1
CLOCK_SECONDS: Final = 2e-5
"""What a round's own cost may vary by beyond what a few empty rounds show."""


@dataclass(frozen=True, slots=True)
class TrialRule:
    """How long a trial lasts.

    Attributes:
        rounds: Timed ones of each cache state, half of each way of waiting.
        wanted_runs: In a round, each on operands of its own.
        most_runs: In a round, where small operands need that many to fill the cache.
        checked_runs: Of each round, picked after it ended.
        empty_rounds: Without runs, to know what a round costs by itself.
        second_looks: Times that a doubted time is measured again.
    """

    rounds: int = 12
    wanted_runs: int = 64
    most_runs: int = 512
    checked_runs: int = 2
    empty_rounds: int = 5
    second_looks: int = 3


@dataclass(frozen=True, slots=True)
class _Round:
    """Per run."""

    sync: Sync
    wall_seconds: float
    worked_seconds: float
    claimed_seconds: float


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of a round without runs."""

    wall_seconds: float
    worked_seconds: float


class KernelJudge:
    """Tries kernels on one host.

    Args:
        seed: None draws one; a kernel that can know it can know the operands.
    """

    def __init__(self, host: KernelHost, rule: TrialRule, seed: int | None = None) -> None:
        self._host, self._rule = host, rule
        self._seed = random.SystemRandom().getrandbits(62) if seed is None else seed

    def require_telling(self, task: RankedTask) -> None:
        """A lazy answer has to be wrong.

        Raises:
            InputError: naming the lazy answer that the task would accept.
        """
        for style in styles(task):
            first, second = (self._expected(task, style, self._seed + i) for i in range(2))
            answer = untold(first, second)
            if answer is not None and style is NORMAL:
                raise InputError(
                    "shapes", "a task whose result cannot be guessed",
                    f"{task.describe()}: {answer} would pass",
                )  # fmt: skip

    def try_kernel(self, source: KernelSource, tasks: Sequence[RankedTask]) -> Verdict:
        """A verdict; what goes wrong in the kernel never leaves here as an exception."""
        rng = random.Random(self._seed)
        results: list[ShapeResult] = []
        doubts: set[Doubt] = set()
        reason = evidence = None
        minutes = 0.0
        try:
            if not source.trusted:
                require_fair_source(source, tasks[0].name)
            trial = self._host.open(source, max(map(self._arena_bytes, tasks)))
            try:
                for task in tasks:
                    result, doubted = _TaskTrial(self._host, self._rule, rng, trial, task).run(
                        first=not results, trusted=source.trusted
                    )
                    results.append(result)
                    doubts |= doubted
            finally:
                minutes = trial.close()
        except KernelRefused as refusal:
            reason, evidence = refusal.reason, refusal.evidence
        return Verdict(
            kernel=source.name,
            source_sha256=source.sha256,
            reason=reason,
            evidence=evidence or "",
            shapes=tuple(results),
            doubts=tuple(sorted(doubts)),
            device_minutes=minutes,
            seed=self._seed,
        )

    def _expected(self, task: RankedTask, style: InputStyle, seed: int) -> Expected:
        draw = self._host.generator(seed)
        operands = tuple(value * 1.0 for value in style.make(draw, task))
        return task.expected(operands, self._host.library)

    def _arena_bytes(self, task: RankedTask) -> int:
        wanted = max(
            *(slot_layout(task, n).nbytes for n in _slots(self._host, self._rule, task).values()),
            slot_layout(task, 2).nbytes,
            slot_layout(task.neighbour(), 2).nbytes,
        )
        if wanted > self._host.facts().memory_bytes:
            raise InputError("shapes", "one that fits the memory", task.describe())
        return wanted


def _slots(host: KernelHost, rule: TrialRule, task: RankedTask) -> dict[CacheState, int]:
    """Runs of a round by cache state; a state that cannot be had is not there."""
    facts = host.facts()
    fitting = max(2, int(facts.memory_bytes // slot_bytes(task)))
    cold = -(-int(COLD_FACTOR * facts.cache_bytes) // operand_bytes(task))
    warm = int(facts.cache_bytes / 2 // slot_bytes(task))
    slots: dict[CacheState, int] = {}
    if cold <= min(rule.most_runs, fitting):
        slots["cold"] = min(max(cold, rule.wanted_runs), fitting)
    if warm >= 2:
        slots["warm"] = min(warm, rule.wanted_runs)
    return slots or {"cold": fitting}


class _TaskTrial:
    """One kernel on one shape."""

    def __init__(
        self, host: KernelHost, rule: TrialRule, rng: random.Random, trial: Trial, task: RankedTask
    ) -> None:
        self._host, self._rule, self._rng = host, rule, rng
        self._trial, self._task = trial, task
        self._doubts: set[Doubt] = set()
        self._worst = 0.0
        self._before: Expected | None = None

    def run(self, *, first: bool, trusted: bool) -> tuple[ShapeResult, set[Doubt]]:
        """Everything, in the order of cost."""
        neighbour = self._task.neighbour()
        memory, layout = self._lay_out(neighbour, 2)
        if first:
            self._trial.load()
        self._verify(memory, layout, neighbour, (NORMAL,))
        memory, layout = self._lay_out(self._task, 2)
        self._verify(memory, layout, self._task, styles(self._task))
        self._repeat(memory, layout)
        timings = self._time_all()
        self._trial.require_alone()
        self._judge_inspection(self._trial.inspect(), trusted)
        return (
            ShapeResult(self._task.describe(), timings, self._worst),
            self._doubts,
        )

    def _lay_out(self, task: RankedTask, slots: int) -> tuple[Memory, SlotLayout]:
        layout = slot_layout(task, slots)
        return self._trial.use(layout), layout

    # -- is it right? ----------------------------------------------------------------------------

    def _verify(
        self, memory: Memory, layout: SlotLayout, task: RankedTask, wanted: Sequence[InputStyle]
    ) -> None:
        for style in wanted:
            for sync in ("device", "stream"):
                self._fill(memory, layout, task, style, range(len(layout.slots)))
                self._trial.run(range(len(layout.slots)), sync)
                for slot in range(len(layout.slots)):
                    self._check(memory, layout, task, slot, f"{task.describe()}, {style.name}")

    def _fill(
        self, memory: Memory, layout: SlotLayout, task: RankedTask, style: InputStyle,
        slots: Sequence[int],
    ) -> None:  # fmt: skip
        """New operands, never seen before; no result."""
        draw = self._host.generator(self._rng.getrandbits(62))
        for slot in slots:
            for place, values in zip(
                layout.slots[slot].operands, style.make(draw, task), strict=True
            ):
                memory.write(place, values)
        memory.make_ready()

    def _check(
        self, memory: Memory, layout: SlotLayout, task: RankedTask, slot: int, where: str
    ) -> None:
        places = layout.slots[slot].operands
        if not all(memory.unchanged(place) for place in places):
            raise KernelRefused("modified_inputs", f"{where}: an operand was written to")
        given = tuple(memory.operand(place) for place in places)
        expected = task.expected(given, self._host.library)
        result = memory.result(layout.slots[slot].result)
        error = output_error(result, expected)
        self._worst = max(self._worst, error.rms)
        if not error.right and not error.missing:
            self._require_fresh(result, expected, error, where)
        require_right(error, int(np.prod(task.output_shape)), where)
        self._before = expected

    def _require_fresh(
        self, result: Any, expected: Expected, error: OutputError, where: str
    ) -> None:
        """A wrong result that was right before is an old one."""
        before = self._before
        if before is None or before.value.shape != expected.value.shape:
            return
        if output_error(result, before).right:
            raise KernelRefused("stale_result", f"{where}: the result of earlier operands")

    def _repeat(self, memory: Memory, layout: SlotLayout) -> None:
        """The same operands twice."""
        self._fill(memory, layout, self._task, NORMAL, range(len(layout.slots)))
        results = []
        for _ in range(2):
            memory.make_ready()
            self._trial.run(range(len(layout.slots)), "device")
            results.append(memory.result(layout.slots[0].result))
            self._check(memory, layout, self._task, 0, "repeated")
        if not bool((results[0] == results[1]).all()):
            self._doubts.add("nondeterministic")

    # -- how long does it take? ------------------------------------------------------------------

    def _time_all(self) -> tuple[Timing, ...]:
        slots = _slots(self._host, self._rule, self._task)
        return tuple(self._time(state, count) for state, count in slots.items())

    def _time(self, cache_state: CacheState, slots: int) -> Timing:
        memory, layout = self._lay_out(self._task, slots)
        empty = [self._empty(memory) for _ in range(self._rule.empty_rounds)]
        cost = _Cost(min(r.wall_seconds for r in empty), min(r.worked_seconds for r in empty))
        middle_cost = float(np.median([r.worked_seconds for r in empty]))
        noise = (middle_cost - cost.worked_seconds + CLOCK_SECONDS) / slots
        self._one_round(memory, layout, "device", cost)  # the first one warms everything up
        rounds: list[_Round] = []
        doubt: KernelRefused | None = None
        for _ in range(self._rule.second_looks + 1):
            order: list[Sync] = ["device", "stream"] * (self._rule.rounds // 2)
            self._rng.shuffle(order)
            rounds += [self._one_round(memory, layout, sync, cost) for sync in order]
            doubt = _doubted_time(rounds, noise)
            if doubt is None:
                break
        if doubt is not None:
            raise doubt
        own = [r.wall_seconds for r in rounds if r.sync == "device"]
        low, middle, high = (float(x) for x in np.quantile(own, (0.1, 0.5, 0.9)))
        self._require_possible(cache_state, middle)
        spread = float(np.std(own) / np.mean(own))
        if spread > UNSTABLE:
            self._doubts.add("unstable_time")
        claimed = float(np.median([r.claimed_seconds for r in rounds]))
        return Timing(cache_state, middle, low, high, spread, len(own) * slots, claimed)

    def _empty(self, memory: Memory) -> RoundReport:
        memory.make_ready()
        return self._trial.run((), "device")

    def _one_round(self, memory: Memory, layout: SlotLayout, sync: Sync, cost: _Cost) -> _Round:
        slots = range(len(layout.slots))
        self._fill(memory, layout, self._task, NORMAL, slots)
        report = self._trial.run(slots, sync)
        for slot in self._rng.sample(slots, min(len(slots), self._rule.checked_runs)):
            self._check(memory, layout, self._task, slot, f"timed, waiting for the {sync}")
        runs = len(slots)
        wall = max(report.wall_seconds - cost.wall_seconds, 1e-9) / runs
        worked = max(report.worked_seconds - cost.worked_seconds, 1e-9) / runs
        return _Round(sync, wall, worked, report.claimed_seconds / runs)

    def _require_possible(self, cache_state: str, seconds: float) -> None:
        roofs, kernel = self._host.facts().roofs, self._task.kernel
        if roofs is None:
            return
        rate = roofs.flops_per_second(self._task.number_format)
        least = kernel.flops / (ROOF_TOLERANCE * rate) if rate else 0.0
        if cache_state == "cold":
            moved = kernel.bytes_moved / (ROOF_TOLERANCE * roofs.bytes_per_second)
            least = max(least, moved)
        if seconds < least:
            raise KernelRefused(
                "above_roof", f"{seconds * 1e6:.2f} us, the {roofs.model} needs {least * 1e6:.2f}"
            )

    # -- what is it like? ------------------------------------------------------------------------

    def _judge_inspection(self, inspection: Inspection, trusted: bool) -> None:
        if inspection.patched:
            raise KernelRefused("patched", ", ".join(inspection.patched[:5]))
        flops = self._task.kernel.flops
        for call in inspection.calls:
            whole = call.work >= WHOLE_TASK * flops and flops > 0
            if whole and not trusted:
                raise KernelRefused("wraps_library", f"{call.name} does the whole task")


def _doubted_time(rounds: Sequence[_Round], noise_seconds: float) -> KernelRefused | None:
    """Why the kernel's stream and the whole device, or its events and the judge's clock, disagree.

    Other work on the machine makes single rounds longer, never shorter and never all of them: so
    the fastest rounds are compared, and a kernel gets a second look before it is refused.
    """
    worked = {s: [r.worked_seconds for r in rounds if r.sync == s] for s in get_args(Sync)}
    stream, device = min(worked["stream"]), min(worked["device"])
    if device > STREAM_RATIO * stream + noise_seconds:
        return KernelRefused(
            "side_stream",
            f"{stream * 1e6:.1f} us a run waiting for its stream, {device * 1e6:.1f} us for the "
            "device",
        )
    least = min(rounds, key=lambda r: r.worked_seconds - STREAM_RATIO * r.claimed_seconds)
    if least.worked_seconds > STREAM_RATIO * least.claimed_seconds + noise_seconds:
        return KernelRefused(
            "timers_disagree",
            f"its events tell {least.claimed_seconds * 1e6:.1f} us a run, the judge's clock "
            f"{least.worked_seconds * 1e6:.1f} us at best",
        )
    return None
