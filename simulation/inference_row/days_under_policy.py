"""Hours and days of the inference row under a policy: the controller runs where it could act.

    calm: caps stand as the policy lets them stand there, no controller, no agents
      └─ 5 min before it ends the policy begins, on a copy of the queues ─┐
    hot: the policy at work <── the queues go on ─────────────────────────┘

When it is calm is read from the same requests without a policy, second by second: a stretch is
calm while the row stays below what the policy begins to act at, five minutes before and after
included. So nothing has to be taken back. Requests are simulated one by one in both, and steps are
alike: a prompt takes about a second, and steps that mix it with decode hide what a cap does to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.client_arrivals import ClientArrivals, RowRequests
from simulation.inference_row.compiled_servers import fastest_servers
from simulation.inference_row.row_power import GPUS_PER_SERVER, ServerPower, ServersAround
from simulation.inference_row.row_under_policy import UNCAPPED, WATTPACK, policy_for
from simulation.inference_row.row_work import InferenceWork
from simulation.row_control.accounts import RowResult
from simulation.row_control.row_policy import StaticCaps
from simulation.row_control.run import MakePolicy, RowRun, RowSetup
from simulation.row_control.scenario_faults import faults_within
from simulation.row_control.work import HIGH, LOW
from simulation.scenario import Scenario
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

BLOCK_SECONDS: Final = 300.0
WARM_SECONDS: Final = 300.0
SHORTEST_CALM_BLOCKS: Final = 6
STANDING_WATTS: Final = 2.0
"""Limits that differ by no more from those of a calm row stand."""

CALM_BELOW: Final[Mapping[str, float]] = {WATTPACK: 0.88, "polca": 0.73}
"""Load over rating of a second without a policy. POLCA unlocks 5 points below 0.80: 2 points less.
wattpack's caps stand below 0.89 on this row; ``benchmarks polca_weeks`` prints what hours say that
its controller runs through."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a day; times since Monday, midnight."""

    begin_seconds: float
    end_seconds: float
    hot: bool


@dataclass(frozen=True, slots=True)
class Held:
    """How boards are held, (n_nodes, g) each."""

    limit_watts: Floats
    lock_mhz: Integers


@dataclass
class DayBooks:
    """What came of a day.

    Attributes:
        work: With all requests.
        times: Ends of seconds since Monday, midnight, (n,).
        load_ratio: Mean load of the row over its rating in each, (n,).
        done: Work so far of ``LOW`` and ``HIGH``, (n, 2).
        counted: Begin and end of what events and peaks are counted of: not while the row fills.
        events: Brakes, trips, seconds above 1.00, cap changes and violations.
        peak_ratio, max_heat: Highest load of a step over its rating, and heat, of the row.
        hot_seconds: Of the day.
    """

    work: InferenceWork
    counted: tuple[float, float] = (-inf, inf)
    times: list[Floats] = field(default_factory=list)
    load_ratio: list[Floats] = field(default_factory=list)
    done: list[Floats] = field(default_factory=list)
    events: dict[str, float] = field(default_factory=dict)
    hot_seconds: float = 0.0
    peak_ratio: float = 0.0
    max_heat: float = 0.0

    def follow(self, run: RowRun, span: tuple[float, float], before: RowResult | None) -> RowResult:
        """Go on with a run over a span, and enter what comes of it.

        Args:
            run: Of the row.
            span: Since Monday, midnight.
            before: The run's result at its begin, which is left out; None where the run begins.
        """
        now, last = span
        for end in [*(edge for edge in self.counted if now < edge < last), last]:
            # Peaks and seconds above 1.00 are of this part alone, all else is since the run began.
            run.plant.breakers.reset_peaks()
            result = run.run(end - now)
            self._enter((now, end), result, before)
            now, before = end, result
        return result

    def _enter(
        self, span: tuple[float, float], result: RowResult, before: RowResult | None
    ) -> None:
        begin, end = span
        skipped = 0 if before is None else len(before.seconds)
        passed = 0.0 if before is None else float(before.seconds[-1])
        self.times.append(begin + result.seconds[skipped:] - passed)
        self.load_ratio.append(result.load_ratio[skipped:, 0])
        self.done.append(result.done[skipped:])
        if not self.counted[0] <= begin < end <= self.counted[1]:
            return
        known = dict.fromkeys(_totals(result), 0) if before is None else _totals(before)
        new = {name: value - known[name] for name, value in _totals(result).items()}
        for name, value in {**new, "above_seconds": float(result.above_seconds[0])}.items():
            self.events[name] = self.events.get(name, 0) + value
        self.peak_ratio = max(self.peak_ratio, float(result.peak_ratio[0]))
        self.max_heat = max(self.max_heat, float(result.max_heat[0]))

    def load_between(self, begin_seconds: float, end_seconds: float) -> Floats:
        """Loads of the seconds that end in a span, (k,)."""
        times, load = np.concatenate(self.times), np.concatenate(self.load_ratio)
        return np.asarray(load[(times > begin_seconds) & (times <= end_seconds)])

    def work_between(self, begin_seconds: float, end_seconds: float) -> Floats:
        """Work of ``LOW`` and ``HIGH`` in a span, (2,)."""
        times, done = np.concatenate(self.times), np.concatenate(self.done)
        spans = [
            np.interp([begin_seconds, end_seconds], times, done[:, kind]) for kind in (LOW, HIGH)
        ]
        return np.array([span[1] - span[0] for span in spans])


def _totals(result: RowResult) -> dict[str, int]:
    return {
        "brakes": result.brakes,
        "trips": result.trips,
        "cap_changes": result.cap_changes,
        "invariant_violations": sum(result.violations.values()),
    }


def uncapped_seconds(
    requests: RowRequests, arrivals: ClientArrivals, power: ServerPower, span: tuple[float, float]
) -> Floats:
    """Load over rating of each second of a span without a policy, (seconds,)."""
    n = len(arrivals.class_of_server)
    servers = fastest_servers(requests, n, span[0], arrivals.times)
    around = ServersAround(power, np.zeros(n))
    boards = servers.full_speed_watts(round(span[1] - span[0]), 1.0)
    watts = [around.step(GPUS_PER_SERVER * one, 1.0).sum() for one in boards]
    return np.asarray(np.array(watts) / power.row_rating_watts, dtype=np.float64)


def stretches(
    load_ratio: Floats, begin_seconds: float, calm_below: float, wrong: Bools | None = None
) -> list[Stretch]:
    """Where a policy has to be at work, and where not, from seconds without one.

    Args:
        load_ratio: Of each second from ``begin_seconds`` on; whole blocks of five minutes.
        begin_seconds: Since Monday, midnight.
        calm_below: The highest second of a calm stretch and its neighbours is below that.
        wrong: Whether a fault lasts in each second: then it is at work, None for no faults.

    Raises:
        InputError: for seconds that are no whole blocks.
    """
    each = round(BLOCK_SECONDS)
    if not len(load_ratio) or len(load_ratio) % each:
        raise InputError("load_ratio", f"whole blocks of {each} s", len(load_ratio))
    hot = load_ratio.reshape(-1, each).max(axis=1) >= calm_below
    if wrong is not None:
        hot |= wrong.reshape(-1, each).any(axis=1)
    hot = np.convolve(hot, np.ones(3), mode="same") > 0
    made: list[tuple[int, int, bool]] = []
    edges = [0, *(np.flatnonzero(np.diff(hot)) + 1).tolist(), len(hot)]
    for first, last in pairwise(edges):
        is_hot = bool(hot[first]) or last - first < SHORTEST_CALM_BLOCKS
        if made and made[-1][2] == is_hot:
            made[-1] = (made[-1][0], last, is_hot)
        else:
            made.append((first, last, is_hot))
    return [
        Stretch(begin_seconds + each * first, begin_seconds + each * last, is_hot)
        for first, last, is_hot in made
    ]


class DayRun:
    """A row over a span of some hours.

    Args:
        name: ``UNCAPPED`` or a policy of ``CALM_BELOW``.
        arrivals: Of the row.
        requests: All of the span.
        scenario: The row's plant, and what goes wrong, in seconds since Monday, midnight; stretches
            with a fault have to be hot.
    """

    def __init__(
        self, name: str, arrivals: ClientArrivals, requests: RowRequests, scenario: Scenario
    ) -> None:
        if name != UNCAPPED and name not in CALM_BELOW:
            raise InputError("policy", f"{UNCAPPED}, {', '.join(CALM_BELOW)}", name)
        self._name, self._arrivals, self._requests = name, arrivals, requests
        self._scenario = scenario

    def run(self, plan: Sequence[Stretch], counted: tuple[float, float] = (-inf, inf)) -> DayBooks:
        """The span of a plan, stretch by stretch; events are counted of a part of it."""
        begin = plan[0].begin_seconds
        work = InferenceWork(
            self._requests, self._arrivals.class_of_server, begin, times=self._arrivals.times
        )
        make = policy_for(self._name, work, self._scenario).make
        books, now, warm = DayBooks(work, counted), begin, None
        standing = held = self._settled(work, make)
        for i, stretch in enumerate(plan):
            if stretch.end_seconds <= now:
                continue
            if stretch.hot:
                after = plan[i + 1].end_seconds if i + 1 < len(plan) else stretch.end_seconds
                latest = max(stretch.end_seconds, after - WARM_SECONDS)
                now, held = self._hot_run(books, make, (now, stretch.end_seconds, latest), warm,
                                          standing)  # fmt: skip
                warm = None
            else:
                last = i + 1 == len(plan)
                warm = self._calm_run(books, held, (now, stretch.end_seconds), last=last)
                now = stretch.end_seconds
        return books

    def _setup(self, begin_seconds: float) -> RowSetup:
        """Of a run that begins then."""
        return RowSetup(self._scenario, faults_within(self._scenario, -begin_seconds))

    def _settled(self, work: InferenceWork, make: MakePolicy) -> Held:
        """How the policy holds the boards of a calm row."""
        run = RowRun(RowSetup(self._scenario), work.anew(copied=True), make)
        if self._name != UNCAPPED:
            run.run(WARM_SECONDS)
        return _held(run)

    def _calm_run(
        self, books: DayBooks, held: Held, span: tuple[float, float], *, last: bool
    ) -> InferenceWork | None:
        """Boards stay as they are held; a copy of the work as it is before a hot stretch."""
        setup = self._setup(span[0])
        run = RowRun(setup, books.work.anew(), lambda _: StaticCaps(held.limit_watts.ravel()))
        run.actuators.lock_mhz = held.lock_mhz.copy()
        if last:
            books.follow(run, span, None)
            return None
        ends_soon = span[1] - WARM_SECONDS
        before = books.follow(run, (span[0], ends_soon), None) if ends_soon > span[0] else None
        warm = books.work.anew(copied=True)
        books.follow(run, (ends_soon, span[1]), before)
        return warm

    def _hot_run(
        self,
        books: DayBooks,
        make: MakePolicy,
        span: tuple[float, float, float],
        warm: InferenceWork | None,
        standing: Held,
    ) -> tuple[float, Held]:
        """The policy at work, to the end of the stretch and on until it holds boards as if calm.

        Returns:
            When that was, at the latest at the span's third time, and how boards are held then.
        """
        begin, end, latest = span
        work = books.work.anew() if warm is None else warm
        started = begin if warm is None else begin - WARM_SECONDS
        run = RowRun(self._setup(started), work, make)
        before = None
        if warm is not None:
            before = run.run(WARM_SECONDS)
            work.servers = books.work.servers
        result = books.follow(run, (begin, end), before)
        while not _stands(_held(run), standing) and end + BLOCK_SECONDS <= latest:
            result = books.follow(run, (end, end + BLOCK_SECONDS), result)
            end += BLOCK_SECONDS
        books.hot_seconds += end - begin
        return end, _held(run)


def _held(run: RowRun) -> Held:
    return Held(run.actuators.limit_watts.copy(), run.actuators.driver_lock_mhz.copy())


def _stands(held: Held, standing: Held) -> bool:
    near = np.abs(held.limit_watts - standing.limit_watts) <= STANDING_WATTS
    return bool(near.all() and np.array_equal(held.lock_mhz, standing.lock_mhz))
