"""``wattpack plan parallel``: how to cut a training step over GPUs, on links as they are.

Prices every combination of data, tensor, pipeline and context parallelism, micro-batch,
recomputation, ZeRO stage and offload, and lays the best ones over the links. No cluster is needed,
and nothing is written to one. Format and example: docs/training-plans.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from capacity.bench.measurement_row import read_rows
from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.language_models import find_language_model
from capacity.model.gpu_model import GpuModel
from capacity.model.reference_kernels import shipped_times
from capacity.profile_library import shipped_library
from capacity.roofs import Roofs, find_roofs, require_roofs
from capacity.training.gpu_costs import measured_gpu, profiled_gpu
from capacity.training.link_matrix import fit_link
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import (
    Objective,
    ParallelPlan,
    ParallelPlans,
    SearchChoices,
    TrainingCluster,
    TrainingPrices,
    TrainingProblem,
)
from capacity.training.step_work import TrainingGpu
from capacity.training.training_document import (
    LinksDocument,
    answer_json,
    host_ranges,
    links_of,
    parse_links,
)
from capacity.training.training_job import TrainingJob
from wattpack.documents import read_yaml
from wattpack.errors import InputError
from wattpack.flags import positive


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack plan parallel", description=__doc__)
    parser.add_argument("--model", required=True, help="a language model, e.g. llama-3.1-70b")
    parser.add_argument("--gpus", required=True, metavar="TYPE:N", help="for example H100:64")
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
    parser.add_argument("--json", action="store_true", help="a wattpack.io/training-plan/v1")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan; 2 for wrong input and where nothing fits, with the conflict."""
    arguments = build_parser().parse_args(argv)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    problem = _problem(arguments)
    with _progress() as progress:
        bar = progress.add_task("layouts", total=None)
        plans = plan_parallel(_with_progress(problem, progress, bar))
    if arguments.json:
        print(json.dumps(answer_json(plans), indent=2))
        return 0
    console.print(front_table(plans))
    for line in summary_lines(plans, problem):
        console.print(line, highlight=False, markup=False)
    return 0


def _problem(arguments: argparse.Namespace) -> TrainingProblem:
    document = parse_links(read_yaml(arguments.links), str(arguments.links))
    roofs, count = _gpus(arguments.gpus)
    measured = fit_link(read_rows(arguments.collectives)) if arguments.collectives else None
    links = links_of(document, measured)
    if links.gpus != count:
        raise InputError("--gpus", f"the {links.gpus} GPUs of {arguments.links}", arguments.gpus)
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
    )
    choices = SearchChoices(
        offload=("none",) if arguments.no_offload else SearchChoices().offload,
        fewer_gpus=not arguments.all_gpus,
    )
    return TrainingProblem(
        job,
        TrainingCluster(links, _boards(roofs, arguments.limits, document)),
        TrainingPrices(arguments.dollars_per_gpu_hour, arguments.dollars_per_kwh),
        choices,
        Objective(arguments.objective),
    )


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


def _gpus(text: str) -> tuple[Roofs, int]:
    """Type and number; a plain generation name is its SXM board."""
    name, _, number = text.rpartition(":")
    if not name or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise InputError("--gpus", "TYPE:N, for example H100:64", text)
    return find_roofs(name) or find_roofs(f"{name}-SXM") or require_roofs(name), int(number)


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


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _with_progress(problem: TrainingProblem, progress: Progress, bar: TaskID) -> TrainingProblem:
    def tell(done: int, total: int) -> None:
        progress.update(bar, completed=done, total=total)

    return replace(problem, progress=tell)


def front_table(plans: ParallelPlans) -> Table:
    """One row a plan that no other one beats in time, energy and cost; the best one is marked."""
    table = Table(title="Training plans")
    for name in ("", "layout"):
        table.add_column(name)
    for name in ("GPUs", "cap W", "step s", "MJ", "$ a step", "memory GB", "mean W"):
        table.add_column(name, justify="right")
    for plan in plans.front:
        table.add_row(
            "*" if plan is plans.best else "",
            str(plan.layout),
            str(plan.layout.gpus),
            f"{plan.limit_watts:g}",
            f"{plan.step_seconds:.3g}",
            f"{plan.joules / 1e6:.3g}",
            f"{plan.dollars:.3g}",
            f"{max(plan.memory_bytes) / 1e9:.1f}",
            f"{plan.power.mean_watts:.0f}",
        )
    return table


def summary_lines(plans: ParallelPlans, problem: TrainingProblem) -> list[str]:
    """Where the best plan's time goes, its power wave, what binds, and warnings."""
    best, power = plans.best, plans.best.power
    shares = ", ".join(f"{name} {share:.1%}" for name, share in best.shares.items() if share > 5e-4)
    waves = ", ".join(f"{p.name} {p.seconds:.2g} s at {p.draw_watts:.0f} W" for p in power.phases)
    lines = [
        f"{plans.considered:,} layouts priced, {plans.too_large:,} of them too large",
        f"best (*): {best.tokens_per_second:,.0f} tokens/s; {shares}",
        f"power of a GPU: mean {power.mean_watts:.0f} W, from {power.dip_watts:.0f} to "
        f"{power.peak_watts:.0f} W every {power.period_seconds:.3g} s ({waves})",
        *_stage_lines(best, problem),
    ]
    if plans.binding:
        lines.append("What binds (the step would be that much shorter without it):")
        lines += [f"  {name}: {share:.1%}" for name, share in plans.binding]
    return lines + [f"warning: {text}" for text in plans.warnings]


def _stage_lines(best: ParallelPlan, problem: TrainingProblem) -> list[str]:
    if best.layout.pipeline == 1:
        return []
    hosts = host_ranges(best, problem.cluster.links)
    return ["stages: " + "; ".join(
        f"{layers} layers on host {host}" for layers, host in zip(best.layers, hosts, strict=True)
    )]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
