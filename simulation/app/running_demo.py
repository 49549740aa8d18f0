"""The whole demo, started and stopped in order, with simulated time in lockstep.

Conductor moves time ──> World.advance (before anybody is released)
demo_nodes    agents, actuators   demo_control  controllers, scheduler, watchdog, forecaster
demo_work     pods                console       dashboard, on real time
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading

from console.app.console_command import ConsoleServer, Upstreams
from forecasting.sqlite import HistoryStore
from scheduler_plugin.app.webhook import WebhookServer
from scheduler_plugin.kube_objects.admission import Mode
from simulation.app.demo_control import DemoControl, Stage
from simulation.app.demo_nodes import DemoNodes
from simulation.app.demo_watch import Watch
from simulation.app.demo_work import DemoWork, WebhookCaller
from simulation.app.earlier_days import preload
from simulation.app.load_forecasts import declare_loads
from simulation.baselines import compare
from simulation.kube.embedded_api import EmbeddedKube
from simulation.lockstep import Conductor, Pace
from simulation.results import TwinResult, replay_uncapped, summarise
from simulation.row_objects import install
from simulation.scenario import Scenario
from simulation.world import World
from wattpack.clock import SystemClock
from wattpack.http_access import HttpAccess
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import NS_PER_SECOND
from wattpack.wire.certificates import new_identity

log = logging.getLogger(__name__)
# Objects made before a search for garbage: one for some seconds of a row, not ten a second.
RUNNING_GC_THRESHOLD = (20_000, 20, 20)
WEBHOOK_NAME = "wattpack-scheduler.wattpack-system.svc"


class DemoRow:
    """One run of the demo.

    Args:
        scenario: What to simulate.
        speed: Ceiling of simulated seconds a wall second; None for as fast as it goes.
        console_port: Of the dashboard; None for no dashboard.
        replicas: Controller replicas.
    """

    def __init__(
        self,
        scenario: Scenario,
        speed: float | None,
        console_port: int | None = None,
        replicas: int = 2,
    ) -> None:
        self.scenario = scenario
        self._gc_threshold = gc.get_threshold()
        # First: a scenario that the plant refuses leaves no folder behind.
        self.world = World(scenario, lock=threading.RLock())
        self._folder = ScratchFolder()
        directory = self._folder.path
        self.watch = Watch(self.world)
        self.conductor = Conductor(pace=Pace(speed), before_release=self.watch.advance)
        self.clock = self.conductor.clock("demo", alone=True)
        self.api = EmbeddedKube(self.clock, seed=scenario.seed)
        install(self.api, self.world)
        declare_loads(self.api, self.world, held=True)
        stage = Stage(self.world, self.api, self.clock, directory)
        preload(self.world, stage.history_file, self.clock.wall_time_ns())
        self.history = HistoryStore(stage.history_file)
        self.control = DemoControl(stage, self.watch.ticked, replicas)
        self._directory = directory
        self.failure: Exception | None = None
        self._conducting = threading.Thread(target=self._conduct, name="conductor", daemon=True)
        self.console: ConsoleServer | None = None
        self._console_port = console_port
        # What has been started, in order: a start that fails leaves nothing running either.
        self._undo = contextlib.ExitStack()
        self._undo.callback(self._end_time)

    def start(self) -> None:
        """Everything, in an order in which nothing works before it can be capped."""
        # Time stands until ``ready``, but somebody has to listen to the participants from now on.
        self._conducting.start()
        self._undo.callback(self.control.join)
        self._undo.callback(self.api.close)
        self._undo.callback(self.control.stop)
        self.control.start()
        self.nodes = DemoNodes(
            self.world,
            self.clock,
            self._directory,
            self.control.replicas(),
            self.control.trust.ca_file,
            self.control.trust.tokens,
        )
        self._undo.callback(self.nodes.stop)
        self.nodes.start()
        self.watch.attach(self.nodes.tables)
        caller = self._start_webhook()
        self.work = DemoWork(
            self.world, self.api, self.clock, caller.admit, self.nodes.reboot, self.history
        )
        self._undo.callback(self.work.stop)
        self.work.start()
        if self._console_port is not None:
            self._start_console(self._console_port)
        # What is there now stays until the end: looking for garbage in it again and again would
        # cost every twentieth second.
        gc.collect()
        gc.freeze()
        self._undo.callback(gc.unfreeze)
        gc.set_threshold(*RUNNING_GC_THRESHOLD)
        self.clock.ready()

    def stop(self) -> None:
        """End every process that was started while time still runs, then time."""
        gc.set_threshold(*self._gc_threshold)
        # Nobody can wait for an end in a time that stands because not all have started.
        self.clock.ready()
        self._undo.close()

    def _end_time(self) -> None:
        self.conductor.stop()
        if self._conducting.is_alive():
            self._conducting.join(timeout=10.0)
        self.clock.close()
        self.history.close()
        self._folder.close()

    def progress(self) -> str:
        """One line on how it goes."""
        leader = self.control.leader()
        view = leader.ticker.live() if leader is not None else None
        seconds = self.clock.monotonic_ns() / NS_PER_SECOND
        if view is None:
            return f"{seconds:7.0f} s  no leader has decided yet"
        top = view.domains[0]
        return (
            f"{seconds:7.0f} s  {top.name}: {top.draw_watts / 1000:6.1f} of "
            f"{top.rating_watts / 1000:.1f} kW, {top.band.lower()}, {top.capped_gpus} GPUs capped, "
            f"heat {top.heat:.3f}; {len(self.world.assignment.pods)} pods run, "
            f"{self.work.pending} wait; trips {self.world.trips}"
        )

    def summary(self) -> TwinResult:
        """What came of it, against an uncapped run of the same seed and placements."""
        records = self.control.forecaster.state.records.values()
        windows = sum(record.live.windows for record in records)
        violations = sum(record.live.violations[0] for record in records)
        uncapped = replay_uncapped(self.scenario, self.world.record, self.world.now_ns)
        product = {
            "brakes": self.watch.brakes,
            "pods_pending": self.work.pending,
            "forecast_coverage_p99": 1.0 - violations / windows if windows else None,
            "forecast_coverage_n": windows,
            "invariant_violations": self.watch.violation_count,
            "violations": self.watch.violations[:50],
        }
        result = summarise(self.world, uncapped, "wattpack", product)
        comparisons = compare(self.scenario, self.world)
        return result.model_copy(update={"comparisons": comparisons}).with_digest()

    def _conduct(self) -> None:
        try:
            self.conductor.run()
        except Exception as error:
            log.exception("simulated time has ended")
            self.failure = error

    def _start_webhook(self) -> WebhookCaller:
        identity = new_identity([WEBHOOK_NAME], SystemClock().wall_time_ns())
        server = WebhookServer("127.0.0.1", 0, identity, Mode.MANAGE)
        server.start()
        self._undo.callback(server.stop)
        return WebhookCaller(server.port, identity.ca_bundle, WEBHOOK_NAME)

    def _start_console(self, port: int) -> None:
        urls = [
            f"http://127.0.0.1:{controller.http.port}/v1/live"
            for controller in self.control.controllers
        ]
        clock = SystemClock()
        self.console = ConsoleServer(
            Upstreams(urls, self.api),
            HttpAccess.insecure([], clock),
            clock,
            host="127.0.0.1",
            port=port,
        )
        self._undo.callback(self.console.stop)
        self.console.start()
