"""Builders for snapshots: every test states only what it is about."""

from __future__ import annotations

from typing import Any

from scheduler_plugin.documents.snapshot import (
    Gang,
    Node,
    Pod,
    PodState,
    PowerDomain,
    Quota,
    Snapshot,
)

GIB = 1024**3


def node(name: str, gpus: int = 8, **other: Any) -> Node:
    values: dict[str, Any] = {
        "name": name,
        "gpu_model": "H200",
        "gpu_milli": gpus * 1000,
        "milli_cpu": 96_000,
        "memory_bytes": 1024 * GIB,
        "watts_per_gpu": 700,
    }
    return Node(**(values | other))


def pod(uid: str, gpus: int = 1, **other: Any) -> Pod:
    values: dict[str, Any] = {
        "uid": uid,
        "namespace": "team",
        "name": uid,
        "gpu_milli": gpus * 1000,
        "milli_cpu": 4_000,
        "memory_bytes": 16 * GIB,
    }
    return Pod(**(values | other))


def bound(uid: str, on: str, gpus: int = 1, **other: Any) -> Pod:
    return pod(uid, gpus, state=PodState.BOUND, node=on, **other)


def gang(
    name: str, size: int, gpus: int = 8, existing: int | None = None, **other: Any
) -> tuple[Gang, tuple[Pod, ...]]:
    """A gang with its members; those beyond ``existing`` are absent."""
    members = tuple(
        pod(
            f"{name}-{i}",
            gpus,
            gang=name,
            state=PodState.PENDING if existing is None or i < existing else PodState.ABSENT,
            **other,
        )
        for i in range(size)
    )
    return Gang(id=name, size=size), members


def domain(name: str, limit: int, used: int = 0, parent: str = "", margin: int = 0) -> PowerDomain:
    return PowerDomain(
        name=name,
        limit_watts=limit,
        used_watts=used,
        parent=parent,
        guaranteed_margin_watts=margin,
    )


def quota(name: str, used: dict[str, int] | None = None, **limits: int) -> Quota:
    return Quota(name=name, limits=limits, used=used or {})


def snapshot(
    *parts: Node | Pod | Gang | PowerDomain | Quota | tuple[Gang, tuple[Pod, ...]],
) -> Snapshot:
    """All parts, sorted into their lists."""
    flat: list[Any] = []
    for part in parts:
        flat += [part[0], *part[1]] if isinstance(part, tuple) else [part]
    return Snapshot(
        nodes=tuple(p for p in flat if isinstance(p, Node)),
        pods=tuple(p for p in flat if isinstance(p, Pod)),
        gangs=tuple(p for p in flat if isinstance(p, Gang)),
        domains=tuple(p for p in flat if isinstance(p, PowerDomain)),
        quotas=tuple(p for p in flat if isinstance(p, Quota)),
    )
