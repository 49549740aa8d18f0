"""GPU processes find their pods, and what is outside Kubernetes is said to be."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

from gpu.device import GpuProcess
from telemetry.app.attributor import Attributor
from telemetry.attribution.attribute import ProcessHome, attribute
from telemetry.attribution.cgroup import ContainerOf, parse_cgroup
from telemetry.attribution.device_grants import DeviceGrant
from telemetry.attribution.kubelet import PodResources, grants
from telemetry.attribution.procfs import process_homes
from tests.telemetry.conftest import Serve
from wattpack.errors import DeadlineExceededError, PermanentError, TransientError
from wattpack.units import GpuUuid
from wattpack.wire.v1 import podresources_pb2 as messages

UID = "1b2c3d4e-0001-4002-8003-1234567890ab"
LOW = UID.replace("-", "_")
CID = "ab" * 32
STATIC = "0f" * 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice/"
         f"cri-containerd-{CID}.scope", ContainerOf(UID, CID)),
        (f"0::/kubepods.slice/kubepods-pod{LOW}.slice/crio-{CID}.scope", ContainerOf(UID, CID)),
        (f"0::/kubepods.slice/kubepods-pod{LOW}.slice/crio-{CID}.scope/container",
         ContainerOf(UID, CID)),
        (f"0::/kubepods/besteffort/pod{UID}/{CID}", ContainerOf(UID, CID)),
        (f"12:devices:/kubepods/burstable/pod{UID}/{CID}\n1:name=systemd:/init.scope",
         ContainerOf(UID, CID)),
        (f"11:cpu,cpuacct:/kubepods.slice/kubepods-besteffort.slice/"
         f"kubepods-besteffort-pod{LOW}.slice/docker-{CID}.scope", ContainerOf(UID, CID)),
        (f"0::/system.slice/containerd.service/kubepods-burstable-pod{LOW}.slice:"
         f"cri-containerd:{CID}", ContainerOf(UID, CID)),
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{LOW}.slice/"
         f"cri-containerd-{CID}.scope", ContainerOf(UID, CID)),
        (f"0::/../../kubepods-pod{LOW}.slice/cri-containerd-{CID}.scope", ContainerOf(UID, CID)),
        (f"0::/docker/{'cd' * 32}/kubelet/kubepods/pod{UID}/{CID}", ContainerOf(UID, CID)),
        (f"0::/kubepods/burstable/pod{STATIC}/{CID}", ContainerOf(STATIC, CID)),
        (f"0::/system.slice/docker-{CID}.scope", ContainerOf("", CID)),
        (f"4:memory:/docker/{CID}", ContainerOf("", CID)),
        (f"0::/machine.slice/libpod-{CID}.scope", ContainerOf("", CID)),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("0::/init.scope", None),
        ("0::/", None),
        ("", None),
        ("nonsense without colons", None),
        (f"0::/kubepods/podnot-a-uid/{CID[:-1]}", None),
    ],
)  # fmt: skip
def test_a_cgroup_names_its_pod_and_container(text: str, expected: ContainerOf | None) -> None:
    assert parse_cgroup(text) == expected


GPU = [GpuUuid(f"GPU-{i}") for i in range(4)]


def grant(pod: str, device: str, namespace: str = "team") -> DeviceGrant:
    return DeviceGrant(namespace, pod, "main", "nvidia.com/gpu", device)


def home(uid: str = "", container: str = CID) -> ProcessHome:
    return ProcessHome(ContainerOf(uid, container), "python")


def test_a_granted_pod_holds_its_gpus_and_gets_the_uid_of_its_process() -> None:
    found = attribute(
        [grant("train", GPU[0]), grant("train", GPU[1])],
        {GPU[0]: [GpuProcess(5, 10)], GPU[1]: []},
        {5: home(UID)},
    )
    (pod,) = found.pods
    assert (pod.namespace, pod.name, pod.uid) == ("team", "train", UID)
    assert pod.device_uuids == (GPU[0], GPU[1])
    assert found.outside == ()
    assert found.source == "kubelet"


def test_a_granted_pod_without_a_process_still_holds_its_gpu() -> None:
    (pod,) = attribute([grant("idle", GPU[0])], {GPU[0]: []}, {}).pods
    assert pod.name == "idle"
    assert pod.uid == ""


def test_a_process_outside_kubernetes_is_reported_as_such() -> None:
    found = attribute(
        [grant("train", GPU[0])],
        {GPU[0]: [GpuProcess(5)], GPU[1]: [GpuProcess(6), GpuProcess(7)]},
        {5: home(UID), 6: ProcessHome(None, "miner"), 7: home("", CID)},
    )
    assert [(p.pid, p.command, p.container_id) for p in found.outside] == [
        (6, "miner", ""),
        (7, "python", CID),
    ]


def test_a_process_that_ended_before_it_was_looked_up_counts_as_outside() -> None:
    (process,) = attribute(None, {GPU[0]: [GpuProcess(5)]}, {}).outside
    assert process.pid == 5


def test_without_the_kubelet_pods_are_known_by_uid_from_their_cgroup() -> None:
    found = attribute(None, {GPU[0]: [GpuProcess(5)], GPU[1]: [GpuProcess(5)]}, {5: home(UID)})
    (pod,) = found.pods
    assert (pod.name, pod.uid, pod.device_uuids) == ("", UID, (GPU[0], GPU[1]))
    assert found.source == "cgroup"


def test_a_shared_gpu_does_not_lend_one_pods_uid_to_the_other() -> None:
    found = attribute(
        [grant("a", f"{GPU[0]}::1"), grant("b", f"{GPU[0]}::2")],
        {GPU[0]: [GpuProcess(5)]},
        {5: home(UID)},
    )
    assert [(p.name, p.uid) for p in found.pods] == [("a", ""), ("b", ""), ("", UID)]


def test_grants_of_other_resources_are_left_out() -> None:
    answer = messages.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="p", namespace="n").containers.add(name="c")
    container.devices.add(resource_name="nvidia.com/gpu", device_ids=["GPU-0::3"])
    container.devices.add(resource_name="rdma/hca", device_ids=["mlx5_0"])
    container.devices.add(resource_name="nvidia.com/gpu-memory", device_ids=["chunk-7"])
    for name, device in (
        ("nvidia.com/mig-1g.10gb", "MIG-1"),
        ("nvidia.com/gpu.shared", "GPU-1::0"),
        ("amd.com/gpu", "card0"),
    ):
        container.devices.add(resource_name=name, device_ids=[device])
    devices = ["GPU-0", "MIG-1", "GPU-1", "card0"]
    assert [(g.pod, g.device_uuid) for g in grants(answer)] == [("p", d) for d in devices]


def test_the_kubelet_is_asked_over_its_socket(serve: Serve) -> None:
    def answer(request: object, context: object) -> messages.ListPodResourcesResponse:
        response = messages.ListPodResourcesResponse()
        container = response.pod_resources.add(name="p", namespace="n").containers.add(name="c")
        container.devices.add(resource_name="nvidia.com/gpu", device_ids=["GPU-0"])
        return response

    client = PodResources(serve(answer), timeout_seconds=10.0)
    assert client.list() == (DeviceGrant("n", "p", "c", "nvidia.com/gpu", "GPU-0"),)
    client.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, PermanentError),
        (grpc.StatusCode.PERMISSION_DENIED, PermanentError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, TransientError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceededError),
    ],
)
def test_a_refusal_of_the_kubelet_is_a_typed_error(
    serve: Serve, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    def answer(request: object, context: grpc.ServicerContext) -> messages.ListPodResourcesResponse:
        context.abort(code, "no")
        raise AssertionError

    client = PodResources(serve(answer), timeout_seconds=10.0)
    with pytest.raises(kind):
        client.list()
    client.close()


def test_no_kubelet_is_a_transient_error(tmp_path: Path) -> None:
    client = PodResources(tmp_path / "nobody.sock", timeout_seconds=10.0)
    with pytest.raises(TransientError):
        client.list()
    client.close()


def test_proc_tells_homes_and_skips_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/kubepods/pod{UID}/{CID}\n")
    (tmp_path / "7" / "comm").write_text("python3\n")
    homes = process_homes([7, 8], tmp_path)
    assert homes == {7: ProcessHome(ContainerOf(UID, CID), "python3")}


def test_a_failing_kubelet_falls_back_to_cgroups_and_recovers(tmp_path: Path) -> None:
    failing = [True]

    def list_grants() -> tuple[DeviceGrant, ...]:
        if failing[0]:
            raise TransientError("restarting")
        return (grant("p", GPU[0]),)

    attributor = Attributor(list_grants, tmp_path)
    assert attributor.attribute_now({GPU[0]: (GpuProcess(9),)}).source == "cgroup"
    failing[0] = False
    assert attributor.attribute_now({GPU[0]: ()}).pods[0].name == "p"
    attributor.close()


def test_a_defect_in_one_attribution_is_not_the_last_one(tmp_path: Path) -> None:
    asked: SimpleQueue[None] = SimpleQueue()
    answers = iter([OSError(24, "too many open files"), None])

    def list_grants() -> tuple[DeviceGrant, ...]:
        answer = next(answers)
        asked.put(None)
        if answer is not None:
            raise answer
        return (grant("p", GPU[0]),)

    attributor = Attributor(list_grants, tmp_path)
    for _ in range(2):
        attributor.submit({GPU[0]: ()})
        asked.get(timeout=10)
    attributor.close()
