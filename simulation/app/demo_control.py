"""The control side of the demo: the product's own processes, each as threads of this one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from capacity.profile_library import shipped_library
from controller.app.agent_identity import AUDIENCE
from controller.app.controller_process import ControllerProcess, Surroundings
from controller.app.controller_settings import ControllerSettings
from controller.app.tick_loop import TickOutcome
from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.app.forecast_verdicts import VerdictThread
from forecasting.sqlite import HistoryStore
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.planning_cycle import PlannerSurroundings
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_process import SchedulerProcess, planner_elector
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.solver_process import ProcessPlanner
from scheduler_plugin.app.watchdog_command import PERIOD_SECONDS, Watchdog
from scheduler_plugin.batching import Batcher
from scheduler_plugin.kube_objects.admission import Mode
from simulation.app.demo_nodes import Replica
from simulation.faces import WorldFeeds, WorldMeters, WorldServers
from simulation.kube.embedded_api import EmbeddedKube
from simulation.scenario import FaultKind
from simulation.world import World
from wattpack.api import DemandForecast
from wattpack.clock import Clock, SystemClock
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.informer import Informer
from wattpack.kube.port import KubeApi, TokenIdentity
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.units import seconds_to_ns
from wattpack.wire.certificates import new_authority, new_server

AGENT_USERNAME = "system:serviceaccount:wattpack-agents:wattpack-agent"
SERVER_NAME = "wattpack-controller.local"
# The solver's real time in one cycle: simulated time stands still while it searches.
PLAN_DEADLINE_SECONDS = 0.15
PATIENCE_SECONDS = 60.0
"""Of 900 s; clusters where work runs for hours wait for ten minutes."""
BATCH_RISK = 0.5
"""Of windows in which work that nobody waits for may be held back by caps: it shares the row's
swings with the services instead of leaving room for the worst of them."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What proves who is who: the authority's file for agents, a token file a node."""

    ca_file: Path
    tokens: Path


@dataclass(frozen=True, slots=True)
class Stage:
    """What every process of the demo stands on.

    Attributes:
        world: For meters and scenario.
        api: The embedded store.
        clock: Shared by everybody.
        directory: For files of this run.
    """

    world: World
    api: EmbeddedKube
    clock: Clock
    directory: Path

    @property
    def history_file(self) -> Path:
        """SQLite history, preloaded."""
        return self.directory / "history.sqlite"


class DemoControl:
    """Controllers, scheduler, watchdog and forecaster around one embedded store.

    Args:
        stage: What they stand on.
        on_tick: Told of every controller's ticks.
        replicas: Controller replicas; at each ``controller_crash`` the leading one dies for good.
    """

    def __init__(
        self, stage: Stage, on_tick: Callable[[TickOutcome], None], replicas: int = 2
    ) -> None:
        world, api, clock = stage.world, stage.api, stage.clock
        self._world, self._api, self._clock = world, api, clock
        self._stage, self._on_tick = stage, on_tick
        real = SystemClock()
        authority = new_authority("wattpack demo", real.wall_time_ns())
        self._server = new_server(authority, [SERVER_NAME], real.wall_time_ns())
        self.trust = self._write_trust(authority.certificate_pem)
        self._crashes_ns = [
            fault.begin_ns
            for fault in world.faults.faults
            if fault.kind is FaultKind.CONTROLLER_CRASH
        ]
        self._lines = [FaultyKube(api, FaultRates()) for _ in range(replicas)]
        self.controllers = [self._controller(i) for i in range(replicas)]
        self._planner = ProcessPlanner(real, PLAN_DEADLINE_SECONDS, world.scenario.seed, workers=1)
        self.placement_metrics = PlacementMetrics()
        self._scheduler = self._make_scheduler()
        self._watchdog = Watchdog(api, clock, SYSTEM_NAMESPACE)
        self.forecaster = ForecasterProcess(
            clock,
            api,
            HistoryStore(stage.history_file, read_only=True),
            world.scenario.control.forecast_seconds,
        )
        self._forecasts = Informer(
            api, clock, DemandForecast.meta.resource, seed=world.scenario.seed
        )
        self._verdicts = VerdictThread(clock, api, self._forecasts.list, self.forecaster.metrics)
        self._wake = clock.new_wake()
        self._forecaster_wake = clock.new_wake()
        self._crash_wake = clock.new_wake()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._scheduler.run, name="scheduler", daemon=True),
            threading.Thread(target=self._watch, name="watchdog", daemon=True),
            threading.Thread(target=self._forecast, name="forecaster", daemon=True),
        ]
        if self._crashes_ns:
            self._threads.append(threading.Thread(target=self._crash, name="crashes", daemon=True))

    def start(self) -> None:
        """Controllers first: nothing may work before it can be capped."""
        for controller in self.controllers:
            controller.start()
        self._forecasts.start()
        self._verdicts.start()
        for thread in self._threads:
            thread.start()

    def replicas(self) -> list[Replica]:
        """Where agents find the controllers; after ``start``."""
        return [
            Replica(f"127.0.0.1:{controller.streams.port}", SERVER_NAME)
            for controller in self.controllers
        ]

    def leader(self) -> ControllerProcess | None:
        """The replica that leads now."""
        return next((c for c in self.controllers if c.elector.is_leader()), None)

    def stop(self) -> None:
        """End every process."""
        self._stopping.set()
        self._wake.set()
        self._forecaster_wake.set()
        self._crash_wake.set()
        self._scheduler.stop()
        self._verdicts.stop()
        self._forecasts.stop()
        for controller in self.controllers:
            controller.stop()
        self._planner.close()

    def join(self) -> None:
        """Wait for the loops that a closed store ends."""
        for controller in self.controllers:
            for informer in controller.informers:
                informer.join()
        self._forecasts.join()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5.0)

    def _risks(self) -> dict[int, float]:
        """Of pods below the least important work that somebody waits for."""
        waited_for = [c.value for c in self._world.scenario.priority_classes if c.interactive]
        return {min(waited_for): BATCH_RISK} if waited_for else {}

    def _controller(self, index: int) -> ControllerProcess:
        scenario = self._world.scenario
        settings = ControllerSettings(
            replica=f"controller-{index}",
            namespace=SYSTEM_NAMESPACE,
            stream_address="127.0.0.1:0",
            http_host="127.0.0.1",
            http_port=0,
            http_insecure=True,
            agent_username=AGENT_USERNAME,
            report_period_ms=round(1000 * scenario.control.report_seconds),
            tick_seconds=scenario.control.tick_seconds,
            lease_ttl_ms=scenario.control.lease_ttl_ms,
            audit_file=str(self._stage.directory / f"decisions-{index}.sqlite"),
            history_file=str(self._stage.history_file) if index == 0 else "",
            risk_below_priority=self._risks(),
            simulated=True,
            label=f"simulated: scenario {scenario.name}, seed {scenario.seed}; history before "
            "the start is simulated too",
        )
        api: KubeApi = self._lines[index] if self._crashes_ns else self._api
        around = Surroundings(
            api=api,
            clock=self._clock,
            identity=self._server,
            meters=WorldMeters(self._world),
            feeds=WorldFeeds(self._world),
            servers=WorldServers(self._world),
            profiles=shipped_library(),
            election=settings.election(),
            seed=scenario.seed + 100 * index,
            on_tick=self._on_tick,
        )
        return ControllerProcess(settings, around)

    def _make_scheduler(self) -> SchedulerProcess:
        settings = PlacementSettings(
            mode=Mode.MANAGE,
            namespace=SYSTEM_NAMESPACE,
            deadline_seconds=PLAN_DEADLINE_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
            cap_levels=True,
            risk_below_priority=self._risks(),
            batch_max_seconds=min(60.0, self._world.scenario.control.plan_seconds),
            batch_idle_seconds=min(60.0, self._world.scenario.control.plan_seconds / 2),
        )
        elector = planner_elector(
            self._api,
            self._clock,
            SYSTEM_NAMESPACE,
            "scheduler-0",
            self._world.scenario.seed + 1,
        )
        batcher = Batcher(
            seconds_to_ns(settings.batch_idle_seconds),
            seconds_to_ns(settings.batch_max_seconds),
            seconds_to_ns(settings.resync_seconds),
        )
        around = PlannerSurroundings(self._clock, self._planner, "scheduler-0", threaded=True)
        return SchedulerProcess(
            self._api,
            self._clock,
            elector,
            batcher,
            lambda fenced, epoch: PlacementLoop(
                fenced, around, settings, self.placement_metrics, epoch=epoch
            ),
            self.placement_metrics,
        )

    def _write_trust(self, authority_pem: bytes) -> Trust:
        """The authority's certificate, and for each node a token bound to it."""
        ca_file, tokens = self._stage.directory / "ca.pem", self._stage.directory / "tokens"
        ca_file.write_bytes(authority_pem)
        tokens.mkdir(mode=0o700)
        for node in self._world.node_names:
            token = secrets.token_urlsafe(32)
            (tokens / node).write_text(token, encoding="utf-8")
            claim = {"authentication.kubernetes.io/node-name": [node]}
            identity = TokenIdentity(AGENT_USERNAME, ("system:serviceaccounts",), claim)
            self._api.register_token(token, identity, (AUDIENCE,))
        return Trust(ca_file, tokens)

    def _crash(self) -> None:
        """End whoever leads at each crash; its line to the API first, so it says no goodbye."""
        for crash_ns in sorted(self._crashes_ns):
            self._clock.wait_until(crash_ns, self._crash_wake)
            leader = self.leader()
            if self._stopping.is_set():
                return
            if leader is not None:
                self._lines[self.controllers.index(leader)].is_down = True
                leader.stop()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._watchdog.step()
            self._clock.wait_until(
                self._clock.monotonic_ns() + seconds_to_ns(PERIOD_SECONDS), self._wake
            )

    def _forecast(self) -> None:
        self.forecaster.run(self._stopping.is_set, self._forecaster_wake)
