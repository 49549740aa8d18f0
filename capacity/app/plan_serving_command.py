"""``wattpack plan serving``: what a language model on some GPUs serves, how fast and for how much.

Four questions, none of which needs a cluster:

  at given loads       latencies, watts and joules per token at each --concurrency
  within limits        with --ttft-seconds and --tpot-seconds: the largest rate of one server at
                       each power limit, size by size where there are several --requests
  together or split    with --split too: whether --servers should prefill and decode apart, how
                       many do which at which limits, and below which link that no longer pays
  graphs of calls      with --graph: the largest rate of agents' or text-to-SQL requests under one
                       end-to-end deadline, and how it is split over their stages

--measurements corrects the engine's constants by own runs that ``wattpack bench import`` read.
Figures are predictions, whose errors docs/serving-model.md states.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from capacity.app import plan_serving_graph, plan_serving_split
from capacity.app.own_measurements import correction_json, correction_line, correction_of
from capacity.app.progress_bar import Tell, progress_bar
from capacity.app.serving_flags import (
    add_requests,
    add_servers,
    engine_of,
    latency_limits,
    quantiles,
    request_mix,
    require_one_question,
    servers,
)
from capacity.serving.deployment import Deployment
from capacity.serving.engine import Engine
from capacity.serving.host_share import host_share, launch_bound
from capacity.serving.request_mix import RequestMix
from capacity.serving.service_level import BucketReport, ServingReport, max_rate, measure
from wattpack.errors import InputError


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="wattpack plan serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_servers(parser)
    add_requests(parser)
    parser.add_argument(
        "--concurrency", type=int, nargs="+", default=[1, 8, 32, 128],
        help="clients at once, where no latency limits are given",
    )  # fmt: skip
    plan_serving_split.add_flags(parser)
    plan_serving_graph.add_flags(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the answer; 2 for a question that makes no sense, naming what was expected."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    require_one_question(parser, arguments)
    question = _question(arguments)
    try:
        correction = correction_of(
            arguments.measurements, arguments.engine, arguments.format, arguments.cache
        )
        with progress_bar("runs") as tell:
            made = question.answer(arguments, engine_of(arguments, correction), tell)
    except InputError as error:
        print(f"wattpack plan serving: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        told = {"measurements": correction_json(correction), "answer": made} if correction else made
        print(json.dumps(told, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    question.show(console, arguments, made)
    if correction is not None:
        console.print(correction_line(correction), highlight=False, markup=False)
    return 0


def _question(arguments: argparse.Namespace) -> ModuleType:
    """The module that answers and shows it."""
    if arguments.graph is not None:
        return plan_serving_graph
    return plan_serving_split if arguments.split else sys.modules[__name__]


def answer(arguments: argparse.Namespace, engine: Engine, tell: Tell) -> list[dict[str, Any]]:
    """One row for each kind of server and load.

    Raises:
        InputError: as the serving model.
    """
    mix = request_mix(arguments)
    limits = latency_limits(arguments, mix)
    rows: list[dict[str, Any]] = []
    asked = servers(arguments, engine, mix.largest_tokens)
    wanted = len(asked) * (len(arguments.concurrency) if limits is None else 1)
    for one in asked:
        if limits is None:
            for clients in arguments.concurrency:
                tell(len(rows), wanted)
                report = measure(one, mix, concurrency=clients)
                rows.append({"concurrency": clients, **_row(one, mix, report)})
            continue
        tell(len(rows), wanted)
        best = max_rate(one, mix, limits)
        rows.append({"concurrency": None, **_row(one, mix, best.report if best else None)})
    return rows


def _row(one: Deployment, mix: RequestMix, report: ServingReport | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "gpu": one.prices.roofs.model,
        "tensorParallel": one.tensor_parallel,
        "limitWatts": one.limit,
        "cacheTokens": one.cache_tokens,
        "cacheHolds": one.users(_longest(mix)),
        "launches": _launches(one, mix),
    }
    if report is None:
        return {**row, "requestsPerSecond": 0.0, "buckets": []}
    host = host_share(one, max(1, round(report.mean_batch)), _context(mix))
    return {
        **row,
        "requestsPerSecond": round(report.requests_per_second, 3),
        "tokensPerSecond": round(report.tokens_per_second, 1),
        "meanBatch": round(report.mean_batch, 1),
        "hostShare": round(host.share, 3),
        "ttftSeconds": quantiles(report.ttft_seconds, 4),
        "tpotSeconds": quantiles(report.tpot_seconds, 5),
        "meanWatts": round(report.mean_watts, 1),
        "p99Watts": round(report.p99_watts, 1),
        "joulesPerToken": round(report.joules_per_token, 4),
        "buckets": [_bucket(bucket) for bucket in report.buckets],
    }


def _bucket(report: BucketReport) -> dict[str, Any]:
    judged = not math.isnan(report.attainment)
    return {
        "promptTokens": report.bucket.prompt_tokens,
        "outputTokens": report.bucket.output_tokens,
        "share": round(report.share, 4),
        "requestsPerSecond": round(report.requests_per_second, 3),
        "goodputPerSecond": round(report.goodput, 3) if judged else None,
        "attainment": round(report.attainment, 4) if judged else None,
        "ttftSeconds": quantiles(report.ttft_seconds, 4),
        "tpotSeconds": quantiles(report.tpot_seconds, 5),
        "joulesPerToken": round(report.joules_per_token, 4),
    }


def _launches(one: Deployment, mix: RequestMix) -> dict[str, Any]:
    bound = launch_bound(one, _context(mix))
    return {
        "kernels": bound.launches,
        "eagerSeconds": round(bound.seconds, 5),
        "boundUpToBatch": bound.batch,
        "hostMeasuredOn": bound.measured_on,
    }


def _longest(mix: RequestMix) -> int:
    """Tokens that the largest request of the mix keeps in the cache at its end."""
    return max(part.bucket.prompt_tokens + part.bucket.output_tokens for part in mix.parts)


def _context(mix: RequestMix) -> float:
    """Mean one of the decodes."""
    parts = zip(mix.shares, mix.parts, strict=True)
    return sum(s * (p.bucket.prompt_tokens + p.bucket.output_tokens / 2) for s, p in parts)


def show(
    console: Console, arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Loads or rates, then each size of a mix, then why small batches are slow."""
    console.print(_table(arguments, rows))
    if any(len(row["buckets"]) > 1 for row in rows):
        console.print(_bucket_table(rows))
    for line in (*_host_lines(rows), *_cache_lines(rows)):
        console.print(line, highlight=False, markup=False)


def _table(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title=f"{arguments.model}, {arguments.format}, {arguments.engine}: latency, rate and draw"
    )
    for name in (
        "server", "limit W", "clients", "requests/s", "tokens/s", "batch", "host %",
        "TTFT mean / p95 s", "TPOT mean / p95 ms", "server W mean / p99", "J/token",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        server = f"{row['tensorParallel']} × {row['gpu']}"
        if not row["requestsPerSecond"]:
            table.add_row(server, f"{row['limitWatts']:.0f}", "none keeps the limits")
            continue
        ttft, tpot = row["ttftSeconds"], row["tpotSeconds"]
        table.add_row(
            server,
            f"{row['limitWatts']:.0f}",
            "open" if row["concurrency"] is None else str(row["concurrency"]),
            f"{row['requestsPerSecond']:.2f}",
            f"{row['tokensPerSecond']:,.0f}",
            f"{row['meanBatch']:.0f}",
            f"{100 * row['hostShare']:.0f}",
            f"{ttft['mean']:.2f} / {ttft['p95']:.2f}",
            f"{1e3 * tpot['mean']:.1f} / {1e3 * tpot['p95']:.1f}",
            f"{row['meanWatts']:.0f} / {row['p99Watts']:.0f}",
            f"{row['joulesPerToken']:.3f}",
        )
    return table


def _bucket_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="by request size")
    for name in (
        "server", "limit W", "clients", "tokens", "share", "good / all requests/s",
        "TTFT mean / p95 s", "TPOT mean / p95 ms", "J/token",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        for bucket in row["buckets"]:
            ttft, tpot, good = (
                bucket["ttftSeconds"], bucket["tpotSeconds"], bucket["goodputPerSecond"]
            )  # fmt: skip
            table.add_row(
                f"{row['tensorParallel']} × {row['gpu']}",
                f"{row['limitWatts']:.0f}",
                "open" if row["concurrency"] is None else str(row["concurrency"]),
                f"{bucket['promptTokens']} + {bucket['outputTokens']}",
                f"{bucket['share']:.0%}",
                f"{'-' if good is None else f'{good:.2f}'} / {bucket['requestsPerSecond']:.2f}",
                f"{ttft['mean']:.2f} / {ttft['p95']:.2f}",
                f"{1e3 * tpot['mean']:.1f} / {1e3 * tpot['p95']:.1f}",
                f"{bucket['joulesPerToken']:.3f}",
            )
    return table


def _cache_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where clients wait for room in the cache and not for the processor, once for each server."""
    short = {
        f"{row['tensorParallel']} × {row['gpu']}": row["cacheHolds"]
        for row in rows
        if row.get("concurrency") and row["cacheHolds"] < row["concurrency"]
    }
    for server, holds in short.items():
        yield (
            f"{server}: the cache holds {holds} of the largest requests at once, further clients "
            "wait for room; more GPUs a server (--tensor-parallel) hold more"
        )


def _host_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Why small batches are slow, once for each kind of server."""
    yield (
        "host %: scheduling, sampling and gaps between kernels, of a decode iteration at that "
        "batch; the rest reads cache and weights (a dense model's: all of them for any batch)"
    )
    known = {f"{row['tensorParallel']} × {row['gpu']}": row["launches"] for row in rows}
    for server, launches in known.items():
        batch = launches["boundUpToBatch"]
        until = f"up to batch {batch}" if batch else "at no batch"
        yield (
            f"{server} without recorded graphs waits for its host {until}: "
            f"{launches['kernels']} launches take {1e3 * launches['eagerSeconds']:.1f} ms "
            f"(measured on a {launches['hostMeasuredOn']}'s host)"
        )
