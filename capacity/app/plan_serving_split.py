"""``wattpack plan serving --split``: servers together, or prefill and decode on their own."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from capacity.app.progress_bar import Tell
from capacity.app.serving_flags import (
    latency_limits,
    quantiles,
    request_mix,
    server_name,
    servers,
)
from capacity.serving.deployment import Deployment
from capacity.serving.engine import Engine
from capacity.serving.split_plan import PlannedRate, SplitAnswer, SplitQuestion, plan_split
from wattpack.errors import InputError
from wattpack.flags import positive

GIGA = 1e9


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Of this question."""
    group = parser.add_argument_group("together or split")
    group.add_argument(
        "--split", action="store_true",
        help="prefill and decode on servers of their own, or together? Needs latency limits",
    )  # fmt: skip
    group.add_argument(
        "--budget-watts", type=positive, help="bound on the sum of all boards' limits"
    )
    group.add_argument(
        "--link-gigabytes-per-second", type=positive, default=50.0,
        help="of one GPU's network port, over which caches are handed on (default 50)",
    )  # fmt: skip


def answer(arguments: argparse.Namespace, engine: Engine, tell: Tell) -> dict[str, Any]:
    """Both ways and the verdict.

    Raises:
        InputError: without latency limits, and as ``SplitQuestion``.
    """
    mix = request_mix(arguments)
    limits = latency_limits(arguments, mix)
    if limits is None:
        raise InputError("split", "--ttft-seconds and --tpot-seconds, or a --demand with them", "")
    link = GIGA * arguments.link_gigabytes_per_second
    question = SplitQuestion(
        servers(arguments, engine, mix.largest_tokens),
        arguments.servers,
        mix,
        limits,
        link,
        arguments.budget_watts,
    )
    made = plan_split(question, tell)
    least = made.least_link_bytes_per_second
    return {
        "together": [_plan(one) for one in made.together],
        "split": [_plan(one) for one in made.split],
        "gain": round(made.gain, 3) if math.isfinite(made.gain) else None,
        "leastLinkGigabytesPerSecond": None if least is None else round(least / GIGA, 3),
        "verdict": _verdict(made),
    }


def _plan(made: PlannedRate) -> dict[str, Any]:
    plan = made.plan
    pools = [_pool("prefill" if plan.decode else "whole", plan.first, plan.servers)]
    if plan.decode is not None:
        pools.append(_pool("decode", plan.decode, plan.decode_servers))
    return {
        "pools": pools,
        "gpus": sum(pool["gpus"] for pool in pools),
        "limitWatts": round(plan.limit_watts, 1),
        "requestsPerSecond": round(made.requests_per_second, 3),
        "tokensPerSecond": round(made.tokens_per_second, 1),
        "meanWatts": round(made.mean_watts, 1),
        "joulesPerToken": round(made.joules_per_token, 4),
        "ttftSeconds": quantiles(made.ttft_seconds, 4),
        "tpotSeconds": quantiles(made.tpot_seconds, 5),
    }


def _pool(phase: str, kind: Deployment, count: int) -> dict[str, Any]:
    return {
        "phase": phase,
        "server": server_name(kind),
        "servers": count,
        "gpus": count * kind.tensor_parallel,
        "limitWatts": kind.limit,
        "iterationTokens": kind.batching.token_budget,
    }


def _verdict(made: SplitAnswer) -> str:
    if not made.together and not made.split:
        return "no rate keeps the limits, together or split"
    if not made.split:
        return "together: no split keeps the limits"
    if not made.together:
        return "split: only separate servers keep the limits"
    if made.gain <= 1:
        return f"together: the best split serves {made.gain:.2f} × as much"
    least = made.least_link_bytes_per_second
    assert least is not None
    return (
        f"split: {made.gain:.2f} × what the servers serve together, "
        f"and no more than that below {least / GIGA:.2g} GB/s a GPU"
    )


def show(console: Console, arguments: argparse.Namespace, made: Mapping[str, Any]) -> None:
    """Every plan that was simulated, best first, and the verdict."""
    table = Table(title=f"{arguments.model}, {arguments.format}: {arguments.servers} servers")
    for name in (
        "plan", "GPUs", "requests/s", "tokens/s", "TTFT p95 s", "TPOT p95 ms", "mean kW",
        "limits kW", "J/token",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name == "plan" else "right")
    for row in (*made["together"], *made["split"]):
        table.add_row(
            ", ".join(_pool_words(pool) for pool in row["pools"]),
            str(row["gpus"]),
            f"{row['requestsPerSecond']:.2f}",
            f"{row['tokensPerSecond']:,.0f}",
            f"{row['ttftSeconds']['p95']:.2f}",
            f"{1e3 * row['tpotSeconds']['p95']:.1f}",
            f"{row['meanWatts'] / 1e3:.2f}",
            f"{row['limitWatts'] / 1e3:.2f}",
            f"{row['joulesPerToken']:.3f}",
        )
    console.print(table)
    console.print(made["verdict"], highlight=False, markup=False)


def _pool_words(pool: Mapping[str, Any]) -> str:
    chunk = f" in {pool['iterationTokens']}-token steps" if pool["phase"] == "whole" else ""
    return (
        f"{pool['phase']} {pool['servers']} × ({pool['server']} @ {pool['limitWatts']:.0f} W)"
        f"{chunk}"
    )
