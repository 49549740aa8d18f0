"""Graphs of calls from files and the catalogue, and the largest rate within their deadline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.request_stages import RequestGraphFile, RequestStage
from capacity.language_models import find_language_model
from capacity.serving import graph_plan
from capacity.serving.deployment import Deployment
from capacity.serving.graph_plan import BY_URGENCY, GraphAnswer, GraphQuestion, graph_of, plan_graph
from wattpack.errors import InputError
from wattpack.settings import validate


def stage(name: str, **more: Any) -> RequestStage:
    sizes = {} if "seconds" in more else {"prompt_tokens": 500, "output_tokens": 20}
    return RequestStage(name=name, **(sizes | more))


SEARCH = (stage("plan"), stage("search", seconds=0.2), stage("draft", calls=3), stage("answer"))


@pytest.fixture(scope="module")
def question() -> GraphQuestion:
    server = Deployment(find_language_model("llama-3.1-8b"), "H200-SXM")
    return GraphQuestion((server,), graph_of(SEARCH), 1.5)


@pytest.fixture(scope="module")
def made(question: GraphQuestion) -> GraphAnswer:
    return plan_graph(question)


def test_stages_follow_one_another_unless_they_say_otherwise() -> None:
    graph = graph_of((*SEARCH, stage("log", after=("plan",)), stage("check", after=())))
    waits = {one.name: one.after for one in graph.stages}
    drafts = ("draft-1", "draft-2", "draft-3")
    assert waits == {
        "plan": (), "search": ("plan",), "answer": drafts, "log": ("plan",), "check": (),
    } | dict.fromkeys(drafts, ("search",))  # fmt: skip
    with pytest.raises(InputError, match="later"):
        graph_of((stage("first", after=("later",)), stage("later")))


def test_the_rate_is_the_largest_that_goes_on(question: GraphQuestion, made: GraphAnswer) -> None:
    best = made.by_urgency
    assert best is not None
    assert best.seconds[2] <= question.deadline_seconds
    assert best.mean_watts == pytest.approx(
        best.joules_per_request * best.requests_per_second, rel=0.1
    )
    more = graph_plan._Run(question, BY_URGENCY, 1.15 * best.requests_per_second, 400)
    assert not more.keeps


def test_graphs_of_many_calls_are_played_fewer_times_and_runs_are_told(
    monkeypatch: pytest.MonkeyPatch, question: GraphQuestion
) -> None:
    """A day's deadline asks for 2,000 graphs of 256 calls, half a million calls a run."""
    many = graph_of([stage(name, calls=64) for name in "abcd"])
    played: list[int] = []

    def at_once(_: object, graphs: list[object], *__: object) -> list[float]:
        played.append(len(graphs))
        return [1.0] * len(graphs)

    monkeypatch.setattr(graph_plan, "_drawn", lambda _, number: [many] * number)
    monkeypatch.setattr(graph_plan, "serve_graphs", at_once)
    monkeypatch.setattr(graph_plan._Run, "rate", lambda _: None)
    told: list[tuple[int, int]] = []
    plan_graph(
        replace(question, graph=many, deadline_seconds=86_400.0),
        lambda done, total: told.append((done, total)),
    )
    assert set(played) == {graph_plan.LEAST_PLAYED}
    assert told == [(k, 16) for k in range(16)]


def test_the_deadline_is_split_along_what_stages_take(
    question: GraphQuestion, made: GraphAnswer
) -> None:
    due = [share.deadline_seconds for share in made.stages]
    assert due == sorted(due)
    assert due[-1] == pytest.approx(question.deadline_seconds)
    search = next(share for share in made.stages if share.name == "search")
    assert search.expected_seconds == 0.2
    assert made.expected_seconds < question.deadline_seconds


def test_watts_and_time_are_worth_requests(question: GraphQuestion, made: GraphAnswer) -> None:
    held = replace(question, servers=(replace(question.servers[0], limit_watts=300.0),))
    slower = plan_graph(held).by_urgency
    longer = plan_graph(replace(question, deadline_seconds=3.0)).by_urgency
    assert slower is not None
    assert longer is not None
    assert made.by_urgency is not None
    assert slower.requests_per_second < made.by_urgency.requests_per_second
    assert made.by_urgency.requests_per_second < longer.requests_per_second
    assert slower.mean_watts <= 300


def test_a_queue_that_grows_is_seen_in_runs_shorter_than_the_deadline(
    question: GraphQuestion,
) -> None:
    # so many a second that the largest run ends before anybody can be late
    calls = replace(question, graph=graph_of((stage("call"),)))
    soon, late = (
        graph_plan._largest(replace(calls, deadline_seconds=seconds), BY_URGENCY, lambda: None)
        for seconds in (3.0, 60.0)
    )
    assert soon is not None
    assert late is not None
    assert late.requests_per_second < 1.3 * soon.requests_per_second


def test_a_deadline_that_one_request_misses_alone_has_no_rate(question: GraphQuestion) -> None:
    none = plan_graph(replace(question, deadline_seconds=0.3))
    assert none.by_urgency is None
    assert none.first_come is None


def test_stages_of_the_catalogue_fan_out_as_their_entries_say() -> None:
    staged = {name: one for name, one in shipped_catalogue().items() if one.stages}
    assert {"agent-workflow", "text-to-sql", "workflow-fanout"} <= set(staged)
    for name, entry in staged.items():
        graph_of(entry.stages)
        assert max(one.calls for one in entry.stages) == entry.parameters.fan_out, name
        assert entry.slo.kind == "end-to-end", name


@pytest.mark.parametrize(
    ("stages", "field"),
    [
        ([], "stages"),
        ([{"name": "a"}], "stages.0"),
        ([{"name": "a", "prompt_tokens": 5}], "stages.0"),
        ([{"name": "a", "prompt_tokens": 5, "output_tokens": 5, "seconds": 1}], "stages.0"),
        ([{"name": "a", "seconds": 1, "calls": 2}], "stages.0"),
        ([{"name": "a", "seconds": float("nan")}], "stages.0.seconds"),
        ([{"name": "a", "prompt_tokens": 0, "output_tokens": 5}], "stages.0.prompt_tokens"),
        (
            [{"name": "a", "prompt_tokens": 5, "cached_tokens": 5, "output_tokens": 5}],
            "stages.0",
        ),
        ([{"name": "a", "seconds": 1, "wait": 2}], "stages.0.wait"),
    ],
)
def test_stages_that_mean_nothing_are_refused(stages: list[object], field: str) -> None:
    body = {"apiVersion": "wattpack.io/request-graph/v1", "stages": stages}
    with pytest.raises(InputError) as refused:
        validate(RequestGraphFile, body, "graph.yaml")
    assert refused.value.field.startswith(field)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"servers": ()}, "servers"),
        ({"deadline_seconds": 0.0}, "deadline_seconds"),
        ({"graph": graph_of((stage("tool", seconds=1.0),))}, "stages"),
        ({"graph": graph_of((stage("huge", prompt_tokens=10**6, calls=2),))}, "stages.huge-1"),
        ({"graph": graph_of(tuple(stage(f"s{k}", calls=64) for k in range(5)))}, "stages"),
    ],
)
def test_graphs_that_nobody_can_serve_are_refused(
    question: GraphQuestion, changes: dict[str, Any], field: str
) -> None:
    small = replace(question.servers[0], cache_format="bf16")
    with pytest.raises(InputError) as refused:
        replace(question, **({"servers": (small,)} | changes))
    assert refused.value.field == field
