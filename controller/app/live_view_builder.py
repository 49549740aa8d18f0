"""Builds the live view from a tick: columns by GPU, domains with forecast, the newest decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from controller.cap_reason import CapReason
from controller.tick_values import Band, Decisions, Observations, Topology
from controller.units_watch import SeenBoard
from controller.work_curves import Curves, speeds_at
from controller.work_seen import PodWork
from forecasting.forecast_book import Outlook
from forecasting.issued_forecast import IssuedForecast
from wattpack.api.power_domain import PromisableWatts
from wattpack.live_view import (
    LiveAccount,
    LiveCalibration,
    LiveDecision,
    LiveDomain,
    LiveForecast,
    LiveGpus,
    LiveLead,
    LiveRoom,
    LiveTier,
    LiveView,
)
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

#: Shown where a GPU has a pod whose name is not the reader's to know.
HIDDEN_POD = "(hidden)"


@dataclass(frozen=True, slots=True)
class ViewContext:
    """What the arrays do not carry."""

    wall_time_ns: int
    tick: int
    tick_seconds: float
    models: Sequence[str]
    pods: Sequence[str]
    outlooks: Mapping[str, Outlook]
    temperatures_celsius: FloatArray
    simulated: bool
    label: str
    works: Mapping[str, PodWork] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    boards: Mapping[str, SeenBoard] = field(default_factory=dict)


def shown_to(view: LiveView, visible: Callable[[Collection[str]], Collection[str]]) -> LiveView:
    """The view with the names of those pods only whose namespaces ``visible`` picks."""
    pods = view.gpus.pod
    shown = visible({namespace_of(pod) for pod in pods if pod})
    named = [p if not p or namespace_of(p) in shown else HIDDEN_POD for p in pods]
    known: dict[str, list[Any]] = {"pod": named}
    # What strangers run is theirs to tell.
    if view.gpus.workload:
        known["workload"] = [
            work if pod != HIDDEN_POD else ""
            for work, pod in zip(view.gpus.workload, named, strict=True)
        ]
    if view.gpus.seen:
        known["seen"] = [
            text if pod != HIDDEN_POD else ""
            for text, pod in zip(view.gpus.seen, named, strict=True)
        ]
    if view.gpus.speed_fraction:
        known["speed_fraction"] = [
            None if pod == HIDDEN_POD else kept
            for kept, pod in zip(view.gpus.speed_fraction, named, strict=True)
        ]
    return view.model_copy(update={"gpus": view.gpus.model_copy(update=known)})


def with_promisable(view: LiveView, rooms: Mapping[str, Sequence[PromisableWatts]]) -> LiveView:
    """The view with what may be promised in its domains beyond what is, as far as anybody knows."""
    if not rooms:
        return view
    domains = [
        domain.model_copy(update={"promisable": [_room(one) for one in rooms[domain.name]]})
        if domain.name in rooms
        else domain
        for domain in view.domains
    ]
    return view.model_copy(update={"domains": domains})


def _room(one: PromisableWatts) -> LiveRoom:
    return LiveRoom(least_priority=one.least_priority, risk=one.risk, watts=one.watts)


def namespace_of(pod: str) -> str:
    """Of a pod as the live view names it."""
    return pod.partition("/")[0]


def capped_by_domain(topology: Topology, decisions: Decisions) -> IntArray:
    """GPUs held below their request in each domain's subtree, (n_domains,)."""
    reason = decisions.reason
    held: BoolArray = (reason != CapReason.NOT_CAPPED) & (reason != CapReason.DRY_RUN)
    return _below(topology, held)


def would_be_capped_by_domain(topology: Topology, decisions: Decisions) -> IntArray:
    """GPUs that caps would hold were it not for DryRun, likewise; nothing holds them."""
    return _below(topology, decisions.reason == CapReason.DRY_RUN)


def _below(topology: Topology, gpus: BoolArray) -> IntArray:
    direct: FloatArray = np.bincount(
        topology.domain_of_gpu, weights=gpus.astype(np.float64), minlength=topology.n_domains
    ).astype(np.float64)
    return topology.tree.sum_up(direct).astype(np.int64)


def gpus_by_domain(topology: Topology) -> IntArray:
    """GPUs in each domain's subtree, (n_domains,)."""
    direct = np.bincount(topology.domain_of_gpu, minlength=topology.n_domains).astype(np.float64)
    return topology.tree.sum_up(direct).astype(np.int64)


@dataclass(frozen=True, slots=True)
class DomainCounts:
    """What is below each domain, (n_domains,) each.

    Attributes:
        gpus: All of them.
        capped: Those held below their request.
        would_be_capped: Those that would be, were it not for DryRun.
        servers: All of them.
        heard_servers: Those with a fresh report.
    """

    gpus: IntArray
    capped: IntArray
    would_be_capped: IntArray
    servers: IntArray
    heard_servers: IntArray


def _counts(topology: Topology, decisions: Decisions) -> DomainCounts:
    def below(nodes: BoolArray) -> IntArray:
        here = np.bincount(topology.domain_of_node[nodes], minlength=topology.n_domains)
        return topology.tree.sum_up(here.astype(np.float64)).astype(np.int64)

    return DomainCounts(
        gpus=gpus_by_domain(topology),
        capped=capped_by_domain(topology, decisions),
        would_be_capped=would_be_capped_by_domain(topology, decisions),
        servers=below(np.ones(topology.n_nodes, dtype=np.bool_)),
        heard_servers=below(~decisions.silent_nodes),
    )


def live_view(
    topology: Topology,
    seen: Observations,
    decisions: Decisions,
    recent: Sequence[LiveDecision],
    context: ViewContext,
) -> LiveView:
    """Everything at one tick."""
    counted = _counts(topology, decisions)
    return LiveView(
        wall_time_ns=context.wall_time_ns,
        tick=context.tick,
        epoch=seen.epoch,
        leading=seen.leading,
        tick_seconds=round(context.tick_seconds, 6),
        domains=[
            _domain(topology, seen, decisions, counted, index, context.outlooks.get(name))
            for index, name in enumerate(topology.tree.names)
        ],
        gpus=_gpus(topology, seen, decisions, context),
        decisions=list(recent),
        simulated=context.simulated,
        label=context.label,
        raises_stopped=_stopped(decisions),
    )


def _stopped(decisions: Decisions) -> str:
    why = decisions.raises_stopped
    return "" if why is CapReason.NOT_CAPPED else why.name


def _domain(
    topology: Topology,
    seen: Observations,
    decisions: Decisions,
    counted: DomainCounts,
    index: int,
    outlook: Outlook | None,
) -> LiveDomain:
    tree = topology.tree
    parent = int(tree.parent[index])
    known = outlook if outlook is not None and outlook.method != "limit" else None
    return LiveDomain(
        name=tree.names[index],
        parent=tree.names[parent] if parent >= 0 else None,
        # What the feeds that carry may do: with useReserve the draw may be above the rating.
        rating_watts=round(
            float(decisions.available_watts[index] * tree.phase_imbalance[index]), 1
        ),
        budget_watts=round(float(seen.budget_watts[index]), 1),
        cap_band_watts=round(float(decisions.cap_band_watts[index]), 1),
        draw_watts=round(float(decisions.draw_watts[index]), 1),
        worst_watts=round(float(decisions.worst_watts[index]), 1),
        release_watts=_known(decisions.release_watts[index]),
        survivable_watts=_known(decisions.survivable_watts[index]),
        jump_limit_watts=_known(decisions.jump_limit_watts[index]),
        guaranteed_watts=_known(decisions.guaranteed_watts[index]),
        guaranteed_limit_watts=_known(decisions.guaranteed_limit_watts[index]),
        base_watts=_known(decisions.base_watts[index]),
        calm_watts=_known(decisions.calm_watts[index]),
        uncapped_watts=_known(decisions.uncapped_watts[index]),
        recovering=bool(decisions.recovering[index] and tree.enforce[index]),
        servers=int(counted.servers[index]),
        heard_servers=int(counted.heard_servers[index]),
        raise_watts_per_second=_known(tree.max_raise_watts_per_second[index]),
        heat=round(float(decisions.heat[index]), 5),
        band=Band(int(decisions.band[index])).name,
        enforcement="Enforce" if tree.enforce[index] else "DryRun",
        gpus=int(counted.gpus[index]),
        capped_gpus=int(counted.capped[index]),
        would_be_capped_gpus=int(counted.would_be_capped[index]),
        forecast_p50_watts=known.p50_watts if known else None,
        forecast_p95_watts=known.p95_watts if known else None,
        forecast_p99_watts=known.p99_watts if known else None,
        forecast_method=_method(known) if known else "",
        forecast_state=outlook.state if outlook else "",
        forecast_reason=outlook.reason if outlook else "",
        forecast_window=_window(known.source, known) if known and known.source else None,
        forecast_lead=_lead(known.source, known) if known and known.source else None,
        forecast_account=_account(known.source) if known and known.source else None,
    )


def _method(outlook: Outlook) -> str:
    return ("fallback: " if outlook.is_fallback else "") + outlook.method


def _window(issue: IssuedForecast, known: Outlook) -> LiveForecast | None:
    """The steps behind the answer; None where the forecast does not carry both paths.

    No step lies above the peak in use, which the domain's limit bounds.
    """
    paths = {path.level: path.values for path in issue.paths}
    if 0.5 not in paths or 0.99 not in paths:
        return None
    return LiveForecast(
        start_seconds=issue.window_start_seconds,
        step_seconds=issue.step_seconds,
        p50_watts=[min(watts, known.p99_watts) for watts in paths[0.5]],
        p99_watts=[min(watts, known.p99_watts) for watts in paths[0.99]],
    )


def _lead(issue: IssuedForecast, known: Outlook) -> LiveLead | None:
    lead = issue.lead
    if lead is None:
        return None
    p99 = None if lead.p99 is None else min(lead.p99, known.p99_watts)
    return LiveLead(workload=lead.workload, seconds=lead.seconds, p99_watts=p99)


def _account(issue: IssuedForecast) -> LiveAccount:
    account, calibration = issue.account, issue.account.calibration
    return LiveAccount(
        issued_seconds=issue.issued_seconds,
        data_until_seconds=issue.data_until_seconds,
        windows=account.windows,
        violations=account.violations,
        violation_bound=account.violation_bound,
        live_windows=account.live_windows,
        live_violations=account.live_violations,
        live_violation_bound=account.live_violation_bound,
        reserve_ratio=account.reserve_ratio,
        tiers=[LiveTier(name=tier.name, weight=tier.weight) for tier in account.tiers],
        model_version=account.model_version,
        fitted_until_seconds=account.fitted_until_seconds,
        calibration=LiveCalibration(
            live_windows=calibration.live_windows,
            rehearsed_windows=calibration.rehearsed_windows,
            offset_p99_watts=calibration.offset_p99,
            updated_seconds=calibration.updated_seconds,
        )
        if calibration
        else None,
        flags=list(account.flags),
    )


def _gpus(
    topology: Topology, seen: Observations, decisions: Decisions, context: ViewContext
) -> LiveGpus:
    nodes = topology.node_names
    domain_names = topology.tree.names
    return LiveGpus(
        uuid=list(topology.gpu_uuids),
        node=[nodes[i] for i in topology.node_of_gpu],
        rack=[domain_names[i] for i in topology.domain_of_gpu],
        model=list(context.models),
        draw_watts=_numbers(seen.gpu_draw_watts),
        limit_watts=_numbers(seen.gpu_limit_watts),
        request_watts=[round(float(w), 1) for w in topology.request_watts],
        priority=topology.priority.tolist(),
        reason=decisions.reason.tolist(),
        binding_domain=decisions.binding_domain.tolist(),
        trusted=decisions.trusted.tolist(),
        pod=list(context.pods),
        floor_watts=[round(float(w), 1) for w in topology.floor_watts],
        decided_watts=[round(float(w), 1) for w in decisions.decided_cap_watts],
        temperature_celsius=_numbers(context.temperatures_celsius),
        speed_fraction=_numbers(speeds_at(context.curves, seen.gpu_limit_watts), 3),
        lock_max_mhz=decisions.lock_max_mhz.tolist(),
        seen=_seen(topology, context.boards),
        **_works(context),
    )


_WAITS_FOR = {
    "compute": "waits for operations",
    "memory": "waits for memory",
    "mixed": "waits for operations and for memory by turns",
    "launches": "waits for launches",
    "waits": "waits for something outside the GPU",
}
_SOURCES = {"board": "the board's own counters", "dcgm": "dcgm-exporter"}


def _seen(topology: Topology, boards: Mapping[str, SeenBoard]) -> list[str]:
    """Sentences for people, (n_gpus,)."""
    locked = topology.clock_lock.tolist()
    return [
        _sentence(boards[uuid], is_locked=locked[i]) if uuid in boards else ""
        for i, uuid in enumerate(topology.gpu_uuids)
    ]


def _sentence(board: SeenBoard, *, is_locked: bool) -> str:
    units = board.units
    shares = (
        f"DRAM {units.dram:.0%}, tensor pipe {units.tensor:.0%}, SMs {units.sm:.0%}, "
        f"engine {units.engine:.0%} of the time, by {_SOURCES[board.source]}"
    )
    actuator = "clock and limit" if is_locked else "its limit"
    return f"{_WAITS_FOR[board.work.kind]} ({shares}), so {actuator} may shed"


def _works(context: ViewContext) -> dict[str, list[Any]]:
    """The columns about pods' work; empty or None where nothing is known."""
    works = [context.works.get(pod) for pod in context.pods]
    return {
        "workload": [work.workload if work else "" for work in works],
        "bound": [work.bound if work else "" for work in works],
        "workload_confidence": [round(work.confidence, 3) if work else None for work in works],
    }


def _known(watts: float) -> float | None:
    """Rounded, None where nothing bounds it."""
    return round(float(watts), 1) if np.isfinite(watts) else None


def _numbers(values: FloatArray, digits: int = 1) -> list[float | None]:
    """Rounded numbers, None for what is not known."""
    return [None if value != value else round(value, digits) for value in values.tolist()]
