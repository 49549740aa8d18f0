"""``wattpack plan serving``: what a language model on some GPUs serves, how fast and for how much.

With ``--ttft-seconds`` and ``--tpot-seconds``: the largest rate within them at each limit.
Without: latencies at each ``--concurrency``. One server (one tensor-parallel group) is simulated;
figures are predictions, whose errors docs/serving-model.md states. No cluster is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from capacity.language_models import LanguageModel, find_language_model, shipped_language_models
from capacity.serving.deployment import Deployment
from capacity.serving.engine import RULES, find_engine
from capacity.serving.service_level import (
    LatencyLimits,
    RequestBucket,
    ServingReport,
    max_rate,
    measure,
)
from wattpack.errors import InputError
from wattpack.flags import positive

LARGEST_GROUP = 64
"""GPUs of one tensor-parallel group that are tried."""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack plan serving", description=__doc__)
    names = ", ".join(model.name for model in shipped_language_models())
    parser.add_argument("model", metavar="MODEL", help=f"one of {names}")
    parser.add_argument("--gpu", default="H200-SXM", help="GPU type (default: %(default)s)")
    parser.add_argument(
        "--tensor-parallel", type=int, help="GPUs of one server (default: the fewest that hold it)"
    )
    parser.add_argument("--engine", choices=sorted(RULES), default="vllm")
    parser.add_argument("--format", choices=("bf16", "fp8"), default="fp8", help="of products")
    parser.add_argument("--cache", choices=("bf16", "fp8"), default="fp8", help="of the KV cache")
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--reused", type=float, default=0.0, help="share of prompts in the cache")
    parser.add_argument("--limit-watts", type=positive, nargs="+", help="of each board")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--ttft-seconds", type=positive, help="limit of the time to first token")
    parser.add_argument("--tpot-seconds", type=positive, help="limit of the time per further token")
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 2 for a question that makes no sense, naming what was expected."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if (arguments.ttft_seconds is None) != (arguments.tpot_seconds is None):
        parser.error("expected --ttft-seconds and --tpot-seconds together")
    try:
        rows = answer(arguments)
    except InputError as error:
        print(f"wattpack plan serving: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(_table(arguments, rows))
    return 0


def answer(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each limit and load.

    Raises:
        InputError: as the serving model.
    """
    bucket = RequestBucket(
        arguments.prompt_tokens, arguments.output_tokens, spread=0.2, reused=arguments.reused
    )
    model = find_language_model(arguments.model)
    rows = []
    for limit in arguments.limit_watts or [None]:
        one = _deployment(arguments, model, limit)
        if arguments.ttft_seconds is None:
            for clients in arguments.concurrency:
                report = measure(one, bucket, concurrency=clients)
                rows.append({"concurrency": clients, **_row(one, report)})
            continue
        wanted = LatencyLimits(arguments.ttft_seconds, arguments.tpot_seconds)
        best = max_rate(one, bucket, wanted)
        row = _row(one, best.report) if best else _row(one, None)
        rows.append({"concurrency": None, **row})
    return rows


def _deployment(
    arguments: argparse.Namespace, model: LanguageModel, limit: float | None
) -> Deployment:
    def made(gpus: int) -> Deployment:
        return Deployment(
            model,
            arguments.gpu,
            gpus,
            arguments.format,
            arguments.cache,
            find_engine(arguments.engine),
            limit,
        )

    if arguments.tensor_parallel is not None:
        return made(arguments.tensor_parallel)
    gpus = 1
    while True:
        try:
            return made(gpus)
        except InputError as error:
            if error.field != "tensor_parallel" or gpus >= LARGEST_GROUP:
                raise
        gpus *= 2


def _row(one: Deployment, report: ServingReport | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "gpu": one.prices.roofs.model,
        "tensorParallel": one.tensor_parallel,
        "limitWatts": one.limit,
        "cacheTokens": one.cache_tokens,
    }
    if report is None:
        return {**row, "requestsPerSecond": 0.0}
    return {
        **row,
        "requestsPerSecond": round(report.requests_per_second, 3),
        "tokensPerSecond": round(report.tokens_per_second, 1),
        "meanBatch": round(report.mean_batch, 1),
        "ttftSeconds": dict(zip(_NAMES, (round(v, 4) for v in report.ttft_seconds), strict=True)),
        "tpotSeconds": dict(zip(_NAMES, (round(v, 5) for v in report.tpot_seconds), strict=True)),
        "meanWatts": round(report.mean_watts, 1),
        "p99Watts": round(report.p99_watts, 1),
        "joulesPerToken": round(report.joules_per_token, 4),
    }


_NAMES = ("mean", "p50", "p95", "p99")


def _table(arguments: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> Table:
    first = rows[0]
    table = Table(
        title=f"{arguments.model}, {arguments.format}, {first['tensorParallel']} × {first['gpu']}, "
        f"{arguments.engine}: {arguments.prompt_tokens} + {arguments.output_tokens} tokens, "
        f"cache for {first['cacheTokens']:,} tokens"
    )
    for name in (
        "limit W", "clients", "requests/s", "tokens/s", "batch", "TTFT mean / p95 s",
        "TPOT mean / p95 ms", "server W mean / p99", "J/token",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        if not row["requestsPerSecond"]:
            table.add_row(f"{row['limitWatts']:.0f}", "none keeps the limits")
            continue
        ttft, tpot = row["ttftSeconds"], row["tpotSeconds"]
        table.add_row(
            f"{row['limitWatts']:.0f}",
            "open" if row["concurrency"] is None else str(row["concurrency"]),
            f"{row['requestsPerSecond']:.2f}",
            f"{row['tokensPerSecond']:,.0f}",
            f"{row['meanBatch']:.0f}",
            f"{ttft['mean']:.2f} / {ttft['p95']:.2f}",
            f"{1e3 * tpot['mean']:.1f} / {1e3 * tpot['p95']:.1f}",
            f"{row['meanWatts']:.0f} / {row['p99Watts']:.0f}",
            f"{row['joulesPerToken']:.3f}",
        )
    return table
