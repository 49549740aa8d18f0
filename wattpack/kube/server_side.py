"""Server-side apply of a status, the one way in which wattpack reports."""

from __future__ import annotations

from wattpack.api.object_meta import ApiModel
from wattpack.kube.port import JsonObject, KubeApi, Resource


def apply_status(
    api: KubeApi,
    resource: Resource,
    name: str,
    status: ApiModel | JsonObject,
    *,
    field_manager: str,
    namespace: str | None = None,
) -> JsonObject:
    """The object after its status was applied; fields that the status omits are given up."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "status": status.to_json() if isinstance(status, ApiModel) else status,
    }
    return api.apply(
        resource, body, field_manager=field_manager, namespace=namespace, subresource="status"
    )
