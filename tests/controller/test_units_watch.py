"""What units tell counts once it lasts: the choice of the actuator does not flap."""

from __future__ import annotations

import math

import numpy as np

from controller.seen_work import Units
from controller.units_watch import SeenBoard, UnitsWatch
from wattpack.units import seconds_to_ns

STREAM = Units(0.98, 0.92, 0.0, 0.83, 0.8)
PRODUCTS = Units(0.98, 0.95, 0.9, 0.17, 0.99)
UNKNOWN = Units(*[math.nan] * 5)


class Row:
    """Boards that are looked at once a second."""

    def __init__(self, *pods: str) -> None:
        self.watch, self.seconds = UnitsWatch(), 0
        self.pods = list(pods or ("team/chat",))
        self.changes: list[int] = []

    def run(self, seconds: int, *units: Units, dcgm: bool = False) -> SeenBoard | None:
        rows = units if len(units) == len(self.pods) else units * len(self.pods)
        table = np.array([(u.engine, u.sm, u.tensor, u.dram, u.draw_share) for u in rows]).T
        uuids = [f"GPU-{i}" for i in range(len(self.pods))]
        for _ in range(seconds):
            before = self.watch.version
            now_ns = seconds_to_ns(self.seconds)
            self.watch.look(uuids, self.pods, table, [dcgm] * len(uuids), now_ns)
            self.changes += [self.seconds] * (self.watch.version - before)
            self.seconds += 1
        return self.watch.seen().get("GPU-0")


def test_a_new_pod_is_judged_when_its_minutes_are_its_own() -> None:
    row = Row()
    assert row.run(180, STREAM) is None
    board = row.run(20, STREAM)
    assert board is not None
    assert (board.work.kind, board.source) == ("memory", "board")
    assert board.work.draw_share == 0.8


def test_work_that_alternates_changes_nothing() -> None:
    """Minutes of products and of streams by turns: a mixture, once."""
    row = Row()
    for _ in range(30):
        row.run(60, STREAM)
        row.run(60, PRODUCTS)
    assert len(row.changes) <= 3


def test_a_gust_of_other_work_does_not_move_the_choice() -> None:
    row = Row()
    row.run(400, STREAM)
    changes = len(row.changes)
    row.run(40, PRODUCTS)
    board = row.run(400, STREAM)
    assert board is not None
    assert board.work.kind == "memory"
    assert len(row.changes) == changes


def test_doubt_is_quicker_than_trust() -> None:
    """A lock goes within three minutes of other work and comes after more than five."""
    row = Row()
    row.run(400, STREAM)
    to_limits = row.run(180, PRODUCTS)
    assert to_limits is not None
    assert to_limits.work.waits_for_clock
    still = row.run(300, STREAM)
    assert still is not None
    assert still.work.waits_for_clock
    back = row.run(400, STREAM)
    assert back is not None
    assert not back.work.waits_for_clock


def test_another_pod_on_the_board_begins_anew() -> None:
    row = Row()
    assert row.run(400, STREAM) is not None
    row.pods = ["team/other"]
    assert row.run(10, STREAM) is None
    assert row.run(100, STREAM) is None


def test_an_agent_that_comes_back_without_pods_is_no_new_pod() -> None:
    row = Row()
    row.run(400, STREAM)
    row.pods = [""]
    assert row.run(20, STREAM) is not None
    row.pods = ["team/chat"]
    assert row.run(20, STREAM) is not None


def test_what_nobody_tells_any_more_is_forgotten() -> None:
    row = Row()
    row.run(400, STREAM)
    assert row.run(200, UNKNOWN) is not None
    assert row.run(200, UNKNOWN) is None


def test_boards_without_units_and_idle_ones_count_as_unknown() -> None:
    row = Row()
    assert row.run(400, UNKNOWN) is None
    assert row.run(400, Units(0.01, 0.0, 0.0, 0.0, 0.2)) is None
    assert row.changes == []


def test_a_board_that_moves_in_the_order_keeps_what_was_seen() -> None:
    row = Row("team/a", "team/b")
    row.run(400, STREAM, PRODUCTS)
    uuids, table = ["GPU-1", "GPU-0"], np.full((5, 2), np.nan)
    row.watch.look(uuids, ["team/b", "team/a"], table, [False, False], seconds_to_ns(410))
    kinds = {uuid: board.work.kind for uuid, board in row.watch.seen().items()}
    assert kinds == {"GPU-0": "memory", "GPU-1": "compute"}
