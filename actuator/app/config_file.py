"""The actuator's configuration file: JSON, read strictly, with the standard library only.

{"devices": {"NVIDIA H200": 450, "GPU-1a2b…": 400}, "allowed_uids": [65532], "allowed_gids": [],
 "socket_gid": 65532, "max_ttl_ms": 10000}

A key of ``devices`` is a UUID, a product name, or ``*`` for every GPU without a better match.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actuator.lease_entry import DeviceBounds
from actuator.lease_messages import require_integer
from actuator.lease_table import MAX_TTL_MS
from actuator.unix_socket.encoding import check_keys, decode_object
from gpu.device import GpuDevice, GpuIdentity
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

_KEYS = frozenset({"devices", "allowed_uids", "allowed_gids", "socket_gid", "max_ttl_ms"})
_OPTIONAL = frozenset({"allowed_gids", "socket_gid", "max_ttl_ms"})
_MAX_ID = 2**32 - 2


@dataclass(frozen=True, slots=True)
class ActuatorConfig:
    """What the administrator decides.

    Attributes:
        guaranteed_watts: By UUID, product name or ``*``: what expiry falls to.
        allowed_uids: Users that may connect.
        allowed_gids: Primary groups that may connect.
        socket_gid: Group of the socket file, None to keep the process's group.
        max_ttl_ms: Longest lease.
    """

    guaranteed_watts: Mapping[str, float]
    allowed_uids: frozenset[int]
    allowed_gids: frozenset[int] = frozenset()
    socket_gid: int | None = None
    max_ttl_ms: int = MAX_TTL_MS

    def guaranteed_for(self, gpu: GpuIdentity) -> float:
        """The guaranteed cap of one GPU in watts.

        Raises:
            InputError: if nobody decided one; guessing would be unsafe (I8).
        """
        for key in (str(gpu.uuid), gpu.model, "*"):
            if key in self.guaranteed_watts:
                return self.guaranteed_watts[key]
        expected = f"a guaranteed cap in W for GPU {gpu.uuid}"
        raise InputError(f"devices.{gpu.model}", expected, "nothing")


def load_config(path: Path, *, boards: bool = True) -> ActuatorConfig:
    """The configuration in a file.

    Args:
        path: Of the file.
        boards: Whether it must name the guaranteed caps of boards.

    Raises:
        InputError: naming the field and the file.
    """
    source = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError("file", "a readable file", str(error), source) from error
    body = decode_object(data, source)
    check_keys(body, _KEYS, "", optional=_OPTIONAL, source=source)
    if not isinstance(body["devices"], dict) or (boards and not body["devices"]):
        raise InputError("devices", "a guaranteed cap for each GPU", body["devices"], source)
    with read_from(source):
        caps = {
            key: require_number(f"devices.{key}", value, exclusive_minimum=0.0, unit="W a GPU")
            for key, value in body["devices"].items()
        }
    uids = _ids("allowed_uids", body["allowed_uids"], source)
    gids = _ids("allowed_gids", body.get("allowed_gids", []), source)
    if not uids and not gids:
        raise InputError("allowed_uids", "at least one user or group", [], source)
    gid = body.get("socket_gid")
    if gid is not None:
        require_integer("socket_gid", gid, maximum=_MAX_ID, source=source)
    ttl_ms = require_integer(
        "max_ttl_ms",
        body.get("max_ttl_ms", MAX_TTL_MS),
        minimum=1,
        maximum=MAX_TTL_MS,
        unit="ms",
        source=source,
    )
    return ActuatorConfig(caps, uids, gids, gid, ttl_ms)


def _ids(field: str, value: object, source: str) -> frozenset[int]:
    if not isinstance(value, list):
        raise InputError(field, "a list of numeric ids", value, source)
    return frozenset(
        require_integer(f"{field}[{i}]", row, maximum=_MAX_ID, source=source)
        for i, row in enumerate(value)
    )


def guaranteed_by_uuid(
    config: ActuatorConfig, devices: Iterable[GpuDevice], bounds: Mapping[str, DeviceBounds]
) -> dict[str, float]:
    """The guaranteed cap of every GPU, checked against what its board accepts.

    Raises:
        InputError: for an unknown model, and for a cap that the board cannot hold: most often
            milliwatts or the total of a node in place of watts a GPU.
    """
    caps: dict[str, float] = {}
    for device in devices:
        gpu = device.identity
        watts = config.guaranteed_for(gpu)
        limit = bounds[str(gpu.uuid)]
        caps[str(gpu.uuid)] = require_number(
            f"devices.{gpu.model}",
            watts,
            minimum=limit.min_watts,
            maximum=limit.default_watts,
            unit="W a GPU",
        )
    return caps
