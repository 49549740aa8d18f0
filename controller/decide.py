"""From limits to caps: the survivable jump and the load bands in one filling (I1, I2, I5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.allocation import Limit, Wants, allocate, gang_kinds
from controller.tick_values import Observations, Topology
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = [
    "Decided",
    "Situation",
    "below_bands",
    "boards_load",
    "calm_wants",
    "decide",
    "domain_load",
    "effective_wants",
    "enforced_situation",
    "worst_watts",
]

# Position of I2's limit among those of one filling.
_JUMP = 0


@dataclass(frozen=True, slots=True)
class Situation:
    """What the allocation has to respect at this tick.

    Attributes:
        survivable_watts: I2's limit on the worst load, (n_domains,).
        jump_limit_watts: What caps may make of it, lower while a band holds, (n_domains,).
        load_limit_watts: Limit on the expected load, infinite for a calm domain, (n_domains,).
        worst_rest_watts: Servers and external load at their worst, AC, (n_domains,).
        rest_watts: What is drawn now beside GPUs, AC, (n_domains,).
        coincidence: Share of the boards' summed draws that comes together, (n_domains,).
        highest_watts: The highest cap that each GPU may hold, (n_gpus,).
        expected_watts: Draw expected at an open cap, (n_gpus,).
        active: GPUs whose caps can be decided, (n_gpus,).
        doubtful: Budgeted at what they may hold, whatever they seem to draw, (n_gpus,).
    """

    survivable_watts: FloatArray
    jump_limit_watts: FloatArray
    load_limit_watts: FloatArray
    worst_rest_watts: FloatArray
    rest_watts: FloatArray
    coincidence: FloatArray
    highest_watts: FloatArray
    expected_watts: FloatArray
    active: BoolArray
    doubtful: BoolArray


@dataclass(frozen=True, slots=True)
class Decided:
    """Caps and who held them back.

    Attributes:
        cap_watts: Whole watts, (n_gpus,).
        binding_domain: -1 for none, (n_gpus,).
        held_by_jump: The binding limit is I2's, (n_gpus,).
    """

    cap_watts: FloatArray
    binding_domain: IntArray
    held_by_jump: BoolArray


def calm_wants(topology: Topology) -> Wants:
    """What each GPU is owed while nothing brakes and nobody caps by hand."""
    low, default = topology.min_limit_watts, topology.default_limit_watts
    return Wants(
        minimum_watts=low,
        guaranteed_watts=topology.guaranteed_watts,
        floor_watts=topology.floor_watts,
        request_watts=topology.request_watts,
        slack_watts=default,
        priority=topology.priority,
        gang=topology.gang,
        gang_kinds=gang_kinds(topology.gang, default, low),
        value_per_watt=topology.value_per_watt,
        fixed=np.zeros(topology.n_gpus, dtype=np.bool_),
        value_steps_watts=topology.value_steps_watts,
    )


def effective_wants(calm: Wants, observed: Observations, braked: BoolArray) -> Wants:
    """The goals of this tick: overrides taken in, braked GPUs at their minimum."""
    with np.errstate(invalid="ignore"):
        overridden = observed.override_cap_watts > 0.0
    if not some(overridden) and not some(braked):
        return calm
    low = calm.minimum_watts
    override = np.where(overridden, observed.override_cap_watts, np.inf)
    ceiling = np.maximum(np.where(braked, low, override), low)
    return replace(
        calm,
        guaranteed_watts=np.minimum(calm.guaranteed_watts, ceiling),
        floor_watts=np.minimum(calm.floor_watts, ceiling),
        request_watts=np.minimum(calm.request_watts, ceiling),
        slack_watts=np.minimum(calm.slack_watts, ceiling),
    )


def enforced_situation(topology: Topology, situation: Situation) -> Situation:
    """The situation as the enforcing domains see it: those that only watch limit nothing."""
    enforce = topology.tree.enforce
    if every(enforce):
        return situation
    return replace(
        situation,
        jump_limit_watts=np.where(enforce, situation.jump_limit_watts, np.inf),
        load_limit_watts=np.where(enforce, situation.load_limit_watts, np.inf),
        active=situation.active & topology.enforced_gpu,
    )


def domain_load(load: LoadTree, caps: FloatArray, now: Situation) -> FloatArray:
    """Expected AC load of each domain at these caps, (n_domains,)."""
    return boards_load(load, caps, now) + now.rest_watts


def boards_load(load: LoadTree, caps: FloatArray, now: Situation) -> FloatArray:
    """The part of it that GPUs draw, (n_domains,)."""
    counted = np.minimum(caps, now.expected_watts)
    if not every(now.active):
        counted = np.where(now.active, counted, _inactive_draw(now))
    return load.sum_gpus(counted) * load.gpu_factor * now.coincidence


def worst_watts(load: LoadTree, caps: FloatArray, now: Situation) -> FloatArray:
    """The most that each domain may draw at these caps of what takes part, (n_domains,)."""
    counted = np.where(now.active, caps, now.highest_watts)
    return load.sum_gpus(counted) * load.gpu_factor + now.worst_rest_watts


def below_bands(load: LoadTree, now: Situation) -> BoolArray:
    """GPUs whose caps readings move, and not I2 alone: a domain above holds its load, (n_gpus,)."""
    return load.any_above_gpu(np.isfinite(now.load_limit_watts))


def _inactive_draw(now: Situation) -> FloatArray:
    """Silent and untrusted devices count at what they may hold, others at what they draw."""
    return np.where(
        now.doubtful, now.highest_watts, np.minimum(now.highest_watts, now.expected_watts)
    )


def decide(load: LoadTree, topology: Topology, wants: Wants, now: Situation) -> Decided:
    """Caps that keep I2 and the bands in every domain, in the order of I5."""
    jump = now.jump_limit_watts - now.worst_rest_watts
    together = (now.load_limit_watts - now.rest_watts) / now.coincidence
    if not every(now.active):
        wants = replace(wants, fixed=~now.active)
        counted = np.where(now.active, 0.0, now.highest_watts)
        jump = jump - load.sum_gpus(counted) * load.gpu_factor
        others = load.sum_gpus(np.where(now.active, 0.0, _inactive_draw(now))) * load.gpu_factor
        together = together - others
    found = allocate(load, wants, Limit(jump, None), Limit(together, now.expected_watts))
    # Boards take whole watts; what takes no part falls back to its floor.
    caps = np.where(now.active, np.floor(found.cap_watts + 1e-6), wants.floor_watts)
    return Decided(
        np.maximum(caps, topology.min_limit_watts),
        found.binding_domain,
        found.binding_limit == _JUMP,
    )
