"""The trial of one kernel: right on everything, then timed, by a judge that believes nothing.

The clock that ranks is the judge's own: it starts with the word to run and stops when the judge
holds a copy of all results, less what the same costs with no runs at all. Work that was put
elsewhere (a stream, a thread, a lazy value) is either in that time or missing from the results.
Every timed run has operands of its own that did not exist before, and each round's results are
checked on runs that the judge picks afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from capacity.bench.quality import ROOF_TOLERANCE
from capacity.ranking.input_styles import NORMAL, InputStyle, TimedStyles, styles
from capacity.ranking.kernel_host import Inspection, KernelHost, Memory, RoundReport, Sync, Trial
from capacity.ranking.kernel_source import KernelSource, require_fair_source
from capacity.ranking.kernel_verdict import (
    Doubt,
    KernelRefused,
    Reason,
    ShapeResult,
    Timing,
    Verdict,
)
from capacity.ranking.output_check import OutputError, output_error, require_right, untold
from capacity.ranking.ranked_task import PART_ROWS, Expected, RankedTask
from capacity.ranking.slot_layout import SlotLayout, slot_layout
from capacity.ranking.trial_timing import (
    Round,
    RoundCost,
    TimedCase,
    TrialRule,
    doubted_time,
    per_run,
    round_costs,
    timed_cases,
    timing_of,
)
from wattpack.errors import InputError

WHOLE_TASK: Final = 0.9
"""A library call that does this share of the task's operations is the library, not a kernel."""

LEFT_OUT: Final = 8
"""One slot in so many is not run, and the others in random order: a kernel that does several runs'
work in one call writes results that nobody asked for."""

UNSTABLE: Final = 0.1


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
            InputError: naming the lazy answer that the task would accept, or what does not fit.
        """
        self._arena_bytes(task)
        for style in styles(task):
            first, second = (self._expected(task, style, self._seed + i) for i in range(2))
            answer = untold(first, second)
            if answer is not None:
                raise InputError(
                    "shapes", "a task whose result cannot be guessed",
                    f"{task.describe()}, {style.name} operands: {answer} would pass",
                )  # fmt: skip

    def try_kernel(self, source: KernelSource, tasks: Sequence[RankedTask]) -> Verdict:
        """A verdict; what goes wrong in the kernel never leaves here as an exception."""
        results: list[ShapeResult] = []
        doubts: set[Doubt] = set()
        reason: Reason | None = None
        evidence, minutes = "", 0.0
        try:
            if not source.trusted:
                require_fair_source(source, tasks[0].name)
            trial = self._host.open(source, max(map(self._arena_bytes, tasks)))
            try:
                for result, doubted in self._results(trial, source, tasks):
                    results.append(result)
                    doubts |= doubted
            finally:
                minutes = trial.close()
        except KernelRefused as refusal:
            reason, evidence = refusal.reason, refusal.evidence
        except self._host.out_of_memory:
            reason, evidence = "memory", "nothing was left for the judge beside it"
        return Verdict(
            kernel=source.name,
            source_sha256=source.sha256,
            reason=reason,
            evidence=evidence,
            shapes=tuple(results),
            doubts=tuple(sorted(doubts)),
            device_minutes=minutes,
            seed=self._seed,
        )

    def _results(
        self, trial: Trial, source: KernelSource, tasks: Sequence[RankedTask]
    ) -> Iterator[tuple[ShapeResult, set[Doubt]]]:
        """Shape by shape; the costs of rounds are known before the kernel is."""
        rng = random.Random(self._seed)
        facts = self._host.facts()
        cases = {task: timed_cases(task, facts, self._rule) for task in tasks}
        costs = round_costs(trial, (c for own in cases.values() for c in own), self._rule)
        trial.load()
        for task in tasks:
            one = _TaskTrial(self._host, self._rule, rng, trial, task)
            result = one.run({case: costs[case] for case in cases[task]})
            if not source.trusted:
                require_own_work(trial.inspect(), task)
            yield result, one.doubts

    def _expected(self, task: RankedTask, style: InputStyle, seed: int) -> Expected:
        draw = self._host.generator(seed)
        operands = tuple(value * 1.0 for value in style.make(draw, task))
        return task.expected(operands, self._host.library, climbing=style.climbing)

    def _arena_bytes(self, task: RankedTask) -> int:
        cases = timed_cases(task, self._host.facts(), self._rule)
        wanted = max(
            *(slot_layout(task, case.slots).nbytes for case in cases),
            slot_layout(task, 2).nbytes,
            slot_layout(task.neighbour(), 2).nbytes,
        )
        if wanted > self._host.facts().memory_bytes:
            raise InputError("shapes", "one that fits the memory", task.describe())
        return wanted


class _TaskTrial:
    """One kernel on one shape."""

    def __init__(
        self, host: KernelHost, rule: TrialRule, rng: random.Random, trial: Trial, task: RankedTask
    ) -> None:
        self._host, self._rule, self._rng = host, rule, rng
        self._trial, self._task = trial, task
        self.doubts: set[Doubt] = set()
        self._worst = 0.0
        self._styles: Sequence[InputStyle] = ()
        self._timed_styles = TimedStyles(styles(task), rng)
        self._before: Expected | None = None

    def run(self, costs: Mapping[TimedCase, RoundCost]) -> ShapeResult:
        """Everything, in the order of cost."""
        neighbour = self._task.neighbour()
        memory, layout = self._lay_out(neighbour, 2)
        self._verify(memory, layout, neighbour, (NORMAL,))
        memory, layout = self._lay_out(self._task, 2)
        self._verify(memory, layout, self._task, styles(self._task))
        self._repeat(memory, layout)
        timings = tuple(self._time(case, cost) for case, cost in costs.items())
        self._trial.require_alone()
        return ShapeResult(self._task.describe(), timings, self._worst)

    def _lay_out(self, task: RankedTask, slots: int) -> tuple[Memory, SlotLayout]:
        layout = slot_layout(task, slots)
        return self._trial.use(layout), layout

    # -- is it right? ----------------------------------------------------------------------------

    def _verify(
        self, memory: Memory, layout: SlotLayout, task: RankedTask, wanted: Sequence[InputStyle]
    ) -> None:
        for style in wanted:
            for sync in ("device", "stream"):
                self._fill(memory, layout, task, [style] * len(layout.slots))
                self._trial.run(range(len(layout.slots)), sync)
                for slot in range(len(layout.slots)):
                    self._check(memory, layout, task, slot)

    def _fill(
        self, memory: Memory, layout: SlotLayout, task: RankedTask, wanted: Sequence[InputStyle]
    ) -> None:
        """New operands of each slot's style, never seen before; no result."""
        draw = self._host.generator(self._rng.getrandbits(62))
        for slot, style in zip(layout.slots, wanted, strict=True):
            for place, values in zip(slot.operands, style.make(draw, task), strict=True):
                memory.write(place, values)
        memory.make_ready()
        self._styles = wanted

    def _check(self, memory: Memory, layout: SlotLayout, task: RankedTask, slot: int) -> None:
        style = self._styles[slot]
        where = f"{task.describe()}, {style.name} operands"
        places = layout.slots[slot].operands
        if not all(memory.unchanged(place) for place in places):
            raise KernelRefused("modified_inputs", f"{where}: an operand was written to")
        given = tuple(memory.operand(place) for place in places)
        expected = task.expected(given, self._host.library, climbing=style.climbing)
        result = memory.result(layout.slots[slot].result)
        error = output_error(result, expected)
        self._worst = max(self._worst, error.rms)
        if not error.right and not error.missing:
            self._require_fresh(result, expected, error, where)
        require_right(error, int(np.prod(task.output_shape)), where)
        self._before = expected

    def _check_part(self, memory: Memory, layout: SlotLayout, slot: int) -> None:
        """A few of a run's results: a run that was left out shows, whatever lies there."""
        places = layout.slots[slot]
        given = tuple(memory.operand(place) for place in places.operands)
        part = self._task.part(given, memory.result(places.result), self._rng.random())
        style = self._styles[slot]
        expected = part.task.expected(part.operands, self._host.library, climbing=style.climbing)
        where = f"{self._task.describe()}, {style.name} operands, part of a timed run"
        require_right(output_error(part.result, expected), PART_ROWS, where)

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
        self._fill(memory, layout, self._task, [NORMAL] * len(layout.slots))
        results = []
        for _ in range(2):
            memory.make_ready()
            self._trial.run(range(len(layout.slots)), "device")
            results.append(memory.result(layout.slots[0].result))
            self._check(memory, layout, self._task, 0)
        if not bool((results[0] == results[1]).all()):
            self.doubts.add("nondeterministic")

    # -- how long does it take? ------------------------------------------------------------------

    def _time(self, case: TimedCase, cost: RoundCost) -> Timing:
        memory, layout = self._lay_out(self._task, case.slots)
        runs = case.slots - max(1, case.slots // LEFT_OUT)
        self._one_round(memory, layout, "device", runs)  # the first one warms everything up
        rounds: list[Round] = []
        for look in range(self._rule.second_looks + 1):
            order: list[Sync] = ["device", "stream"] * (self._rule.rounds // 2)
            self._rng.shuffle(order)
            for sync in order:
                report = self._one_round(memory, layout, sync, runs)
                rounds.append(per_run(report, cost, sync, runs))
            doubt = doubted_time(rounds, self._host.facts().slack_seconds / runs)
            if doubt is None:
                break
            if look == self._rule.second_looks:
                raise doubt
        timing = timing_of(rounds, case, runs)
        self._require_possible(case.cache_state, timing.median_seconds)
        if timing.relative_std > UNSTABLE:
            self.doubts.add("unstable_time")
        return timing

    def _one_round(self, memory: Memory, layout: SlotLayout, sync: Sync, runs: int) -> RoundReport:
        """New operands; runs in random order, some left out, some checked."""
        slots = range(len(layout.slots))
        self._fill(memory, layout, self._task, self._timed_styles.of_a_round(len(slots)))
        chosen = self._rng.sample(slots, runs)
        report = self._trial.run(chosen, sync)
        for slot in self._rng.sample(chosen, min(runs, self._rule.checked_runs)):
            self._check(memory, layout, self._task, slot)
        for slot in chosen:
            self._check_part(memory, layout, slot)
        for slot in set(slots) - set(chosen):
            result = memory.result(layout.slots[slot].result)
            if not bool((result != result).all()):
                raise KernelRefused("looks_around", "results of runs that nobody asked for")
        return report

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


def require_own_work(inspection: Inspection, task: RankedTask) -> None:
    """Nothing happens if the kernel changed no clock and gave the task to no library.

    Raises:
        KernelRefused: naming what it changed or called.
    """
    if inspection.patched:
        raise KernelRefused("patched", ", ".join(inspection.patched[:5]))
    flops = task.kernel.flops
    for call in inspection.calls:
        if flops and call.work >= WHOLE_TASK * flops:
            raise KernelRefused("wraps_library", f"{call.name} does the whole task")
