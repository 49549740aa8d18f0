"""Why a GPU is capped: what was observed, which limit holds it, who has the power, what lifts it.

One answer for people and programs; every figure in it is of the view that it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.cap_texts import HeldGpu, cap_texts
from controller.cap_reason import CapReason
from wattpack.errors import InputError
from wattpack.live_view import LiveDomain, LiveView

SHOWN_HOLDERS = 5


def explain_gpu(
    view: LiveView, uuid: str, namespaces: frozenset[str] | None = None
) -> dict[str, object]:
    """The answer for one GPU.

    Args:
        view: The newest view.
        uuid: Of the GPU.
        namespaces: Whose pods may be named; None for all.

    Raises:
        InputError: for a GPU that is not in the view.
    """
    try:
        index = view.gpus.uuid.index(uuid)
    except ValueError as error:
        raise InputError("uuid", "a GPU in the live view", uuid) from error
    gpus = view.gpus
    known = {int(reason): reason for reason in CapReason}
    reason = known.get(gpus.reason[index])
    binding, rack = gpus.binding_domain[index], _domain_of(view, gpus.rack[index])
    domain = view.domains[binding] if binding >= 0 else rack
    texts = cap_texts(reason, HeldGpu(view, index, domain, rack))
    return {
        "uuid": uuid,
        "node": gpus.node[index],
        "rack": gpus.rack[index],
        "model": gpus.model[index],
        "pod": shown_pod(gpus.pod[index], namespaces),
        "priority": gpus.priority[index],
        "drawWatts": gpus.draw_watts[index],
        "limitWatts": gpus.limit_watts[index],
        "decidedWatts": gpus.decided_watts[index] if gpus.decided_watts else None,
        "requestWatts": gpus.request_watts[index],
        "floorWatts": gpus.floor_watts[index] if gpus.floor_watts else None,
        "work": "; ".join(
            part
            for part in (
                _work(view, index),
                _units(view, index),
                _speed(view, index),
                _lock(view, index),
            )
            if part
        ),
        "reason": f"UNKNOWN_{gpus.reason[index]}" if reason is None else reason.name,
        "bindingDomain": domain.name if binding >= 0 else None,
        "sentence": texts.headline,
        "limit": texts.limit,
        "lifts": texts.lifts,
        "actions": list(texts.actions),
        "holders": holders(view, index, domain, namespaces) if reason in _TAKES_FROM else [],
        "tick": view.tick,
        "epoch": view.epoch,
    }


def _work(view: LiveView, index: int) -> str:
    """What runs there, in words; empty where nobody knows."""
    gpus = view.gpus
    sure = gpus.workload_confidence[index] if gpus.workload_confidence else None
    if sure is None or not gpus.pod[index]:
        return ""
    bound = gpus.bound[index]
    if not bound:
        return f"{gpus.workload[index]}, as its label says" if gpus.workload[index] else ""
    if bound == "unknown":
        return "nothing known by its telemetry"
    like = f", like {gpus.workload[index]}" if gpus.workload[index] else ""
    return f"{_BOUNDS.get(bound, bound)} with {sure:.0%} confidence{like}"


def _units(view: LiveView, index: int) -> str:
    """What the board's units did, and which actuator follows; empty where nobody tells."""
    return view.gpus.seen[index] if view.gpus.seen else ""


def _speed(view: LiveView, index: int) -> str:
    """What the limit costs the work, in words; empty where nobody knows."""
    gpus = view.gpus
    kept, limit = (
        gpus.speed_fraction[index] if gpus.speed_fraction else None,
        gpus.limit_watts[index],
    )
    if kept is None or limit is None:
        return ""
    if kept >= _FULL_SPEED:
        return f"{limit:.0f} W cost it no speed"
    return f"at {limit:.0f} W it keeps about {kept:.0%} of its speed (modelled)"


def _lock(view: LiveView, index: int) -> str:
    """That the board is held by its clock, too; empty where the limit alone holds it."""
    gpus = view.gpus
    clock = gpus.lock_max_mhz[index] if gpus.lock_max_mhz else 0
    return f"its clock is locked to {clock} MHz beside the limit" if clock else ""


_FULL_SPEED = 0.995

_BOUNDS = {
    "compute": "bound by operations",
    "bandwidth": "bound by memory bandwidth",
    "outside": "waits for host, storage, network or requests",
    "starved": "starved by launches or one after the other",
}

_TAKES_FROM = {
    CapReason.DOMAIN_BAND,
    CapReason.SURVIVABLE_JUMP,
    CapReason.WAITING_FOR_READ_BACK,
    CapReason.DRY_RUN,
}


def holders(
    view: LiveView, index: int, domain: LiveDomain, namespaces: frozenset[str] | None
) -> list[dict[str, object]]:
    """Who draws the power below the domain with at least the GPU's priority, the largest first."""
    gpus, inside = view.gpus, _below(view.domains, domain.name)
    found: dict[tuple[str, int], list[float]] = {}
    for i, rack in enumerate(gpus.rack):
        watts = gpus.draw_watts[i]
        if not watts or rack not in inside or gpus.pod[i] in {"", gpus.pod[index]}:
            continue
        if gpus.priority[i] >= gpus.priority[index]:
            pod = shown_pod(gpus.pod[i], namespaces)
            found.setdefault((pod, gpus.priority[i]), []).append(watts)
    ranked = sorted(found.items(), key=lambda item: (-item[0][1], -sum(item[1]), item[0][0]))
    return [
        {"pod": pod, "priority": priority, "gpus": len(watts), "drawWatts": round(sum(watts), 1)}
        for (pod, priority), watts in ranked[:SHOWN_HOLDERS]
    ]


def shown_pod(pod: str, namespaces: frozenset[str] | None) -> str:
    """The pod's name for somebody who may list pods in these namespaces only."""
    if not pod or namespaces is None or pod.partition("/")[0] in namespaces:
        return pod
    return "(a pod of another namespace)"


def _below(domains: Sequence[LiveDomain], name: str) -> set[str]:
    """The domain and everything below it; parents may come in any order."""
    parent = {domain.name: domain.parent for domain in domains}
    found = {name}
    for start in parent:
        path: list[str] = []
        at: str | None = start
        while at is not None and at not in found and at not in path:
            path.append(at)
            at = parent.get(at)
        if at in found:
            found.update(path)
    return found


def _domain_of(view: LiveView, name: str) -> LiveDomain:
    """The domain of that name; a view always carries the domain above each GPU."""
    return next(domain for domain in view.domains if domain.name == name)
