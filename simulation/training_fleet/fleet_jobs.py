"""Which job runs on which boards when: gangs on reserved servers, small jobs on shared ones.

Reserved servers are dealt to gangs of 1, 2, 4, … whole servers, one after the other with gaps; a
small job goes to the server with the most free boards that has enough, as kube-scheduler spreads
pods by default, or it is dropped: what matters is how full servers are, not who waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from simulation.training_fleet.fleet_settings import FleetSettings

HOUR_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
PEAK_HOUR = 15.0
WARM_DAYS = 2.0
"""Jobs begin so long before time 0, when the fleet is as full as ever."""

SMALL_GPUS = (1, 2, 4, 8)
GANG_SERVERS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        begin_seconds: From time 0 on, may be negative.
        end_seconds: The same.
        boards: Numbers of its boards, server by server.
        gang: Whether it has whole servers and steps together.
        level: Draw over the limit while it computes.
        active_share: Of its time; else it waits.
        turn_seconds: From the begin of one stretch of computing to the next.
        offset_seconds: Where in a turn it stood at time 0.
    """

    begin_seconds: float
    end_seconds: float
    boards: tuple[int, ...]
    gang: bool
    level: float
    active_share: float
    turn_seconds: float
    offset_seconds: float


def fleet_jobs(
    settings: FleetSettings, servers: int, gpus: int, seconds: float, seed: int
) -> list[Job]:
    """All jobs of a fleet that run between time 0 and ``seconds``.

    Args:
        settings: What the fleet is.
        servers: All of them.
        gpus: Of each server.
        seconds: Length.
        seed: Of every draw.
    """
    rng = np.random.default_rng((seed, 37))
    order = [int(n) for n in rng.permutation(servers)]
    reserved = round(settings.gang_share * servers)
    spare = round(settings.spare_share * servers)
    gangs = _gangs(settings, order[:reserved], gpus, seconds, rng)
    small = _small_jobs(settings, order[reserved + spare :], gpus, seconds, rng)
    return [job for job in (*gangs, *small) if job.end_seconds > 0.0]


def _hours(median: float, settings: FleetSettings, rng: np.random.Generator) -> float:
    return float(median * np.exp(settings.hours_sigma * rng.standard_normal()))


def _mean_hours(median: float, settings: FleetSettings) -> float:
    return float(median * np.exp(0.5 * settings.hours_sigma**2))


def _gangs(
    settings: FleetSettings,
    reserved: list[int],
    gpus: int,
    seconds: float,
    rng: np.random.Generator,
) -> Iterator[Job]:
    """Gangs one after the other on blocks of reserved servers."""
    gap = settings.gang_gap_share / (1.0 - settings.gang_gap_share)
    gap *= _mean_hours(settings.gang_hours, settings) * HOUR_SECONDS
    while reserved:
        size = min(int(rng.choice(GANG_SERVERS)), len(reserved))
        block, reserved = reserved[:size], reserved[size:]
        boards = tuple(server * gpus + i for server in block for i in range(gpus))
        now = -WARM_DAYS * DAY_SECONDS * rng.uniform(0.5, 1.0)
        while now < seconds:
            end = now + _hours(settings.gang_hours, settings, rng) * HOUR_SECONDS
            turn = settings.gang_stall_minutes * 60.0 / max(settings.gang_stall_share, 1e-3)
            turn *= rng.exponential()
            level = float(rng.uniform(settings.gang_level_lowest, settings.gang_level_highest))
            yield Job(
                now, end, boards, True, level,
                1.0 - settings.gang_stall_share, turn + 1.0, float(rng.uniform(0.0, turn + 1.0)),
            )  # fmt: skip
            now = end + rng.exponential(gap)


def _small_jobs(
    settings: FleetSettings,
    shared: list[int],
    gpus: int,
    seconds: float,
    rng: np.random.Generator,
) -> Iterator[Job]:
    """Jobs inside servers, by the course of the day."""
    sizes = np.minimum(SMALL_GPUS, gpus)
    mean_boards = float(np.dot(settings.small_gpus, sizes))
    work = mean_boards * _mean_hours(settings.small_hours, settings) * HOUR_SECONDS
    rate = settings.small_load * len(shared) * gpus / work
    free = {s: set(range(s * gpus, (s + 1) * gpus)) for s in shared}
    room = dict.fromkeys(shared, gpus)
    ends: list[tuple[float, int, tuple[int, ...]]] = []
    now = -WARM_DAYS * DAY_SECONDS
    while rate > 0.0 and now < seconds:
        day = np.cos(2.0 * np.pi * (now / DAY_SECONDS - PEAK_HOUR / 24.0))
        now += rng.exponential(1.0 / (rate * (1.0 + settings.day_ratio * day)))
        while ends and ends[0][0] <= now:
            _, server, boards = heappop(ends)
            free[server].update(boards)
            room[server] += len(boards)
        size = int(rng.choice(sizes, p=settings.small_gpus))
        end = now + _hours(settings.small_hours, settings, rng) * HOUR_SECONDS
        level = float(rng.uniform(settings.small_level_lowest, 1.0))
        turn = settings.small_active_minutes * 60.0 / max(settings.small_active_share, 1e-3)
        turn = turn * float(rng.exponential()) + 1.0
        offset = float(rng.uniform(0.0, turn))
        server = max(shared, key=room.__getitem__)
        if room[server] < size:
            continue
        taken = tuple(sorted(free[server])[:size])
        free[server].difference_update(taken)
        room[server] -= size
        heappush(ends, (end, server, taken))
        yield Job(now, end, taken, False, level, settings.small_active_share, turn, offset)
