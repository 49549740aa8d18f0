"""The few calls of a node agent on the standard library alone: memory is paid on every node."""

from wattpack.kube.light.light_api import LightKube
from wattpack.kube.light.server_address import Server, from_kubeconfig, in_cluster

__all__ = ["LightKube", "Server", "from_kubeconfig", "in_cluster"]
