"""``wattpack controller``: keeps every power domain below its rating.

Every replica follows the cluster and hears all agents; the one that holds the Lease gives leases.
It starts once it has its certificate; SIGTERM releases the Lease, so that a standby takes over.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import textwrap
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from capacity.profile_library import shipped_library
from controller.app.controller_process import ControllerProcess, Surroundings
from controller.app.controller_settings import ControllerSettings
from controller.app.dcgm_units import DcgmUnits, NoUnits, UnitsSource
from controller.app.prometheus_meters import (
    DEADLINE_SECONDS,
    DOMAIN_WATTS,
    FEED_SHARES,
    Metered,
    PrometheusMeters,
    Question,
)
from controller.app.server_power import NoServerPower, ServerPower, ServerPowerSource
from controller.app.tick_loop import MeterSource, NoMeters
from controller.filling_levels import compile_fillings
from forecasting.prometheus.query import QueryApi
from wattpack.api.breaker_and_feeds import FeedShareSpec
from wattpack.api.power_domain import MeterSpec, PowerDomainSpec
from wattpack.clock import Clock, SystemClock, Wake
from wattpack.ending import end_noted
from wattpack.kube.election import ElectionSettings
from wattpack.kube.identity_store import IdentityKeeper, IdentityStore, publish_to_config_map
from wattpack.kube.port import KubeApi, KubeError
from wattpack.logs import add_log_level, log_json
from wattpack.units import NS_PER_SECOND
from wattpack.wire.certificates import ServingIdentity

log = logging.getLogger(__name__)
ENVIRONMENT = "WATTPACK_CONTROLLER_"
#: Between two attempts to get a certificate while the API server does not answer.
RETRY_NS = 2 * NS_PER_SECOND
FLAGS = {
    "replica": str,
    "namespace": str,
    "stream_address": str,
    "http_host": str,
    "http_port": int,
    "tls_secret": str,
    "ca_config_map": str,
    "ca_namespace": str,
    "agent_username": str,
    "audit_file": str,
    "meter_prometheus_url": str,
    "lease_seconds": int,
    "renew_deadline_seconds": float,
    "retry_seconds": float,
}
MORE_FLAGS = ("server_names", "http_names", "http_insecure")


def build_parser() -> argparse.ArgumentParser:
    """The verb's command line; descriptions are those of the settings."""
    parser = argparse.ArgumentParser(
        prog="wattpack controller",
        description=__doc__,
        epilog=_more_settings(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="YAML file of settings")
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    parser.add_argument(
        "--server-name",
        action="append",
        dest="server_names",
        help="name in the serving certificate; repeat for each",
    )
    parser.add_argument(
        "--http-name",
        action="append",
        dest="http_names",
        help="name beside the certificate's that HTTP may ask for us by; repeat for each",
    )
    parser.add_argument(
        "--http-insecure",
        action="store_true",
        default=None,
        help=ControllerSettings.model_fields["http_insecure"].description,
    )
    for name, kind in FLAGS.items():
        help_text = ControllerSettings.model_fields[name].description
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=help_text)
    add_log_level(parser)
    return parser


def _more_settings() -> str:
    """How settings are given, and those that have no flag."""
    told = {
        name: f"{field.description} ({field.default!r})"
        for name, field in ControllerSettings.model_fields.items()
        if name not in {*FLAGS, *MORE_FLAGS}
    }
    lines = (
        f"  {name}\n{textwrap.indent(textwrap.fill(text, 73), ' ' * 6)}"
        for name, text in told.items()
    )
    return "\n".join(
        [
            f"Every setting can also be given as {ENVIRONMENT}NAME or in the file:",
            "file < environment < flag. Without a flag:",
            "",
            *lines,
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM.

    Raises:
        WattpackError: with a message for the person; the command line prints it.
    """
    options = build_parser().parse_args(argv)
    settings = ControllerSettings.load(
        file=options.config,
        prefix=ENVIRONMENT,
        flags={name: getattr(options, name) for name in (*FLAGS, *MORE_FLAGS)},
    )
    log_json(options.log_level)
    from wattpack.kube.client import connect

    clock = SystemClock()
    stop = clock.new_wake()
    with end_noted(clock) as end:
        end.call(stop.set)
        return run(settings, connect(options.kubeconfig), clock, stop)


def run(settings: ControllerSettings, api: KubeApi, clock: Clock, stop: Wake) -> int:
    """Run a replica until ``stop`` is set; the exit status.

    Raises:
        InputError: for an address that cannot be used, or durations that contradict each other.
    """
    compile_fillings()
    store = _identity_store(settings, api, clock)
    election = settings.election()
    identity = first_identity(store, clock, stop)
    if identity is None:
        return 0
    with contextlib.ExitStack() as undo:
        process = _process(settings, api, clock, identity, election, undo)
        process.start()
        undo.callback(process.stop)
        keeper = IdentityKeeper(process.streams.use, store, clock)
        keeper.start()
        undo.callback(keeper.stop)
        log.info(
            "%s listens for agents on port %d, http on %d",
            settings.replica,
            process.streams.port,
            process.http.port,
        )
        while not clock.wait_until(clock.monotonic_ns() + 3600 * NS_PER_SECOND, stop):
            continue
        log.info("stopping: the Lease is released")
    return 0


def first_identity(store: IdentityStore, clock: Clock, stop: Wake) -> ServingIdentity | None:
    """The identity, as soon as the cluster gives it; None if stopped before.

    Without it no agent could be answered: a replica that waits is not ready, and its agents stay
    with the other one or at their guaranteed caps.
    """
    while True:
        try:
            return store.ensure()
        except KubeError as error:
            log.warning("no certificate yet: %s", error)
        if clock.wait_until(clock.monotonic_ns() + RETRY_NS, stop):
            return None


def _identity_store(settings: ControllerSettings, api: KubeApi, clock: Clock) -> IdentityStore:
    namespace = settings.ca_namespace or settings.namespace
    publish = publish_to_config_map(api, namespace, settings.ca_config_map)
    return IdentityStore(
        api, clock, settings.namespace, settings.tls_secret, settings.server_names, publish
    )


def _process(
    settings: ControllerSettings,
    api: KubeApi,
    clock: Clock,
    identity: ServingIdentity,
    election: ElectionSettings,
    undo: contextlib.ExitStack,
) -> ControllerProcess:
    """The replica, with its meters running."""
    made: list[ControllerProcess] = []

    def domains() -> Mapping[str, PowerDomainSpec]:
        accepted = made[0].desired.accepted_domains() if made else {}
        return {name: domain.spec for name, domain in accepted.items()}

    def meter_specs() -> Mapping[str, MeterSpec]:
        return {n: spec.meter for n, spec in domains().items() if spec.meter is not None}

    def feed_specs() -> Mapping[str, FeedShareSpec]:
        feeds = ((n, s.redundancy) for n, s in domains().items() if s.redundancy.use_reserve)
        return {n: feed.feed_share for n, feed in feeds if feed.feed_share is not None}

    def risen() -> None:
        for process in made:
            process.tick_soon()

    def asking(specs: Callable[[], Mapping[str, Question]], what: Metered) -> MeterSource:
        if not settings.meter_prometheus_url:
            return NoMeters()
        prometheus = QueryApi(settings.meter_prometheus_url, "query", DEADLINE_SECONDS)
        meters = PrometheusMeters(prometheus, clock, specs, what, risen)
        meters.start()
        undo.callback(meters.stop)
        return meters

    around = Surroundings(
        api=api,
        clock=clock,
        identity=identity.server,
        meters=asking(meter_specs, DOMAIN_WATTS),
        feeds=asking(feed_specs, FEED_SHARES),
        units=_units(settings, clock, undo),
        servers=_servers(settings, clock, undo),
        profiles=shipped_library(),
        election=election,
        seed=zlib.crc32(settings.replica.encode()),
        # A restarted process must not take itself for the leader that it was.
        holder=f"{settings.replica}-{os.getpid()}-{secrets.token_hex(4)}",
    )
    made.append(ControllerProcess(settings, around))
    return made[0]


def _units(settings: ControllerSettings, clock: Clock, undo: contextlib.ExitStack) -> UnitsSource:
    if not settings.dcgm_prometheus_url:
        return NoUnits()
    prometheus = QueryApi(settings.dcgm_prometheus_url, "query", DEADLINE_SECONDS)
    units = DcgmUnits(prometheus, clock, settings.dcgm_max_age_seconds)
    units.start()
    undo.callback(units.stop)
    return units


def _servers(
    settings: ControllerSettings, clock: Clock, undo: contextlib.ExitStack
) -> ServerPowerSource:
    if not settings.server_power_query:
        return NoServerPower()
    power = ServerPower(
        QueryApi(settings.meter_prometheus_url, "query", DEADLINE_SECONDS),
        clock,
        settings.server_power_query,
        settings.server_power_label,
        settings.server_power_max_age_seconds,
    )
    power.start()
    undo.callback(power.stop)
    return power
