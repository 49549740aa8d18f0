"""Leases end in time whatever is killed, and do not end where messages are merely lost.

Two experiments on a small row in virtual time, with the product's own agents, actuators, answer
desk and ``step()`` (``_lease_row``), judged from outside (``_lease_judge``):

- *kills*: controllers, agents, actuators, network, API, nodes and boards are killed and healed in
  random order at random moments. How long after the end of a lease was the limit set, and read
  back, and the draw below it? Was anything held or accepted that I1 to I10 forbid?
- *losses*: nothing is killed, a share of all messages is lost each way. How often does a node's
  lease run out? Once as it is, once without answers on arrival.

Write times (10 to 80 ms) and delays (2 to 80 ms) are assumed. Draws follow limits as in the frozen
plant (ADR 28, ADR 30): measured where work begins; a *lowered* limit acts after each board's own
0.3 to 1.0 s, which are assumed.

Of a scenario file: servers of one GPU type, racks, ratings, hosts, how late lowered limits act,
classes and lease; if it names faults, only what belongs to their kinds is killed, at random moments
as ever.
"""

from __future__ import annotations

import importlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import Given, given_scenario
from benchmarks._lease_judge import Judge
from benchmarks._lease_kind import BREAKER_CURVES, RowKind, make_topology
from benchmarks._lease_kind import READS as ROW_READS
from benchmarks._lease_order import OrderJudge
from benchmarks._lease_row import Row
from benchmarks.runner import Options, Result, Target, finished_rows
from benchmarks.runner import Row as Figures
from simulation.scenario import FaultKind

NAME: Final = "lease_safety"
SUMMARY: Final = "seconds from a lease's end to limit and draw, and expiries at 5 % loss"
TAKES_ARGUMENTS: Final = True
USAGE: Final = GIVEN_USAGE
TAKES_SCHEDULER: Final = True
READS: Final = (*ROW_READS, "priority_classes[].value", "faults[].kind")
RUNS, QUICK_RUNS = 40, 3
ACTIONS_A_RUN: Final = 30
LOSS: Final = 0.05
LOSS_SECONDS, QUICK_LOSS_SECONDS = 3600.0, 120.0
LOSS_CASES, QUICK_LOSS_CASES = 2, 1
TARGETS: Final = {
    "violations": Target(at_most=0),
    "limit_set_seconds_after_lease_max": Target(at_most=0.5),
    "read_back_seconds_after_lease_max": Target(at_most=1.5),
    "draw_seconds_after_lease_p999": Target(at_most=1.8),
    "expiries_per_node_hour": Target(at_most=5.0),
}


def new_row(seed: int, kind: RowKind | None = None) -> tuple[Row, Judge]:
    """Four servers of four boards below two racks and a row, or those of a file; their judge."""
    kind = kind or RowKind()
    oracle = importlib.import_module("tests.controller.oracle")
    topology = make_topology(kind, gpus_per_node=4, oversubscription=1.6, priority=[0, 10] * 8)
    # Raised quickly, so that caps reach what I2 allows between two kills.
    quick = replace(topology.tree, max_raise_watts_per_second=0.2 * topology.tree.rating_watts)
    topology = replace(topology, tree=quick)
    house = oracle.house_of(topology)

    guaranteed = topology.guaranteed_watts.tolist()
    order = OrderJudge(house.house, oracle.due_of, kind.settings.fault_seconds)
    judge = Judge(house, house.ratings, guaranteed, order, kind)
    row = Row(topology, judge, seed, kind)
    judge.excuse(row, topology.gpu_uuids)
    return row, judge


def _any_board(row: Row, rng: random.Random) -> Any:  # noqa: ANN401 - a node and its board
    node = rng.choice(row.nodes)
    return node, rng.choice(list(node.boards.values()))


def _hang(row: Row, judge: Judge, rng: random.Random) -> None:
    _, board = _any_board(row, rng)
    board.hangs = not board.hangs
    judge.excuse(row, [str(board.identity.uuid)])


def _tamper(row: Row, judge: Judge, rng: random.Random) -> None:
    _, board = _any_board(row, rng)
    judge.excuse(row, [str(board.identity.uuid)])
    board.written_watts = row.kind.default_watts
    board.hold(board.written_watts)


def _reboot(row: Row, judge: Judge, rng: random.Random) -> None:
    node = rng.choice(row.nodes)
    judge.excuse(row, list(node.boards))
    node.reboot()


def _restart_actuator(row: Row, judge: Judge, rng: random.Random) -> None:
    node = rng.choice(row.nodes)
    # One that starts while a board hangs leaves that board out until its next start.
    if not any(board.hangs for board in node.boards.values()):
        node.start_actuator()


def _kill_agent(row: Row, judge: Judge, rng: random.Random) -> None:
    """Of two the one or the other."""
    agents = (node := rng.choice(row.nodes)).agents
    if agents:
        node.kill_agent(rng.choice(agents))


def _start_agent(row: Row, judge: Judge, rng: random.Random) -> None:
    for node in row.nodes:
        if not node.agents:
            node.start_agent()


def _start_beside(row: Row, judge: Judge, rng: random.Random) -> None:
    """As in an update; sometimes a third comes."""
    node = rng.choice(row.nodes)
    if len(node.agents) < 3:
        node.start_agent()


def _hang_agent(row: Row, judge: Judge, rng: random.Random) -> None:
    """One stops or goes on: its streams stay open."""
    agents = rng.choice(row.nodes).agents
    if agents:
        one = rng.choice(agents)
        one.hangs = not one.hangs


def _cut(row: Row, judge: Judge, rng: random.Random) -> None:
    node = rng.choice(row.nodes)
    node.cut_up, node.cut_down = rng.choice([(True, True), (True, False), (False, True)])


def _heal(row: Row, judge: Judge, rng: random.Random) -> None:
    for node in row.nodes:
        node.cut_up = node.cut_down = False


def _ask(row: Row, judge: Judge, rng: random.Random) -> None:
    watts = row.kind.watts(rng.choice([100.0, 300.0, 690.0]))
    for board in row.boards:
        if rng.random() < 0.7:
            board.want(watts)


def _lose(row: Row, judge: Judge, rng: random.Random) -> None:
    row.loss = rng.choice([0.0, 0.05, 0.3])


def _garbage(row: Row, judge: Judge, rng: random.Random) -> None:
    row.garbage(rng.choice(row.nodes).number)


ACTIONS: Final[Mapping[str, Callable[[Row, Judge, random.Random], None]]] = {
    "kill_leader": lambda row, judge, rng: row.end_leader(kill=True),
    "stop_leader": lambda row, judge, rng: row.end_leader(kill=False),
    "depose_leader": lambda row, judge, rng: row.depose_leader(),
    "start_replica": lambda row, judge, rng: row.start_replica(),
    "api_down": lambda row, judge, rng: row.set_api(up=False),
    "api_up": lambda row, judge, rng: row.set_api(up=True),
    "kill_agent": _kill_agent,
    "start_agent": _start_agent,
    "start_beside": _start_beside,
    "hang_agent": _hang_agent,
    "cut": _cut,
    "heal": _heal,
    "restart_actuator": _restart_actuator,
    "reboot": _reboot,
    "tamper": _tamper,
    "hang": _hang,
    "ask": _ask,
    "lose": _lose,
    "garbage": _garbage,
}


ALWAYS: Final = ("ask", "garbage")
ACTIONS_OF: Final[Mapping[FaultKind, tuple[str, ...]]] = {
    FaultKind.CONTROLLER_CRASH: ("kill_leader", "stop_leader", "depose_leader", "start_replica"),
    FaultKind.API_DOWN: ("api_down", "api_up"),
    FaultKind.TELEMETRY_LOSS: (
        "kill_agent", "start_agent", "start_beside", "hang_agent", "cut", "heal", "lose",
    ),
    FaultKind.NODE_REBOOT: ("reboot", "start_agent"),
    FaultKind.DRIVER_RELOAD: ("reboot", "start_agent"),
    FaultKind.IGNORE_CAP: ("tamper", "restart_actuator"),
    FaultKind.GPU_HUNG: ("hang", "restart_actuator"),
}  # fmt: skip
"""What stands here for a fault of a scenario; other kinds have no meaning."""


def actions_of(given: Given | None) -> list[str]:
    """What may happen: everything, or what belongs to the faults that a file names.

    Raises:
        InputError: for faults none of which has a meaning here.
    """
    kinds = [] if given is None else [fault.kind for fault in given.scenario.faults]
    if given is None or not kinds:
        return list(ACTIONS)
    wanted = {name for kind in kinds for name in ACTIONS_OF.get(kind, ())}
    if not wanted:
        known = "one of " + ", ".join(ACTIONS_OF)
        raise given.wrong("faults[].kind", known, [kind.value for kind in kinds])
    return [name for name in ACTIONS if name in wanted.union(ALWAYS)]


def one_kill_run(
    seed: int, number: int, kind: RowKind | None = None, actions: Sequence[str] = tuple(ACTIONS)
) -> Figures:
    """One run of random kills; a function of seed and number."""
    rng = random.Random(f"{seed}/{number}/kills")
    row, judge = new_row(rng.randrange(2**31), kind)
    row.run(12.0, lambda _: judge.look(row))
    for _ in range(ACTIONS_A_RUN):
        ACTIONS[rng.choice(actions)](row, judge, rng)
        row.run(rng.choice([0.3, 1.0, 3.0, 8.0]), lambda _: judge.look(row))
    return {
        "seconds": row.now_ns / 1e9,
        "violations": dict(judge.violations),
        "details": judge.details[:5],
        "ends": judge.expiries,
        "raised_share": judge.raised_looks / judge.looks,
        "set": [round(s, 4) for s in judge.set_seconds],
        "read_back": [round(s, 4) for s in judge.read_back_seconds],
        "settled": [round(s, 4) for s in judge.settled_seconds],
        "answered": sum(replica.renewals for replica in row.replicas),
    }


def one_loss_run(
    seed: int, number: int, seconds: float, *, answers: bool, kind: RowKind | None = None
) -> Figures:
    """Node-hours without any kill, and how many leases ran out in them."""
    rng = random.Random(f"{seed}/{number}/losses")
    row, judge = new_row(rng.randrange(2**31), kind)
    row.answers = answers
    row.run(20.0, lambda _: judge.look(row))
    before, row.loss = judge.expiries, LOSS
    row.run(seconds, lambda _: judge.look(row))
    return {
        "expiries": judge.expiries - before,
        "node_hours": len(row.nodes) * seconds / 3600.0,
        "violations": dict(judge.violations),
        "details": judge.details[:5],
    }


def run(options: Options) -> Result:
    """Measure both."""
    quick = options.quick
    runs = QUICK_RUNS if quick else RUNS
    cases = QUICK_LOSS_CASES if quick else LOSS_CASES
    seconds = QUICK_LOSS_SECONDS if quick else LOSS_SECONDS
    given = given_scenario(NAME, options, READS)
    kind, name = RowKind.of(given), NAME if given is None else given.kind(NAME)
    killing = partial(one_kill_run, kind=kind, actions=actions_of(given))
    losing = partial(one_loss_run, seconds=seconds, kind=kind)
    kills = finished_rows(options, f"{name}-kills", killing, runs)
    answered = partial(losing, answers=True)
    losses = finished_rows(options, f"{name}-losses-{seconds:.0f}", answered, cases)
    alone = partial(losing, answers=False)
    ticks_only = finished_rows(options, f"{name}-ticks-{seconds:.0f}", alone, cases)
    broken: Counter[str] = Counter()
    for one in (*kills, *losses, *ticks_only):
        broken.update(one["violations"])
        for line in one["details"]:
            options.progress(line)
    late = np.array([s for one in kills for s in one["set"]] or [np.nan])
    back = np.array([s for one in kills for s in one["read_back"]] or [np.nan])
    settled = np.array([s for one in kills for s in one["settled"]] or [np.nan])
    figures: dict[str, float | int | str] = {
        "violations": sum(broken.values()),
        "violated": ", ".join(f"{name} {count}" for name, count in sorted(broken.items()))
        or "none",
        "runs": runs,
        "breaker_curves": BREAKER_CURVES,
        "plant_sha256": kind.plant_sha256,
        "simulated_hours": sum(one["seconds"] for one in kills) / 3600.0,
        "above_guaranteed_ratio": float(np.mean([one["raised_share"] for one in kills])),
        "leases_ended": sum(one["ends"] for one in kills),
        "reports_answered_on_arrival": sum(one["answered"] for one in kills),
        "limit_set_seconds_after_lease_p999": float(np.quantile(late, 0.999)),
        "limit_set_seconds_after_lease_max": float(late.max()),
        "read_back_seconds_after_lease_max": float(back.max()),
        "draws_watched": len(settled),
        "draw_seconds_after_lease_p999": float(np.quantile(settled, 0.999)),
        "draw_seconds_after_lease_max": float(settled.max()),
        "t_fault_seconds": kind.settings.fault_seconds,
        "t_fault_promised_seconds": new_row(options.seed, kind)[1].fault_seconds,
        "node_hours_with_losses": sum(one["node_hours"] for one in losses),
        "expiries_per_node_hour": _rate(losses),
        "expiries_per_node_hour_ticks_only": _rate(ticks_only),
    }
    return Result(figures | ({} if given is None else given.figures()), TARGETS)


def _rate(cases: Any) -> float:  # noqa: ANN401 - rows of a file
    hours = sum(one["node_hours"] for one in cases)
    return float(sum(one["expiries"] for one in cases) / hours)
