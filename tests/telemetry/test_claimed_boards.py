"""Boards that pods got by a ResourceClaim find their pods, by the kubelet's word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu.device import GpuProcess
from gpu.nvml.nvml_device import NvmlDriver
from gpu.nvml.return_codes import NOT_SUPPORTED, NvmlFailure
from telemetry.app import agent_command
from telemetry.app.attributor import Attributor
from telemetry.attribution.attribute import Attribution
from telemetry.attribution.claimed_devices import boards_by_minor
from telemetry.attribution.kubelet import PodResources
from tests.telemetry.conftest import Serve
from tests.telemetry.telemetry_builders import KnownNvml, identity
from wattpack.units import GpuUuid
from wattpack.wire.v1 import podresources_pb2 as messages

CLAIM = "dab5ab50-d59a-42a6-af16-cfd4628c0f7a"
UID = "1b2c3d4e-0001-4002-8003-1234567890ab"
NVIDIA = "gpu.nvidia.com"
# Two boards whose minor numbers are not in the order of their indexes, as on HGX servers.
FIRST, SECOND_BOARD = GpuUuid("GPU-first"), GpuUuid("GPU-second")
MINORS = {1: FIRST, 0: SECOND_BOARD}


class Kubelet:
    """What a kubelet lists, pod by pod."""

    def __init__(self) -> None:
        self.response = messages.ListPodResourcesResponse()

    def __call__(self, request: object, context: object) -> messages.ListPodResourcesResponse:
        return self.response

    def container(self, pod: str) -> messages.ContainerResources:
        return self.response.pod_resources.add(name=pod, namespace="n").containers.add(name="c")

    def claimed(self, pod: str, *devices: str, driver: str = NVIDIA, cdi: str = "") -> Kubelet:
        """A pod with one claim, as kubelets list it that name driver and device."""
        claim = self.container(pod).dynamic_resources.add(claim_name="gpus", claim_namespace="n")
        for device in devices:
            entry = claim.claim_resources.add(
                driver_name=driver, pool_name="node-1", device_name=device
            )
            if cdi:
                entry.cdi_devices.add(name=cdi)
        return self

    def with_cdi_only(self, pod: str, *names: str) -> Kubelet:
        """A pod with one claim, as kubelets list it that name no driver."""
        claim = self.container(pod).dynamic_resources.add(claim_name="gpus", claim_namespace="n")
        entry = claim.claim_resources.add()
        for name in names:
            entry.cdi_devices.add(name=name)
        return self


def attributed(
    serve: Serve, kubelet: Kubelet, proc: Path, processes: tuple[GpuProcess, ...] = ()
) -> Attribution:
    client = PodResources(serve(kubelet), timeout_seconds=10.0)
    attributor = Attributor(client.list, proc, MINORS)
    try:
        return attributor.attribute_now({FIRST: (), SECOND_BOARD: processes})
    finally:
        attributor.close()
        client.close()


def boards(found: Attribution) -> dict[str, tuple[GpuUuid, ...]]:
    assert found.source == "kubelet"
    return {pod.name: pod.device_uuids for pod in found.pods}


def test_the_agent_shows_a_claims_pod_on_its_board(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = serve(Kubelet().claimed("train", "gpu-1"))
    arguments = ["--local", "--once", "--json", "--simulated", "2", "--node", "n0"]
    arguments += ["--kubelet-socket", str(socket), "--proc", str(tmp_path)]
    assert agent_command.main(arguments) == 0
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["holders"] for device in devices] == [[], ["n/train"]]


@pytest.mark.parametrize(
    "names",
    [
        [f"k8s.{NVIDIA}/claim={CLAIM}-gpu-0"],
        [f"k8s.{NVIDIA}/device=gpu-0", f"k8s.{NVIDIA}/claim={CLAIM}-gpu-0"],
        [f"k8s.{NVIDIA}/claim={CLAIM}-gpu-0-mig-1g-10gb-19-0"],
    ],
)
def test_a_kubelet_that_names_no_driver_tells_the_board_by_its_cdi_name(
    serve: Serve, tmp_path: Path, names: list[str]
) -> None:
    found = attributed(serve, Kubelet().with_cdi_only("p", *names), tmp_path)
    assert boards(found) == {"p": (SECOND_BOARD,)}


def test_a_driver_without_a_device_name_is_read_by_its_cdi_name(
    serve: Serve, tmp_path: Path
) -> None:
    kubelet = Kubelet().claimed("p", "", cdi=f"k8s.{NVIDIA}/claim={CLAIM}-gpu-0")
    assert boards(attributed(serve, kubelet, tmp_path)) == {"p": (SECOND_BOARD,)}


def test_devices_are_boards_by_minor_number_and_not_by_index(serve: Serve, tmp_path: Path) -> None:
    kubelet = Kubelet().claimed("a", "gpu-1").claimed("b", "gpu-0")
    assert boards(attributed(serve, kubelet, tmp_path)) == {"a": (FIRST,), "b": (SECOND_BOARD,)}


def test_a_pod_with_a_claim_and_a_plugins_device_holds_both(serve: Serve, tmp_path: Path) -> None:
    kubelet = Kubelet().claimed("p", "gpu-1")
    container = kubelet.response.pod_resources[0].containers[0]
    container.devices.add(resource_name="nvidia.com/gpu", device_ids=[SECOND_BOARD])
    assert boards(attributed(serve, kubelet, tmp_path)) == {"p": (FIRST, SECOND_BOARD)}


def test_an_old_kubelet_without_claims_answers_as_before(serve: Serve, tmp_path: Path) -> None:
    kubelet = Kubelet()
    kubelet.container("p").devices.add(resource_name="nvidia.com/gpu", device_ids=[FIRST])
    assert boards(attributed(serve, kubelet, tmp_path)) == {"p": (FIRST,)}


def _home(proc: Path, pid: int) -> tuple[GpuProcess, ...]:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{UID}/{'ab' * 32}\n")
    (proc / str(pid) / "comm").write_text("python3\n")
    return (GpuProcess(pid),)


def test_a_whole_board_of_a_claim_gives_its_process_to_the_pod(
    serve: Serve, tmp_path: Path
) -> None:
    processes = _home(tmp_path, 7)
    found = attributed(serve, Kubelet().claimed("p", "gpu-0"), tmp_path, processes)
    assert [(pod.name, pod.uid) for pod in found.pods] == [("p", UID)]


@pytest.mark.parametrize("device", ["gpu-0-mig-1g-10gb-19-0", "gpu-0-mig-19-0-1"])
def test_a_mig_device_is_its_board_and_shared(serve: Serve, tmp_path: Path, device: str) -> None:
    """The process may be that of another slice, so its UID is nobody's by name."""
    processes = _home(tmp_path, 7)
    found = attributed(serve, Kubelet().claimed("p", device), tmp_path, processes)
    assert boards(found)["p"] == (SECOND_BOARD,)
    assert [(pod.name, pod.uid) for pod in found.pods] == [("p", ""), ("", UID)]


def test_a_claim_of_two_pods_shares_its_board(serve: Serve, tmp_path: Path) -> None:
    processes = _home(tmp_path, 7)
    kubelet = Kubelet().claimed("a", "gpu-0").claimed("b", "gpu-0")
    found = attributed(serve, kubelet, tmp_path, processes)
    assert [(p.name, p.uid) for p in found.pods] == [("a", ""), ("b", ""), ("", UID)]


@pytest.mark.parametrize(
    "driver", ["rdma.example.com", "gpu.intel.com", "compute-domain.nvidia.com"]
)
def test_devices_of_other_drivers_are_left_out(serve: Serve, tmp_path: Path, driver: str) -> None:
    kubelet = Kubelet().claimed("a", "gpu-0", driver=driver, cdi=f"k8s.{NVIDIA}/claim=gpu-0")
    kubelet.with_cdi_only("b", f"k8s.{driver}/claim={CLAIM}-gpu-0")
    assert boards(attributed(serve, kubelet, tmp_path)) == {}


@pytest.mark.parametrize(
    "device",
    [
        "", "gpu", "gpu-", "gpu-9", "gpu--1", "gpu-0x", "gpu-00", "gpu-0-mig", "gpu-0-mig-",
        "GPU-0", "gpu-vfio-0", "xgpu-0", "gpu-0\n", "gpu-٠", f"gpu-{'9' * 5000}", "channel-0",
    ],
)  # fmt: skip
def test_a_device_of_an_unknown_name_leaves_its_pod_without_a_board(
    serve: Serve, tmp_path: Path, device: str
) -> None:
    kubelet = Kubelet().claimed("odd", device).claimed("good", "gpu-0")
    kubelet.with_cdi_only("cdi", f"k8s.{NVIDIA}/claim={CLAIM}-{device}")
    expected = {"odd": (), "good": (SECOND_BOARD,), "cdi": ()}
    assert boards(attributed(serve, kubelet, tmp_path)) == expected


@pytest.mark.parametrize(
    "name", ["", "gpu-0", "=", "/=", "k8s./claim=gpu-0", f"{NVIDIA}/claim", "nvidia.com/gpu=0"]
)
def test_a_name_that_is_no_cdi_name_of_a_gpu_driver_says_nothing(
    serve: Serve, tmp_path: Path, name: str
) -> None:
    kubelet = Kubelet().with_cdi_only("odd", name).claimed("good", "gpu-0")
    assert boards(attributed(serve, kubelet, tmp_path)) == {"good": (SECOND_BOARD,)}


def test_amds_devices_are_never_taken_for_boards_of_nvidia(serve: Serve, tmp_path: Path) -> None:
    kubelet = Kubelet().claimed("a", "gpu-0", driver="gpu.amd.com")
    kubelet.with_cdi_only("b", f"k8s.gpu.amd.com/gpu={CLAIM}-gpu-1-129")
    assert boards(attributed(serve, kubelet, tmp_path)) == {"a": (), "b": ()}


def test_nvml_tells_a_boards_minor_number_beside_its_index() -> None:
    (device,) = NvmlDriver(KnownNvml({"nvmlDeviceGetMinorNumber": 3})).devices()
    assert (device.identity.index, device.identity.minor) == (0, 3)
    assert boards_by_minor([device.identity]) == {3: device.identity.uuid}


def test_a_board_whose_minor_number_is_not_told_is_no_claims_board() -> None:
    silent = KnownNvml({"nvmlDeviceGetMinorNumber": NvmlFailure(NOT_SUPPORTED, "minor")})
    (device,) = NvmlDriver(silent).devices()
    assert device.identity.minor is None
    assert boards_by_minor([device.identity]) == {}


def test_a_minor_number_of_two_boards_names_neither() -> None:
    boards_told = [identity(i, minor=minor) for i, minor in enumerate((0, 1, 1))]
    assert boards_by_minor(boards_told) == {0: "GPU-0"}
