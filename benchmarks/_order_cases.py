"""Random moments of random houses: what the controller decides, and what its judge is told."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks._order_judge import Due, Limits
from benchmarks._power_house import House
from benchmarks._random_houses import Owed
from controller.allocation import Wants, gang_kinds
from controller.decide import Situation, decide
from controller.tick_values import Topology
from wattpack.power.feasibility import LoadTree

__all__ = ["Moment", "decided_caps", "random_moment"]


@dataclass(frozen=True)
class Moment:
    """One generated case: who takes part, what is owed after manual caps, what must be kept."""

    due: Due
    limits: Limits
    doubtful: list[bool]


def random_moment(
    rng: random.Random, house: House, owed: Owed, guaranteed: Sequence[float], away_seconds: float
) -> Moment:
    """Random heat, demand, budgets, manual caps, and boards that are silent or not trusted.

    Args:
        guaranteed: What I1 left each board, watts.
        away_seconds: T_fault of I2.
    """
    active = _taking_part(rng, house)
    manual = _manual_caps(rng, house)

    def kept(goals: Sequence[float]) -> list[float]:
        return [min(goal, cap) for goal, cap in zip(goals, manual, strict=True)]

    due = Due(
        active=active,
        guaranteed=kept([min(g, f) for g, f in zip(guaranteed, owed.floor, strict=True)]),
        floor=kept(owed.floor),
        request=kept(owed.request),
        most=kept([board.default for board in house.boards]),
        priority=list(owed.priority),
        gangs=owed.gangs,
    )
    busy = rng.choice([0.3, 0.7, 1.0])
    expected = [
        board.default if rng.random() < busy else rng.uniform(60.0, board.default)
        for board in house.boards
    ]
    highest = [
        rng.choice([board.default, max(guaranteed[board.number], board.minimum)])
        for board in house.boards
    ]
    doubtful = [not a and rng.random() < 0.7 for a in active]
    drawn = [
        h if doubt else min(h, e) for h, e, doubt in zip(highest, expected, doubtful, strict=True)
    ]
    rest = [(d.hosts + d.external) * rng.uniform(0.3, 1.0) for d in house.domains]
    enforced = [domain.enforces for domain in house.domains]
    jump, load = [], []
    for domain, here in zip(house.domains, enforced, strict=True):
        heat = rng.choice([0.0, rng.uniform(0.0, 0.6)])
        jump.append(domain.survivable(heat, away_seconds) if here else math.inf)
        share = rng.uniform(0.4, 1.1) if here and rng.random() < 0.6 else math.inf
        load.append(rest[domain.number] + domain.boards_worst(expected) * share)
    return Moment(due, Limits(jump, load, rest, expected, highest, drawn), doubtful)


def _taking_part(rng: random.Random, house: House) -> list[bool]:
    """Boards of enforcing domains whose server speaks and that are trusted."""
    silent_share = rng.choice([0.0, 0.0, 0.1, 0.4])
    active = [True] * len(house.boards)
    for domain in house.domains:
        for server in domain.servers:
            heard = domain.enforces and rng.random() >= silent_share
            for board in server.boards:
                active[board.number] = heard and rng.random() >= 0.02
    return active


def _manual_caps(rng: random.Random, house: House) -> list[float]:
    share = rng.choice([0.0, 0.0, 0.1])
    return [
        rng.uniform(board.minimum, board.default) if rng.random() < share else math.inf
        for board in house.boards
    ]


def decided_caps(topology: Topology, load: LoadTree, moment: Moment) -> list[float]:
    """What the product's ``decide`` makes of a moment, watts by board."""
    due, limits = moment.due, moment.limits
    kinds = gang_kinds(topology.gang, topology.default_limit_watts, topology.min_limit_watts)
    low = topology.min_limit_watts
    wants = Wants(
        minimum_watts=low,
        guaranteed_watts=np.maximum(due.guaranteed, low),
        floor_watts=np.maximum(due.floor, low),
        request_watts=np.maximum(due.request, low),
        slack_watts=np.maximum(due.most, low),
        priority=topology.priority,
        gang=topology.gang,
        gang_kinds=kinds,
        value_per_watt=topology.value_per_watt,
        fixed=np.zeros(topology.n_gpus, dtype=np.bool_),
        value_steps_watts=topology.value_steps_watts,
    )
    active = np.array(due.active)
    worst_rest = load.sum_nodes(topology.node_worst_watts) / load.efficiency
    now = Situation(
        survivable_watts=np.array(limits.jump),
        jump_limit_watts=np.array(limits.jump),
        load_limit_watts=np.array(limits.load),
        worst_rest_watts=worst_rest + load.external_watts,
        rest_watts=np.array(limits.rest),
        coincidence=np.ones(topology.n_domains),
        highest_watts=np.array(limits.idle_worst),
        expected_watts=np.array(limits.expected),
        active=active,
        doubtful=np.array(moment.doubtful),
    )
    return [float(watts) for watts in decide(load, topology, wants, now).cap_watts]
