"""The inference row on the twin's plant under one power policy: who may play, what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import A100_MODEL, ServerTimes
from controller.tick_values import PowerSettings
from simulation.inference_row.client_arrivals import RowRequests
from simulation.inference_row.published_policies import POLICIES, PolicyName
from simulation.inference_row.row_power import GPUS_PER_SERVER, RATED_SERVERS, ServerPower
from simulation.inference_row.row_work import InferenceWork
from simulation.row_control.accounts import RowResult
from simulation.row_control.product_topology import product_topology
from simulation.row_control.published_row_policy import PublishedRowPolicy
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Uncapped
from simulation.row_control.run import START_NS, MakePolicy, RowRun, RowSetup
from simulation.row_control.scenario_faults import faults_within
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.scenario import Scenario, load_scenario
from wattpack.errors import InputError

Floats = NDArray[np.float64]

RACKS: Final = 4
UNCAPPED: Final = "uncapped"
WATTPACK: Final = "wattpack"
WATTPACK_LIMITS: Final = "wattpack_limits"
"""The same, where no policy of the row allows it clocks."""

ROW_POLICIES: Final = (UNCAPPED, *POLICIES, WATTPACK_LIMITS, WATTPACK)


def polca_scenario(
    n_servers: int,
    seed: int,
    power: ServerPower,
    step_seconds: float = 0.25,
    gpu_model: str = A100_MODEL,
) -> Scenario:
    """A row of servers behind a breaker for 40; its racks carry all that stands in them.

    Args:
        n_servers: In the row.
        seed: Of boards, meters and noise.
        power: The servers around the GPUs.
        step_seconds: Of the plant.
        gpu_model: Of every board.
    """
    in_rack = -(-n_servers // RACKS)
    row = {
        "groups": [{"gpu_model": gpu_model, "count": n_servers}],
        "gpus_per_server": GPUS_PER_SERVER,
        "racks": RACKS,
        "rated_servers": float(RATED_SERVERS),
        "rated_server_watts": power.rated_ac_watts,
        # The published row has one breaker: racks are rated beyond what can be drawn.
        "rack_rated_servers": 1.25 * in_rack,
        "external_watts": 0.0,
    }
    classes = [
        {"name": "high", "value": 1000, "interactive": True},
        # As the published policy does, low priority may be held by its clocks as well.
        {"name": "low", "value": 100, "actuators": ["PowerLimit", "ClockLock"]},
    ]
    return load_scenario(
        None,
        name=f"polca-{n_servers}",
        priority_classes=classes,
        seed=seed,
        step_seconds=step_seconds,
        row=row,
        plant=power.plant.model_dump(),
    )


@dataclass(frozen=True, slots=True)
class Window:
    """A time of the six weeks.

    Attributes:
        begin_seconds: Since Monday, midnight; the row starts empty there.
        lead_seconds: Not counted, while it fills.
        seconds: Counted.
        tail_seconds: Arrivals here are not counted, so that those before come to their end.
    """

    begin_seconds: float
    lead_seconds: float
    seconds: float
    tail_seconds: float

    @property
    def whole_seconds(self) -> float:
        """All of the run."""
        return self.lead_seconds + self.seconds + self.tail_seconds

    @property
    def counted(self) -> tuple[float, float]:
        """Arrivals that count, since Monday, midnight."""
        begin = self.begin_seconds + self.lead_seconds
        return begin, begin + self.seconds


class Arrivals(Protocol):
    """Whoever asks a row: clients that are drawn, or a recorded trace."""

    times: ServerTimes
    class_of_server: NDArray[np.int64]

    def between(self, begin_seconds: float, end_seconds: float) -> RowRequests:
        """Requests that arrive in [begin, end), with the server that answers each."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What came of a window under a policy.

    Attributes:
        result: The rig's books.
        work: The work with its requests.
        guaranteed_watts: What a board falls to without a controller, (n_gpus,).
        floor_watts: Lowest cap that the policy promises, (n_gpus,); 0 where it promises none.
    """

    result: RowResult
    work: InferenceWork
    guaranteed_watts: Floats
    floor_watts: Floats


def run_policy(
    name: str,
    arrivals: Arrivals,
    window: Window,
    scenario: Scenario,
    settings: PowerSettings | None = None,
) -> PolicyRun:
    """One window of a row under a policy.

    Args:
        name: One of ``ROW_POLICIES``.
        arrivals: Of the row.
        window: When.
        scenario: The row's plant, and what goes wrong, counted from the window's counted time on.
        settings: Of wattpack's power loop; by default the product's, with the scenario's lease.

    Raises:
        InputError: for another policy, and for a fault that strikes nobody here.
        SafetyError: if the product finds that I1 cannot hold on such a row.
    """
    if name not in ROW_POLICIES:
        raise InputError("policy", f"one of {ROW_POLICIES}", name)
    begin = window.begin_seconds
    requests = arrivals.between(begin, begin + window.whole_seconds)
    work = InferenceWork(requests, arrivals.class_of_server, begin, times=arrivals.times)
    made = policy_for(name, work, scenario, settings)
    # The scenario's time begins with what is counted, whatever it takes to fill the row.
    faults = faults_within(scenario, window.lead_seconds)
    run = RowRun(RowSetup(scenario, faults), work, made.make)
    return PolicyRun(run.run(window.whole_seconds), work, made.guaranteed_watts, made.floor_watts)


@dataclass(frozen=True, slots=True)
class MadePolicy:
    """A policy for a row, not begun.

    Attributes:
        make: Begins it.
        guaranteed_watts, floor_watts: As in ``PolicyRun``.
    """

    make: MakePolicy
    guaranteed_watts: Floats
    floor_watts: Floats


def policy_for(
    name: str, work: InferenceWork, scenario: Scenario, settings: PowerSettings | None = None
) -> MadePolicy:
    """The policy of a name, one of ``ROW_POLICIES``; arguments as for ``run_policy``."""
    if name == WATTPACK_LIMITS:
        scenario = _limits_only(scenario)
    plant = RowPlant(scenario, START_NS)
    limits = plant.bank.default_limit_watts.copy()
    none = np.zeros(len(limits))
    if name in {WATTPACK, WATTPACK_LIMITS}:
        gang = np.arange(len(limits)) // GPUS_PER_SERVER
        topology = product_topology(plant, work.priority, gang)
        told = settings or PowerSettings(lease_ttl_ms=scenario.control.lease_ttl_ms)
        return MadePolicy(
            lambda epoch: WattpackPolicy(topology, told, epoch),
            topology.guaranteed_watts,
            topology.floor_watts,
        )
    if name == UNCAPPED:
        return MadePolicy(lambda _: Uncapped(limits), limits, none)
    published: PolicyName = next(one for one in POLICIES if one == name)
    return MadePolicy(lambda _: PublishedRowPolicy(published, plant, work.priority), limits, none)


def _limits_only(scenario: Scenario) -> Scenario:
    classes = [
        one.model_copy(update={"actuators": ("PowerLimit",)}) for one in scenario.priority_classes
    ]
    return scenario.model_copy(update={"priority_classes": tuple(classes)})
