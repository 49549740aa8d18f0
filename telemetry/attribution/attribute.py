"""Who uses which GPU: pods by the kubelet's word, processes by their cgroup, and the rest.

The kubelet says which pod was *given* a device; NVML says which processes *use* it. Both are kept:
a pod that was given a GPU uses it even while no process runs, and a process outside Kubernetes
that draws power on a GPU must not be hidden. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu.device import GpuProcess
from telemetry.attribution.cgroup import ContainerOf
from telemetry.attribution.device_grants import DeviceGrant
from wattpack.units import GpuUuid


@dataclass(frozen=True, slots=True)
class PodOnGpu:
    """One pod that holds one or more GPUs of the node.

    Attributes:
        uid: Empty if no process of the pod ran on its devices yet: the kubelet's list has none.
    """

    namespace: str
    name: str
    uid: str
    containers: tuple[str, ...]
    device_uuids: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True)
class ProcessOnGpu:
    """One process on one device, with what is known of its home.

    Attributes:
        container_id: Empty for a process of the host.
        pod_uid: Empty for a process outside Kubernetes.
    """

    device_uuid: GpuUuid
    pid: int
    command: str
    memory_bytes: int
    pod_uid: str = ""
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who uses the node's GPUs.

    Attributes:
        pods: Holders by the kubelet's word, and pods known by a process only (empty name).
        outside: Processes outside Kubernetes.
        source: ``kubelet``, ``cgroup`` (the kubelet did not answer) or ``none``.
    """

    pods: tuple[PodOnGpu, ...] = ()
    outside: tuple[ProcessOnGpu, ...] = ()
    source: str = "none"


@dataclass(frozen=True, slots=True)
class ProcessHome:
    """What /proc says of one pid."""

    container: ContainerOf | None
    command: str = ""


def attribute(
    grants: Iterable[DeviceGrant] | None,
    processes: Mapping[GpuUuid, Iterable[GpuProcess]],
    homes: Mapping[int, ProcessHome],
) -> Attribution:
    """Join the kubelet's grants with the processes that NVML lists.

    Args:
        grants: None if the kubelet did not answer.
        processes: By device.
        homes: By pid, for every pid in ``processes`` that still runs.
    """
    found = [
        _locate(uuid, process, homes)
        for uuid, listed in sorted(processes.items())
        for process in listed
    ]
    inside = [p for p in found if p.pod_uid]
    pods = _granted_pods(grants or (), set(processes), inside)
    known = {pod.uid for pod in pods}
    pods += _process_pods([p for p in inside if p.pod_uid not in known])
    outside = tuple(p for p in found if not p.pod_uid)
    source = "kubelet" if grants is not None else "cgroup" if found else "none"
    return Attribution(tuple(pods), outside, source)


def _locate(uuid: GpuUuid, process: GpuProcess, homes: Mapping[int, ProcessHome]) -> ProcessOnGpu:
    home = homes.get(process.pid, ProcessHome(None))
    container = home.container or ContainerOf()
    return ProcessOnGpu(
        uuid,
        process.pid,
        process.name or home.command,
        process.memory_bytes,
        container.pod_uid,
        container.container_id,
    )


def _granted_pods(
    grants: Iterable[DeviceGrant], uuids: set[GpuUuid], inside: Iterable[ProcessOnGpu]
) -> list[PodOnGpu]:
    holders: dict[tuple[str, str], tuple[set[str], set[GpuUuid]]] = {}
    parted: set[GpuUuid] = set()
    for grant in grants:
        uuid = GpuUuid(grant.device_uuid)
        containers, devices = holders.setdefault((grant.namespace, grant.pod), (set(), set()))
        containers.add(grant.container)
        if uuid in uuids:
            devices.add(uuid)
            if grant.part:
                parted.add(uuid)
    uids_on: dict[GpuUuid, set[str]] = {}
    for process in inside:
        uids_on.setdefault(process.device_uuid, set()).add(process.pod_uid)
    shared = [d for _, devices in holders.values() for d in devices]
    pods = []
    for (namespace, name), (containers, devices) in sorted(holders.items()):
        # Only a device with one holder of it all ties a process's pod UID to the holder's name.
        own = {d for d in devices if shared.count(d) == 1} - parted
        uids = {u for d in own for u in uids_on.get(d, ())}
        uid = uids.pop() if len(uids) == 1 else ""
        pods.append(
            PodOnGpu(namespace, name, uid, tuple(sorted(containers)), tuple(sorted(devices)))
        )
    return pods


def _process_pods(processes: Iterable[ProcessOnGpu]) -> list[PodOnGpu]:
    devices: dict[str, set[GpuUuid]] = {}
    for process in processes:
        devices.setdefault(process.pod_uid, set()).add(process.device_uuid)
    return [PodOnGpu("", "", uid, (), tuple(sorted(devices[uid]))) for uid in sorted(devices)]
