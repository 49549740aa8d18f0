"""Puts an actuator together from a node's boards, and caps a node without one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from actuator.app.board_writes import DEADLINE_NS, Hands
from actuator.app.config_file import ActuatorConfig, guaranteed_by_uuid
from actuator.app.node_actuator import Actuator
from actuator.app.persisted_state import StateStore
from actuator.audit_log import AuditSink
from actuator.lease_entry import DeviceBounds
from actuator.lease_messages import MAX_UINT64
from actuator.lease_table import LeaseTable
from gpu.device import GpuDevice, GpuTimeout
from gpu.workers.deadline_executor import Abandoned, DeadlineExecutor
from wattpack.clock import Clock


def nonces(generator: random.Random) -> Callable[[], int]:
    """A source of nonces from 1 to 2^64 - 1; on a real node pass ``random.SystemRandom()``."""
    return lambda: generator.randint(1, MAX_UINT64)


def read_bounds(device: GpuDevice) -> DeviceBounds:
    """What one board accepts."""
    limits = device.limits()
    return DeviceBounds(
        limits.min_watts, limits.max_watts, limits.default_watts, device.max_clock_mhz()
    )


def read_all_bounds(
    devices: Sequence[GpuDevice], clock: Clock, deadline_ns: int = 4 * DEADLINE_NS
) -> tuple[dict[str, DeviceBounds], dict[str, Exception]]:
    """What every board accepts, and why some did not tell; a hung one is not waited for."""
    executor = DeadlineExecutor(clock, deadline_ns=deadline_ns, stall_ns=0)
    results = executor.run(
        {str(device.identity.uuid): partial(_read_bounds, device) for device in devices}
    )
    executor.close()
    bounds: dict[str, DeviceBounds] = {}
    problems: dict[str, Exception] = {}
    for device in devices:
        uuid = str(device.identity.uuid)
        result = results.get(uuid)
        if isinstance(result, DeviceBounds):
            bounds[uuid] = result
        else:
            hangs = GpuTimeout(f"{uuid}: limits not read within the deadline")
            problems[uuid] = result or hangs
    return bounds, problems


def _read_bounds(device: GpuDevice, _abandoned: Abandoned) -> DeviceBounds:
    return read_bounds(device)


def build_table(
    config: ActuatorConfig,
    devices: Sequence[GpuDevice],
    bounds: dict[str, DeviceBounds],
    boot_id: str,
    generator: random.Random,
) -> LeaseTable:
    """A lease table of the boards that told their bounds.

    Raises:
        InputError: for a GPU without a guaranteed cap that its board can hold (I8).
    """
    answering = [device for device in devices if str(device.identity.uuid) in bounds]
    caps = guaranteed_by_uuid(config, answering, bounds)
    return LeaseTable(caps, bounds, boot_id, nonces(generator), config.max_ttl_ms)


def apply_guaranteed(
    table: LeaseTable,
    hands: Hands,
    store: StateStore,
    audit: AuditSink,
    *,
    take_back: bool = False,
) -> bool:
    """Lower every board to its guaranteed cap, raise none; True if all were read back.

    Guaranteed caps that commands have changed are honoured, leases are not; the state file is
    only read, so that an actuator that starts next still finds what is left. Boards that an
    operator released are left alone, unless they are taken back, which the file then says.
    """
    memory, _ = store.load()
    if memory is not None and memory.released and take_back:
        memory = replace(memory, released=False)
        store.save(memory)
    if memory is not None:
        past = {
            uuid: replace(row, lease_deadline_ns=None, lock_max_mhz=None)
            for uuid, row in memory.devices.items()
        }
        table.recall(replace(memory, devices=past), 0)
    if table.released:
        audit({"event": "apply_guaranteed", "left_alone": "released"})
        return True
    seen = hands.carry_out(dict.fromkeys(table.uuids, ()))
    plans = table.start({uuid: outcome.limit_watts for uuid, outcome in seen.items()})
    rows: list[dict[str, object]] = []
    for uuid, outcome in hands.carry_out(plans).items():
        table.observe(uuid, outcome)
        held = table.held(uuid)
        rows.append(
            {
                "uuid": uuid,
                "before_watts": seen[uuid].limit_watts,
                "after_watts": outcome.limit_watts,
                "guaranteed_watts": held.guaranteed_watts,
                "result": outcome.error or ("confirmed" if held.confirmed else "unconfirmed"),
            }
        )
    audit({"event": "apply_guaranteed", "devices": rows})
    return all(table.held(uuid).confirmed for uuid in table.uuids)


def start_actuator(
    table: LeaseTable, hands: Hands, store: StateStore, clock: Clock, audit: AuditSink
) -> Actuator:
    """An actuator that has taken over its boards."""
    actuator = Actuator(table, hands, store, clock, audit)
    actuator.start()
    return actuator
