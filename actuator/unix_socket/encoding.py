"""The socket's encoding: one JSON object a line, at most 64 KiB, read strictly.

Request: ``{"version": 1, "request": "status"}`` or
``{"version": 1, "request": "apply", "command": {...}}``.
``{"version": 1, "request": "pod_resources"}`` is answered with a file descriptor beside
``{"pod_resources": true}``. Other replies: ``{"status": {...}}``, ``{"result": {...}}`` or
``{"error": {"field": ..., "expected": ..., "got": ...}}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, NoReturn

from actuator.lease_messages import (
    MAX_UINT64,
    ActuatorStatus,
    ApplyResult,
    DeviceCommand,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
    Operation,
    require_integer,
)
from wattpack.errors import InputError
from wattpack.units import require_number

VERSION = 1
MAX_LINE_BYTES = 64 * 1024

_COMMAND_KEYS = frozenset({"epoch", "sequence", "nonce", "ttl_ms", "devices"})
_DEVICE_KEYS = frozenset({"uuid", "operation", "cap_watts", "lock_max_mhz", "guaranteed_watts"})
_STATUS_KEYS = frozenset(ActuatorStatus.__dataclass_fields__)
_LATER_STATUS_KEYS = frozenset({"implausible_epochs"})
_DEVICE_STATUS_KEYS = frozenset(DeviceStatus.__dataclass_fields__)
_RESULT_KEYS = frozenset(ApplyResult.__dataclass_fields__)
_STATES = frozenset(state.value for state in DeviceState)
_GETTERS = {
    kind: (tuple(kind.__dataclass_fields__), attrgetter(*kind.__dataclass_fields__))
    for kind in (LeaseCommand, DeviceCommand, ActuatorStatus, DeviceStatus, ApplyResult)
}


def encode_line(message: Mapping[str, Any]) -> bytes:
    """The message as one line; refuses NaN and infinities."""
    return _ENCODER.encode(message).encode() + b"\n"


def decode_object(line: bytes, source: str = "socket") -> dict[str, Any]:
    """The line's single JSON object.

    Raises:
        InputError: for anything else: truncated or oversized text, NaN, repeated keys, bad UTF-8.
    """
    if len(line) > MAX_LINE_BYTES:
        raise InputError("message", f"at most {MAX_LINE_BYTES} bytes", f"{len(line)} bytes", source)
    try:
        document = _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise InputError("message", "one valid JSON object", str(error), source) from error
    if not isinstance(document, dict):
        raise InputError("message", "one valid JSON object", document, source)
    return document


class Ask(StrEnum):
    """The requests that carry nothing but their name."""

    STATUS = "status"
    POD_RESOURCES = "pod_resources"
    RESTORE_DEFAULTS = "restore_defaults"


def decode_request(line: bytes) -> LeaseCommand | Ask:
    """The command of an apply request, or what else is asked for.

    Raises:
        InputError: naming the first wrong field; nothing was applied.
    """
    document = decode_object(line)
    require_integer("version", document.get("version"), minimum=VERSION, maximum=VERSION)
    request = document.get("request")
    if isinstance(request, str) and request in Ask.__members__.values():
        check_keys(document, frozenset({"version", "request"}), "")
        return Ask(request)
    if request != "apply":
        raise InputError("request", f"apply, {', '.join(Ask)}", request)
    check_keys(document, frozenset({"version", "request", "command"}), "")
    return parse_command(document["command"])


def parse_command(document: object) -> LeaseCommand:
    """A lease command from decoded JSON.

    Raises:
        InputError: naming the field below ``command``.
    """
    body = _mapping("command", document)
    check_keys(body, _COMMAND_KEYS, "command.")
    rows = body["devices"]
    if not isinstance(rows, list):
        raise InputError("command.devices", "a list of device commands", rows)
    devices = tuple(_parse_device(f"command.devices[{i}]", row) for i, row in enumerate(rows))
    try:
        return LeaseCommand(body["epoch"], body["sequence"], body["nonce"], body["ttl_ms"], devices)
    except InputError as error:
        raise _under("command", error) from error


def _parse_device(path: str, document: object) -> DeviceCommand:
    body = _mapping(path, document)
    check_keys(body, _DEVICE_KEYS, f"{path}.", optional=_DEVICE_KEYS - {"uuid", "operation"})
    uuid, operation = body["uuid"], body["operation"]
    if not isinstance(uuid, str):
        raise InputError(f"{path}.uuid", "a string", uuid)
    if not isinstance(operation, str) or operation not in Operation.__members__.values():
        raise InputError(f"{path}.operation", f"one of {', '.join(Operation)}", operation)
    try:
        return DeviceCommand(
            uuid,
            Operation(operation),
            body.get("cap_watts"),
            body.get("lock_max_mhz"),
            body.get("guaranteed_watts"),
        )
    except InputError as error:
        raise _under(path, error) from error


def encode_command(command: LeaseCommand) -> bytes:
    """An apply request."""
    return encode_line({"version": VERSION, "request": "apply", "command": _as_document(command)})


def encode_ask(ask: Ask) -> bytes:
    """A request that carries nothing but its name."""
    return encode_line({"version": VERSION, "request": ask.value})


def encode_status_request() -> bytes:
    """A status request."""
    return encode_ask(Ask.STATUS)


def encode_pod_resources() -> bytes:
    """The reply that a connection to the kubelet goes with."""
    return encode_line({"pod_resources": True})


def encode_status(status: ActuatorStatus) -> bytes:
    """The reply to a status request."""
    return encode_line({"status": _as_document(status)})


def encode_result(result: ApplyResult) -> bytes:
    """The reply to an apply request."""
    return encode_line({"result": _as_document(result)})


def encode_error(error: InputError) -> bytes:
    """The reply to a request that could not be read."""
    body = {"field": error.field, "expected": error.expected, "got": error.got}
    return encode_line({"error": body})


def _as_document(message: LeaseCommand | ActuatorStatus | ApplyResult) -> dict[str, Any]:
    """The message's fields, rows flat; ``dataclasses.asdict`` copies deeply and costs six times."""
    document = _fields(message)
    rows = document["devices"]
    if isinstance(message, LeaseCommand):
        document["devices"] = [_fields(row) for row in rows]
    elif isinstance(message, ActuatorStatus):
        document["devices"] = {uuid: _fields(row) for uuid, row in rows.items()}
    return document


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the message dataclasses
    names, get = _GETTERS[type(value)]
    return dict(zip(names, get(value), strict=True))


def parse_status(document: object) -> ActuatorStatus:
    """A status from decoded JSON."""
    body = _mapping("status", document)
    _require_keys(body, _STATUS_KEYS - _LATER_STATUS_KEYS, "status.")
    rows = _mapping("status.devices", body["devices"])
    numbers = {
        name: require_integer(f"status.{name}", body[name], maximum=2**64)
        for name in ("nonce", "clock_ns", "highest_epoch", "highest_sequence", *_LATER_STATUS_KEYS)
        if name in body
    }
    return ActuatorStatus(
        boot_id=_string("status.boot_id", body["boot_id"]),
        devices={uuid: _parse_device_status(uuid, row) for uuid, row in rows.items()},
        **numbers,
    )


def _parse_device_status(uuid: str, document: object) -> DeviceStatus:
    path = f"status.devices.{uuid}"
    body = _mapping(path, document)
    body = _known(body, _DEVICE_STATUS_KEYS, f"{path}.")
    if not _is_plain(body):
        _check_device_status(path, body)
    return DeviceStatus(**{**body, "state": DeviceState(body["state"])})


def _is_plain(body: Mapping[str, Any]) -> bool:
    """One look at all fields of a device's status: true only if none can be refused.

    This is asked for every GPU and every report; whatever is unusual is looked at field by field.
    """
    limit, enforced, guaranteed = (
        body["limit_watts"],
        body["enforced_limit_watts"],
        body["guaranteed_watts"],
    )
    lock, remaining = body["lock_max_mhz"], body["lease_remaining_ms"]
    confirmed, failed, tampered = (
        body["confirmed_sequence"],
        body["failed_writes"],
        body["tampered"],
    )
    return (
        type(limit) is type(enforced) is type(guaranteed) is float
        and 0.0 < limit < math.inf
        and 0.0 < enforced < math.inf
        and 0.0 < guaranteed < math.inf
        and type(remaining) is type(confirmed) is type(failed) is type(tampered) is int
        and min(remaining, confirmed, failed, tampered) >= 0
        and max(remaining, confirmed, failed, tampered) <= MAX_UINT64
        and (lock is None or (type(lock) is int and 1 <= lock <= MAX_UINT64))
        and type(body["lease_active"]) is bool
        and type(body["state"]) is str
        and body["state"] in _STATES
    )


def _check_device_status(path: str, body: Mapping[str, Any]) -> None:
    """Every check by itself, in words.

    Raises:
        InputError: for the first field that is refused.
    """
    for name in ("limit_watts", "enforced_limit_watts", "guaranteed_watts"):
        if body[name] is not None or name == "guaranteed_watts":
            require_number(f"{path}.{name}", body[name], exclusive_minimum=0.0, unit="W")
    for name in ("lease_remaining_ms", "confirmed_sequence", "failed_writes", "tampered"):
        require_integer(f"{path}.{name}", body[name])
    if body["lock_max_mhz"] is not None:
        require_integer(f"{path}.lock_max_mhz", body["lock_max_mhz"], minimum=1, unit="MHz")
    if not isinstance(body["lease_active"], bool):
        raise InputError(f"{path}.lease_active", "true or false", body["lease_active"])
    if body["state"] not in DeviceState.__members__.values():
        raise InputError(f"{path}.state", f"one of {', '.join(DeviceState)}", body["state"])


def parse_result(document: object) -> ApplyResult:
    """An apply result from decoded JSON."""
    body = _mapping("result", document)
    _require_keys(body, _RESULT_KEYS, "result.")
    if not isinstance(body["accepted"], bool):
        raise InputError("result.accepted", "true or false", body["accepted"])
    texts = {name: _string(f"result.{name}", body[name]) for name in ("field", "expected", "got")}
    rows = _mapping("result.devices", body["devices"])
    devices = {uuid: _string(f"result.devices.{uuid}", row) for uuid, row in rows.items()}
    return ApplyResult(body["accepted"], devices=devices, **texts)


def _known(body: dict[str, Any], known: frozenset[str], prefix: str) -> dict[str, Any]:
    """The known fields of an answer: a later actuator may say more than this agent reads."""
    if body.keys() == known:
        return body
    _require_keys(body, known, prefix)
    return {key: body[key] for key in known}


def _require_keys(body: Mapping[str, Any], needed: frozenset[str], prefix: str) -> None:
    check_keys({key: body[key] for key in needed if key in body}, needed, prefix)


def check_keys(
    body: Mapping[str, Any],
    known: frozenset[str],
    prefix: str,
    optional: frozenset[str] = frozenset(),
    source: str = "",
) -> None:
    """Refuse unknown and missing keys by name.

    Raises:
        InputError: for the first unknown key, then for the first missing one.
    """
    if body.keys() == known:
        return
    for key in body:
        if key not in known:
            expected = f"a known key ({', '.join(sorted(known))})"
            raise InputError(f"{prefix}{key}", expected, key, source)
    for key in sorted(known - optional):
        if key not in body:
            raise InputError(f"{prefix}{key}", "to be present", None, source)


def _under(path: str, error: InputError) -> InputError:
    """The same error with its field below a path."""
    return InputError(f"{path}.{error.field}", error.expected, _Shown(error.got), error.source)


class _Shown(str):
    """A text that is already a ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _mapping(path: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(path, "a JSON object", value)
    return value


def _string(path: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(path, "a string", value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key appears twice")
    return document


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
