"""``wattpack scheduler``: admits, plans and releases managed pods.

Every replica serves the webhook; the one that holds the Lease plans. The Lease is kept by planning
that works, so that a stuck or failing loop is noticed by the watchdog and by the other replica.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scheduler_plugin.app.extender import Extender
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.planning_cycle import PlannerSurroundings
from scheduler_plugin.app.planning_flags import OBJECTIVE_HELP, RISK_HELP, figures, stage_names
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_process import SchedulerProcess, planner_elector
from scheduler_plugin.app.scheduler_settings import ENVIRONMENT, PlacementSettings
from scheduler_plugin.app.solver_child import Failure
from scheduler_plugin.app.solver_failures import failure_teller
from scheduler_plugin.app.solver_process import ChildSettings, ProcessPlanner
from scheduler_plugin.app.webhook import WebhookServer
from scheduler_plugin.app.webhook_watch import WebhookWatch
from scheduler_plugin.batching import Batcher
from scheduler_plugin.kube_objects.admission import Mode
from scheduler_plugin.packing.policy_values import ThroughputPolicy
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.ending import end_noted
from wattpack.kube.event_reports import EventRecorder
from wattpack.kube.identity_store import IdentityKeeper, IdentityStore, publish_to_webhook
from wattpack.kube.port import KubeApi
from wattpack.logs import add_log_level, log_json
from wattpack.metrics_port import metrics_port, reader_access
from wattpack.units import seconds_to_ns

_FLAGS: Final = (
    "mode",
    "namespace",
    "deadline_seconds",
    "solver_workers",
    "policy",
    "objective",
    "cap_levels",
    "patience_seconds",
    "peaks",
    "risk_below_priority",
)
"""Those that are settings, too."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wattpack scheduler", description=__doc__)
    add = parser.add_argument
    add("--config", type=Path, help="YAML file with the settings below and more")
    add("--mode", choices=["Off", "Shadow", "Manage"], help="default Shadow")
    add("--namespace", help="of the Lease and the certificate's Secret")
    add("--deadline-seconds", type=float, help="what a cycle may take")
    add("--solver-workers", type=int, help="threads of the solver, at most the container's CPUs")
    add("--policy", choices=[p.value for p in ThroughputPolicy], help="of GPU models; default none")
    add("--objective", type=stage_names, metavar="STAGE,…", help=OBJECTIVE_HELP)
    add("--cap-levels", action="store_true", default=None, help="count work at caps that pay")
    add("--patience-seconds", type=float, help="of work, before room is held for it; 0 for ever")
    add("--peaks", choices=["sum", "p99"], help="of bound pods in a domain; default sum")
    add("--risk-below-priority", type=figures(float), metavar="PRIORITY=SHARE,…", help=RISK_HELP)
    add("--kubeconfig", type=Path, help="default: the pod's service account")
    add("--webhook-host", default="0.0.0.0")
    add("--webhook-port", type=flags.port, default=8443, help="0 serves no webhook")
    add("--webhook-name", default="wattpack-placement", help="MutatingWebhookConfiguration")
    add("--extender", action="store_true", help="answer a kube-scheduler at the webhook's port")
    add("--service", default="wattpack-scheduler", help="Service in front of the webhook")
    add("--secret", default="wattpack-scheduler-tls", help="Secret of the certificate")
    add("--metrics-host", default="0.0.0.0", help="on loopback nobody is asked who they are")
    add("--metrics-port", type=flags.port, default=9102, help="0 serves no metrics")
    add("--metrics-insecure", action="store_true", help="show metrics to whoever reaches the port")
    add_log_level(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM."""
    arguments = _parser().parse_args(argv)
    log_json(arguments.log_level)
    settings = PlacementSettings.load(
        file=arguments.config,
        prefix=ENVIRONMENT,
        flags={name: getattr(arguments, name) for name in _FLAGS},
    )
    from wattpack.kube.client import connect

    api: KubeApi = connect(arguments.kubeconfig)
    clock = SystemClock()
    instance = f"{socket.gethostname()}-{os.getpid()}-{clock.monotonic_ns():x}"
    metrics = PlacementMetrics()
    recorder = EventRecorder(api, clock, "wattpack.io/scheduler", instance)
    planner = _planner(clock, settings, failure_teller(recorder, metrics, settings.namespace))
    around = PlannerSurroundings(clock, planner, instance, threaded=True)
    extender = Extender(clock)

    def new_loop(fenced: KubeApi, epoch: int) -> PlacementLoop:
        # Who leads will need it: its start takes longer than pods should wait for a first plan.
        planner.start()
        return PlacementLoop(fenced, around, settings, metrics, epoch=epoch)

    process = SchedulerProcess(
        api,
        clock,
        planner_elector(api, clock, settings.namespace, instance),
        Batcher(
            seconds_to_ns(settings.batch_idle_seconds),
            seconds_to_ns(settings.batch_max_seconds),
            seconds_to_ns(settings.resync_seconds),
        ),
        new_loop,
        metrics,
    )
    process.tell(lambda loop, result: extender.planned(result, _spaces(loop, settings.mode)))
    with end_noted(clock) as end, contextlib.ExitStack() as undo:
        end.call(process.stop)
        undo.callback(planner.close)
        failures = [process.failure]
        if arguments.webhook_port:
            webhook = _start_webhook(arguments, api, clock, settings, metrics, undo)
            webhook.answer_also(extender.routes() if arguments.extender else {})
            failures.append(webhook.failure)
        if arguments.metrics_port:
            _show_metrics(arguments, api, clock, metrics, failures, undo)
        watch = WebhookWatch(api, clock, settings.mode, arguments.webhook_name, metrics)
        watch.start()
        undo.callback(watch.stop)
        process.run()
    return 0


def _show_metrics(
    arguments: argparse.Namespace,
    api: KubeApi,
    clock: Clock,
    metrics: PlacementMetrics,
    failures: Sequence[Callable[[], str]],
    undo: contextlib.ExitStack,
) -> None:
    """Metrics, and whether it lives: not while anything says that it failed."""
    host = arguments.metrics_host
    http = metrics_port(
        (host, arguments.metrics_port),
        metrics.registry,
        reader_access(host, arguments.metrics_insecure, lambda: api, clock),
        lambda: "; ".join(filter(None, (failure() for failure in failures))),
    )
    http.start()
    undo.callback(http.stop)


def _planner(
    clock: Clock, settings: PlacementSettings, tell_failure: Callable[[Failure], None]
) -> ProcessPlanner:
    """The solver's process, with its limits."""
    return ProcessPlanner(
        clock,
        settings.deadline_seconds,
        settings.seed,
        settings.solver_workers,
        ChildSettings.bounded(settings.solver_memory_mib),
        tell_failure,
    )


def _spaces(loop: PlacementLoop | None, mode: Mode) -> frozenset[str]:
    """Where pods without our gate are planned."""
    if loop is None or mode is not Mode.SHADOW:
        return frozenset()
    return loop.reader.opted_in()


def _start_webhook(
    arguments: argparse.Namespace,
    api: KubeApi,
    clock: Clock,
    settings: PlacementSettings,
    metrics: PlacementMetrics,
    undo: contextlib.ExitStack,
) -> WebhookServer:
    host = f"{arguments.service}.{settings.namespace}.svc"
    store = IdentityStore(
        api,
        clock,
        settings.namespace,
        arguments.secret,
        [host, f"{host}.cluster.local"],
        publish_to_webhook(api, arguments.webhook_name),
    )
    server = WebhookServer(
        arguments.webhook_host, arguments.webhook_port, store.ensure(), settings.mode
    )
    server.start()
    undo.callback(server.stop)
    metrics.watch_webhook_certificate(lambda: server.certificate_pem)
    keeper = IdentityKeeper(server.use, store, clock)
    keeper.start()
    undo.callback(keeper.stop)
    return server
