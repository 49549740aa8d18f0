"""The registration of the placement webhook as the contract words it, beside the chart's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Boards, MIG instances and partitions, and shares: the names of ``wattpack.gpu_resources``.
GPU_NAMES = r"^(nvidia[.]com/(gpu|mig-.+)([.]shared)?|amd[.]com/(gpu|[a-z]px_nps[0-9]+))$"
_HAS_GPU = f"c.?resources.?limits.orValue({{}}).exists(r, r.matches('{GPU_NAMES}'))"
_MATCH_CONDITIONS = {
    "no-node": "!has(object.spec.nodeName) || object.spec.nodeName == ''",
    "default-scheduler": "!has(object.spec.schedulerName) || "
    "object.spec.schedulerName in ['', 'default-scheduler']",
    "no-daemonset": "!has(object.metadata.ownerReferences) || "
    "!object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet')",
    "no-mirror-pod": "!has(object.metadata.annotations) || "
    "!('kubernetes.io/config.mirror' in object.metadata.annotations)",
    "asks-for-gpus": f"object.spec.containers.exists(c, {_HAS_GPU}) || "
    f"object.spec.?initContainers.orValue([]).exists(c, {_HAS_GPU}) || "
    "size(object.spec.?resourceClaims.orValue([])) > 0",
}


def webhook_configuration(name: str, service: Mapping[str, Any]) -> dict[str, Any]:
    """What the chart must register.

    Args:
        name: Of the configuration.
        service: ``{"namespace": ..., "name": ..., "path": ..., "port": ...}``.
    """
    webhook = {
        "name": "placement.wattpack.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 2,
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": {"service": service, "caBundle": ""},
        "namespaceSelector": {"matchLabels": {"wattpack.io/placement": "enabled"}},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [
            {"name": key, "expression": text} for key, text in _MATCH_CONDITIONS.items()
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
