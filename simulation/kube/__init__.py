"""An in-process Kubernetes API: the same port without a server, for the demo and virtual time."""

from simulation.kube.embedded_api import EmbeddedKube

__all__ = ["EmbeddedKube"]
