"""One run in one process and virtual time: the product's own pieces against the twin's row.

    World (plant, queues)                                            every plant step
      boards ──> NodeAgent, Actuator (one a server) ──reports──> Fleet       every second
      boards <── Actuator <── LeaseBatch <── Ticker (controller.step) <──┘   every second
    EmbeddedKube <── PlacementLoop, ForecasterProcess, informers             every 10 s, 600 s

Everything is stepped in a fixed order by one thread, so a seed decides a run bit for bit. What a
real cluster adds (network, real threads, leader election) is the demo's and the cluster tests'.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Literal

from actuator.app.assembly import build_table, read_bounds, start_actuator
from actuator.app.board_writes import InlineHands
from actuator.app.config_file import ActuatorConfig
from actuator.app.node_actuator import Actuator
from actuator.app.persisted_state import MemoryStore
from actuator.audit_log import AuditTrail
from actuator.lease_table import LeaseTable
from controller.app.controller_metrics import ControllerMetrics
from controller.app.controller_process import FOLLOWED
from controller.app.decision_log import DecisionLog
from controller.app.desired_state import ObjectStore
from controller.app.domain_status import StatusThread
from controller.app.elected_leadership import ElectedLeadership
from controller.app.fleet import Fleet
from controller.app.forecast_reader import ForecastReader
from controller.app.running_topology import DesiredTopology
from controller.app.tick_loop import Ticker, TickIdentity, TickOutcome, TickPorts
from controller.tick_values import Band, PowerSettings
from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.app.forecast_verdicts import LOOK_SECONDS, VerdictThread
from forecasting.sqlite import HistoryStore
from gpu.device_reader import InlineReader
from scheduler_plugin.app.planning_cycle import PlannerSurroundings
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.solver_process import InProcessPlanner
from scheduler_plugin.kube_objects.admission import Mode, gate_patch
from simulation.app.cluster_stand_ins import ClusterStandIn
from simulation.app.earlier_days import DrawRecorder, fill
from simulation.app.load_forecasts import declare_loads
from simulation.app.loopback import LoopbackLink, send_over
from simulation.faces import WorldFeeds, WorldMeters, WorldServers, attribution, guaranteed_watts
from simulation.kube.embedded_api import EmbeddedKube
from simulation.monitor import InvariantMonitor
from simulation.pod_work import NAMESPACE, Work, pod_manifest
from simulation.results import TwinResult, end_seconds, replay_uncapped, summarise
from simulation.row_objects import install
from simulation.scenario import FaultKind, Scenario
from simulation.told import decided_caps, told_by
from simulation.world import World
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.sampler import Sampler
from wattpack.api import DemandForecast
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.kube.election import CONTROLLER_ELECTION, Bid, LeaderElector
from wattpack.kube.informer import Informer
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import PODS, KubeError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

Policy = Literal["wattpack", "uncapped"]
POLICIES: tuple[Policy, ...] = ("wattpack", "uncapped")


class TwinNodes:
    """Agent and actuator of every server.

    Args:
        world: The servers.
        clock: Virtual time.
        fleet: Where reports go.
    """

    def __init__(self, world: World, clock: ManualClock, fleet: Fleet) -> None:
        self._world, self._clock = world, clock
        self._generator = random.Random(world.scenario.seed)
        self._devices = {name: world.driver(name).devices() for name in world.node_names}
        self._stores = {name: MemoryStore() for name in world.node_names}
        self._config = ActuatorConfig(guaranteed_watts(world), allowed_uids=frozenset({0}))
        self.tables: dict[str, LeaseTable] = {}
        self.actuators = {name: self._start(name) for name in world.node_names}
        self.links = {
            name: LoopbackLink(fleet, partial(self._heard, name)) for name in world.node_names
        }
        self.agents = {name: self._agent(name) for name in world.node_names}
        self.controller_up = True

    def _start(self, node: str) -> Actuator:
        devices = self._devices[node]
        bounds = {str(d.identity.uuid): read_bounds(d) for d in devices}
        boot = self._world.boot_id(node)
        table = build_table(self._config, devices, bounds, boot, self._generator)
        self.tables[node] = table
        return start_actuator(
            table, InlineHands(devices), self._stores[node], self._clock, AuditTrail()
        )

    def _agent(self, node: str) -> NodeAgent:
        return NodeAgent(
            NodeFacts(node, boot_id=self._world.boot_id(node), host_unit=True),
            Senses(
                Sampler(InlineReader(self._devices[node])),
                partial(attribution, self._world, node),
            ),
            [self.links[node]],
            self.actuators[node],
            self._clock,
        )

    def _heard(self, node: str) -> bool:
        """Whether the node's stream to the controller is up."""
        i = self._world.node_names.index(node)
        since_ns = self._clock.monotonic_ns() - self._world.start_ns
        cut = self._world.faults.struck(
            FaultKind.TELEMETRY_LOSS, since_ns, len(self._world.node_names)
        )
        return self.controller_up and self._world.is_up(node) and not cut[i]

    def reboot(self) -> None:
        """Nodes that rebooted start with an empty lease table, before any work (I10)."""
        for node in self._world.take_reboots():
            self.actuators[node] = self._start(node)
            self.agents[node] = self._agent(node)

    def carry_out(self) -> None:
        """Hand batches to the actuators; end leases and read back where it is time."""
        now_ns = self._clock.monotonic_ns()
        for name, actuator in self.actuators.items():
            self.agents[name].handle()
            if actuator.next_wake_ns() <= now_ns:
                actuator.tick()

    def report(self) -> None:
        """Sample and report every server once."""
        now_ns = self._clock.monotonic_ns()
        for name, agent in self.agents.items():
            if self._world.is_up(name):
                agent.read(now_ns)
                agent.guard(now_ns)
        for name, agent in self.agents.items():
            if self._world.is_up(name):
                agent.exchange(now_ns)


class TwinRun:
    """One run under the product's control.

    Args:
        scenario: What to run.
        observe: Called after each tick with the world and the tick's outcome, for plots.
    """

    def __init__(
        self,
        scenario: Scenario,
        observe: Callable[[World, TickOutcome], None] = lambda world, outcome: None,
    ) -> None:
        self.scenario = scenario
        self._observe = observe
        self.world = World(scenario)
        self.clock = ManualClock()
        self.api = EmbeddedKube(self.clock, seed=scenario.seed)
        install(self.api, self.world)
        declare_loads(self.api, self.world, held=False)
        self._priorities = {c.name: c.value for c in scenario.priority_classes}
        self._cluster = ClusterStandIn(self.api)
        self._placement = PlacementLoop(
            self.api,
            PlannerSurroundings(
                self.clock, InProcessPlanner(deadline_seconds=0.0, seed=scenario.seed)
            ),
            PlacementSettings(mode=Mode.MANAGE, seed=scenario.seed, deadline_seconds=0.0),
        )
        self.history = HistoryStore(":memory:")
        fill(self.history, self.world, self.clock.wall_time_ns())
        self._recorder = DrawRecorder(self.world, self.history)
        self._forecaster = ForecasterProcess(
            self.clock, self.api, self.history, scenario.control.forecast_seconds
        )
        self._forecasts = Informer(
            self.api, self.clock, DemandForecast.meta.resource, seed=scenario.seed
        )
        self._verdicts = VerdictThread(
            self.clock, self.api, self._forecasts.list, self._forecaster.metrics
        )
        self.fleet = Fleet()
        self.nodes = TwinNodes(self.world, self.clock, self.fleet)
        self._build_controller()
        self.monitor = InvariantMonitor(self.world, self.nodes.tables)
        self.brakes = 0
        self._braking: set[str] = set()

    def _build_controller(self) -> None:
        self._objects = ObjectStore()
        self._informers = [
            Informer(self.api, self.clock, resource, seed=i) for i, resource in enumerate(FOLLOWED)
        ]
        for informer, resource in zip(self._informers, FOLLOWED, strict=True):
            informer.add_handler(partial(self._objects.changed, resource))
        desired = DesiredTopology(self._objects, ForecastReader(self._objects))
        self._elector = LeaderElector(
            self.api,
            self.clock,
            Bid("wattpack-controller", NAMESPACE, "twin", CONTROLLER_ELECTION),
        )
        self._status = StatusThread(self.api, self.clock, desired, "twin")
        self._ticker = Ticker(
            TickPorts(
                fleet=self.fleet,
                desired=desired,
                leadership=ElectedLeadership(
                    self._elector, CONTROLLER_ELECTION.renew_deadline_seconds / 2
                ),
                meters=WorldMeters(self.world),
                feeds=WorldFeeds(self.world),
                servers=WorldServers(self.world),
                clock=self.clock,
                audit=DecisionLog(":memory:"),
                metrics=ControllerMetrics(),
                send=send_over(self.nodes.links),
            ),
            PowerSettings(lease_ttl_ms=self.scenario.control.lease_ttl_ms),
            TickIdentity("twin", simulated=True, label=self.scenario.name),
        )

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end of the scenario."""
        scenario, control = self.scenario, self.scenario.control
        step_ns = seconds_to_ns(scenario.step_seconds)
        end_ns = seconds_to_ns(end_seconds(scenario))
        periods = {
            "tick": seconds_to_ns(control.tick_seconds),
            "report": seconds_to_ns(control.report_seconds),
            "plan": seconds_to_ns(control.plan_seconds),
            "forecast": seconds_to_ns(control.forecast_seconds),
            "verdict": LOOK_SECONDS * NS_PER_SECOND,
            "warm": seconds_to_ns(scenario.warmup_seconds),
        }
        for now_ns in range(0, end_ns + 1, step_ns):
            self.clock.advance_to(now_ns)
            self.world.advance(now_ns)
            if now_ns == periods["warm"]:
                self.world.reset_accounts()
            self.nodes.reboot()
            self.nodes.carry_out()
            if _due(now_ns, periods["plan"], step_ns):
                self._place(now_ns)
            if _due(now_ns, periods["forecast"], step_ns):
                self._forecast(now_ns)
            if _due(now_ns, periods["verdict"], step_ns):
                self._judge_forecasts(now_ns)
            if _due(now_ns, periods["report"], step_ns):
                self._recorder.take(self.clock.wall_time_ns())
                self.nodes.report()
            if _due(now_ns, periods["tick"], step_ns):
                self._tick(now_ns)

    def _down(self, kind: FaultKind, now_ns: int) -> bool:
        return self.world.faults.any_active(kind, now_ns)

    def _forecast(self, now_ns: int) -> None:
        if not self._down(FaultKind.FORECASTER_DOWN, now_ns):
            self._forecaster.tick()

    def _judge_forecasts(self, now_ns: int) -> None:
        """Say of each new or changed forecast whether it can be made, as its process does."""
        if self._down(FaultKind.FORECASTER_DOWN, now_ns) or self._down(FaultKind.API_DOWN, now_ns):
            return
        self._forecasts.pump()
        self._verdicts.run_once()

    def _place(self, now_ns: int) -> None:
        """Pods come and go; the planner releases them; the stand-ins bind and run them."""
        if self._down(FaultKind.API_DOWN, now_ns):
            return
        for name in self.world.take_finished():
            self.api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        for work in self.world.due(now_ns):
            self._create(work)
        if self.nodes.controller_up:
            self._status.run_once()
        if not self._down(FaultKind.PLANNER_DOWN, now_ns):
            self._placement.step()
        self.world.pods_changed(self._cluster.step())

    def _create(self, work: Work) -> None:
        pod = pod_manifest(work, self._priorities[work.priority_class])
        self.api.create(PODS, apply_json_patch(pod, gate_patch(pod)), NAMESPACE)

    def _tick(self, now_ns: int) -> None:
        self.nodes.controller_up = not self._down(FaultKind.CONTROLLER_CRASH, now_ns)
        if self.nodes.controller_up:
            if not self._down(FaultKind.API_DOWN, now_ns):
                self._elector.attempt()
                for informer in self._informers:
                    informer.pump()
            outcome = self._ticker.tick()
            if outcome is not None:
                self._take(outcome, now_ns)
        self.monitor.check(now_ns)

    def _take(self, outcome: TickOutcome, now_ns: int) -> None:
        topology, decisions = outcome.topology, outcome.decisions
        self.world.note_caps(now_ns, decided_caps(self.world, topology, decisions))
        self._status.take(outcome)
        self.monitor.decided(told_by(self.world, topology, outcome.seen, decisions), now_ns)
        braking = {
            name
            for name, band in zip(topology.tree.names, decisions.band, strict=True)
            if band == Band.BRAKE
        }
        if now_ns > seconds_to_ns(self.scenario.warmup_seconds):
            self.brakes += len(braking - self._braking)
        self._braking = braking
        self._observe(self.world, outcome)

    # -- the end ---------------------------------------------------------------------------------

    def product_figures(self) -> dict[str, object]:
        """What only the product's processes know."""
        records = self._forecaster.state.records.values()
        windows = sum(record.live.windows for record in records)
        violations = sum(record.live.violations[0] for record in records)
        try:
            pods = self.api.list(PODS, NAMESPACE).items
        except KubeError:
            pods = ()
        return {
            "brakes": self.brakes,
            "pods_pending": sum(not pod["spec"].get("nodeName") for pod in pods),
            "forecast_coverage_p99": 1.0 - violations / windows if windows else None,
            "forecast_coverage_n": windows,
            "invariant_violations": self.monitor.count,
            "violations": self.monitor.details[:50],
        }


def _due(now_ns: int, period_ns: int, step_ns: int) -> bool:
    """Whether a multiple of the period lies in the step that ends now."""
    return now_ns // period_ns != (now_ns - step_ns) // period_ns


def run_twin(scenario: Scenario, policy: Policy = "wattpack") -> TwinResult:
    """Run a scenario and compare it with an uncapped run of the same seed and placements.

    Args:
        scenario: What to run.
        policy: ``wattpack``, or ``uncapped``: the same placements with every GPU at its default
            limit, breakers that only count, and nothing to compare with but itself.

    Returns:
        The summary; ``wall_seconds`` is 0, callers that measure time fill it in.

    Raises:
        InputError: for an unknown policy.
    """
    if policy not in POLICIES:
        raise InputError("policy", f"one of {POLICIES}", policy)
    run = TwinRun(scenario)
    run.run()
    uncapped = replay_uncapped(scenario, run.world.record, run.world.now_ns)
    figures = run.product_figures()
    if policy == "uncapped":
        figures |= {"brakes": 0, "invariant_violations": 0, "violations": []}
        return summarise(uncapped, uncapped, policy, figures)
    return summarise(run.world, uncapped, policy, figures)
