"""What a restart costs at peak: rolling updates of agents and controllers, kills of either.

A hot row of simulated servers in virtual time, of the product's own agents, actuators, answer desk
and ``step()`` (``_restart_row``); pods' controllers are played with the chart's values. It wants
1.02 of its rating, so it is held by caps, and everything stepped to full power 15 s before, so its
breakers are warm: heat is compared second by second. The same demand runs undisturbed, through an
update of the agents (5 % of the servers at a time), of the controllers, of both at once, and, as
the baseline, through an update without a surge, as the chart did it before ADR 0032. Then leaders
of a row that nothing holds are killed, and agents for a while.

Assumed: message delays, write times, the start of a pod (3 s an agent, 8 s a controller), and when
a lowered limit acts. Real processes, a real Lease and real streams: ``take_over`` and
``tests/telemetry/test_agent_handover``.

Of a scenario file: servers of one GPU type, racks, ratings, hosts, how late lowered limits act and
lease; demand keeps the share of the row's rating that it has here. The small row of agents that are
away stays as it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import given_scenario
from benchmarks._lease_kind import BREAKER_CURVES, READS, RowKind
from benchmarks._lease_row import Row
from benchmarks._restart_row import (
    STEP_SECONDS,
    AgentUpdate,
    ControllerUpdate,
    kill_leader,
    peak_row,
)
from benchmarks.runner import Options, Result, Rows, Target, finished_rows
from benchmarks.runner import Row as Figures
from wattpack.units import NS_PER_SECOND

NAME: Final = "restart"
SUMMARY: Final = "GPUs that fall, heat and work lost in rolling updates, and after kill -9"
TAKES_ARGUMENTS: Final = True
USAGE: Final = GIVEN_USAGE
TAKES_SCHEDULER: Final = True
SERVERS, GPUS = 20, 4
QUICK_SERVERS, QUICK_GPUS = 4, 4
SEEDS, QUICK_SEEDS = 2, 1
KILLS, QUICK_KILLS = 6, 1
HEATED: Final = round(STEP_SECONDS)
"""Seconds from the step of everything until an update begins."""
AWAY_SECONDS: Final = (1.0, 2.0, 3.0, 4.0)
AWAY_KILLS, QUICK_AWAY_KILLS = 20, 2
UPDATED = ("agents", "controllers", "both")
TARGETS: Final = {
    **{f"{arm}_gpus_fell": Target(at_most=0) for arm in UPDATED},
    **{f"{arm}_heat_over_undisturbed": Target(at_most=0.0) for arm in UPDATED},
    **{f"{arm}_work_lost_ratio": Target(at_most=0.02) for arm in UPDATED},
    "undisturbed_heat_min": Target(at_least=1e-6),
    "updates_finished_ratio": Target(at_least=1.0),
    "leader_killed_gpus_fell_min": Target(at_least=1),
    "leader_killed_first_gpu_back_seconds_max": Target(at_most=12.0),
    "leader_killed_last_gpu_back_seconds_max": Target(at_most=25.0),
    "violations": Target(at_most=0),
}
Update = AgentUpdate | ControllerUpdate
ARMS: Final[Mapping[str, Callable[[Row], list[Update]]]] = {
    "undisturbed": lambda row: [],
    "agents": lambda row: [AgentUpdate(row, surge=True)],
    "controllers": lambda row: [ControllerUpdate(row)],
    "both": lambda row: [AgentUpdate(row, surge=True), ControllerUpdate(row)],
    "agents_without_surge": lambda row: [AgentUpdate(row, surge=False)],
}


def one_update(
    arm: str, servers: int, gpus: int, seed: int, kind: RowKind | None = None
) -> Figures:
    """One arm with one seed; as long as the longest update takes."""
    row, judge, account = peak_row(servers, gpus, seed, kind=kind)

    def look(now_ns: int) -> None:
        judge.look(row)
        account.look(row)

    row.run(STEP_SECONDS, look)
    ended = judge.expiries
    updates = ARMS[arm](row)
    # A node takes 9 to 12 s, a replica 38 s.
    row.run(max(90.0, 13.0 * servers), look)
    return {
        "done": all(update.done for update in updates),
        "fell": account.fell,
        "ended": judge.expiries - ended,
        "heats": [float(f"{heat:.9g}") for heat in account.heats],
        "above": account.above_seconds,
        "peak": account.peak_ratio,
        "work": account.work_joules,
        "wanted": account.wanted_joules,
        "violations": sum(judge.violations.values()),
        "details": judge.details[:5],
    }


def one_kill(servers: int, gpus: int, seed: int, kind: RowKind | None = None) -> Figures:
    """A leader is killed at a random moment."""
    row, judge, account = peak_row(servers, gpus, seed, steady=True, kind=kind)

    def look(now_ns: int) -> None:
        judge.look(row)
        account.look(row)

    row.run(row.rng.uniform(0.0, 2.0), look)
    kill = kill_leader(row, look)
    return {
        "fell": kill.fell,
        "first": kill.first_seconds,
        "last": kill.last_seconds if math.isfinite(kill.last_seconds) else 1e9,
        "heat": account.heat,
        "violations": sum(judge.violations.values()),
        "details": judge.details[:5],
    }


def one_away(kills: int, seed: int, away_seconds: float) -> Figures:
    """Agents are killed one after the other and come back so much later; whose lease ends?"""
    row, judge, _ = peak_row(4, 2, seed)
    rng = random.Random(f"{seed}/{away_seconds}/away")
    before = judge.expiries
    for number in range(kills):
        node = row.nodes[number % len(row.nodes)]
        row.run(rng.uniform(0.0, 1.0), lambda _: judge.look(row))
        node.kill_agent()
        row.after(round(away_seconds * NS_PER_SECOND), lambda node=node: _start(node))  # type: ignore[misc]
        row.run(14.0, lambda _: judge.look(row))
    return {"ended": judge.expiries - before, "violations": sum(judge.violations.values())}


def _start(node: Any) -> None:  # noqa: ANN401 - a node of the row
    node.start_agent()


@dataclass(frozen=True, slots=True)
class _Measured:
    """All runs.

    Attributes:
        arms: By arm of the updates, one run a seed; the same seeds in each.
        kills: Of leaders.
        away: Of agents, one run for each of ``AWAY_SECONDS``.
        away_kills: Agents that were killed in each.
    """

    arms: Mapping[str, Rows]
    kills: Rows
    away: Rows
    away_kills: int

    @property
    def everything(self) -> list[Mapping[str, Any]]:
        """Runs of all kinds."""
        return [*(one for arm in self.arms.values() for one in arm), *self.kills, *self.away]


def run(options: Options) -> Result:
    """Measure."""
    given = given_scenario(NAME, options, READS)
    kind, name = RowKind.of(given), NAME if given is None else given.kind(NAME)
    servers, gpus = (QUICK_SERVERS, QUICK_GPUS) if options.quick else (SERVERS, GPUS)
    if given is not None:
        servers, gpus = given.scenario.row.servers, given.scenario.row.gpus_per_server
    measured = _measured(options, name, (servers, gpus), kind)
    for one in measured.everything:
        for line in one.get("details", ()):
            options.progress(line)
    row: dict[str, float | int | str] = {
        "servers": servers,
        "gpus": servers * gpus,
        "breaker_curves": BREAKER_CURVES,
        "plant_sha256": kind.plant_sha256,
    }
    figures = row | _update_figures(measured) | _kill_figures(measured)
    return Result(figures | ({} if given is None else given.figures()), TARGETS)


def _measured(options: Options, name: str, size: tuple[int, int], kind: RowKind) -> _Measured:
    """Every run, those that an earlier start of the benchmark finished included."""
    quick, (servers, gpus) = options.quick, size
    away_kills = QUICK_AWAY_KILLS if quick else AWAY_KILLS
    return _Measured(
        arms={
            arm: list(
                finished_rows(
                    options,
                    f"{name}-{arm}-{servers}",
                    lambda seed, number, arm=arm: one_update(  # type: ignore[misc]
                        arm, servers, gpus, 1000 * seed + number, kind
                    ),
                    QUICK_SEEDS if quick else SEEDS,
                )
            )
            for arm in ARMS
        },
        kills=finished_rows(
            options,
            f"{name}-kills-{servers}",
            lambda seed, number: one_kill(servers, gpus, 1000 * seed + 500 + number, kind),
            QUICK_KILLS if quick else KILLS,
        ),
        away=finished_rows(
            options,
            f"{NAME}-away-{away_kills}",
            lambda seed, number: one_away(away_kills, seed, AWAY_SECONDS[number]),
            len(AWAY_SECONDS),
        ),
        away_kills=away_kills,
    )


def _update_figures(measured: _Measured) -> dict[str, float | int | str]:
    """What updates cost beside the undisturbed row."""
    arms = measured.arms
    undisturbed = arms["undisturbed"]
    figures: dict[str, float | int | str] = {
        "peak_ratio": max(one["peak"] for one in undisturbed),
        "undisturbed_held_back_ratio": max(
            1.0 - one["work"] / one["wanted"] for one in undisturbed
        ),
        # Of the coolest moment and run: where it is 0, no update could be seen to heat a breaker.
        "undisturbed_heat_min": min(min(one["heats"][HEATED:]) for one in undisturbed),
        "undisturbed_heat_max": max(max(one["heats"]) for one in undisturbed),
        "undisturbed_above_seconds": max(one["above"] for one in undisturbed),
        "undisturbed_gpus_fell": sum(one["fell"] for one in undisturbed),
        "updates_finished_ratio": float(np.mean([o["done"] for arm in arms.values() for o in arm])),
    }
    for arm in [*UPDATED, "agents_without_surge"]:
        figures |= _against(undisturbed, arms[arm], arm)
    return figures


def _kill_figures(measured: _Measured) -> dict[str, float | int | str]:
    """What kills cost, and the violations of all runs."""
    kills = measured.kills
    figures: dict[str, float | int | str] = {
        "leader_killed_gpus_fell_min": min(one["fell"] for one in kills),
        "leader_killed_first_gpu_back_seconds_max": max(one["first"] for one in kills),
        "leader_killed_last_gpu_back_seconds_max": max(one["last"] for one in kills),
        "leader_killed_heat_max": max(one["heat"] for one in kills),
        "violations": sum(one["violations"] for one in measured.everything),
    }
    for seconds, one in zip(AWAY_SECONDS, measured.away, strict=True):
        ended = one["ended"] / measured.away_kills
        figures[f"leases_ended_by_an_agent_away_{seconds:.0f}_s_ratio"] = ended
    return figures


def _against(undisturbed: Rows, updated: Rows, arm: str) -> dict[str, float | int | str]:
    """What an update cost, the same demand beside it."""
    pairs = list(zip(undisturbed, updated, strict=True))
    return {
        f"{arm}_gpus_fell": sum(one["fell"] for one in updated),
        f"{arm}_leases_ended": sum(one["ended"] for one in updated),
        f"{arm}_heat_over_undisturbed": max(
            max(b - a for a, b in zip(one["heats"], two["heats"], strict=True))
            for one, two in pairs
        ),
        f"{arm}_above_seconds": max(one["above"] for one in updated),
        f"{arm}_work_lost_ratio": max(1.0 - two["work"] / one["work"] for one, two in pairs),
        f"{arm}_peak_ratio": max(one["peak"] for one in updated),
    }
