"""What pods do: the twin's work, and the ordinary Kubernetes pods that stand for it.

A pod of the twin carries the name of its work in the label ``wattpack.io/twin-work``. Whoever binds
it (the planner in the demo, the test control plane's binder) only sees an ordinary pod.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from itertools import count
from typing import Any

import numpy as np

from simulation.request_workloads import request_workloads
from simulation.scenario import Scenario
from wattpack.errors import InputError
from wattpack.gpu_resources import NVIDIA_GPU
from wattpack.object_names import (
    GANG_LABEL,
    GANG_SIZE_ANNOTATION,
    KERNEL_CLASS_ANNOTATION,
    WORKLOAD_LABEL,
)

WORK_LABEL = "wattpack.io/twin-work"
NAMESPACE = "twin"
OPENB_PODS = "openb_pod_list_default.csv.gz"


class WorkKind(StrEnum):
    """How a pod's GPUs are used."""

    SERVING = "serving"
    TRAINING = "training"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one pod.

    Attributes:
        name: The pod's name, unique in a run.
        kind: How its GPUs are used.
        workload: Service, class of an inference row, training job, or ``batch``.
        priority_class: PriorityClass name.
        gpus: Whole GPUs.
        milli_cpu: Requested CPU.
        memory_bytes: Requested memory.
        start_seconds: When the pod is created.
        duration_seconds: Work of a batch pod at full speed; 0 runs for ever.
        load_ratio: Draw over a hot kernel's draw, batch only.
        gang: Members start together; empty for none.
        gang_size: Declared members.
    """

    name: str
    kind: WorkKind
    workload: str
    priority_class: str
    gpus: int
    milli_cpu: int
    memory_bytes: int
    start_seconds: float = 0.0
    duration_seconds: float = 0.0
    load_ratio: float = 1.0
    gang: str = ""
    gang_size: int = 1

    @property
    def uid(self) -> str:
        """The pod's uid, so that runs repeat."""
        return f"twin-{self.name}"

    @property
    def kernel_class(self) -> str:
        """Class that the planner reckons with: the hotter phase of serving."""
        return "prefill" if self.kind is WorkKind.SERVING else str(self.kind)


def standing_works(scenario: Scenario) -> list[Work]:
    """Replicas that answer requests and members of training jobs, in the scenario's order."""
    row = scenario.row
    works = []
    for serving in request_workloads(scenario):
        share = serving.gpus / row.gpus_per_server
        for i in range(serving.replicas):
            works.append(
                Work(
                    name=f"{serving.name}-{i}",
                    kind=WorkKind.SERVING,
                    workload=serving.name,
                    priority_class=serving.priority_class,
                    gpus=serving.gpus,
                    milli_cpu=int(0.8 * share * row.milli_cpu_per_server),
                    memory_bytes=int(0.8 * share * row.memory_bytes_per_server),
                )
            )
    for job in scenario.training:
        share = min(1.0, job.gpus_per_pod / row.gpus_per_server)
        for i in range(job.pods):
            works.append(
                Work(
                    name=f"{job.name}-{i}",
                    kind=WorkKind.TRAINING,
                    workload=job.name,
                    priority_class=job.priority_class,
                    gpus=job.gpus_per_pod,
                    milli_cpu=int(0.8 * share * row.milli_cpu_per_server),
                    memory_bytes=int(0.8 * share * row.memory_bytes_per_server),
                    start_seconds=job.start_seconds,
                    gang=job.name if job.pods > 1 else "",
                    gang_size=job.pods,
                )
            )
    return works


@dataclass(frozen=True, slots=True)
class OpenbPod:
    """One GPU task of the openb trace, shares of a GPU rounded up to a whole one."""

    gpus: int
    milli_cpu: int
    memory_bytes: int
    creation_seconds: float
    duration_seconds: float


def parse_openb(data: bytes, source: str) -> tuple[OpenbPod, ...]:
    """GPU tasks in order of creation.

    Raises:
        InputError: naming the line, for missing columns, text where numbers belong, negatives.
    """
    try:
        text = gzip.decompress(data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError("file", "a whole gzip file", str(error), source) from error
    pods = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        cells = {}
        for name in ("num_gpu", "cpu_milli", "memory_mib", "creation_time", "deletion_time"):
            cell = row.get(name) or ""
            if not cell.isascii() or not cell.isdigit():
                raise InputError(f"line {number}.{name}", "an integer >= 0", cell, source)
            cells[name] = int(cell)
        if cells["num_gpu"] > 0:
            pods.append(
                OpenbPod(
                    cells["num_gpu"],
                    cells["cpu_milli"],
                    cells["memory_mib"] * 2**20,
                    float(cells["creation_time"]),
                    float(max(0, cells["deletion_time"] - cells["creation_time"])),
                )
            )
    if not pods:
        raise InputError("line 2", "at least one pod with a GPU", "none", source)
    return tuple(sorted(pods, key=lambda pod: pod.creation_seconds))


@lru_cache(maxsize=1)
def openb_pods() -> tuple[OpenbPod, ...]:
    """The GPU tasks that come with wattpack."""
    file = resources.files("simulation") / "data" / "openb" / OPENB_PODS
    return parse_openb(file.read_bytes(), OPENB_PODS)


def batch_works(scenario: Scenario) -> Iterator[Work]:
    """Endless batch pods: openb's shapes, order and gaps, the gaps scaled to the wanted rate."""
    settings, row = scenario.batch, scenario.row
    pods = openb_pods()
    created = np.array([pod.creation_seconds for pod in pods])
    gaps = np.diff(created, prepend=created[0])
    # Gaps of the long quiet start of the trace would stall the stream: cut at ten times the median.
    gaps = np.minimum(gaps, 10 * max(float(np.median(gaps)), 1.0))
    scale = 3600.0 / settings.pods_per_hour / float(gaps.mean()) if settings.pods_per_hour else 0.0
    generator = np.random.default_rng((scenario.seed, 2))
    first = int(generator.integers(len(pods)))
    at_seconds = settings.first_pod_seconds
    for i in count():
        if i >= settings.initial_pods:
            if not settings.pods_per_hour:
                return
            at_seconds += float(gaps[(first + i) % len(pods)]) * scale
        pod = pods[(first + i) % len(pods)]
        low, high = settings.min_load_ratio, settings.max_load_ratio
        duration = min(
            max(pod.duration_seconds, settings.min_duration_seconds), settings.max_duration_seconds
        )
        yield Work(
            name=f"batch-{i}",
            kind=WorkKind.BATCH,
            workload="batch",
            priority_class=settings.priority_class,
            gpus=min(pod.gpus, row.gpus_per_server),
            milli_cpu=min(pod.milli_cpu, row.milli_cpu_per_server // row.gpus_per_server),
            memory_bytes=min(pod.memory_bytes, row.memory_bytes_per_server // row.gpus_per_server),
            start_seconds=at_seconds,
            duration_seconds=duration,
            load_ratio=float(generator.uniform(low, high)),
        )


def pod_manifest(work: Work, priority: int) -> dict[str, Any]:
    """The pod as it is sent to the API; the scheduler plugin's admission adds its gate.

    Args:
        work: What it does.
        priority: Value of its PriorityClass.
    """
    labels = {WORK_LABEL: work.name, WORKLOAD_LABEL: work.workload}
    annotations = {KERNEL_CLASS_ANNOTATION: work.kernel_class}
    if work.gang:
        labels[GANG_LABEL] = work.gang
        annotations[GANG_SIZE_ANNOTATION] = str(work.gang_size)
    requests = {
        "cpu": f"{work.milli_cpu}m",
        "memory": str(work.memory_bytes),
        NVIDIA_GPU: str(work.gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": work.name,
            "namespace": NAMESPACE,
            "uid": work.uid,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "priorityClassName": work.priority_class,
            "priority": priority,
            "containers": [
                {
                    "name": "work",
                    "image": "twin.invalid/work:1",
                    "resources": {"requests": requests, "limits": requests},
                }
            ],
        },
    }
