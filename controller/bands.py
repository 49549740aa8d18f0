"""Bands on a domain's load: when to cap, how far, and when to let go (docs/power-control.md).

    0 ........ release ............ cap band .. target ...... 1.00 of L
      NORMAL                        CAPPING holds the target  BRAKE on predicted heat

The cap band is 1 - q99.9 of the rise within the reaction time. A domain learns it from its own
uncapped history; the step model (``rise_quantile_prior``) is the least that is ever kept free.

While it caps, caps forbid most of such a rise, and what is expected is the highest of the last
minute anyway. What is kept free then is q99.9 of how far the draw went beyond the target, from the
history of capped times (``held_rise_prior`` at least).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.tick_values import Band, PowerSettings
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = [
    "BandMemory",
    "DomainLoads",
    "HeldMemory",
    "RiseMemory",
    "calm_share",
    "cap_band_share",
    "held_target_share",
    "initial_bands",
    "initial_held",
    "initial_rises",
    "release_share",
    "update_bands",
    "update_held",
    "update_rises",
]

# As plain numbers: comparing arrays with an enum takes five times as long.
_NORMAL, _RELEASING, _CAPPING, _BRAKE = (int(band) for band in Band)

_BIN_SHARE = 0.0025
_BINS = 128
_QUANTILE = 0.999
# Fewer samples than this hold no 99.9 % quantile: the step model rules alone.
_SAMPLES_FOR_QUANTILE = 1000.0
# A day at 1 Hz: older rises fade, so that a domain follows its members.
_FORGET_PER_SAMPLE = 1.0 - 1.0 / 86_400.0
_LOWEST_CAP_BAND = 0.70
_RING = 16
_BRAKE_DWELL_SECONDS = 5.0
_HELD_AFTER_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class RiseMemory:
    """Each domain's history of rises within the reaction time.

    Attributes:
        times_ns: Ring of the last ticks, -1 for empty, (n_ring,).
        shares: Draw over L at those ticks, NaN while capped, (n_ring, n_domains).
        counts: Histogram of rises, (n_domains, n_bins).
        total: Samples, (n_domains,).
    """

    times_ns: IntArray
    shares: FloatArray
    counts: FloatArray
    total: FloatArray


@dataclass(frozen=True, slots=True)
class BandMemory:
    """Where each domain stands.

    Attributes:
        band: ``Band`` values, (n_domains,).
        calm_since_ns: Since when the condition to step down holds, -1 if it does not, (n_domains,).
    """

    band: IntArray
    calm_since_ns: IntArray


def initial_rises(n_domains: int) -> RiseMemory:
    """No history: the prior rules."""
    return RiseMemory(
        np.full(_RING, -1, dtype=np.int64),
        np.full((_RING, n_domains), np.nan),
        np.zeros((n_domains, _BINS)),
        np.zeros(n_domains),
    )


def initial_bands(n_domains: int) -> BandMemory:
    """Every domain is calm."""
    return BandMemory(
        np.full(n_domains, _NORMAL, dtype=np.int64),
        np.full(n_domains, -1, dtype=np.int64),
    )


def update_rises(
    memory: RiseMemory,
    draw_share: FloatArray,
    usable: BoolArray,
    now_ns: int,
    settings: PowerSettings,
) -> RiseMemory:
    """Count this tick's rise over the lowest draw within the reaction time.

    Args:
        memory: So far.
        draw_share: Draw over L, (n_domains,).
        usable: Domains that are not capped and whose telemetry is complete, (n_domains,).
        now_ns: Now.
        settings: Reaction time: 1 s detection, actuation, settling.
    """
    reaction_ns = int((1.0 + settings.reaction_seconds) * NS_PER_SECOND)
    recent = (memory.times_ns >= 0) & (memory.times_ns >= now_ns - reaction_ns)
    shares = np.where(usable, draw_share, np.nan)
    times = np.concatenate((memory.times_ns[1:], (now_ns,)))
    ring = np.concatenate((memory.shares[1:], shares[None, :]))
    if not some(recent):
        return RiseMemory(times, ring, memory.counts, memory.total)
    # One NaN in the window means that caps shaped it: such a rise teaches nothing. Neither does a
    # rise from below the lowest cap band: work that starts in an idle row ends inside the band.
    lowest = memory.shares[recent].min(axis=0)
    rise = shares - lowest
    with np.errstate(invalid="ignore"):
        (counted,) = (lowest >= _LOWEST_CAP_BAND).nonzero()
    counted = counted[~np.isnan(rise[counted])]
    if not counted.size:
        return RiseMemory(times, ring, memory.counts, memory.total)
    bins = _bins(rise[counted])
    counts = memory.counts * _FORGET_PER_SAMPLE
    counts[counted, bins] += 1.0
    return RiseMemory(times, ring, counts, counts.sum(axis=1))


def _bins(shares: FloatArray) -> IntArray:
    """Where each share of L belongs in a histogram."""
    steps = np.ceil(shares / _BIN_SHARE)
    return np.minimum(np.maximum(steps, 0.0), _BINS - 1.0).astype(np.int64)


def cap_band_share(memory: RiseMemory, settings: PowerSettings) -> FloatArray:
    """Cap band as share of L, (n_domains,)."""
    enough = memory.total >= _SAMPLES_FOR_QUANTILE
    rise = np.full(len(memory.total), settings.rise_quantile_prior)
    if some(enough):
        rise = np.where(enough, np.maximum(rise, _quantile(memory.counts, memory.total)), rise)
    return np.maximum(1.0 - rise, _LOWEST_CAP_BAND)


def _quantile(counts: FloatArray, total: FloatArray) -> FloatArray:
    """The 99.9 % quantile of each histogram, as share of L, (n_domains,)."""
    below = np.cumsum(counts, axis=1) < (_QUANTILE * total)[:, None] - 1e-6
    return np.asarray(np.sum(below, axis=1) * _BIN_SHARE, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """How far each domain's draw went beyond its target while it capped.

    Attributes:
        since_ns: When it began to cap, -1 while it does not, (n_domains,).
        counts: Histogram of excursions, (n_domains, n_bins).
        total: Samples, (n_domains,).
    """

    since_ns: IntArray
    counts: FloatArray
    total: FloatArray


def initial_held(n_domains: int) -> HeldMemory:
    """Nothing was held yet."""
    return HeldMemory(
        np.full(n_domains, -1, dtype=np.int64), np.zeros((n_domains, _BINS)), np.zeros(n_domains)
    )


def update_held(
    memory: HeldMemory,
    draw_share: FloatArray,
    target_share: FloatArray,
    capping: BoolArray,
    now_ns: int,
) -> HeldMemory:
    """Count this tick's excursion beyond the target, once caps have had time to act.

    Args:
        memory: So far.
        draw_share: Draw over L, (n_domains,).
        target_share: What caps aimed at, (n_domains,).
        capping: Domains in CAPPING with complete telemetry, (n_domains,).
        now_ns: Now.
    """
    since = np.where(capping, np.where(memory.since_ns < 0, now_ns, memory.since_ns), -1)
    (counted,) = (capping & (now_ns - since >= _HELD_AFTER_SECONDS * NS_PER_SECOND)).nonzero()
    if not counted.size:
        return HeldMemory(since, memory.counts, memory.total)
    excursion = np.maximum(draw_share - target_share, 0.0)[counted]
    bins = _bins(excursion)
    counts = memory.counts.copy()
    counts[counted] *= _FORGET_PER_SAMPLE
    counts[counted, bins] += 1.0
    return HeldMemory(since, counts, counts.sum(axis=1))


def held_target_share(
    memory: HeldMemory, cap_band: FloatArray, rising: FloatArray, settings: PowerSettings
) -> FloatArray:
    """What caps aim at, as share of L, (n_domains,).

    A domain whose draw leaps more than the step model says keeps that much more free, until its
    capped history says how much of it caps hold back.

    Args:
        memory: Of capped times.
        cap_band: As share of L, (n_domains,).
        rising: Share of L that can rise at all: what counts at its declared worst cannot,
            (n_domains,).
        settings: For the priors.
    """
    leaps = np.maximum(1.0 - cap_band - settings.rise_quantile_prior, 0.0)
    prior = settings.held_rise_prior * rising
    enough = memory.total >= _SAMPLES_FOR_QUANTILE
    free = prior + leaps
    if some(enough):
        learned = np.maximum(_quantile(memory.counts, memory.total), prior)
        free = np.where(enough, learned, free)
    return np.maximum(1.0 - free, _LOWEST_CAP_BAND)


@dataclass(frozen=True, slots=True)
class DomainLoads:
    """What moves the bands at a tick, each (n_domains,).

    Attributes:
        draw_share: Draw over L.
        uncapped_share: What the domain would draw without caps, over L: without this, a domain
            that is held below release would let go and come back for ever.
        cap_band: As share of L.
        braking: Predicted heat or load ratio too high.
        capped: Whether any GPU below is still short of its request.
    """

    draw_share: FloatArray
    uncapped_share: FloatArray
    cap_band: FloatArray
    braking: BoolArray
    capped: BoolArray


def calm_share(cap_band: FloatArray, settings: PowerSettings) -> FloatArray:
    """Draw over L at which a brake ends; capping ends with less without caps, (n_domains,)."""
    return cap_band - settings.target_margin


def release_share(cap_band: FloatArray, settings: PowerSettings) -> FloatArray:
    """Draw over L below which a capping domain begins to let go, (n_domains,)."""
    return calm_share(cap_band, settings) - settings.release_margin


def update_bands(
    memory: BandMemory, loads: DomainLoads, settings: PowerSettings, now_ns: int
) -> BandMemory:
    """Each domain's next band."""
    band = memory.band
    calm_at = calm_share(loads.cap_band, settings)
    release = release_share(loads.cap_band, settings)
    calm = np.where(
        band == _BRAKE,
        ~loads.braking & (loads.draw_share <= calm_at),
        (loads.draw_share < release) & (loads.uncapped_share < calm_at),
    )
    since = np.where(calm, np.where(memory.calm_since_ns < 0, now_ns, memory.calm_since_ns), -1)
    dwell = np.where(band == _BRAKE, _BRAKE_DWELL_SECONDS, settings.release_dwell_seconds)
    over = calm & (now_ns - since >= dwell * NS_PER_SECOND)
    stepped = np.where((band == _BRAKE) & over, _CAPPING, band)
    stepped = np.where((band == _CAPPING) & over, _RELEASING, stepped)
    stepped = np.where((band == _RELEASING) & ~loads.capped, _NORMAL, stepped)
    too_high = (stepped < _CAPPING) & (loads.draw_share > loads.cap_band)
    stepped = np.where(too_high, _CAPPING, stepped)
    stepped = np.where(loads.braking, _BRAKE, stepped).astype(np.int64)
    return BandMemory(stepped, np.where(stepped != band, -1, since))
