"""An in-process Kubernetes API: the same port without a server, for the demo and virtual time."""

from wattpack.kube.embedded.api import EmbeddedKube

__all__ = ["EmbeddedKube"]
