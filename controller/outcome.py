"""What a tick says about itself: decisions for people and metrics, transitions for Events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controller.alarms import Alarms, Condition, debounced
from controller.bands import calm_share, release_share
from controller.cap_verdicts import cap_verdicts
from controller.controller_state import base_watts
from controller.judgement import Judgement
from controller.reserve_feeds import reserve_missing
from controller.tick_values import Band, Decisions, Tick, Transition
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["report"]

# Research page on power, "Leases": disagreement above 8 % is an alarm.
_MISMATCH_SHARE = 0.08
_SILENT_SHARE = 0.2
# A reading that is lost now and then is none that anybody has to hear of. Assumed.
_METER_UNUSED_SECONDS = 60.0


def report(tick: Tick, j: Judgement) -> tuple[Decisions, Alarms]:
    """The tick's decisions with every change of band or condition, and the conditions now."""
    load, state = j.state.load, j.state
    missing = reserve_missing(load, state.available_watts, tick.settings)
    base, cap_band, verdicts = base_watts(state), j.loads.cap_band, cap_verdicts(tick, j)
    band_watts = cap_band * base
    holds = _conditions(tick, j, missing, band_watts)
    alarms = debounced(j.previous.alarms, holds, tick.now_ns)
    worst = load.sum_gpus(j.picture.highest_watts) * load.gpu_factor + j.situation.worst_rest_watts
    decisions = Decisions(
        draw_watts=j.picture.draw_watts,
        worst_watts=worst,
        guaranteed_watts=j.orders.guaranteed.watts,
        survivable_watts=j.situation.survivable_watts,
        jump_limit_watts=j.situation.jump_limit_watts,
        guaranteed_limit_watts=load.rating_watts,
        base_watts=base,
        cap_band_watts=band_watts,
        calm_watts=calm_share(cap_band, tick.settings) * base,
        release_watts=release_share(cap_band, tick.settings) * base,
        uncapped_watts=j.loads.uncapped_share * base,
        recovering=state.recovering,
        raises_stopped=j.orders.raises_stopped,
        heat=state.heat,
        band=state.bands.band,
        binding_domain=verdicts.binding_domain,
        reason=verdicts.reason,
        decided_cap_watts=j.decided.cap_watts,
        highest_cap_watts=j.picture.highest_watts,
        trusted=state.trust.trusted,
        silent_nodes=~j.picture.holding.fresh_node,
        stale_readings=j.picture.stale_gpu,
        host_share=_host_share(tick, j),
        coincidence=j.situation.coincidence,
        available_watts=state.available_watts,
        reserve_missing=missing,
        meter_unused_seconds=state.meters.unused_seconds,
        meter_mismatch=alarms.on[Condition.METER_MISMATCH],
        transitions=(
            *_band_changes(tick, j, band_watts),
            *_alarm_changes(tick, j, alarms, band_watts),
            *_trust_changes(tick, j),
        ),
        lock_max_mhz=j.orders.commands.lock_max_mhz,
    )
    return decisions, alarms


def _host_share(tick: Tick, j: Judgement) -> FloatArray:
    """What servers count at beside their boards over their declared worst, (n_domains,)."""
    load, worst = j.state.load, tick.topology.node_worst_watts
    declared = load.sum_nodes(worst)
    counted = load.sum_nodes(j.picture.host_watts)
    return np.divide(counted, declared, out=np.ones_like(counted), where=declared > 0.0)


def _conditions(
    tick: Tick, j: Judgement, reserve_is_missing: BoolArray, band_watts: FloatArray
) -> BoolArray:
    """What holds at this tick, (n_conditions, n_domains).

    Args:
        tick: What was observed.
        j: What was judged of it.
        reserve_is_missing: Domains whose reserve feeds are not there, (n_domains,).
        band_watts: Draw at which each domain begins to cap, (n_domains,).
    """
    load, metered = j.state.load, j.picture.metered
    silent = ~j.picture.holding.fresh_node
    missing = (
        load.sum_nodes(silent.astype(np.float64)) if some(silent) else np.zeros(len(load.tree))
    )
    holds = np.zeros((len(Condition), len(load.tree)), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        forecast = tick.observations.forecast_p99_watts
        holds[Condition.FORECAST_ABOVE] = forecast > band_watts
        # Both of the time of the reading: a meter that lags behind a load step is no mismatch.
        most = (1.0 + _MISMATCH_SHARE) * metered.modelled_watts
        holds[Condition.METER_MISMATCH] = j.picture.complete & (metered.meter_watts > most)
    guaranteed = j.orders.guaranteed.watts
    holds[Condition.DEGRADED] = (guaranteed > load.rating_watts + 1e-6) & j.state.heard
    holds[Condition.NODES_SILENT] = j.state.heard & (missing > _SILENT_SHARE * load.nodes_below)
    holds[Condition.READINGS_FROZEN] = _stale_boards(tick, j) > 0
    holds[Condition.EPOCH_IGNORED] = _poisoned_nodes(tick) > 0
    holds[Condition.RESERVE_MISSING] = reserve_is_missing
    # The core does not know which domains declare a meter: one that never spoke is the metric's.
    meters = j.state.meters
    lost = (meters.last_time_ns >= 0) & (meters.unused_seconds > _METER_UNUSED_SECONDS)
    holds[Condition.METER_UNUSED] = lost
    return holds


def _stale_boards(tick: Tick, j: Judgement) -> IntArray:
    """Boards directly below each domain whose readings are not believed, (n_domains,)."""
    stale = j.picture.stale_gpu
    if not some(stale):
        return np.zeros(tick.topology.n_domains, dtype=np.int64)
    return np.bincount(tick.topology.domain_of_gpu[stale], minlength=tick.topology.n_domains)


def _poisoned_nodes(tick: Tick) -> IntArray:
    """Servers directly below each domain whose epoch is ignored, (n_domains,)."""
    poisoned = tick.observations.poisoned_nodes
    if not some(poisoned):
        return np.zeros(tick.topology.n_domains, dtype=np.int64)
    return np.bincount(tick.topology.domain_of_node[poisoned], minlength=tick.topology.n_domains)


def _band_changes(tick: Tick, j: Judgement, band_watts: FloatArray) -> Iterator[Transition]:
    old, new = j.previous.bands.band, j.state.bands.band
    changed = (old != new).nonzero()[0]
    if not changed.size:
        return
    for i in changed:
        yield Transition(
            tick.topology.tree.names[i],
            "band",
            Band(new[i]).name.title(),
            f"{Band(old[i]).name} -> {Band(new[i]).name}: draw {j.picture.draw_watts[i]:.0f} W, "
            f"cap band {band_watts[i]:.0f} W, heat {j.state.heat[i]:.2f}"
            + ("" if tick.topology.tree.enforce[i] else "; DryRun: nothing is written"),
        )


_KINDS = {
    Condition.FORECAST_ABOVE: ("ForecastAboveBand", "ForecastBelowBand"),
    Condition.DEGRADED: ("Degraded", "Recovered"),
    Condition.METER_MISMATCH: ("MeterMismatch", "MeterAgrees"),
    Condition.NODES_SILENT: ("NodesSilent", "NodesHeard"),
    Condition.READINGS_FROZEN: ("ReadingsFrozen", "ReadingsMove"),
    Condition.EPOCH_IGNORED: ("EpochIgnored", "EpochCredible"),
    Condition.RESERVE_MISSING: ("ReserveMissing", "ReserveCarries"),
    Condition.METER_UNUSED: ("MeterUnused", "MeterUsed"),
}


def _alarm_changes(
    tick: Tick, j: Judgement, alarms: Alarms, band_watts: FloatArray
) -> Iterator[Transition]:
    changed = alarms.on != j.previous.alarms.on
    if not some(changed):
        return
    texts = _texts(tick, j, band_watts)
    for condition in Condition:
        for i in np.flatnonzero(changed[condition]):
            began = bool(alarms.on[condition, i])
            name, kind = tick.topology.tree.names[i], _KINDS[condition][0 if began else 1]
            yield Transition(name, condition.name, kind, texts[condition][i])


def _texts(tick: Tick, j: Judgement, band_watts: FloatArray) -> dict[Condition, list[str]]:
    """What each condition says of each domain, with its figures."""
    rating, draw = j.state.load.rating_watts, j.picture.draw_watts
    forecast = tick.observations.forecast_p99_watts

    def held(what: str, watts: FloatArray, against: str, bound: FloatArray) -> list[str]:
        figures = zip(watts, bound, strict=True)
        return [f"{what} {w:.0f} W, {against} {b:.0f} W" for w, b in figures]

    guaranteed = j.orders.guaranteed.watts
    larger = "draw, the larger of meter and nodes,"
    return {
        Condition.FORECAST_ABOVE: held("forecast p99", forecast, "cap band", band_watts),
        Condition.DEGRADED: held("worst case (I1)", guaranteed, "rating", rating),
        Condition.METER_MISMATCH: held(larger, draw, "rating", rating),
        Condition.NODES_SILENT: held(
            "draw with silent nodes at their most", draw, "rating", rating
        ),
        Condition.READINGS_FROZEN: [
            f"{n} GPUs whose power readings stand still or hide energy count at their caps"
            for n in _stale_boards(tick, j)
        ],
        Condition.RESERVE_MISSING: held(
            "draw",
            draw,
            "a feed is lost or nobody tells: for long the feeds carry",
            j.state.available_watts,
        ),
        Condition.METER_UNUSED: held(
            "no reading of the meter for a minute that is young, moves and shows what is read "
            "below it; draw by nodes",
            draw,
            "rating",
            rating,
        ),
        Condition.EPOCH_IGNORED: [
            f"{n} nodes report an epoch that no Lease of ours can have reached; it is ignored"
            for n in _poisoned_nodes(tick)
        ],
    }


def _trust_changes(tick: Tick, j: Judgement) -> Iterator[Transition]:
    topology, trusted = tick.topology, j.state.trust.trusted
    for i in (j.previous.trust.trusted != trusted).nonzero()[0]:
        yield Transition(
            topology.tree.names[topology.domain_of_gpu[i]],
            topology.gpu_uuids[i],
            "DeviceTrusted" if trusted[i] else "DeviceUntrusted",
            f"{topology.gpu_uuids[i]} on {topology.node_names[topology.node_of_gpu[i]]} "
            + (
                "keeps its cap again"
                if trusted[i]
                else "draws over 110 % of every cap it could hold"
            ),
        )
