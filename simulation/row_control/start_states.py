"""How a row stands when a run begins: caps, locks, leases, heat; a function of the run's seed.

A start satisfies I1 (guaranteed caps are the product's, judged by the monitor) and I2 for the
declared actuator: everything at its cap, with the heat that the breakers have, survives a lease and
the reaction, by the judge's own sums (``jump_judge``). Servers whose only actuator works out of
band, 40 s late, hold no cap above the guaranteed one. How often which is drawn is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulation.row_control.jump_judge import JumpJudge
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import Bools, Floats, Integers

__all__ = ["RowStart", "draw_start", "guaranteed_start"]

UNTOUCHED_CHANCE = 0.2
HEAT_CHANCE, HIGHEST_HEAT = 0.5, 0.2
OUT_OF_BAND_CHANCE, OUT_OF_BAND_SHARE = 0.25, 0.05
LEAST_SHARES = (0.0, 0.8)
"""Of the way from guaranteed to default limit; from the second on I2 is what holds caps down."""
LEAST_LEFT_SHARE = 0.5
"""Of a lease: reports that are answered leave three quarters, one that is lost half of it."""
LOCK_CHANCE, LOCK_SHARES = 0.3, (0.4, 0.95)
_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class RowStart:
    """A row at the begin of a run.

    Attributes:
        cap_watts: What each board holds, (n_nodes, g).
        lock_mhz: Clock locks in force, 0 for none, (n_nodes, g).
        lease_seconds: What is left of each server's lease, 0 without one, (n_nodes,).
        heat: Of the breakers, (n_domains,).
        out_of_band: Servers that no lease reaches, (n_nodes,).
    """

    cap_watts: Floats
    lock_mhz: Integers
    lease_seconds: Floats
    heat: Floats
    out_of_band: Bools


def guaranteed_start(plant: RowPlant, guaranteed_watts: Floats) -> RowStart:
    """A cool row on which nobody was in control yet.

    Args:
        plant: For its shape.
        guaranteed_watts: (n_gpus,).
    """
    shape = (plant.n_nodes, plant.gpus_per_node)
    return RowStart(
        guaranteed_watts.reshape(shape),
        np.zeros(shape, dtype=np.int64),
        np.zeros(plant.n_nodes),
        np.zeros(len(plant.domain_names)),
        np.zeros(plant.n_nodes, dtype=np.bool_),
    )


def draw_start(
    seed: int, plant: RowPlant, guaranteed_watts: Floats, lease_seconds: float
) -> RowStart:
    """The start of a run.

    Args:
        seed: Of the run.
        plant: The row.
        guaranteed_watts: What expiry falls to, (n_gpus,).
        lease_seconds: The declared lease.
    """
    rng = np.random.default_rng((seed, 0x57A7))
    untouched = guaranteed_start(plant, guaranteed_watts)
    if rng.random() < UNTOUCHED_CHANCE:
        return untouched
    n, n_domains = plant.n_nodes, len(plant.domain_names)
    hot = rng.random(n_domains) < HEAT_CHANCE
    heat = np.where(hot, rng.uniform(0.0, HIGHEST_HEAT, n_domains), 0.0)
    out_of_band = np.zeros(n, dtype=np.bool_)
    if rng.random() < OUT_OF_BAND_CHANCE:
        most = max(1, int(np.ceil(OUT_OF_BAND_SHARE * n)))
        out_of_band[rng.permutation(n)[: int(rng.integers(1, most + 1))]] = True
    caps = _caps(rng, plant, untouched.cap_watts, out_of_band)
    caps = _survivable(JumpJudge(plant, lease_seconds), heat, untouched.cap_watts, caps)
    above = (caps > untouched.cap_watts + 0.5).any(axis=1)
    left = rng.uniform(LEAST_LEFT_SHARE * lease_seconds, lease_seconds, n)
    return RowStart(
        caps,
        _locks(rng, plant, out_of_band),
        np.where(above, left, 0.0),
        heat,
        out_of_band,
    )


def _caps(
    rng: np.random.Generator, plant: RowPlant, guaranteed: Floats, out_of_band: Bools
) -> Floats:
    """From guaranteed to default: alike, by server or by board, (n_nodes, g)."""
    n, g = guaranteed.shape
    shape = ((1, 1), (n, 1), (n, g))[int(rng.integers(0, 3))]
    default = plant.bank.default_limit_watts.reshape(n, g)
    least = rng.choice(LEAST_SHARES)
    share = np.broadcast_to(rng.uniform(least, 1.0, shape), (n, g))
    share = np.where(out_of_band[:, None], 0.0, share)
    return np.asarray(guaranteed + share * np.maximum(default - guaranteed, 0.0))


def _survivable(judge: JumpJudge, heat: Floats, guaranteed: Floats, caps: Floats) -> Floats:
    """As much of what caps are above the guaranteed ones as the breakers survive (I2)."""
    low, high = 0.0, 1.0
    span = caps - guaranteed
    if judge.survives(heat, caps.sum(axis=1)).all():
        return np.floor(caps)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if judge.survives(heat, (guaranteed + middle * span).sum(axis=1)).all():
            low = middle
        else:
            high = middle
    # Whole watts, as boards take them, never below the guaranteed cap.
    return np.maximum(np.floor(guaranteed + low * span), guaranteed)


def _locks(rng: np.random.Generator, plant: RowPlant, out_of_band: Bools) -> Integers:
    """Locks on some boards, (n_nodes, g)."""
    shape = (plant.n_nodes, plant.gpus_per_node)
    if rng.random() >= LOCK_CHANCE:
        return np.zeros(shape, dtype=np.int64)
    clock = plant.bank.max_clock_mhz.reshape(shape)
    locked = (rng.random(shape) < rng.uniform(0.1, 0.9)) & ~out_of_band[:, None]
    return np.where(locked, np.rint(rng.uniform(*LOCK_SHARES, shape) * clock), 0).astype(np.int64)
