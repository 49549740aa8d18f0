"""The agent's HTTP port: ``/metrics`` for those who may read them, ``/healthz`` for the kubelet."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from telemetry.exporter import NodeCollector, RefusalCollector
from telemetry.node_state import NodeState
from telemetry.stream.grpc_link import is_loopback
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.http_access import METRICS, Caller, HttpAccess
from wattpack.http_port import HttpAnswer, HttpPort, Route, health
from wattpack.kube.light import LightKube, Server, from_kubeconfig, in_cluster

__all__ = ["api_server", "metrics_access", "metrics_port"]


def api_server(options: argparse.Namespace) -> Server:
    """The API server of ``--kubeconfig``, or of our own pod.

    Raises:
        InputError: outside a cluster without a kubeconfig.
    """
    return from_kubeconfig(options.kubeconfig) if options.kubeconfig else in_cluster()


def metrics_access(options: argparse.Namespace, clock: Clock) -> HttpAccess:
    """Who may read this node's metrics: on loopback whoever is on this machine.

    Raises:
        InputError: if others could read them and nobody can be asked who they are.
    """
    if options.metrics_insecure or is_loopback(options.address):
        return HttpAccess.insecure((), clock)
    try:
        server = api_server(options)
    except InputError as error:
        expected = "a loopback address, --metrics-insecure, or a cluster that knows the readers"
        raise InputError("--address", expected, options.address) from error
    # Prometheus and the kubelet ask for a pod by its address; it has no other name.
    return HttpAccess((), LightKube(server, clock), clock)


def metrics_port(
    state: Callable[[], NodeState | None], address: str, port: int, access: HttpAccess
) -> HttpPort:
    """The port, not started yet.

    Raises:
        InputError: if the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(NodeCollector(state))
    registry.register(RefusalCollector(access.refused))

    def metrics(caller: Caller) -> HttpAnswer:
        return HttpAnswer(200, "text/plain; version=0.0.4", generate_latest(registry))

    def healthz() -> HttpAnswer:
        return HttpAnswer(200, "text/plain", b"ok\n")

    routes = {"/metrics": Route(metrics, METRICS), "/healthz": health(healthz)}
    return HttpPort(address, port, routes, access)
