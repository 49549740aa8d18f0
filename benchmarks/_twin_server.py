"""One server of the twin under given arrivals: its queues, and its board if there is one.

The queues are the twin's (``simulation.serving_queues``), times and draws of iterations capacity's
step tables, the board the plant's. Nothing here knows what a real server did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from capacity.gpu_profile import GpuProfile
from capacity.model.capping_loop import capping_loop
from capacity.step_table import StepTable
from gpu.simulated.board_arrays import BoardBank, BoardSpec
from simulation.arrivals import Requests
from simulation.capping_boards import CappingRegulation
from simulation.plant_constants import frozen_plant
from simulation.serving_queues import Replica, ServingFleet, StepResult
from simulation.serving_steps import BoardState
from simulation.traces import Trace
from wattpack.units import GpuUuid, NodeName, seconds_to_ns

Floats = NDArray[np.float64]

TWIN_STEP_SECONDS: Final = 0.25
"""Of the twin (``Scenario.step_seconds``)."""

FINE_STEP_SECONDS: Final = 0.01
"""About an iteration: what the queues say without the twin's step."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How a server makes its iterations: most answers together, and tokens of one iteration."""

    max_batch: int = 256
    chunk_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class TwinRun:
    """What one server did.

    Attributes:
        watts: Mean draw of the board over each step, (n_steps,); zeros without a board.
        busy_share: Share of each step in which iterations ran, (n_steps,).
        decode_batch: Answers that are decoded together at the end of each step, (n_steps,).
        number: Of each finished request among those given, (n_finished,).
        first_token_seconds: Arrival to first token, (n_finished,).
        per_token_seconds: Time of each further token, NaN for answers of one, (n_finished,).
    """

    step_seconds: float
    watts: Floats
    busy_share: Floats
    decode_batch: Floats
    number: NDArray[np.intp]
    first_token_seconds: Floats
    per_token_seconds: Floats


def play(
    table: StepTable,
    requests: Requests,
    seconds: float,
    batching: Batching,
    step_seconds: float = TWIN_STEP_SECONDS,
    profile: GpuProfile | None = None,
) -> TwinRun:
    """Serve requests with one replica until the time is over.

    Args:
        profile: Of the board; None leaves the GPU at full clock and tells no draw.
    """
    fleet = ServingFleet(1)
    fleet.add(Replica(0, table, batching.max_batch, batching.chunk_tokens))
    bank = None if profile is None else _bank(profile)
    knee = frozen_plant().decode_clock_knee_ratio
    watts, busy, batch, ended, taken = [], [], [], [], 0
    for step in range(round(seconds / step_seconds)):
        now = step * step_seconds
        upto = int(np.searchsorted(requests.arrival_seconds, now))
        fleet.arrive(0, _part(requests, slice(taken, upto)))
        taken = upto
        held = np.ones(1) if bank is None else _held(bank)
        done = fleet.step(now, step_seconds, BoardState(held, np.ones(1), knee))
        busy.append(float(done.busy_share[0]))
        batch.append(float(fleet.decode_batch()[0]))
        if len(done.arrived_seconds):
            ended.append(done)
        if bank is None or profile is None:
            watts.append(0.0)
            continue
        demand = done.busy_watts + (1.0 - done.busy_share) * profile.context_watts
        watts.append(float(bank.advance(demand, seconds_to_ns(now + step_seconds))[0]))
    steps = (np.array(watts), np.array(busy), np.array(batch))
    return _run(requests, step_seconds, steps, ended)


def _run(
    requests: Requests,
    step_seconds: float,
    steps: tuple[Floats, Floats, Floats],
    ended: list[StepResult],
) -> TwinRun:
    arrived = np.concatenate([[], *(done.arrived_seconds for done in ended)])
    first = np.concatenate([[], *(done.first_token_seconds for done in ended)])
    whole = np.concatenate([[], *(done.latency_seconds for done in ended)])
    number = np.searchsorted(requests.arrival_seconds, arrived)
    further = requests.output_tokens[number] - 1.0
    per_token = np.full(len(number), np.nan)
    np.divide(whole - first, further, out=per_token, where=further > 0)
    return TwinRun(step_seconds, *steps, number, first, per_token)


def part_of_trace(trace: Trace, rate: float, begin_seconds: float, seconds: float) -> Requests:
    """The arrivals of ``seconds`` of server time from a trace's second on, its times over ``rate``.

    Arrivals at one instant are set a microsecond apart, so that each is told from the others.
    """
    arrivals = (trace.arrival_seconds - begin_seconds) / rate
    which = np.flatnonzero((arrivals >= 0.0) & (arrivals < seconds))
    apart = arrivals[which] + 1e-6 * np.arange(len(which))
    return Requests(apart, trace.prompt_tokens[which], trace.output_tokens[which])


def _held(bank: BoardBank) -> Floats:
    return np.asarray(bank.drawn_watts / np.maximum(bank.drawn_watts + bank.shed_watts, 1e-9))


def _bank(profile: GpuProfile) -> BoardBank:
    """One board of the plant whose sensor reads true."""
    regulation = CappingRegulation(capping_loop(profile.model), np.array([profile.idle_watts]))
    spec = BoardSpec(
        uuid=GpuUuid("GPU-served"),
        model=profile.product_names[0],
        node=NodeName("served"),
        index=0,
        idle_watts=profile.idle_watts,
        default_limit_watts=profile.default_limit_watts,
        min_limit_watts=profile.min_limit_watts,
        max_limit_watts=profile.max_limit_watts,
        max_clock_mhz=round(profile.max_clock_mhz),
        knee_watts=profile.knee_watts,
    )
    bank = BoardBank([spec], regulation=regulation)
    bank.sensor_gain = np.ones(1)
    return bank


def _part(requests: Requests, part: slice) -> Requests:
    return Requests(
        requests.arrival_seconds[part], requests.prompt_tokens[part], requests.output_tokens[part]
    )
