"""What a tick says about itself: decisions for people and metrics, transitions for Events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from controller.controller_state import Alarms, State
from controller.decide import Decided, Situation
from controller.grants import Grants
from controller.picture import Picture
from controller.tick_values import Band, CapReason, Decisions, Topology, Transition
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["Judgement", "cap_reasons", "report"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Everything that ``report`` speaks about.

    Attributes:
        previous: State before the tick.
        state: State with this tick's bands, heat and trust.
        picture: What was known.
        situation: What had to be respected.
        decided: What would be commanded, also in DryRun.
        grants: What is commanded.
        guaranteed_watts: I1's worst case, (n_domains,).
        cap_band_watts: (n_domains,).
        forecast_watts: Forecast p99, NaN if none, (n_domains,).
        braked: (n_gpus,).
        override_watts: Manual caps, NaN if none, (n_gpus,).
    """

    previous: State
    state: State
    picture: Picture
    situation: Situation
    decided: Decided
    grants: Grants
    guaranteed_watts: FloatArray
    cap_band_watts: FloatArray
    forecast_watts: FloatArray
    braked: BoolArray
    override_watts: FloatArray


def cap_reasons(topology: Topology, j: Judgement) -> IntArray:
    """Why each GPU is below its request, the strongest cause last, (n_gpus,)."""
    decided = j.decided.cap_watts
    short = decided < topology.request_watts - 1.0
    reason = np.where(short, int(CapReason.DOMAIN_BAND), int(CapReason.NOT_CAPPED))
    reason = np.where(short & j.decided.held_by_jump, int(CapReason.SURVIVABLE_JUMP), reason)
    with np.errstate(invalid="ignore"):
        reason = np.where(
            short & (decided >= j.override_watts - 1.0), int(CapReason.OVERRIDE), reason
        )
    waiting = ~short & (j.grants.reason != CapReason.NOT_CAPPED)
    reason = np.where(waiting, j.grants.reason, reason)
    reason = np.where(j.braked, int(CapReason.BRAKE), reason)
    reason = np.where(~j.situation.active, int(CapReason.UNCONTROLLED), reason)
    dry = ~topology.tree.enforce[topology.domain_of_gpu]
    return np.where(dry & short, int(CapReason.DRY_RUN), reason).astype(np.int64)


def report(topology: Topology, j: Judgement) -> tuple[Decisions, Alarms]:
    """The tick's decisions with every change of band or condition, and the conditions now."""
    load, state = j.state.load, j.state
    with np.errstate(invalid="ignore"):
        forecast_above = j.forecast_watts > j.cap_band_watts
    missing = load.sum_nodes((~j.picture.holding.fresh_node).astype(np.float64))
    alarms = Alarms(
        forecast_above=np.asarray(forecast_above),
        degraded=(j.guaranteed_watts > load.rating_watts + 1e-6) & state.heard,
        meter_mismatch=j.picture.mismatch,
        unreachable=state.heard & (missing > 0.2 * load.nodes_below),
    )
    worst = load.sum_gpus(j.picture.highest_watts) * load.gpu_factor + j.situation.worst_rest_watts
    limit = np.minimum(j.situation.load_limit_watts, j.situation.survivable_watts)
    decisions = Decisions(
        draw_watts=j.picture.draw_watts,
        worst_watts=worst,
        guaranteed_watts=j.guaranteed_watts,
        limit_watts=limit,
        cap_band_watts=j.cap_band_watts,
        heat=state.heat,
        band=state.bands.band,
        binding_domain=j.decided.binding_domain,
        reason=cap_reasons(topology, j),
        decided_cap_watts=j.decided.cap_watts,
        highest_cap_watts=j.picture.highest_watts,
        trusted=state.trust.trusted,
        silent_nodes=~j.picture.holding.fresh_node,
        transitions=tuple(_transitions(topology, j, alarms)),
    )
    return decisions, alarms


def _transitions(topology: Topology, j: Judgement, alarms: Alarms) -> Iterator[Transition]:
    names = topology.tree.names
    old, new = j.previous.bands.band, j.state.bands.band
    for i in np.flatnonzero(old != new):
        yield Transition(
            names[i],
            Band(new[i]).name.title(),
            f"{Band(old[i]).name} -> {Band(new[i]).name}: draw {j.picture.draw_watts[i]:.0f} W, "
            f"cap band {j.cap_band_watts[i]:.0f} W, heat {j.state.heat[i]:.2f}",
        )
    before = j.previous.alarms
    rating = j.state.load.rating_watts
    yield from _flips(
        names,
        before.forecast_above,
        alarms.forecast_above,
        ("ForecastAboveBand", "ForecastBelowBand"),
        ("forecast p99", "cap band"),
        j.forecast_watts,
        j.cap_band_watts,
    )
    yield from _flips(
        names,
        before.degraded,
        alarms.degraded,
        ("Degraded", "Recovered"),
        ("worst case at guaranteed caps", "rating"),
        j.guaranteed_watts,
        rating,
    )
    yield from _flips(
        names,
        before.meter_mismatch,
        alarms.meter_mismatch,
        ("MeterMismatch", "MeterAgrees"),
        ("draw, the larger of meter and nodes,", "rating"),
        j.picture.draw_watts,
        rating,
    )
    yield from _flips(
        names,
        before.unreachable,
        alarms.unreachable,
        ("NodesSilent", "NodesHeard"),
        ("draw with silent nodes at their most", "rating"),
        j.picture.draw_watts,
        rating,
    )
    domain_of_gpu = topology.domain_of_gpu
    for i in np.flatnonzero(j.previous.trust.trusted != j.state.trust.trusted):
        obeys = bool(j.state.trust.trusted[i])
        yield Transition(
            names[domain_of_gpu[i]],
            "DeviceTrusted" if obeys else "DeviceUntrusted",
            f"{topology.gpu_uuids[i]} on {topology.node_names[topology.node_of_gpu[i]]} "
            + ("keeps its cap again" if obeys else "draws over 110 % of every cap it could hold"),
        )


def _flips(
    names: tuple[str, ...],
    before: BoolArray,
    now: BoolArray,
    kinds: tuple[str, str],
    words: tuple[str, str],
    watts: FloatArray,
    bound_watts: FloatArray,
) -> Iterator[Transition]:
    """Alarms that began or ended; ``words`` name the figure and what it is held against."""
    for i in np.flatnonzero(before != now):
        yield Transition(
            names[i],
            kinds[0] if now[i] else kinds[1],
            f"{words[0]} {watts[i]:.0f} W, {words[1]} {bound_watts[i]:.0f} W",
        )
