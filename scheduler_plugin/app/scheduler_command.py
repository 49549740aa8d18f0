"""``wattpack scheduler``: admits, plans and releases managed pods.

Every replica serves the webhook; the one that holds the Lease plans. The Lease is renewed by the
planning loop itself, so that a stuck loop is noticed by the watchdog and by the other replica.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from prometheus_client import start_http_server

from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.webhook import WebhookServer
from scheduler_plugin.batching import Batcher
from scheduler_plugin.solver_process import ProcessPlanner
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.kube.election import LeaderElector
from wattpack.kube.identity_store import IdentityKeeper, IdentityStore, publish_to_webhook
from wattpack.kube.port import KubeApi
from wattpack.logs import add_log_level, log_json
from wattpack.object_names import LEASE_NAME
from wattpack.units import seconds_to_ns

_LOG = logging.getLogger(__name__)
RENEW_SECONDS = 2.0
#: After a cycle that could not read the cluster, for example before informers have synced.
RETRY_SECONDS = 1.0
# A new term's informers may take this long to read everything once; then cycles fail and say why.
FIRST_READ_SECONDS = 10.0


class SchedulerProcess:
    """Leads or stands by, and plans while it leads.

    Args:
        clock: Time.
        elector: Attempted from this loop and nowhere else.
        batcher: Decides when to plan.
        new_loop: Makes the planning loop of a term; it starts from what the cluster holds.
    """

    def __init__(
        self,
        clock: Clock,
        elector: LeaderElector,
        batcher: Batcher,
        new_loop: Callable[[], PlacementLoop],
    ) -> None:
        self._clock = clock
        self._elector = elector
        self._batcher = batcher
        self._new_loop = new_loop
        self._wake = clock.new_wake()
        self._loop: PlacementLoop | None = None
        self._renew_at_ns = clock.monotonic_ns()
        self._reading_until_ns = self._renew_at_ns
        self._changed = False
        self._stopping = False

    def stop(self) -> None:
        """End ``run`` soon; callable from signal handlers."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping:
            due_ns = self.step()
            self._clock.wait_until(due_ns, self._wake)
        if self._loop is not None:
            self._loop.reader.stop()
        self._elector.release()

    def step(self) -> int:
        """Renew and plan if due; when to come back, on the monotonic clock."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._renew_at_ns:
            self._lead(self._elector.attempt())
            self._renew_at_ns = now_ns + seconds_to_ns(RENEW_SECONDS)
        if self._loop is None or not self._elector.is_leader():
            return self._renew_at_ns
        if self._changed:
            self._changed = False
            self._batcher.changed(now_ns)
        if now_ns < self._reading_until_ns and self._loop.reader.missing():
            return min(self._renew_at_ns, now_ns + seconds_to_ns(RETRY_SECONDS))
        if now_ns >= self._batcher.due_at(now_ns):
            failed = self._loop.step().outcome == "failed"
            again_ns = now_ns + seconds_to_ns(RETRY_SECONDS) if failed else None
            self._batcher.ran(now_ns, again_ns)
        return min(self._renew_at_ns, self._batcher.due_at(now_ns))

    def _lead(self, leads: bool) -> None:
        """A term begins with a fresh view and fresh promises, and ends with none."""
        if leads and self._loop is None:
            self._loop = self._new_loop()
            self._loop.reader.start(self._pod_changed)
            self._reading_until_ns = self._clock.monotonic_ns() + seconds_to_ns(FIRST_READ_SECONDS)
            _LOG.info("planning starts")
        elif not leads and self._loop is not None:
            self._loop.reader.stop()
            self._loop = None
            _LOG.info("planning ends: another replica leads")

    def _pod_changed(self) -> None:
        self._changed = True
        self._wake.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wattpack scheduler", description=__doc__)
    add = parser.add_argument
    add("--config", type=Path, help="YAML file with the settings below and more")
    add("--mode", choices=["Off", "Shadow", "Manage"], help="default Shadow")
    add("--namespace", help="of the Lease and the certificate's Secret")
    add("--deadline-seconds", type=float, help="what the search may take in one cycle")
    add("--solver-workers", type=int, help="threads of the solver")
    add("--kubeconfig", type=Path, help="default: the pod's service account")
    add("--webhook-host", default="0.0.0.0")
    add("--webhook-port", type=flags.port, default=8443, help="0 serves no webhook")
    add("--webhook-name", default="wattpack-placement", help="MutatingWebhookConfiguration")
    add("--service", default="wattpack-scheduler", help="Service in front of the webhook")
    add("--secret", default="wattpack-scheduler-tls", help="Secret of the certificate")
    add("--metrics-port", type=flags.port, default=9102, help="0 serves no metrics")
    add_log_level(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM."""
    arguments = _parser().parse_args(argv)
    log_json(arguments.log_level)
    flags = ("mode", "namespace", "deadline_seconds", "solver_workers")
    settings = PlacementSettings.load(
        file=arguments.config,
        prefix="WATTPACK_PLACEMENT_",
        flags={name: getattr(arguments, name) for name in flags},
    )
    from wattpack.kube.client import connect

    api: KubeApi = connect(arguments.kubeconfig)
    clock = SystemClock()
    instance = f"{socket.gethostname()}-{os.getpid()}-{clock.monotonic_ns():x}"
    metrics = PlacementMetrics()
    planner = ProcessPlanner(
        clock, settings.deadline_seconds, settings.seed, settings.solver_workers
    )
    elector = LeaderElector(
        api, clock, name=LEASE_NAME, namespace=settings.namespace, identity=instance
    )
    process = SchedulerProcess(
        clock,
        elector,
        Batcher(
            seconds_to_ns(settings.batch_idle_seconds),
            seconds_to_ns(settings.batch_max_seconds),
            seconds_to_ns(settings.resync_seconds),
        ),
        lambda: PlacementLoop(api, planner, clock, settings, metrics, instance, threaded=True),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    if arguments.metrics_port:
        start_http_server(arguments.metrics_port, registry=metrics.registry)
    with contextlib.ExitStack() as undo:
        undo.callback(planner.close)
        if arguments.webhook_port:
            _start_webhook(arguments, api, clock, settings, undo)
        process.run()
    return 0


def _start_webhook(
    arguments: argparse.Namespace,
    api: KubeApi,
    clock: Clock,
    settings: PlacementSettings,
    undo: contextlib.ExitStack,
) -> None:
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
    keeper = IdentityKeeper(server.use, store, clock)
    keeper.start()
    undo.callback(keeper.stop)
