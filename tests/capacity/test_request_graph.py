"""One deadline is split over a graph of calls, and calls meet servers as the policy says."""

from __future__ import annotations

import pytest

from capacity.serving.request_graph import Dispatch, RequestGraph, Stage, serve_graphs
from capacity.serving.served_requests import Size
from capacity.serving.server_simulation import NoLimit, ServerSimulation
from tests.capacity.serving_builders import ToyClock, rules
from wattpack.errors import InputError


def expected(size: Size) -> float:
    return float(size.output)


DIAMOND = RequestGraph((
    Stage("plan", Size(2, 10)),
    Stage("short", Size(2, 5), ("plan",)),
    Stage("long", Size(2, 25), ("plan",)),
    Stage("answer", Size(2, 5), ("short", "long")),
))  # fmt: skip


def servers(count: int, largest_batch: int = 8) -> list[ServerSimulation]:
    chosen = rules(largest_batch=largest_batch)
    return [ServerSimulation(ToyClock(), chosen, 10**6, (0.0, 0.0), NoLimit())
            for _ in range(count)]  # fmt: skip


def test_a_deadline_is_split_along_the_longest_path() -> None:
    due = DIAMOND.deadlines(80.0, expected)
    # 10, 15, 35 and 40 seconds on the way, of 40 in all
    assert due == {"plan": 20.0, "short": 30.0, "long": 70.0, "answer": 80.0}


def test_stages_run_when_all_that_they_wait_for_is_done() -> None:
    (taken,) = serve_graphs(servers(1), [(5.0, DIAMOND)], Dispatch(False, False), 80.0, expected)
    # each call takes its tokens' seconds; the longest path is 40 tokens, a hair for prompts
    assert taken == pytest.approx(40.0, abs=0.3)


def test_balanced_calls_go_to_the_server_that_ends_them_first() -> None:
    graphs = [(0.0, RequestGraph((Stage("a", Size(900, 3)),))) for _ in range(2)]
    one = serve_graphs(servers(1), graphs, Dispatch(True, False), 80.0, expected)
    two = serve_graphs(servers(2), graphs, Dispatch(True, False), 80.0, expected)
    assert max(two) < max(one) - 5


def test_the_call_with_least_slack_goes_first() -> None:
    # one at a time: a graph of two calls began before two short ones that have its deadline
    first = (0.0, RequestGraph((Stage("a", Size(2, 10)),)))
    long = (0.5, RequestGraph((Stage("a", Size(2, 2)), Stage("b", Size(2, 30), ("a",)))))
    shorts = [(at, RequestGraph((Stage("a", Size(2, 2)),))) for at in (1.0, 1.2)]
    graphs = [first, long, *shorts]
    in_order = serve_graphs(servers(1, 1), graphs, Dispatch(True, False), 60.0, expected)
    by_slack = serve_graphs(servers(1, 1), graphs, Dispatch(True, True), 60.0, expected)
    assert by_slack[1] < in_order[1] - 3
    assert by_slack[2] > in_order[2]


def test_a_tool_takes_its_time_and_no_server() -> None:
    graph = RequestGraph((
        Stage("plan", Size(2, 10)),
        Stage("look-up", None, ("plan",), seconds=7.5),
        Stage("answer", Size(2, 5), ("look-up",)),
    ))  # fmt: skip
    assert graph.deadlines(45.0, expected) == {"plan": 20.0, "look-up": 35.0, "answer": 45.0}
    (server,) = servers(1)
    (taken,) = serve_graphs([server], [(0.0, graph)], Dispatch(True, True), 45.0, expected)
    assert taken == pytest.approx(22.5, abs=0.3)
    assert server.outcome().idle_seconds == pytest.approx(7.5, abs=0.3)


def test_a_graph_of_tools_alone_ends_without_servers_work() -> None:
    tools = RequestGraph((Stage("a", None, (), 2.0), Stage("b", None, ("a",), 3.0)))
    assert serve_graphs(
        servers(1), [(1.0, tools), (1.5, tools)], Dispatch(True, True), 9.0, expected
    ) == [5.0, 5.0]


@pytest.mark.parametrize(
    ("stages", "field"),
    [
        ((), "stages"),
        ((Stage("a", Size(1, 1)), Stage("a", Size(1, 1))), "stages.a"),
        ((Stage("a", Size(1, 1), ("b",)), Stage("b", Size(1, 1))), "stages.a.after"),
        ((Stage("a", Size(1, 1), ("a",)),), "stages.a.after"),
    ],
)
def test_graphs_that_cannot_run_are_refused(stages: tuple[Stage, ...], field: str) -> None:
    with pytest.raises(InputError) as refused:
        RequestGraph(stages)
    assert refused.value.field == field
