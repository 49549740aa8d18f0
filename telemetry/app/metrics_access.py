"""Who may read a node's metrics, and where the agent finds the API server that says so."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from telemetry.exporter import NodeCollector
from telemetry.node_state import NodeState
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.http_access import HttpAccess
from wattpack.kube.light import LightKube, Server, from_kubeconfig, in_cluster
from wattpack.metrics_port import reader_access

__all__ = ["api_server", "metrics_access", "node_registry"]


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

    def reviews() -> LightKube:
        try:
            return LightKube(api_server(options), clock)
        except InputError as error:
            expected = "a loopback address, --metrics-insecure, or a cluster that knows the readers"
            raise InputError("--address", expected, options.address) from error

    return reader_access(options.address, options.metrics_insecure, reviews, clock)


def node_registry(state: Callable[[], NodeState | None]) -> CollectorRegistry:
    """What the agent exports of its node."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(state))
    return registry
