"""The mixed-integer program: whole replicas, continuous shares of buckets.

HiGHS (through OR-Tools) instead of CP-SAT: shares are continuous, and a grid of 1/1000 already
misses exact splits that fill a replica (docs/adr/0018-gpu-mix.md has the comparison). Source of the
covering form: Griggs et al., Mélange, arXiv 2404.14527, section 5; its slices are shares here.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortools.math_opt.python import mathopt

from capacity.mix.constraint_names import (
    CAUTION,
    EMISSIONS,
    MINIMUM_REPLICAS,
    SPEND,
    SPOT_SHARE,
)
from capacity.mix.mix_problem import (
    Bucket,
    Goal,
    MixProblem,
    Offer,
    Phase,
    ReplicaShape,
    ServiceRate,
)
from capacity.mix.mix_solution import MixCosts, MixSolution, ReplicaCount, ServedShare
from wattpack.errors import DeadlineExceededError

__all__ = ["NoMix", "SolveOptions", "solve_mix"]

#: Of a link's rate that hand-overs may take on average: bursts need the rest. Assumed; 80 % is the
#: load at which queues are kept elsewhere in the capacity model, too.
LINK_USE = 0.8
#: Shares below are numerical dust of the solver (its own feasibility tolerance is 1e-7).
_DUST = 1e-7
#: Of a replica: below, a bucket's shares could hide in what the solver tolerates of a whole one.
_SLIGHT = 0.1
_Column = tuple[str, str]
#: A bucket's shares of these phases make one whole.
_STARTING = (Phase.WHOLE, Phase.PREFILL)
_FOUND = (mathopt.TerminationReason.OPTIMAL, mathopt.TerminationReason.FEASIBLE)
_IMPOSSIBLE = (
    mathopt.TerminationReason.INFEASIBLE,
    mathopt.TerminationReason.INFEASIBLE_OR_UNBOUNDED,
)


class NoMix(Exception):
    """It is proved that no mix keeps every constraint."""


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """What one solve may spend and leave out.

    Attributes:
        seconds: Wall time.
        gap: Share of the objective at which to stop.
        without: Constraints (``constraint_names``) that do not count.
        holds_running: Exactly the running replicas of each offer stay; caps may change.
    """

    seconds: float = 2.0
    gap: float = 1e-6
    without: frozenset[str] = frozenset()
    holds_running: bool = False


def solve_mix(problem: MixProblem, options: SolveOptions | None = None) -> MixSolution:
    """The best mix found, with its bound.

    Raises:
        NoMix: if it is proved that there is none.
        DeadlineExceededError: if none was found in time.
    """
    options = options or SolveOptions()
    program = _Program(problem, options)
    parameters = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=options.seconds),
        relative_gap_tolerance=options.gap,
        absolute_gap_tolerance=0.0,
        random_seed=1,
    )
    result = mathopt.solve(program.model, mathopt.SolverType.HIGHS, params=parameters)
    reason = result.termination.reason
    if reason in _IMPOSSIBLE:
        raise NoMix
    if reason not in _FOUND or not result.has_primal_feasible_solution():
        raise DeadlineExceededError(f"no GPU mix was found within {options.seconds:g} s")
    return program.solution(
        result.variable_values(), result.termination.objective_bounds.dual_bound
    )


@dataclass
class _Sums:
    """Linear expressions of the plan: variables, or their values."""

    rent: Any = 0.0
    watts: Any = 0.0
    grams_embodied: Any = 0.0
    starts: Any = 0.0


@dataclass
class _Program:
    """Variables and constraints of one problem."""

    problem: MixProblem
    options: SolveOptions
    model: Any = field(default_factory=mathopt.Model)

    def __post_init__(self) -> None:
        self.offers = {offer.name: offer for offer in self.problem.offers}
        self.shapes = {shape.name: shape for shape in self.problem.shapes}
        self.buckets = {bucket.name: bucket for bucket in self.problem.buckets}
        self.counts: dict[_Column, Any] = {}
        self.shares: dict[tuple[str, Phase, _Column], Any] = {}
        self.loads: dict[_Column, Any] = defaultdict(float)
        self.needs: dict[_Column, list[Any]] = defaultdict(list)
        self.watts: dict[_Column, Any] = {}
        self.starts: dict[_Column, Any] = {}
        self.served: Any = 1.0
        self._variables()
        self._demand()
        self._columns()
        self._stock()
        self._domains()
        self._shared_buckets()
        self._objective()

    def _keeps(self, name: str) -> bool:
        return name not in self.options.without

    def _variables(self) -> None:
        for offer in self.problem.offers:
            for shape in self.problem.shapes:
                if shape.gpu_model == offer.gpu_model and shape.rates:
                    column = (offer.name, shape.name)
                    self.counts[column] = self.model.add_integer_variable(lb=0.0)
                    for (name, phase), rate in shape.rates.items():
                        bucket, counted = self.buckets[name], self._counted(name, rate)
                        if counted > 0 and _is_quick_enough(bucket, phase, shape):
                            share = self.model.add_variable(lb=0.0, ub=1.0)
                            self.shares[name, phase, column] = share
                            self.loads[column] += share * (bucket.requests_per_second / counted)

    def _counted(self, bucket: str, rate: ServiceRate) -> float:
        """Requests a second that one replica is counted on; 0: it does not serve the bucket."""
        if not self._keeps(CAUTION):
            return rate.requests_per_second
        return rate.counted(self.buckets[bucket].tier)

    def _demand(self) -> None:
        if self.problem.goal is Goal.MOST_REQUESTS:
            self.served = self.model.add_variable(lb=0.0, ub=1.0)
        for name in self.buckets:
            whole, prefill, decode = (
                mathopt.fast_sum(
                    v for (b, p, _), v in self.shares.items() if (b, p) == (name, phase)
                )
                for phase in Phase
            )
            self.model.add_linear_constraint(whole + prefill - self.served == 0.0)
            self.model.add_linear_constraint(prefill - decode == 0.0)

    def _columns(self) -> None:
        """No replica does more than it can, nor hands over more than its link carries."""
        moved: dict[_Column, Any] = defaultdict(float)
        dynamic: dict[_Column, Any] = defaultdict(float)
        for (name, phase, column), share in self.shares.items():
            bucket, shape = self.buckets[name], self.shapes[column[1]]
            rate = shape.rates[name, phase]
            busy = bucket.requests_per_second / rate.requests_per_second
            dynamic[column] += share * busy * (rate.busy_watts - shape.idle_watts)
            if phase is not Phase.WHOLE:
                moved[column] += share * bucket.requests_per_second * bucket.kv_bytes_per_request
        for column, count in self.counts.items():
            shape = self.shapes[column[1]]
            self._need(column, self.loads[column])
            self.watts[column] = count * shape.idle_watts + dynamic[column]
            if column in moved and shape.link_bytes_per_second is not None:
                # In units of one link, so that the solver sees numbers near one.
                link = shape.link_bytes_per_second * LINK_USE
                self._need(column, moved[column] * (1 / link))

    def _need(self, column: _Column, replicas: Any) -> None:  # noqa: ANN401
        """At least so many, an expression of shares."""
        self.model.add_linear_constraint(replicas - self.counts[column] <= 0.0)
        self.needs[column].append(replicas)

    def _stock(self) -> None:
        for offer in self.problem.offers:
            counts = {s: n for (o, s), n in self.counts.items() if o == offer.name}
            used = mathopt.fast_sum(self.shapes[s].gpus * n for s, n in counts.items())
            if self._keeps(f"stock of {offer.name}"):
                self.model.add_linear_constraint(used <= float(offer.gpus))
            for gpus in sorted({self.shapes[s].gpus for s in counts}):
                self._at_any_cap(offer, [s for s in counts if self.shapes[s].gpus == gpus])

    def _at_any_cap(self, offer: Offer, shapes: Sequence[str]) -> None:
        """Replicas of one width at all caps together are a whole number, too.

        The sum says nothing new, but to branch on it, and to tie shares to it, is what brings the
        gap of the largest cases from above 1 % to below within 2 s (docs/adr/0018-gpu-mix.md).
        """
        together = self.model.add_integer_variable(lb=0.0)
        add = self.model.add_linear_constraint
        add(mathopt.fast_sum(self.counts[offer.name, s] for s in shapes) - together == 0.0)
        for name, phases in itertools.product(self.buckets, (_STARTING, (Phase.DECODE,))):
            shares = [
                self.shares[key]
                for key in itertools.product((name,), phases, ((offer.name, s) for s in shapes))
                if key in self.shares
            ]
            if shares:
                add(mathopt.fast_sum(shares) - together <= 0.0)
        self._changes(offer, shapes, together)

    def _changes(self, offer: Offer, shapes: Sequence[str], together: Any) -> None:  # noqa: ANN401
        """A replica starts only where none of its width runs: a cap is changed in place."""
        running = float(sum(offer.running_replicas.get(s, 0) for s in shapes))
        if self.options.holds_running:
            self.model.add_linear_constraint(together == running)
        dollars = self.problem.start_dollars(offer, self.shapes[shapes[0]].gpus)
        if dollars:
            started = self.model.add_variable(lb=0.0)
            self.model.add_linear_constraint(started >= together - running)
            self.starts[offer.name, shapes[0]] = started * dollars

    def _domains(self) -> None:
        for domain in self.problem.domains:
            below = [
                column
                for column in self.counts
                if domain.name in self.problem.above(self.offers[column[0]].domain)
            ]
            p99 = mathopt.fast_sum(self.shapes[c[1]].p99_watts * self.counts[c] for c in below)
            mean = mathopt.fast_sum(self.watts[column] for column in below)
            for name, watts, limit in (
                (f"breaker of {domain.name}", p99, domain.breaker_watts),
                (f"power budget of {domain.name}", mean, domain.budget_watts),
            ):
                if limit is not None and self._keeps(name):
                    self.model.add_linear_constraint(watts * 1e-3 <= limit * 1e-3)

    def _shared_buckets(self) -> None:
        """No replica carries too much of a bucket, and spot offers not more than allowed."""
        spot: dict[tuple[str, Phase], Any] = defaultdict(float)
        for (name, phase, column), share in self.shares.items():
            bucket = self.buckets[name]
            least = bucket.minimum_replicas if self._keeps(MINIMUM_REPLICAS) else 1
            rate = self._counted(name, self.shapes[column[1]].rates[name, phase])
            if least > 1 or bucket.requests_per_second < _SLIGHT * rate:
                self._need(column, share * float(least))
            if self.offers[column[0]].is_spot:
                spot[name, Phase.DECODE if phase is Phase.DECODE else Phase.WHOLE] += share
        for (name, _), share in spot.items():
            if self._keeps(SPOT_SHARE):
                self.model.add_linear_constraint(share <= self.buckets[name].largest_spot_share)

    def _objective(self) -> None:
        sums, prices, limits = self._sums(), self.problem.prices, self.problem.limits
        operational = sums.watts * (prices.grams_per_kwh * 1e-3)
        grams = operational + sums.grams_embodied
        dollars = (
            sums.rent
            + sums.watts * (prices.dollars_per_kwh * 1e-3)
            + grams * (prices.dollars_per_tonne * 1e-6)
            + sums.starts * (1 / prices.horizon_hours)
        )
        if limits.dollars_per_hour is not None and self._keeps(SPEND):
            self.model.add_linear_constraint(dollars <= limits.dollars_per_hour)
        if limits.grams_per_hour is not None and self._keeps(EMISSIONS):
            self.model.add_linear_constraint(grams * 1e-3 <= limits.grams_per_hour * 1e-3)
        if self.problem.goal is Goal.MOST_REQUESTS:
            self.model.maximize(self.served)
        elif self.problem.goal is Goal.LEAST_NEW_GPUS:
            new = mathopt.fast_sum(self.shapes[s].gpus * n for (o, s), n in self._not_owned())
            self.model.minimize(new + dollars * self._dollar_weight())
        else:
            self.model.minimize(dollars)

    def _not_owned(self) -> list[tuple[_Column, Any]]:
        return [(c, n) for c, n in self.counts.items() if not self.offers[c[0]].is_owned]

    def _dollar_weight(self) -> float:
        """All that may be spent weighs half a board, so that dollars only break ties."""
        return 0.5 / (self.problem.limits.dollars_per_hour or 1.0)

    def _sums(self) -> _Sums:
        def of(figure: str) -> Any:  # noqa: ANN401 - an expression of an untyped library
            return mathopt.fast_sum(
                getattr(self.offers[o], figure) * self.shapes[s].gpus * n
                for (o, s), n in self.counts.items()
            )

        return _Sums(
            of("dollars_per_gpu_hour"),
            mathopt.fast_sum(self.watts.values()),
            of("embodied_grams_per_gpu_hour"),
            mathopt.fast_sum(self.starts.values()),
        )

    def solution(self, values: Mapping[Any, float], bound: float) -> MixSolution:
        """The solver's values as an answer; every figure is that of whole replicas."""
        counts = {column: round(values[n]) for column, n in self.counts.items()}
        if not self.options.holds_running:
            # What costs nothing is as good on as off to the solver; spare boards only draw power.
            counts = {column: min(n, self._needed(column, values)) for column, n in counts.items()}
        shares = {
            key: values[share]
            for key, share in self.shares.items()
            if values[share] > _DUST and counts[key[2]]
        }
        return self._priced(counts, shares, bound)

    def _needed(self, column: _Column, values: Mapping[Any, float]) -> int:
        needs = (float(mathopt.evaluate_expression(n, values)) for n in self.needs[column])
        return math.ceil(max(needs) - _DUST)

    def _priced(
        self,
        counts: Mapping[_Column, int],
        shares: Mapping[tuple[str, Phase, _Column], float],
        bound: float,
    ) -> MixSolution:
        problem, prices = self.problem, self.problem.prices
        watts = sum(n * self.shapes[s].idle_watts for (_, s), n in counts.items())
        for (name, phase, (_, s)), share in shares.items():
            rate = self.shapes[s].rates[name, phase]
            busy = share * self.buckets[name].requests_per_second / rate.requests_per_second
            watts += busy * (rate.busy_watts - self.shapes[s].idle_watts)
        gpus = {column: n * self.shapes[column[1]].gpus for column, n in counts.items()}
        embodied = sum(n * self.offers[o].embodied_grams_per_gpu_hour for (o, _), n in gpus.items())
        operational = watts * prices.grams_per_kwh * 1e-3
        costs = MixCosts(
            rent=sum(n * self.offers[o].dollars_per_gpu_hour for (o, _), n in gpus.items()),
            energy=watts * prices.dollars_per_kwh * 1e-3,
            carbon=(operational + embodied) * prices.dollars_per_tonne * 1e-6,
            start=self._start_dollars(counts) / prices.horizon_hours,
        )
        fraction = min(
            sum(v for (b, p, _), v in shares.items() if b == name and p is not Phase.DECODE)
            for name in self.buckets
        )
        is_most = problem.goal is Goal.MOST_REQUESTS
        reached = fraction if is_most else costs.total
        if problem.goal is Goal.LEAST_NEW_GPUS:
            new = sum(gpus[column] for column, _ in self._not_owned())
            reached = new + costs.total * self._dollar_weight()
        return MixSolution(
            replicas=tuple(ReplicaCount(o, s, n) for (o, s), n in counts.items() if n),
            served=tuple(ServedShare(b, p, o, s, v) for (b, p, (o, s)), v in shares.items()),
            served_fraction=fraction if is_most else 1.0,
            costs=costs,
            mean_watts=watts,
            p99_watts=sum(n * self.shapes[s].p99_watts for (_, s), n in counts.items()),
            operational_grams_per_hour=operational,
            embodied_grams_per_hour=embodied,
            bound=bound,
            gap=max(0.0, abs(bound - reached) / abs(reached)) if reached else 0.0,
        )

    def _start_dollars(self, counts: Mapping[_Column, int]) -> float:
        running: dict[tuple[str, int], int] = defaultdict(int)
        for (o, s), n in counts.items():
            running[o, self.shapes[s].gpus] += n
        for offer in self.problem.offers:
            for s, n in offer.running_replicas.items():
                running[offer.name, self.shapes[s].gpus] -= n
        price = self.problem.start_dollars
        return sum(n * price(self.offers[o], gpus) for (o, gpus), n in running.items() if n > 0)


def _is_quick_enough(bucket: Bucket, phase: Phase, shape: ReplicaShape) -> bool:
    """Whether one request's KV cache crosses this end's link in time."""
    longest, link = bucket.longest_transfer_seconds, shape.link_bytes_per_second
    if phase is Phase.WHOLE or longest is None or link is None:
        return True
    return bucket.kv_bytes_per_request / link <= longest
