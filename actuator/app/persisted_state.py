"""What outlives the actuator process, in a file on tmpfs (gone after a reboot, as it should be).

Written before any board is touched, by rename, so that a reader sees the old or the new state.
What cannot be read counts as "no lease": that only lowers caps.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from actuator.lease_entry import Memory, RememberedDevice
from actuator.lease_messages import require_integer
from actuator.unix_socket.encoding import MAX_LINE_BYTES, check_keys, decode_object
from wattpack.errors import InputError, PermanentError
from wattpack.units import require_number

DEFAULT_STATE_FILE = Path("/run/wattpack/actuator.json")
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
VERSION = 1

_MEMORY_KEYS = frozenset({"version", *Memory.__dataclass_fields__})
_ROOM_KEYS = frozenset({"epoch_room", "epoch_room_ns"})
_LATER_KEYS = _ROOM_KEYS | {"released"}
"""A file of an earlier release lacks them."""
_DEVICE_KEYS = frozenset(RememberedDevice.__dataclass_fields__)


class StateNotSaved(PermanentError):
    """The state file could not be written; the command is refused, leases run out."""


class StateStore(Protocol):
    """Where the memory of an actuator lies."""

    def load(self) -> tuple[Memory | None, str]:
        """The memory, or None and why it is not usable (empty reason: there is none yet)."""
        ...

    def save(self, memory: Memory) -> None:
        """Keep the memory, all or nothing.

        Raises:
            StateNotSaved: the earlier memory is still there.
        """
        ...


class MemoryStore:
    """Keeps the memory in this process: simulated nodes and tests."""

    def __init__(self) -> None:
        self._memory: Memory | None = None

    def load(self) -> tuple[Memory | None, str]:
        """The memory last saved."""
        return self._memory, ""

    def save(self, memory: Memory) -> None:
        """Keep it."""
        self._memory = memory


class FileStore:
    """Keeps the memory in one JSON file, mode 0600.

    Args:
        path: On tmpfs; its folder is made if missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> tuple[Memory | None, str]:
        """The memory; a damaged file still gives its epoch if that much is readable."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, str(error)
        try:
            return parse_memory(decode_object(data, str(self._path))), ""
        except InputError as error:
            return _salvage(data), str(error)

    def save(self, memory: Memory) -> None:
        """Write beside and rename over."""
        text = json.dumps({"version": VERSION, **asdict(memory)}, allow_nan=False).encode()
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(text)
            beside.replace(self._path)
        except OSError as error:
            raise StateNotSaved(f"cannot write {self._path}: {error}") from error


def parse_memory(body: dict[str, Any]) -> Memory:
    """The memory from decoded JSON.

    Raises:
        InputError: naming the field.
    """
    check_keys(body, _MEMORY_KEYS, "", optional=_LATER_KEYS)
    require_integer("version", body["version"], minimum=VERSION, maximum=VERSION)
    if not isinstance(body["boot_id"], str) or not isinstance(body["devices"], dict):
        raise InputError("boot_id, devices", "a string and an object", body["boot_id"])
    return Memory(
        body["boot_id"],
        require_integer("highest_epoch", body["highest_epoch"]),
        require_integer("highest_sequence", body["highest_sequence"]),
        {uuid: _parse_device(uuid, row) for uuid, row in body["devices"].items()},
        **{name: require_integer(name, body[name]) for name in _ROOM_KEYS if name in body},
        released=body.get("released") is True,
    )


def _parse_device(uuid: str, row: object) -> RememberedDevice:
    path = f"devices.{uuid}"
    if not isinstance(row, dict):
        raise InputError(path, "an object", row)
    check_keys(row, _DEVICE_KEYS, f"{path}.")
    for name in ("configured_watts", "guaranteed_watts", "cap_watts"):
        require_number(f"{path}.{name}", row[name], exclusive_minimum=0.0, unit="W")
    for name in ("lock_max_mhz", "lease_deadline_ns"):
        if row[name] is not None:
            require_integer(f"{path}.{name}", row[name], minimum=1)
    return RememberedDevice(**row)


def _salvage(data: bytes) -> Memory | None:
    """Epoch and sequence of a file whose rest is damaged: a memory of no boot, without leases."""
    try:
        body = json.loads(data[:MAX_LINE_BYTES])
        epoch = require_integer("highest_epoch", body["highest_epoch"])
        sequence = require_integer("highest_sequence", body["highest_sequence"])
    except (ValueError, KeyError, TypeError, RecursionError, InputError):
        return None
    return Memory("", epoch, sequence, {})


def read_boot_id() -> str:
    """The running kernel's identity."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()
