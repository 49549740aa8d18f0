"""The registration of the placement webhook as the contract words it, beside the chart's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattpack.gpu_resources import WHOLE_GPUS

_HAS_GPU = (
    "c.?resources.?limits.orValue({}).exists(r, r in ["
    + ", ".join(f"'{name}'" for name in WHOLE_GPUS)
    + "])"
)
_MATCH_CONDITIONS = {
    "no-node": "!has(object.spec.nodeName) || object.spec.nodeName == ''",
    "default-scheduler": "!has(object.spec.schedulerName) || "
    "object.spec.schedulerName in ['', 'default-scheduler']",
    "no-daemonset": "!has(object.metadata.ownerReferences) || "
    "!object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet')",
    "no-mirror-pod": "!has(object.metadata.annotations) || "
    "!('kubernetes.io/config.mirror' in object.metadata.annotations)",
    "asks-for-gpus": f"object.spec.containers.exists(c, {_HAS_GPU}) || "
    f"object.spec.?initContainers.orValue([]).exists(c, {_HAS_GPU})",
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
