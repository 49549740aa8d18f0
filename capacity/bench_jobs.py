"""Jobs that measure: one on a whole GPU of each type that has no profile of its own yet.

A Job's pod holds one GPU as its device plugin gives it, asks the API for nothing, and prints its
rows when it is done; a restarted container goes on with the rows of the broken one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from capacity.profile_library import normal_name
from wattpack.errors import InputError
from wattpack.gpu_resources import NVIDIA_GPU, counts_whole_boards
from wattpack.object_names import GPU_PRODUCT_LABEL
from wattpack.quantities import parse_quantity

BENCH_LABEL: Final = "wattpack.io/bench"
CONTAINER: Final = "bench"
RESULTS: Final = "/results"
USER_ID: Final = 65532
DEADLINE_SECONDS: Final = 3600
KEPT_SECONDS: Final = 7 * 86400
"""Rows are read from the pod's log, so the pod stays a week."""

_NAME_LENGTH: Final = 63


@dataclass(frozen=True, slots=True)
class BenchJobSettings:
    """How the pods run.

    Attributes:
        image: With wattpack, PyTorch and Triton.
    """

    image: str
    namespace: str
    quick: bool = False


def types_without_profile(
    nodes: Iterable[Mapping[str, Any]], profiles: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Product labels of whole NVIDIA GPUs in the cluster that no GPUProfile object names.

    Profiles that ship with wattpack do not count: their figures are mostly derived.
    """
    known = {
        normal_name(str(name))
        for body in profiles
        for name in ((body.get("spec") or {}).get("productNames") or ())
    }
    found = set()
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        product = labels.get(GPU_PRODUCT_LABEL)
        if product and _whole_gpus(node, labels) and normal_name(product) not in known:
            found.add(str(product))
    return tuple(sorted(found))


def _whole_gpus(node: Mapping[str, Any], labels: Mapping[str, str]) -> int:
    offered = ((node.get("status") or {}).get("allocatable") or {}).get(NVIDIA_GPU, 0)
    try:
        return parse_quantity(NVIDIA_GPU, offered) if counts_whole_boards(labels) else 0
    except InputError:
        return 0


def job_name(product: str) -> str:
    """One name a type, so that a type is measured by one Job at a time."""
    slug = re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")
    return f"wattpack-bench-{slug}"[:_NAME_LENGTH].rstrip("-")


def bench_job(product: str, settings: BenchJobSettings) -> dict[str, Any]:
    """The Job (``batch/v1``) that measures one type."""
    labels = {BENCH_LABEL: "true", "app.kubernetes.io/name": "wattpack-bench"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(product),
            "namespace": settings.namespace,
            "labels": labels,
        },
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": _pod_spec(product, settings),
            },
        },
    }


def _pod_spec(product: str, settings: BenchJobSettings) -> dict[str, Any]:
    return {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "nodeSelector": {GPU_PRODUCT_LABEL: product},
        "tolerations": [{"key": NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.image,
                "command": ["wattpack"],
                "args": _arguments(settings),
                "env": [
                    {"name": "HOME", "value": RESULTS},
                    {"name": "TRITON_CACHE_DIR", "value": f"{RESULTS}/triton"},
                ],
                "resources": {
                    "requests": {"cpu": "2", "memory": "16Gi"},
                    "limits": {"memory": "64Gi", NVIDIA_GPU: "1"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "results", "mountPath": RESULTS},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [
            {"name": "results", "emptyDir": {"sizeLimit": "4Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}},
        ],
    }


def _arguments(settings: BenchJobSettings) -> Sequence[str]:
    quick = ["--quick"] if settings.quick else []
    cache = f"{RESULTS}/tuning.json"
    rows = f"{RESULTS}/rows.jsonl"
    return ["bench", "run", f"--out={rows}", f"--tuning-cache={cache}", "--print-rows", *quick]
