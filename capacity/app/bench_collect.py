"""``wattpack bench collect``: the rows that finished Jobs printed, and what follows from them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from capacity.app.bench_reports import profile_object, require_sound_board
from capacity.bench.measurement_row import MeasurementRow, parse_rows, row_line
from capacity.bench.results_file import ROW_START
from capacity.bench_jobs import BENCH_LABEL, CONTAINER
from capacity.profile_library import normal_name
from wattpack.api import GPUProfile
from wattpack.errors import InputError, read_from
from wattpack.flags import write_output
from wattpack.kube.port import JOBS, PODS, KubeApi, KubeError, PodLogs
from wattpack.object_names import GPU_PRODUCT_LABEL
from wattpack.pod_owner import owner_of

JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
FIELD_MANAGER: Final = "wattpack-bench"


@dataclass(frozen=True, slots=True)
class Collection:
    """Where rows come from and where they go.

    Attributes:
        applies: Write GPUProfile objects to the cluster, too.
    """

    namespace: str
    folder: Path
    applies: bool


def collect(args: argparse.Namespace) -> int:
    """0 if every finished Job gave sound rows, 1 if one did not.

    Raises:
        KubeError: if the API refuses or does not answer.
    """
    from wattpack.kube.client import connect  # not loaded where a GPU is measured

    api = connect(args.kubeconfig)
    return collect_rows(api, api, Collection(args.namespace, args.out, args.apply))


def collect_rows(api: KubeApi, logs: PodLogs, where: Collection) -> int:
    """One results file and one GPUProfile a Job; what one Job's log lacks is told of that Job."""
    jobs = api.list(JOBS, where.namespace, label_selector=f"{BENCH_LABEL}=true").items
    if not jobs:
        print(f"no benchmark Jobs in namespace {where.namespace}")
    where.folder.mkdir(parents=True, exist_ok=True)
    refused = 0
    for job in jobs:
        name = job["metadata"]["name"]
        if not (job.get("status") or {}).get("succeeded"):
            print(f"{name}: {_state(job)}")
            continue
        try:
            print(f"{name}: {_collect_job(api, logs, job, where)}")
        except (InputError, KubeError) as error:
            refused += 1
            print(f"{name}: {error}")
    return 1 if refused else 0


def _state(job: Mapping[str, Any]) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    failed = [c for c in conditions if c.get("type") == "Failed" and c.get("status") == "True"]
    return f"failed: {failed[0].get('message', '')}" if failed else "still measuring"


def _collect_job(api: KubeApi, logs: PodLogs, job: Mapping[str, Any], where: Collection) -> str:
    name = job["metadata"]["name"]
    rows = _rows(api, logs, job["metadata"], where.namespace)
    selector = job["spec"]["template"]["spec"].get("nodeSelector") or {}
    product = rows[0].identity.gpu_product
    if normal_name(selector.get(GPU_PRODUCT_LABEL, product)) != normal_name(product):
        raise InputError("gpu_product", selector[GPU_PRODUCT_LABEL], product)
    require_sound_board(rows)
    write_output(where.folder / f"{name}.jsonl", "".join(row_line(row) + "\n" for row in rows))
    try:
        body = profile_object(rows)
    except InputError as error:
        return f"{len(rows)} rows, no profile: {error}"
    text = yaml.safe_dump(body, sort_keys=False)
    write_output(where.folder / f"{name}.gpuprofile.yaml", text)
    if where.applies:
        _apply(api, body)
    profile = body["metadata"]["name"]
    return f"{len(rows)} rows, GPUProfile {profile} {'applied' if where.applies else 'written'}"


def _rows(
    api: KubeApi, logs: PodLogs, job: Mapping[str, Any], namespace: str
) -> list[MeasurementRow]:
    """The rows in the log of the Job's pod that ended well.

    A label is what any author of pods may write: another pod that carries it counts for nothing.
    Who copies the Job's UID, too, makes a second one, and then neither counts.
    """
    name = job["name"]
    pods = api.list(PODS, namespace, label_selector=f"{JOB_NAME_LABEL}={name}").items
    own = [pod for pod in pods if owner_of(pod).uid == job["uid"]]
    ended = [pod for pod in own if (pod.get("status") or {}).get("phase") == "Succeeded"]
    if len(ended) != 1:
        expected = f"one of Job {name} that ended well and is still there"
        raise InputError("pod", expected, f"{len(ended)} of {len(own)}")
    name = ended[0]["metadata"]["name"]
    lines = [
        line.decode("utf-8", errors="replace") for line in logs.pod_log(name, namespace, CONTAINER)
    ]
    with read_from(f"log of pod {name}"):
        # What libraries print to the log is no row; a row that was cut off still begins like one.
        rows = list(parse_rows(line for line in lines if line.startswith(ROW_START)))
        if not rows:
            raise InputError("rows", "at least one row", len(lines))
    return rows


def _apply(api: KubeApi, body: dict[str, Any]) -> None:
    resource = GPUProfile.meta.resource
    api.apply(resource, {k: v for k, v in body.items() if k != "status"},
              field_manager=FIELD_MANAGER)  # fmt: skip
    status = {k: v for k, v in body.items() if k != "spec"}
    api.apply(resource, status, field_manager=FIELD_MANAGER, subresource="status")
