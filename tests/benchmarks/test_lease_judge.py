"""lease_safety: its judge tells raises that wait for a read-back from raises that do not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks._lease_breakers import Breakers
from benchmarks._lease_kind import RowKind
from benchmarks._lease_raises import RaiseJudge
from benchmarks.lease_safety import new_row
from simulation.plant_constants import frozen_plant
from tests.controller.builders import make_topology
from tests.controller.oracle import house_of
from wattpack.units import NS_PER_SECOND

LOW, HIGH = [f"gpu-{i}" for i in range(8)], [f"gpu-{i}" for i in range(8, 16)]


def make_judge() -> tuple[RaiseJudge, Breakers]:
    """One breaker bears half of the boards at 700 W and half at 400 W, hardly more."""
    topology = make_topology(
        parents=(-1,), nodes=(0,) * 4, oversubscription=1.7, guaranteed_watts=250.0
    )
    house = house_of(topology)
    breakers = Breakers(house, house.ratings, 5.8)
    judge = RaiseJudge(
        breakers, topology.guaranteed_watts.tolist(), topology.gpu_uuids, 4 * NS_PER_SECOND
    )
    assert breakers.bears(0, house.worst(0, [700.0] * 8 + [400.0] * 8))
    assert not breakers.bears(0, house.worst(0, [700.0] * 14 + [600.0] * 2))
    return judge, breakers


def read_back(
    judge: RaiseJudge, uuids: list[str], limit: float, second: int, written: float | None = None
) -> None:
    """A server tells of these boards what they hold, and what its driver was told."""
    told = limit if written is None else written
    board = SimpleNamespace(limit_watts=limit, written_watts=told)
    row: Any = SimpleNamespace(nodes=[SimpleNamespace(boards=dict.fromkeys(uuids, board))])
    judge.row = row
    judge.read_back(0, second * NS_PER_SECOND)


def said(judge: RaiseJudge, uuids: list[str], watts: float, second: float) -> list[str]:
    return list(judge.spoke(dict.fromkeys(uuids, watts), round(second * NS_PER_SECOND)))


def at_start() -> RaiseJudge:
    """The less important hold 700 W, the others 400 W, all of it read back."""
    judge, _ = make_judge()
    for uuids, watts in ((LOW, 700.0), (HIGH, 400.0)):
        assert not said(judge, uuids, watts, 1.0)
        judge.accepted(dict.fromkeys(uuids, watts), 5 * NS_PER_SECOND)
        read_back(judge, uuids, watts, 2)
    return judge


def test_i6_a_raise_that_waits_for_the_lower_caps_is_right() -> None:
    judge = at_start()
    assert not said(judge, LOW, 400.0, 2.0)
    judge.accepted(dict.fromkeys(LOW, 400.0), 6 * NS_PER_SECOND)
    read_back(judge, LOW, 400.0, 3)
    assert not said(judge, HIGH, 700.0, 3.1)
    assert judge.raises == 3


@pytest.mark.parametrize("how", ["only said", "not yet written", "said again and lost"])
def test_i6_a_raise_is_seen_that_does_not_wait(how: str) -> None:
    judge = at_start()
    assert not said(judge, LOW, 400.0, 2.0)
    if how == "not yet written":
        judge.accepted(dict.fromkeys(LOW, 400.0), 6 * NS_PER_SECOND)
        read_back(judge, LOW, 700.0, 3, written=400.0)
    elif how == "said again and lost":
        read_back(judge, LOW, 700.0, 3)
        assert not said(judge, LOW, 400.0, 3.0)
    assert said(judge, HIGH, 700.0, 3.1)


def test_i6_a_lease_that_ended_holds_nothing() -> None:
    judge = at_start()
    read_back(judge, LOW, 250.0, 6)
    assert not said(judge, HIGH, 700.0, 6.1)


def test_i6_a_hot_breaker_bears_less() -> None:
    for heat, bears in ((0.0, True), (0.45, False)):
        judge, breakers = make_judge()
        breakers.heat = [heat]
        assert (not said(judge, LOW, 700.0, 1.0)) == bears


def test_i6_a_leader_that_may_raise_counts_what_boards_hold() -> None:
    judge, _ = make_judge()
    board = SimpleNamespace(limit_watts=461.0, identity=SimpleNamespace(uuid="gpu-0"))
    row: Any = SimpleNamespace(epoch=1, boards=[board])
    judge.row = row
    for second, seen in ((1, False), (4, False), (5, True)):
        assert bool(list(judge.counted([258.0], second * NS_PER_SECOND))) == seen
        assert not list(judge.counted([461.0], second * NS_PER_SECOND))


def test_t_fault_a_lowered_limit_acts_as_late_as_the_plant_says() -> None:
    """The draw follows after each board's own 0.3 to 1.0 s, the read-back at once."""
    row, judge = new_row(3)
    for board in row.boards:
        board.want(690.0)
    row.run(12.0, lambda _: judge.look(row))
    for replica in row.replicas:
        replica.kill()
    row.run(8.0, lambda _: judge.look(row))
    plant = frozen_plant()
    assert max(judge.set_seconds) < 0.1
    assert plant.cap_delay_min_seconds <= min(judge.settled_seconds)
    assert 0.5 < max(judge.settled_seconds) < plant.cap_delay_max_seconds + 0.2
    assert not judge.violations


def test_t_fault_boards_that_act_later_than_that_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    late = frozen_plant().model_copy(
        update={"cap_delay_min_seconds": 2.0, "cap_delay_max_seconds": 3.0}
    )
    monkeypatch.setattr(RowKind, "plant", late)
    row, judge = new_row(3)
    for board in row.boards:
        board.want(690.0)
    row.run(40.0, lambda _: judge.look(row))
    before = Counter(judge.violations)
    for replica in row.replicas:
        replica.kill()
    row.run(8.0, lambda _: judge.look(row))
    assert (judge.violations - before)["T_fault"] > 0


def test_i5_caps_that_favour_the_less_important_are_seen() -> None:
    """Whoever leads, and is told so; of who is deposed and of the other's term nothing is said."""
    row, judge = new_row(3)
    seen: list[tuple[Any, Any, int]] = []
    judged = judge.decided

    def decided(topology: Any, decisions: Any, epoch: int, now_ns: int) -> None:
        judged(topology, decisions, epoch, now_ns)
        if epoch:
            seen.append((topology, decisions, epoch))

    judge.decided = decided  # type: ignore[method-assign]
    for board in row.boards:
        board.want(690.0)
    row.run(60.0, lambda _: judge.look(row))
    topology, decisions, epoch = seen[-1]
    assert not judge.violations
    # Every second board is important: each has the cap of its neighbour.
    wrong = replace(decisions, decided_cap_watts=np.roll(decisions.decided_cap_watts, 1))
    judge.decided(topology, wrong, epoch + 1, row.now_ns)
    assert not judge.violations
    judge.decided(topology, wrong, epoch, row.now_ns)
    assert set(judge.violations) == {"I5"}
