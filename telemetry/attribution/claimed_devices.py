"""Devices of ResourceClaims by their names: whose driver's they are, and which board. Pure.

NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu, ``cmd/gpu-kubelet-plugin/deviceinfo.go`` and
``cdi.go``) names a board ``gpu-<minor number>``, a MIG device ``gpu-<minor number of its
board>-mig-…`` and the CDI device of either ``k8s.gpu.nvidia.com/claim=<claim's UID>-<name>``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpu.device import GpuIdentity
from telemetry.attribution.device_grants import DeviceGrant
from wattpack.gpu_resources import GPU_DRIVERS, NVIDIA_DRIVER
from wattpack.units import GpuUuid

_CDI_NAME = re.compile(r"k8s\.(?P<driver>[^/=]+)/[^/=]+=(?:[0-9a-f-]{36}-)?(?P<device>.*)", re.S)
_BOARD = re.compile(r"gpu-(?P<minor>0|[1-9][0-9]{0,3})(?P<mig>-mig-.+)?")


def claimed_gpus(driver: str, device: str, cdi_names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Driver and device name of each GPU in one entry of a claim; a name may be nobody's board.

    Args:
        driver: Empty from kubelets that do not name it; then the CDI names tell.
        device: In the driver's words, empty where the kubelet does not say.
        cdi_names: Fully qualified.
    """
    if driver and driver not in GPU_DRIVERS:
        return ()
    if driver and device:
        return ((driver, device),)
    read = (_CDI_NAME.fullmatch(name) for name in cdi_names)
    named = tuple((m["driver"], m["device"]) for m in read if m and m["driver"] in GPU_DRIVERS)
    return named or (((driver, ""),) if driver else ())


def boards_by_minor(boards: Iterable[GpuIdentity]) -> dict[int, GpuUuid]:
    """The boards whose minor number is known and theirs alone."""
    known = [(board.minor, board.uuid) for board in boards if board.minor is not None]
    times = Counter(minor for minor, _ in known)
    return {minor: uuid for minor, uuid in known if times[minor] == 1}


def on_boards(
    grants: Iterable[DeviceGrant], minors: Mapping[int, GpuUuid]
) -> tuple[DeviceGrant, ...]:
    """The grants, with the board's UUID for what claims name; what is unknown stays as it is.

    Args:
        minors: The node's boards by minor number, as far as it is known.
    """
    return tuple(_on_board(grant, minors) for grant in grants)


def _on_board(grant: DeviceGrant, minors: Mapping[int, GpuUuid]) -> DeviceGrant:
    if grant.resource != NVIDIA_DRIVER:
        return grant
    named = _BOARD.fullmatch(grant.device_id)
    uuid = minors.get(int(named["minor"])) if named else None
    if named is None or uuid is None:
        return grant
    return replace(grant, device_id=uuid, part=named["mig"] is not None)
