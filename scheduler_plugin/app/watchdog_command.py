"""``wattpack watchdog``: lets held pods go when no planner has had success for half a minute.

It has no solver and no webhook, so that it lives when they do not. ``--uninstall`` is the
pre-delete hook: it removes the webhook, releases every pod and ends.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from scheduler_plugin.app.leadership import lease_reference
from scheduler_plugin.app.release import Released, release_all, uninstall
from scheduler_plugin.app.watchdog_beat import beat, is_beating
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.ending import end_noted
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import LEASES, KubeApi, KubeError, NotFoundError
from wattpack.logs import add_log_level, log_json
from wattpack.object_names import LEASE_NAME, SUCCESSES_ANNOTATION, SYSTEM_NAMESPACE
from wattpack.units import ns_to_seconds, seconds_to_ns

log = logging.getLogger(__name__)
SILENCE_SECONDS = 30.0
PERIOD_SECONDS = 5.0


class Watchdog:
    """Watches the planner's successes by our own clock; times written in the Lease are not trusted.

    A planner that is alive and fails is as silent as one that is dead: only the count of successes
    in the Lease is heard. A Lease without that count was written by a version that renewed it while
    it worked; there, each write is heard.

    Args:
        api: The cluster.
        clock: Time.
        namespace: Of the Lease.
        silence_seconds: How long there may be no success.
        instance: Name of this process, for Events.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        namespace: str,
        silence_seconds: float = SILENCE_SECONDS,
        instance: str = "wattpack-watchdog",
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._silence_ns = seconds_to_ns(silence_seconds)
        self._recorder = EventRecorder(api, clock, "wattpack.io/watchdog", instance)
        self._heard = ""
        self._heard_ns: int | None = None

    def step(self) -> Released | None:
        """Look once; what was released if the planner is silent, else None."""
        now_ns = self._clock.monotonic_ns()
        try:
            sign = self._sign_of_life()
        except KubeError as error:
            # A planner cannot work either while the API is away: its time starts anew.
            log.warning("lease not read: %s", error)
            self._heard_ns = None
            return None
        if self._heard_ns is None or sign != self._heard:
            self._heard, self._heard_ns = sign, now_ns
            return None
        if now_ns - self._heard_ns < self._silence_ns:
            return None
        try:
            released = release_all(self._api)
        except KubeError as error:
            log.warning("held pods not read: %s", error)
            return None
        if released.released or released.left:
            self._tell(ns_to_seconds(now_ns - self._heard_ns), released)
        self._recorder.flush()
        return released

    def close(self) -> None:
        """Tell how often it happened before the process ends."""
        self._recorder.close()

    def _tell(self, silent_seconds: float, released: Released) -> None:
        note = (
            f"planning has not worked for {silent_seconds:.0f} s: {released.released} pods "
            f"released without a node, {released.left} still held"
        )
        log.warning("%s", note)
        self._recorder.emit(
            lease_reference(self._namespace),
            EventReason.PLACEMENT_RELEASED,
            note,
            action="Releasing",
            warning=True,
        )

    def _sign_of_life(self) -> str:
        """What changes when planning works."""
        try:
            metadata = self._api.get(LEASES, LEASE_NAME, self._namespace)["metadata"]
        except NotFoundError:
            return "no lease"
        successes = (metadata.get("annotations") or {}).get(SUCCESSES_ANNOTATION)
        if successes is not None:
            return f"successes {successes}"
        return f"version {metadata.get('resourceVersion', '')}"


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
    parser.add_argument("--beat-file", type=Path, help="keep the time of the last look here")
    parser.add_argument(
        "--check", action="store_true", help="exit 0 if the watchdog of --beat-file still looks"
    )
    add_log_level(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM, or uninstall once; 1 if pods stay held after an uninstall."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    beats: Path | None = arguments.beat_file
    if arguments.check:
        if beats is None:
            parser.error("--check: expected --beat-file, got nothing")
        return 0 if is_beating(beats, SystemClock().monotonic_ns()) else 1
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
    with end_noted(clock) as end:
        end.call(wake.set)
        while not end.told():
            watchdog.step()
            if beats is not None:
                beat(beats, clock.monotonic_ns())
            clock.wait_until(clock.monotonic_ns() + seconds_to_ns(PERIOD_SECONDS), wake)
        watchdog.close()
    return 0
