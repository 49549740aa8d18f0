"""A real API server behind the port; the only place that imports the ``kubernetes`` client."""

from wattpack.kube.client.client_api import ClientKube
from wattpack.kube.client.connect import connect, from_kubeconfig, in_cluster

__all__ = ["ClientKube", "connect", "from_kubeconfig", "in_cluster"]
