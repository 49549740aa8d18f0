"""Hours of a training job whose hosts are capped: never moving, moving by the rule, and foresight.

Foresight knows the trace and every layout, placement and split (played by the simulator), and
chooses when to move by dynamic programming, paying the same price for a move as the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from benchmarks._plan_oracle import SmallCase, best_plan_of_all
from benchmarks._training_cases import (
    DEVICE,
    board,
    choices_of,
    decoder,
    fabric,
    perturbed,
    problem,
)
from capacity.model.kernel_samples import Floats
from capacity.training.capped_job import capped_job
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.link_matrix import Link
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import ParallelPlan
from capacity.training.replan import ReplanRule, reshard_seconds
from capacity.training.training_job import TrainingJob

TICK_SECONDS: Final = 5.0
TRACE_SECONDS: Final = 3 * 3600.0
LONG_SECONDS: Final = 3600.0
LONG_SPEED: Final = 0.8
PAUSE_SPEEDS: Final = (0.5, 0.8)
HOSTS: Final = 4

State = tuple[int, float] | None
"""The host that is slow and its speed; None while all are at full speed."""


def cap_case(seed: int, number: int) -> SmallCase:
    """Four hosts on uneven links and a model that fits them as a pipeline or in halves."""
    rng = np.random.default_rng([seed, 17, number])
    links = perturbed(fabric(HOSTS, 1, Link(float(rng.choice([12e9, 45e9])), 5e-6)), rng)
    model = decoder(8, int(rng.choice([4096, 5120])))
    job = TrainingJob(model, int(rng.choice([48, 96])), 4096)
    return SmallCase(
        job=job,
        links=links,
        costs=board().costs,
        device=DEVICE,
        memory_bytes=80e9,
        speed=[1.0] * HOSTS,
        micro_batches=(1, 2),
        recompute=("none", "full"),
        zero_stages=(0, 1),
    )


@dataclass(slots=True)
class CapWorld:
    """One job with what each plan does in each state, everything asked for once."""

    case: SmallCase
    _plans: dict[State, ParallelPlan] = field(default_factory=dict)
    _oracle: dict[State, ParallelPlan] = field(default_factory=dict)
    _seconds: dict[tuple[int, State], float] = field(default_factory=dict)
    _targets: dict[tuple[int, State], ParallelPlan] = field(default_factory=dict)

    def planned(self, state: State) -> ParallelPlan:
        """The planner's answer to these caps."""
        if state not in self._plans:
            case = self._at(state)
            asked = problem(
                case.job, case.links, choices_of(case), board(case.memory_bytes),
                np.array(case.speed),
            )  # fmt: skip
            self._plans[state] = plan_parallel(asked).best
        return self._plans[state]

    def target(self, plan: ParallelPlan, state: State) -> ParallelPlan:
        """Where the product would move a job that runs this plan under these caps."""
        key = (id(plan), state)
        if key not in self._targets:
            case = self._at(state)
            asked = problem(case.job, case.links, choices_of(case), board(case.memory_bytes))
            speed, fastest = np.array(case.speed), self.planned(state)
            self._targets[key] = capped_job(asked, plan, speed, fastest=fastest).move.plan
        return self._targets[key]

    def exhaustive(self, state: State) -> ParallelPlan:
        """The best of all plans under these caps."""
        if state not in self._oracle:
            case = self._at(state)
            layout, ranks, layers = best_plan_of_all(case)
            asked = problem(case.job, case.links, choices_of(case))
            pricing = LayoutPricing(asked, asked.cluster.gpus[0])
            self._oracle[state] = pricing.plan(layout, np.array(ranks), np.array(layers))
        return self._oracle[state]

    def step(self, plan: ParallelPlan, state: State) -> float:
        """Seconds of a step, played."""
        key = (id(plan), state)
        if key not in self._seconds:
            self._seconds[key] = self._at(state).played(
                plan.layout, plan.ranks.tolist(), list(plan.layers)
            )
        return self._seconds[key]

    def price(self, old: ParallelPlan, new: ParallelPlan) -> float:
        """Seconds of a move."""
        return reshard_seconds(self.case.job, old, new, self.case.links)

    def least_price(self) -> float:
        """Of any move that a long cap could ask for: pauses are kept below it."""
        base = self.planned(None)
        prices = [self.price(base, self.planned((host, LONG_SPEED))) for host in range(HOSTS)]
        return min(price for price in prices if price > 0)

    def _at(self, state: State) -> SmallCase:
        speed = [1.0] * HOSTS
        if state is not None:
            speed[state[0]] = state[1]
        return replace(self.case, speed=speed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Steps done by each policy, and moves that a pause caused."""

    still: float
    ruled: float
    foresight: float
    moves: int
    moves_in_pauses: int


def trace_of(world: CapWorld, rng: np.random.Generator) -> list[tuple[State, bool]]:
    """State of each tick, and whether it is a pause: one long cap, about ten short ones."""
    ticks = int(TRACE_SECONDS / TICK_SECONDS)
    trace: list[tuple[State, bool]] = [(None, False)] * ticks
    for _ in range(10):
        longest = world.least_price() - TICK_SECONDS
        length = int(rng.uniform(TICK_SECONDS, longest) / TICK_SECONDS)
        begin = int(rng.integers(0, ticks - length))
        state = (int(rng.integers(HOSTS)), float(rng.choice(PAUSE_SPEEDS)))
        if all(trace[at][0] is None for at in range(max(0, begin - 1), begin + length + 1)):
            trace[begin : begin + length] = [(state, True)] * length
    begin = int(rng.uniform(600, 3600) / TICK_SECONDS)
    length = int(LONG_SECONDS / TICK_SECONDS)
    long = (int(rng.integers(HOSTS)), LONG_SPEED)
    trace[begin : begin + length] = [(long, False)] * length
    return trace


def play(world: CapWorld, rng: np.random.Generator) -> Outcome:
    """One trace under the three policies."""
    trace = trace_of(world, rng)
    base = world.planned(None)
    still = sum(TICK_SECONDS / world.step(base, state) for state, _ in trace)
    ruled, moves, in_pauses = _ruled(world, trace)
    return Outcome(still, ruled, _foresight(world, trace), moves, in_pauses)


def _ruled(world: CapWorld, trace: list[tuple[State, bool]]) -> tuple[float, int, int]:
    plan, rule, steps, waits = world.planned(None), ReplanRule(), 0.0, 0.0
    moves = in_pauses = 0
    for state, is_pause in trace:
        if waits > 0:
            waits -= TICK_SECONDS
            continue
        best = world.target(plan, state)
        now, then = world.step(plan, state), world.step(best, state)
        steps += TICK_SECONDS / now
        rule = rule.after(TICK_SECONDS, str(state), now, then)
        price = world.price(plan, best)
        if price > 0 and rule.moves(price):
            plan, rule, waits = best, ReplanRule(), price
            moves, in_pauses = moves + 1, in_pauses + is_pause
    return steps, moves, in_pauses


def _foresight(world: CapWorld, trace: list[tuple[State, bool]]) -> float:
    """Most steps that any sequence of plans makes; a move costs whole ticks."""
    states = sorted({state for state, is_pause in trace if not is_pause}, key=str)
    plans = [world.planned(None), *(world.exhaustive(state) for state in states)]
    lost = _ticks(plans, world.price)
    rate: dict[State, Floats] = {}
    for state, _ in trace:
        if state not in rate:
            rate[state] = np.array([TICK_SECONDS / world.step(plan, state) for plan in plans])
    size = len(trace)
    best = np.full((size + 1, len(plans)), -np.inf)
    best[0, 0] = 0.0
    for at in range(size):
        for old in range(len(plans)):
            if best[at, old] == -np.inf:
                continue
            stay = best[at, old] + rate[trace[at][0]][old]
            best[at + 1, old] = max(best[at + 1, old], stay)
            for new in range(len(plans)):
                there = at + int(lost[old, new])
                if new != old and there <= size:
                    best[there, new] = max(best[there, new], best[at, old])
    return float(best[size].max())


def _ticks(
    plans: list[ParallelPlan], price: Callable[[ParallelPlan, ParallelPlan], float]
) -> Floats:
    return np.array([
        [np.ceil(price(old, new) / TICK_SECONDS) for new in plans] for old in plans
    ])  # fmt: skip
