"""Room of nodes against a plain count, pod by pod and board by board."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_plugin.room.board_states import NO_BOARD
from scheduler_plugin.room.node_states import NodeStates
from scheduler_plugin.room.pod_demand import Demand

COLUMNS = 3  # whole boards, milliCPU, pods
DEMANDS = (
    Demand((1, 1000, 1)),
    Demand((4, 0, 1)),
    Demand((0, 2500, 1)),
    Demand((0, 500, 1), share_milli=300),
    Demand((0, 0, 1), share_milli=700),
)
BOARDS = (8, 4, 1, 0)
MANY = np.full(len(BOARDS), 20)


class PlainNode:
    """One node, with lists; shares no line with what it judges."""

    def __init__(self, boards: int) -> None:
        self.boards = [1000] * boards
        self.cpu, self.pods = 9_000, 12

    def take_in(self, demand: Demand) -> bool:
        whole, cpu, pods = demand.amounts
        idle = [i for i, left in enumerate(self.boards) if left == 1000]
        part = [i for i, left in enumerate(self.boards) if left >= demand.share_milli]
        if cpu > self.cpu or pods > self.pods or whole > len(idle):
            return False
        if demand.share_milli:
            if not part:
                return False
            tightest = min(part, key=lambda i: (self.boards[i], i))
            self.boards[tightest] -= demand.share_milli
        for i in idle[:whole]:
            self.boards[i] = 0
        self.cpu, self.pods = self.cpu - cpu, self.pods - pods
        return True


def plain(placed: list[tuple[int, int]]) -> list[PlainNode]:
    nodes = [PlainNode(boards) for boards in BOARDS]
    for kind, node in placed:
        assert nodes[node].take_in(DEMANDS[kind])
    return nodes


def room(placed: list[tuple[int, int]], kind: int) -> list[int]:
    """How many more of a kind each node takes, by trying."""
    found = []
    for node in range(len(BOARDS)):
        at, more = plain(placed)[node], 0
        while more < 20 and at.take_in(DEMANDS[kind]):
            more += 1
        found.append(more)
    return found


def states() -> NodeStates:
    free = np.array([(boards, 9_000, 12) for boards in BOARDS], dtype=np.int64)
    milli = np.full((len(BOARDS), 8), NO_BOARD, dtype=np.int64)
    for node, boards in enumerate(BOARDS):
        milli[node, :boards] = 1000
    return NodeStates(free, milli)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=40))
def test_room_is_what_a_count_by_hand_says(steps: list[tuple[int, int, bool]]) -> None:
    found, placed = states(), []
    for kind, node, undone in steps:
        demand = DEMANDS[kind]
        assert found.fits(demand, MANY).tolist() == room(placed, kind)
        if not found.fits(demand, MANY)[node]:
            continue
        found.put(demand, node)
        if undone:
            found.take(demand, node)
        else:
            placed.append((kind, node))
    for kind, demand in enumerate(DEMANDS):
        assert found.fits(demand, MANY).tolist() == room(placed, kind)


@given(st.lists(st.integers(0, 4), max_size=12), st.permutations(range(12)))
def test_what_is_given_back_in_any_order_leaves_nothing(kinds: list[int], order: list[int]) -> None:
    found, there = states(), []
    empty = [found.fits(demand, MANY).tolist() for demand in DEMANDS]
    for kind in kinds:
        if found.fits(DEMANDS[kind], MANY)[0]:
            found.put(DEMANDS[kind], 0)
            there.append(DEMANDS[kind])
    for i in order:
        if i < len(there):
            found.take(there[i], 0)
    assert [found.fits(demand, MANY).tolist() for demand in DEMANDS] == empty
    assert found.gpu_milli(np.arange(4)).tolist() == [8000, 4000, 1000, 0]
