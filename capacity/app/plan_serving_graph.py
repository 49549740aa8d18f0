"""``wattpack plan serving --graph``: requests that are graphs of calls under one deadline."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.app.progress_bar import Tell
from capacity.app.serving_flags import quantiles, server_name, servers
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.request_stages import RequestGraphFile, RequestStage
from capacity.serving.deployment import Deployment
from capacity.serving.engine import Engine
from capacity.serving.graph_plan import (
    GraphQuestion,
    GraphRate,
    StageShare,
    graph_of,
    plan_graph,
)
from wattpack.documents import read_yaml
from wattpack.errors import InputError, read_from
from wattpack.flags import positive
from wattpack.settings import validate

SUFFIXES = (".yaml", ".yml", ".json")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Of this question."""
    group = parser.add_argument_group("graphs of calls")
    group.add_argument(
        "--graph", metavar="FILE|WORKLOAD",
        help="a wattpack.io/request-graph/v1 file, or an entry of `wattpack workloads` with stages",
    )  # fmt: skip
    group.add_argument(
        "--deadline-seconds", type=positive,
        help="from a request's first call to its last token (default: the graph's own)",
    )  # fmt: skip


def answer(arguments: argparse.Namespace, engine: Engine, tell: Tell) -> list[dict[str, Any]]:
    """One row for each limit; several GPU types share the servers.

    Raises:
        InputError: no such graph, no call of a model in it, no deadline, and as ``GraphQuestion``.
    """
    stages, own = _read(arguments.graph)
    deadline = arguments.deadline_seconds or own
    if deadline is None:
        raise InputError("deadline_seconds", "--deadline-seconds, or one in the graph", None)
    with read_from(arguments.graph):
        graph = graph_of(stages)
    tokens = max((one.prompt_tokens or 0) + (one.output_tokens or 0) for one in stages)
    if not tokens:
        calls = "one with prompt_tokens and output_tokens"
        raise InputError("stages", calls, "times alone", arguments.graph)
    by_limit: dict[float | None, list[Deployment]] = defaultdict(list)
    for one in servers(arguments, engine, tokens):
        by_limit[one.limit if arguments.limit_watts else None].append(one)
    rows = []
    for kinds in by_limit.values():
        if arguments.servers < len(kinds):
            raise InputError("servers", f"at least {len(kinds)}, one a type", arguments.servers)
        fleet = tuple(kinds[k % len(kinds)] for k in range(arguments.servers))
        try:
            made = plan_graph(GraphQuestion(fleet, graph, deadline), tell)
        except InputError as error:
            if error.field.startswith("stages"):
                error.name_source(arguments.graph)
            raise
        rows.append({
            "servers": [{"server": server_name(k), "servers": fleet.count(k),
                         "limitWatts": k.limit} for k in dict.fromkeys(fleet)],
            "deadlineSeconds": deadline,
            "expectedSeconds": round(made.expected_seconds, 3),
            "stages": _stages(stages, made.stages),
            "byUrgency": _rate(made.by_urgency),
            "firstCome": _rate(made.first_come),
        })  # fmt: skip
    return rows


def _stages(stages: Sequence[RequestStage], shares: Sequence[StageShare]) -> list[dict[str, Any]]:
    """One row a stage: its calls are equal and share their times."""
    rest = iter(shares)
    rows = []
    for stage in stages:
        share, *_ = islice(rest, stage.calls)
        rows.append({
            "name": stage.name,
            "calls": stage.calls if stage.seconds is None else 0,
            "expectedSeconds": round(share.expected_seconds, 3),
            "deadlineSeconds": round(share.deadline_seconds, 3),
        })  # fmt: skip
    return rows


def _rate(made: GraphRate | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        "requestsPerSecond": round(made.requests_per_second, 3),
        "seconds": quantiles(made.seconds, 3),
        "meanWatts": round(made.mean_watts, 1),
        "joulesPerRequest": round(made.joules_per_request, 1),
        "joulesPerToken": round(made.joules_per_token, 4),
    }


def _read(name: str) -> tuple[Sequence[RequestStage], float | None]:
    if name.endswith(SUFFIXES):
        body = read_yaml(Path(name))
        if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
            raise InputError("file", "a mapping of names to values", body, name)
        made = validate(RequestGraphFile, body, name)
        return made.stages, made.deadline_seconds
    entries = shipped_catalogue()
    if name not in entries or not entries[name].stages:
        known = ", ".join(key for key, entry in entries.items() if entry.stages)
        raise InputError("graph", f"a *.yaml file or one of {known}", name)
    return entries[name].stages, entries[name].slo.target_seconds


def show(
    console: Console, arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Rates, then how the deadline is split."""
    table = Table(title=f"{arguments.model}: {arguments.graph} within one deadline")
    table.add_column("servers")
    for name in (
        "dispatch", "requests/s", "mean / p95 s", "mean kW", "J/request", "J/token",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        fleet = ", ".join(
            f"{kind['servers']} × ({kind['server']} @ {kind['limitWatts']:.0f} W)"
            for kind in row["servers"]
        )
        for title, made in (("by urgency", row["byUrgency"]), ("in turn", row["firstCome"])):
            if made is None:
                table.add_row(fleet, title, "none keeps it")
                continue
            table.add_row(
                fleet,
                title,
                f"{made['requestsPerSecond']:.2f}",
                f"{made['seconds']['mean']:.1f} / {made['seconds']['p95']:.1f}",
                f"{made['meanWatts'] / 1e3:.2f}",
                f"{made['joulesPerRequest']:,.0f}",
                f"{made['joulesPerToken']:.2f}",
            )
    console.print(table)
    first = rows[0]
    split = Table(
        title=f"{first['deadlineSeconds']:g} s over the stages "
        f"({first['expectedSeconds']:.1f} s without queues)"
    )
    for name in ("stage", "calls", "without a queue s", "ends by s"):
        split.add_column(name, justify="left" if name == "stage" else "right")
    for stage in first["stages"]:
        split.add_row(
            escape(stage["name"]),
            str(stage["calls"] or "-"),
            f"{stage['expectedSeconds']:.2f}",
            f"{stage['deadlineSeconds']:.2f}",
        )
    console.print(split)
