"""``wattpack watchdog``: lets held pods go when no planner has been heard for half a minute.

It has no solver and no webhook, so that it lives when they do not. ``--uninstall`` is the
pre-delete hook: it removes the webhook, releases every pod and ends.
"""

from __future__ import annotations

import argparse
import logging
import signal
from pathlib import Path

from scheduler_plugin.app.release import Released, release_all, uninstall
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.kube.election import LeaseRecord
from wattpack.kube.port import LEASES, KubeApi, KubeError, NotFoundError
from wattpack.logs import add_log_level, log_json
from wattpack.object_names import LEASE_NAME, SYSTEM_NAMESPACE
from wattpack.units import ns_to_seconds, seconds_to_ns

_LOG = logging.getLogger(__name__)
SILENCE_SECONDS = 30.0
PERIOD_SECONDS = 5.0


class Watchdog:
    """Watches the planner's Lease by our own clock; times written in it are not trusted.

    Args:
        api: The cluster.
        clock: Time.
        namespace: Of the Lease.
        silence_seconds: How long the Lease may stay as it is.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        namespace: str,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._silence_ns = seconds_to_ns(silence_seconds)
        self._seen: LeaseRecord | None = None
        self._seen_ns: int | None = None

    def step(self) -> Released | None:
        """Look once; what was released if the planner is silent, else None."""
        now_ns = self._clock.monotonic_ns()
        try:
            record = self._read()
        except KubeError as error:
            # A planner cannot renew either while the API is away: its time starts anew.
            _LOG.warning("lease not read: %s", error)
            self._seen_ns = None
            return None
        if self._seen_ns is None or record != self._seen:
            self._seen, self._seen_ns = record, now_ns
            return None
        if now_ns - self._seen_ns < self._silence_ns:
            return None
        try:
            released = release_all(self._api)
        except KubeError as error:
            _LOG.warning("held pods not read: %s", error)
            return None
        if released.released or released.left:
            silent = ns_to_seconds(now_ns - self._seen_ns)
            _LOG.warning(
                "no planner for %.0f s: %d pods released, %d still held",
                silent,
                released.released,
                released.left,
            )
        return released

    def _read(self) -> LeaseRecord | None:
        try:
            lease = self._api.get(LEASES, LEASE_NAME, self._namespace)
        except NotFoundError:
            return None
        try:
            return LeaseRecord.read(lease)
        except (ValueError, TypeError, AttributeError) as error:
            # Any write is a sign of life, whatever it says; without one the pods go free.
            _LOG.warning("the planner's lease makes no sense: %s", error)
            return LeaseRecord("", 0, 0, str(lease["metadata"].get("resourceVersion", "")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wattpack watchdog", description=__doc__)
    parser.add_argument("--namespace", default=SYSTEM_NAMESPACE, help="of the planner's Lease")
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    parser.add_argument("--silence-seconds", type=flags.positive, default=SILENCE_SECONDS)
    parser.add_argument(
        "--uninstall",
        metavar="WEBHOOK",
        help="remove this MutatingWebhookConfiguration, release every pod, and end",
    )
    add_log_level(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM, or uninstall once; 1 if pods stay held after an uninstall."""
    arguments = _parser().parse_args(argv)
    log_json(arguments.log_level)
    from wattpack.kube.client import connect

    api: KubeApi = connect(arguments.kubeconfig)
    if arguments.uninstall:
        outcome = uninstall(api, arguments.uninstall)
        print(f"{outcome.released} pods released, {outcome.left} still held")
        return 1 if outcome.left else 0
    clock = SystemClock()
    watchdog = Watchdog(api, clock, arguments.namespace, arguments.silence_seconds)
    wake = clock.new_wake()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wake.set())
    while True:
        watchdog.step()
        if clock.wait_until(clock.monotonic_ns() + seconds_to_ns(PERIOD_SECONDS), wake):
            return 0
