"""What every question of ``wattpack plan serving`` says: the servers, the requests, the limits."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from capacity.app.own_measurements import add_measurements
from capacity.language_models import find_language_model, shipped_language_models
from capacity.mix.mix_document import parse_mix
from capacity.roofs import asked_roofs
from capacity.serving.deployment import Deployment
from capacity.serving.engine import RULES, Engine, find_engine
from capacity.serving.measured_runs import Correction
from capacity.serving.request_mix import (
    ANY_SECONDS,
    USUAL_SPREAD,
    LatencyLimits,
    MixPart,
    RequestBucket,
    RequestMix,
)
from capacity.serving.split_plan import server_kinds
from wattpack.api.capacity_plan import CapacityPlan
from wattpack.api.capacity_question import BucketSpec
from wattpack.documents import read_yaml
from wattpack.errors import InputError, read_from
from wattpack.flags import positive

LARGEST_GROUP: Final = 64
"""GPUs of one tensor-parallel group that are tried."""

FORMATS: Final = ("bf16", "fp8")

_SIZE: Final = re.compile(r"(\d+)\+(\d+)(?::(\d+(?:\.\d+)?))?")


def add_servers(parser: argparse.ArgumentParser) -> None:
    """Flags of the model and the servers."""
    group = parser.add_argument_group("servers")
    names = ", ".join(model.name for model in shipped_language_models())
    parser.add_argument("model", metavar="MODEL", help=f"one of {names}")
    group.add_argument(
        "--gpu",
        action="append",
        metavar="TYPE",
        help="GPU type; again for more (default H200-SXM)",
    )
    group.add_argument(
        "--tensor-parallel", type=int, help="GPUs of one server (default: the fewest that hold it)"
    )
    group.add_argument("--limit-watts", type=positive, nargs="+", help="of each board")
    group.add_argument(
        "--servers", type=int, default=8, help="in all, with --split or --graph (default 8)"
    )
    group.add_argument("--engine", choices=sorted(RULES), default="vllm")
    group.add_argument("--format", choices=FORMATS, default="fp8", help="of products")
    group.add_argument("--cache", choices=FORMATS, default="fp8", help="of the KV cache")
    add_measurements(group)


def add_requests(parser: argparse.ArgumentParser) -> None:
    """Flags of the requests and what they expect."""
    group = parser.add_argument_group("requests")
    group.add_argument("--prompt-tokens", type=int, default=1024)
    group.add_argument("--output-tokens", type=int, default=256)
    group.add_argument(
        "--requests", type=_part, nargs="+", metavar="PROMPT+OUTPUT[:WEIGHT]",
        help="several sizes in one stream, answered size by size",
    )  # fmt: skip
    group.add_argument(
        "--demand", type=Path, metavar="FILE",
        help="sizes, rates and latency limits are the buckets of a gpu-mix/v1 or CapacityPlan",
    )  # fmt: skip
    group.add_argument("--reused", type=float, default=0.0, help="share of prompts in the cache")
    group.add_argument("--ttft-seconds", type=positive, help="limit of the time to first token")
    group.add_argument("--tpot-seconds", type=positive, help="limit of the time per further token")


def require_one_question(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """One latency limit alone is none, and two questions at once are too many."""
    if (arguments.ttft_seconds is None) != (arguments.tpot_seconds is None):
        parser.error("expected --ttft-seconds and --tpot-seconds together")
    if arguments.requests and arguments.demand:
        parser.error("expected --requests or --demand")
    if arguments.graph is not None and arguments.split:
        parser.error("expected --graph or --split")


def request_mix(arguments: argparse.Namespace) -> RequestMix:
    """What is sent.

    Raises:
        InputError: sizes that no request has, or a demand without any.
    """
    if arguments.demand is not None:
        return _demanded(arguments.demand, arguments.reused)
    if arguments.requests:
        return RequestMix(tuple(
            MixPart(RequestBucket(prompt, output, USUAL_SPREAD, arguments.reused), weight)
            for prompt, output, weight in arguments.requests
        ))  # fmt: skip
    sizes = arguments.prompt_tokens, arguments.output_tokens
    return RequestMix.of(RequestBucket(*sizes, USUAL_SPREAD, arguments.reused))


def latency_limits(arguments: argparse.Namespace, mix: RequestMix) -> LatencyLimits | None:
    """What every size without limits of its own keeps; None if nothing is asked of any."""
    if arguments.ttft_seconds is not None:
        return LatencyLimits(arguments.ttft_seconds, arguments.tpot_seconds)
    if any(part.limits for part in mix.parts):
        return LatencyLimits(ANY_SECONDS, ANY_SECONDS)
    return None


def engine_of(arguments: argparse.Namespace, correction: Correction | None) -> Engine:
    """The engine with its rules, corrected by own runs if there are any."""
    known = find_engine(arguments.engine)
    return known if correction is None else replace(known, constants=correction.constants)


def servers(arguments: argparse.Namespace, engine: Engine, tokens: int) -> tuple[Deployment, ...]:
    """A server of each GPU type at each limit that it takes.

    Args:
        tokens: Of the largest request that it should hold.

    Raises:
        InputError: as ``Deployment``; a limit that no type takes.
    """
    types = dict.fromkeys(asked_roofs(name).model for name in arguments.gpu or ["H200-SXM"])
    made = [_smallest(arguments, engine, gpu, tokens) for gpu in types]
    return server_kinds(made, arguments.limit_watts)


def server_name(one: Deployment) -> str:
    """As tables show it."""
    return f"{one.tensor_parallel} × {one.prices.roofs.model}"


def _smallest(arguments: argparse.Namespace, engine: Engine, gpu: str, tokens: int) -> Deployment:
    """As many GPUs as asked for, or the fewest that hold the weights and one request."""
    model = find_language_model(arguments.model)

    def made(gpus: int) -> Deployment:
        try:
            return Deployment(model, gpu, gpus, arguments.format, arguments.cache, engine)
        except InputError as error:
            if error.field != "number_format":
                raise
            known = [name for name in FORMATS if asked_roofs(gpu).flops_per_second(name) > 0]
            wanted = f"one that {gpu} has ({', '.join(known)})"
            raise InputError("--format", wanted, arguments.format) from error

    if arguments.tensor_parallel is not None:
        return made(arguments.tensor_parallel)
    largest: Deployment | None = None
    gpus = 1
    while gpus <= LARGEST_GROUP:
        try:
            largest = made(gpus)
        except InputError as error:
            if largest is not None:
                return largest
            if error.field != "tensor_parallel" or gpus == LARGEST_GROUP:
                raise
        if largest is not None and largest.users(tokens) >= 1:
            return largest
        gpus *= 2
    assert largest is not None
    return largest


def _part(text: str) -> tuple[int, int, float]:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected PROMPT+OUTPUT[:WEIGHT], got {text!r}")
    prompt, output, weight = found.groups()
    return int(prompt), int(output), float(weight or 1)


def _demanded(file: Path, reused: float) -> RequestMix:
    body = read_yaml(file)
    with read_from(str(file)):
        if isinstance(body, dict) and body.get("kind") == "CapacityPlan":
            buckets = CapacityPlan.from_json(body).spec.buckets
        else:
            buckets = parse_mix(body).buckets
        asked = [bucket for bucket in buckets if bucket.requests_per_second > 0]
        if not asked:
            raise InputError("buckets", "one with requestsPerSecond above 0", len(buckets))
        return RequestMix(tuple(_demanded_part(bucket, reused) for bucket in asked))


def _demanded_part(text: BucketSpec, reused: float) -> MixPart:
    if text.input_tokens is None or text.output_tokens is None:
        raise InputError(f"buckets.{text.name}.inputTokens", "sizes, to serve it", None)
    bucket = RequestBucket(text.input_tokens, text.output_tokens, USUAL_SPREAD, reused)
    first, each = text.time_to_first_token_seconds, text.time_per_output_token_seconds
    if first is None and each is None:
        return MixPart(bucket, text.requests_per_second)
    limits = LatencyLimits(first or ANY_SECONDS, each or ANY_SECONDS)
    return MixPart(bucket, text.requests_per_second, limits)


def quantiles(values: tuple[float, float, float, float], digits: int) -> dict[str, float]:
    """Of a latency, as JSON answers name them."""
    names = ("mean", "p50", "p95", "p99")
    return dict(zip(names, (round(value, digits) for value in values), strict=True))
