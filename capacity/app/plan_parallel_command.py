"""``wattpack plan parallel``: how to cut a training step over GPUs, on links as they are.

Prices every combination of data, tensor, pipeline, context and expert parallelism, micro-batch,
recomputation, ZeRO stage and offload, and lays the best ones over the links. With --capped: whether
a job that runs should move layers, or wait. No cluster is needed, and nothing is written to one.
Format and example: docs/training-plans.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from capacity.app.progress_bar import progress_bar
from capacity.app.training_move import gpu_speeds, host_caps, live_caps, move_lines
from capacity.app.training_report import front_table, summary_lines
from capacity.bench.measurement_row import read_rows
from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.language_models import find_language_model
from capacity.model.gpu_model import GpuModel
from capacity.model.reference_kernels import shipped_times
from capacity.profile_library import shipped_library
from capacity.roofs import Roofs, asked_roofs
from capacity.training.capped_job import capped_job, priced_plan
from capacity.training.gpu_costs import measured_gpu, profiled_gpu
from capacity.training.link_matrix import LinkMatrix, fit_link
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import (
    Objective,
    ParallelPlan,
    SearchChoices,
    TrainingCluster,
    TrainingPrices,
    TrainingProblem,
)
from capacity.training.step_work import TrainingGpu
from capacity.training.training_document import (
    LinksDocument,
    answer_json,
    host_names,
    links_of,
    move_json,
    parse_links,
    parse_running,
    types_of,
)
from capacity.training.training_job import TrainingJob
from wattpack.clock import SystemClock
from wattpack.documents import read_json, read_yaml
from wattpack.errors import InputError, PermanentError
from wattpack.flags import http_url, positive
from wattpack.live_client import READ_ERRORS, LiveClient, cause_of
from wattpack.live_view import LiveView


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack plan parallel", description=__doc__)
    parser.add_argument("--model", required=True, help="a language model, e.g. llama-3.1-70b")
    parser.add_argument(
        "--gpus", required=True, metavar="TYPE:N",
        help="for example H100:64; several types as H100:32,A100:32, each host naming its own",
    )  # fmt: skip
    parser.add_argument(
        "--links", required=True, type=Path, metavar="FILE", help="a wattpack.io/links/v1"
    )
    parser.add_argument(
        "--collectives", type=Path, metavar="FILE", help="rows of `bench run`: link inside hosts"
    )
    parser.add_argument("--global-batch", required=True, type=_count, help="sequences a step")
    parser.add_argument(
        "--sequence", type=_count, default=4096, help="tokens (default %(default)s)"
    )
    parser.add_argument(
        "--objective", choices=[goal.value for goal in Objective], default="time",
        help="of the best plan (default %(default)s); the others are on the front",
    )  # fmt: skip
    parser.add_argument("--limits", type=_limits, metavar="W,W", help="power limits to choose from")
    _add_job(parser)
    _add_prices(parser)
    _add_caps(parser)
    parser.add_argument(
        "--json", action="store_true",
        help="a wattpack.io/training-plan/v1; a wattpack.io/training-move/v1 with --capped",
    )  # fmt: skip
    return parser


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gradient-bytes", type=int, default=4, help="2 or 4 (default 4)")
    parser.add_argument(
        "--optimizer-bits", type=int, default=32, help="of a moment: 8, 16 or 32 (default)"
    )
    parser.add_argument(
        "--activation-factor", type=positive, default=1.0,
        help="kept activations relative to a plain implementation (default 1)",
    )  # fmt: skip
    parser.add_argument("--fused", action="store_true", help="losses that never hold all logits")
    parser.add_argument(
        "--no-overlap", action="store_true", help="gradients are summed after the backward pass"
    )
    parser.add_argument(
        "--training-tokens", type=_tokens, help="of the run: judges the size of the batch"
    )
    parser.add_argument(
        "--expert-imbalance", type=positive, default=1.2,
        help="tokens of the fullest rank's experts over the mean (default 1.2, assumed)",
    )  # fmt: skip
    parser.add_argument("--no-offload", action="store_true", help="optimiser state stays on GPUs")
    parser.add_argument("--all-gpus", action="store_true", help="no plans with half of the GPUs")


def _add_prices(parser: argparse.ArgumentParser) -> None:
    prices = TrainingPrices()
    parser.add_argument(
        "--dollars-per-gpu-hour", type=positive, default=prices.dollars_per_gpu_hour,
        help="default %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--dollars-per-kwh", type=positive, default=prices.dollars_per_kwh,
        help="default %(default)s",
    )  # fmt: skip


def _add_caps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--capped", nargs="+", metavar="HOST=WATTS",
        help="what if the GPUs of these hosts are capped: stay, or move?",
    )  # fmt: skip
    parser.add_argument(
        "--running", type=Path, metavar="FILE",
        help="the job's plan as --json wrote it (default: the best one without the caps)",
    )  # fmt: skip
    parser.add_argument(
        "--live", type=http_url, metavar="URL",
        help="as --capped, with the limits that a controller tells now (its /v1/live); the hosts "
        "of --links are nodes",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="bearer token to show with --live"
    )
    parser.add_argument(
        "--cap-seconds", type=positive, metavar="S", help="how long the caps last, if known"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan; 2 for wrong input and where nothing fits, with the conflict."""
    arguments = build_parser().parse_args(argv)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    problem = _problem(arguments)
    if arguments.capped or arguments.live or arguments.running or arguments.cap_seconds:
        return _tell_move(arguments, problem, console)
    with progress_bar("layouts") as tell:
        plans = plan_parallel(replace(problem, progress=tell))
    if arguments.json:
        print(json.dumps(answer_json(plans, _type_names(problem.cluster)), indent=2))
        return 0
    console.print(front_table(plans))
    for line in summary_lines(plans, problem):
        console.print(line, highlight=False, markup=False)
    return 0


def _tell_move(arguments: argparse.Namespace, problem: TrainingProblem, console: Console) -> int:
    """The verdict on a job that runs."""
    if bool(arguments.capped) == bool(arguments.live):
        raise InputError("--capped", "HOST=WATTS, or --live instead", arguments.capped)
    document = parse_links(read_yaml(arguments.links), str(arguments.links))
    hosts, types = host_names(document), [roofs for roofs, _ in _gpus(arguments.gpus)]
    caps = host_caps(arguments.capped or (), hosts)
    view = _live(arguments.live, arguments.token_file) if arguments.live else None
    with progress_bar("layouts") as tell:
        running = _running(arguments.running, replace(problem, progress=tell))
    if view is not None:
        caps = live_caps(view, hosts, problem.cluster, running.limit_watts)
    speeds = gpu_speeds(
        problem,
        running,
        caps,
        hosts,
        lambda kind, watts: _boards(types[kind], [watts], document)[0],
    )
    with progress_bar("layouts") as tell:
        told = replace(problem, progress=tell)
        capped = capped_job(told, running, speeds, arguments.cap_seconds)
    if arguments.json:
        print(json.dumps(move_json(capped, caps), indent=2))
        return 0
    said = ", ".join(f"{host} {watts:g} W" for host, watts in caps.items()) or "none"
    for line in [f"caps: {said}", *move_lines(capped, hosts, problem.cluster.links)]:
        console.print(line, highlight=False, markup=False)
    return 0


def _live(url: str, token_file: Path | None) -> LiveView:
    """What the controller tells now.

    Raises:
        PermanentError: with the cause, where it tells nothing.
    """
    try:
        return LiveClient(SystemClock(), token_file).read(url)
    except READ_ERRORS as error:
        raise PermanentError(f"no live view from {url}: {cause_of(error)}") from error


def _running(file: Path | None, problem: TrainingProblem) -> ParallelPlan:
    """The file's plan at its present price, or the best one."""
    if file is None:
        return plan_parallel(problem).best
    text = parse_running(read_json(file), str(file))
    known = sorted({gpu.limit_watts for gpu in problem.cluster.gpus})
    if text.limit_watts not in known:
        told = ", ".join(f"{watts:g}" for watts in known)
        expected = f"one of --limits ({told}): name the limits that this plan was made with"
        raise InputError(f"{file}: limitWatts", expected, text.limit_watts)
    return priced_plan(problem, text.layout, text.ranks, text.layers_of_stage, text.limit_watts)


def _problem(arguments: argparse.Namespace) -> TrainingProblem:
    document = parse_links(read_yaml(arguments.links), str(arguments.links))
    measured = fit_link(read_rows(arguments.collectives)) if arguments.collectives else None
    cluster = _cluster(arguments, document, links_of(document, measured))
    job = TrainingJob(
        find_language_model(arguments.model),
        arguments.global_batch,
        arguments.sequence,
        gradient_bytes=arguments.gradient_bytes,
        optimizer_bits=arguments.optimizer_bits,
        activation_factor=arguments.activation_factor,
        fused=arguments.fused,
        overlap=not arguments.no_overlap,
        training_tokens=arguments.training_tokens,
        expert_imbalance=arguments.expert_imbalance,
    )
    choices = SearchChoices(
        offload=("none",) if arguments.no_offload else SearchChoices().offload,
        fewer_gpus=not arguments.all_gpus,
    )
    return TrainingProblem(
        job,
        cluster,
        TrainingPrices(arguments.dollars_per_gpu_hour, arguments.dollars_per_kwh),
        choices,
        Objective(arguments.objective),
    )


def _cluster(
    arguments: argparse.Namespace, document: LinksDocument, links: LinkMatrix
) -> TrainingCluster:
    """The GPUs of the links file with their types.

    Raises:
        InputError: other numbers or types than were asked for, limits of several types.
    """
    asked = _gpus(arguments.gpus)
    types = np.array(types_of(document, [name for _, (name, _) in asked]))
    wanted = [count for _, (_, count) in asked]
    if np.bincount(types, minlength=len(asked)).tolist() != wanted:
        raise InputError("--gpus", f"the {links.gpus} GPUs of {arguments.links}", arguments.gpus)
    if len(asked) > 1 and arguments.limits:
        raise InputError("--limits", "GPUs of one type", arguments.gpus)
    first, *others = (_boards(roofs, arguments.limits, document) for roofs, _ in asked)
    return TrainingCluster(
        links, first, others=tuple(boards[0] for boards in others), type_of_gpu=types
    )


def _type_names(cluster: TrainingCluster) -> list[str]:
    boards = (cluster.gpus[0], *cluster.others)
    return [boards[kind].model for kind in cluster.types.tolist()]


def _boards(
    roofs: Roofs, limits: list[float] | None, document: LinksDocument
) -> tuple[TrainingGpu, ...]:
    """The type under each limit: from the shipped rows of it, else from other types' kernels."""
    profile = shipped_library().find(roofs.model)
    host = document.resources
    wanted = limits or [profile.default_limit_watts]
    if roofs.model in WHOLE_RUNS:
        model = GpuModel.from_rows(shipped_rows(WHOLE_RUNS[roofs.model]))
        return tuple(measured_gpu(model, profile, limit, host) for limit in wanted)
    others = shipped_times()
    return tuple(profiled_gpu(profile, roofs, others, limit, host) for limit in wanted)


def _gpus(text: str) -> list[tuple[Roofs, tuple[str, int]]]:
    """Types with the names that were given and their numbers; a generation is its SXM board."""
    asked: list[tuple[Roofs, tuple[str, int]]] = []
    for part in text.split(","):
        name, _, number = part.strip().rpartition(":")
        if not name or not number.isascii() or not number.isdigit() or int(number) < 1:
            raise InputError("--gpus", "TYPE:N, for example H100:64", text)
        roofs = asked_roofs(name)
        if any(roofs is known for known, _ in asked):
            raise InputError("--gpus", "each type once", text)
        asked.append((roofs, (name, int(number))))
    return asked


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**7:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 1e7, got {text!r}")
    return int(text)


def _tokens(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e6 <= value <= 1e18:
        raise argparse.ArgumentTypeError(f"expected tokens from 1e6 to 1e18, got {text!r}")
    return value


def _limits(text: str) -> list[float]:
    return sorted({positive(part) for part in text.split(",")}, reverse=True)


if __name__ == "__main__":
    raise SystemExit(main())
