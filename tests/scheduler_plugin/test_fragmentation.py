"""What the expected demand cannot use, what rests of boards are worth, and where pods then go."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.packing.board_values import board_values
from scheduler_plugin.packing.fragmentation import Ask, expected_demand
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.node_scores import NodeScores
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.room.resource_columns import GPUS
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import GIB, bound, node, pod, snapshot

MODELS = ("H100", "H200")
SIZES = (0, 250, 500, 810, 1000, 2000)


def asks(uid: str, gpu_milli: int, cores: int = 8, **other: object) -> Pod:
    return Pod(
        uid=uid,
        gpu_milli=gpu_milli,
        milli_cpu=1000 * cores,
        memory_bytes=8 * GIB,
        **other,  # type: ignore[arg-type]
    )


# -- what the expected demand cannot use -----------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    nodes = [
        node(f"n{i}", draw(st.sampled_from((0, 1, 2, 4))), gpu_model=draw(st.sampled_from(MODELS)))
        for i in range(draw(st.integers(1, 4)))
    ]
    pods = [
        asks(
            f"p{i}",
            draw(st.sampled_from(SIZES)),
            draw(st.sampled_from((1, 8, 40))),
            gpu_models=draw(st.sampled_from(((), MODELS[:1]))),
        )
        for i in range(draw(st.integers(1, 8)))
    ]
    return snapshot(*nodes, *pods)


def unusable_one_by_one(of: Snapshot, at: Node, boards: list[int], cores: int) -> float:
    """By its definition, over every pod and every prior pod of whole boards."""
    largest = max(n.gpu_milli // 1000 for n in of.nodes)
    gpus = sum(n.gpu_milli // 1000 for n in of.nodes)
    cpu = sum(n.milli_cpu for n in of.nodes if n.gpu_milli)
    memory = sum(n.memory_bytes for n in of.nodes if n.gpu_milli)
    everybody = [(p.gpu_milli, p.milli_cpu, p.memory_bytes, p.gpu_models) for p in of.pods]
    for k in (1, 2, 4, 8):
        if k <= largest:
            everybody.append((1000 * k, k * (cpu // gpus), k * (memory // gpus), ()))
    wasted = 0
    for gpu_milli, milli_cpu, memory_bytes, models in everybody:
        suits = [b for b in boards if b >= min(gpu_milli, 1000)]
        fits = (
            gpu_milli > 0
            and len(suits) >= gpu_milli / 1000
            and milli_cpu <= 1000 * cores
            and memory_bytes <= 100 * GIB
            and (not models or at.gpu_model in models)
        )
        wasted += sum(boards) - (sum(suits) if fits else 0)
    return wasted / len(everybody)


@given(clusters(), st.lists(st.sampled_from((0, 190, 250, 500, 1000)), max_size=4), st.data())
@settings(max_examples=200)
def test_unusable_gpu_is_what_the_definition_says(
    of: Snapshot, boards: list[int], data: st.DataObject
) -> None:
    # Few kinds: none is too rare to count.
    expected = expected_demand(compile_problem(of))
    n = data.draw(st.integers(0, len(of.nodes) - 1))
    cores = data.draw(st.sampled_from((0, 4, 24, 96)))
    found = expected.unusable_milli(
        expected.group_of[[n]],
        np.array([1000 * cores]),
        np.array([100 * GIB]),
        np.array([boards + [0] * (5 - len(boards))]),
    )
    assert found[0] == pytest.approx(unusable_one_by_one(of, of.nodes[n], boards, cores))


def test_pods_that_run_are_expected_again() -> None:
    running = [bound(f"r{i}", "a", 0, gpu_milli=250) for i in range(3)]
    waiting = asks("p", 500)
    expected = expected_demand(compile_problem(snapshot(node("a", 8), *running, waiting)))
    assert expected.shares == {250: 3, 500: 1}


def test_boards_that_only_some_may_use_are_scarce_as_far_as_these_ask_for_them() -> None:
    h100 = node("a", 2, gpu_model="H100")
    h200 = node("b", 6, gpu_model="H200")
    free = [asks(f"p{i}", 4000) for i in range(99)]
    bound_to = [asks(f"q{i}", 2000, gpu_models=("H100",)) for i in range(198)]
    expected = expected_demand(compile_problem(snapshot(h100, h200, *free, *bound_to)))
    # Half of the demand spreads over 8 boards, half over 2: 1/16 + 1/4 of it a board, else 1/16.
    # Pods of 1, 2, 4 (and 8, too large) boards that are always expected change this by 2 %.
    assert expected.scarcity == pytest.approx([1.5, -0.5], abs=0.05)


# -- what rests of boards are worth ----------------------------------------------------------------


@given(
    st.dictionaries(
        st.integers(20, 99).map(lambda x: 10 * x), st.integers(1, 50), min_size=1, max_size=5
    )
)
@settings(max_examples=100, deadline=None)
def test_prices_of_shares_are_those_of_the_fewest_boards(counts: dict[int, int]) -> None:
    """Against the linear program over every way to fill a board."""
    sizes = sorted(counts)
    ways = [
        way
        for way in product(*(range(1000 // size + 1) for size in sizes))
        if 0 < np.dot(way, sizes) <= 1000
    ]
    fewest = linprog(
        np.ones(len(ways)), A_ub=-np.array(ways).T, b_ub=[-counts[size] for size in sizes]
    )
    worth = board_values(sizes, [counts[size] for size in sizes])
    # A share is worth at least its price, so all of them at least the boards that they need.
    assert sum(counts[s] * worth[s] for s in sizes) >= fewest.fun * (1 - 1e-6)
    for way in ways:
        assert np.dot(way, worth[sizes]) <= worth[int(np.dot(way, sizes))] + 1e-6
    assert worth[1000] == 1.0
    assert (np.diff(worth) >= -1e-9).all()


def test_a_rest_that_nobody_asks_for_is_worth_nothing() -> None:
    worth = board_values([810, 160, 470], [100, 5, 60])
    assert worth[190] == pytest.approx(0.0, abs=1e-9)
    assert worth[530] == pytest.approx(0.5)
    assert board_values([333], [9])[999] == 1.0
    assert board_values([], [])[999] == 0.0


# -- where pods go ---------------------------------------------------------------------------------


def test_equal_nodes_are_one_state_and_equally_good() -> None:
    problem = compile_problem(snapshot(*(node(f"n{i}", 4) for i in range(50)), asks("p", 500)))
    scores = NodeScores(problem.total, expected_demand(problem))
    nodes = np.arange(50)
    boards = np.full((50, 4), 1000)
    boards[7] = (250, 1000, 1000, 0)
    boards[8] = (0, 1000, 250, 1000)
    states = scores.number(nodes, problem.free, boards)
    assert len(set(states.tolist())) == 2
    assert states[7] == states[8]
    found = scores.of(problem.asks[0], states)
    assert len(set(found.tolist())) == 2
    # A state that is known is not looked at again, and later ones get numbers of their own.
    assert scores.number(nodes[:1], problem.free[:1], boards[7:8]).tolist() == [states[7]]


@given(st.data())
@settings(max_examples=100)
def test_a_node_that_can_serve_less_is_never_better(data: st.DataObject) -> None:
    """Of two nodes alike, one without the CPU that its boards need: CPU-only pods go there."""
    cores = data.draw(st.integers(1, 8))
    of = snapshot(node("a", 4), node("b", 4), *(asks(f"g{i}", 1000, 24) for i in range(9)))
    problem = compile_problem(of)
    scores = NodeScores(problem.total, expected_demand(problem))
    free = problem.free.copy()
    free[1, 1] = 1000 * data.draw(st.integers(cores, 23))
    boards = np.full((2, 4), 1000)
    states = scores.number(np.arange(2), free, boards)
    whole, short = scores.of(Ask(0, 0, 1000 * cores, GIB), states) - scores.of(
        Ask(0, 0, 0, 0), states
    )
    assert short <= whole + 1e-9


def placed(*items: Node | Pod) -> dict[str, tuple[str, tuple[int, ...]]]:
    made = plan(snapshot(*items), deadline_seconds=0.0)
    return {one.uid: (one.node, one.boards) for one in made.placements}


def test_a_share_completes_a_board_rather_than_a_larger_rest() -> None:
    there = [bound("r0", "a", 0, gpu_milli=750), bound("r1", "b", 0, gpu_milli=500)]
    where = placed(node("a", 1), node("b", 1), *there, asks("p", 250))
    assert where["p"] == ("a", (0,))


def test_pods_without_gpus_stay_away_from_free_gpus() -> None:
    full = bound("r", "b", 8, milli_cpu=8_000)
    host = node("c", 0)
    pods = [pod(f"p{i}", 0, milli_cpu=40_000) for i in range(4)]
    where = placed(node("a", 8), node("b", 8), host, full, *pods)
    assert sorted(at for at, _ in where.values()) == ["b", "b", "c", "c"]


def test_nodes_of_a_model_that_others_need_are_left_to_them() -> None:
    # As a mere count of pods that may use them, nodes of both models are worth the same.
    wanted = [asks(f"w{i}", 1000, gpu_models=("H100",)) for i in range(8)]
    others = [asks(f"v{i}", 1000, gpu_models=("H200",)) for i in range(8)]
    nodes = [node(f"b{i}", 8, gpu_model="H200") for i in range(4)]
    problem = compile_problem(
        snapshot(node("a", 8, gpu_model="H100"), *nodes, *wanted, *others, asks("p", 1000))
    )
    anywhere = next(c for c, k in enumerate(problem.classes) if k.uids == ("p",))
    packing = Packing(problem)
    packing.place(anywhere, 1)
    assert packing.booked_since(0) == [(anywhere, 1, 1)]


def test_becoming_another_assignment_overbooks_no_board_on_the_way() -> None:
    problem = compile_problem(snapshot(node("a", 1), node("b", 1), asks("p", 1000), asks("q", 500)))
    p, q = (next(c for c, k in enumerate(problem.classes) if k.uids == (u,)) for u in "pq")
    packing = Packing(problem)
    packing.become({(p, 0): 1, (q, 1): 1})
    packing.become({(p, 1): 1, (q, 0): 1})
    packing.become({(q, 1): 1, (p, 0): 1})
    rows = packing.states.board_rows(np.arange(2))
    assert rows.tolist() == [[0], [500]]
    assert packing.free[:, GPUS].tolist() == [0, 0]


def test_undoing_puts_a_pod_back_on_the_board_that_it_had() -> None:
    problem = compile_problem(
        snapshot(node("a", 2), *(asks(f"p{i}", 500) for i in range(2)), asks("q", 250))
    )
    p, q = (next(c for c, k in enumerate(problem.classes) if u in k.uids) for u in ("p0", "q"))
    packing = Packing(problem)
    packing.put(p, 0, 1, (0,))
    packing.put(q, 0, 1, (1,))
    mark = packing.mark()
    packing.put(q, 0, -1)
    packing.undo_to(mark)
    assert packing.states.boards(problem.demands[q], 0) == ((1,),)
