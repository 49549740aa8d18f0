"""``wattpack plan gpus``: the cheapest GPU types, caps and counts for a demand, and what limits it.

``--demand FILE`` is a wattpack.io/gpu-mix/v1, ``-f FILE`` a CapacityPlan; both hold the same
fields. ``--table FILE`` adds the offers and measured rates of another gpu-mix/v1. No cluster is
needed, and nothing is written to one. Format and example: docs/capacity-planning.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.mix.mix_answer import Answer, AnswerOptions, answer_mix, status_of
from capacity.mix.mix_document import answer_json, asked_by, parse_mix
from capacity.mix.mix_explain import Explanation
from capacity.mix.mix_problem import Goal, MixProblem, Phase
from capacity.mix.mix_question import Knowledge, demand_of, problem_of
from capacity.mix.mix_solution import MixSolution
from capacity.mix.served_rates import ServedRates
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from wattpack.api.capacity_plan import CapacityPlan, CapacityPlanSpec
from wattpack.clock import SystemClock
from wattpack.documents import read_yaml
from wattpack.errors import InputError
from wattpack.flags import positive


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack plan gpus", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--demand", type=Path, metavar="FILE", help="a wattpack.io/gpu-mix/v1")
    what.add_argument("-f", "--file", type=Path, help="a CapacityPlan")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="a gpu-mix/v1 whose measured rates win"
    )
    parser.add_argument(
        "--keep-old",
        type=_ratio,
        metavar="RATIO",
        help="buy as few boards beside owned offers (isOwned) as RATIO times the least cost allows",
    )
    parser.add_argument("--json", action="store_true", help="print the wattpack.io/gpu-mix-plan/v1")
    parser.add_argument(
        "--deadline-seconds", type=positive, default=2.0, help="for the search; default 2"
    )
    parser.add_argument(
        "--no-explain", action="store_true", help="leave out what each constraint costs"
    )
    return parser


def _ratio(text: str) -> float:
    value = positive(text)
    if not 1 <= value <= 100:
        raise argparse.ArgumentTypeError(f"expected 1 to 100, got {text}")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan; 2 for wrong input and for a demand that cannot be met, with the conflict."""
    arguments = build_parser().parse_args(argv)
    plan, spec, source = _read(arguments)
    if arguments.keep_old is not None:
        spec = spec.model_copy(update={"keep_owned_within_cost_ratio": arguments.keep_old})
    problem = problem_of(spec, source, _knowledge(spec))
    ratio = spec.keep_owned_within_cost_ratio
    options = AnswerOptions(arguments.deadline_seconds, not arguments.no_explain, ratio)
    with _solver_lines_to_stderr():
        answer = _beside_signals(lambda: answer_mix(problem, SystemClock(), options))
    if arguments.json:
        body = answer_json(answer.solution, answer.explanation)
        if plan is not None:
            status = status_of(answer, demand_of(spec, {}))
            status = status.model_copy(update={"observed_generation": plan.generation})
            body["capacityPlan"] = plan.model_copy(update={"status": status}).to_json()
        print(json.dumps(body, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(replica_table(answer.problem, answer.solution))
    for line in summary_lines(answer):
        console.print(line, highlight=False, markup=False)
    return 0


def _knowledge(spec: CapacityPlanSpec) -> Knowledge:
    """The serving model where the question names a language model, nothing else."""
    if spec.serving is None:
        return Knowledge()
    predictor = ServedRates()
    predictor.require(spec.serving.language_model, {offer.gpu_model for offer in spec.offers})
    return Knowledge(ProfileBook.shipped(shipped_library()), predictor)


def _read(arguments: argparse.Namespace) -> tuple[CapacityPlan | None, CapacityPlanSpec, str]:
    file: Path = arguments.demand or arguments.file
    body = read_yaml(file)
    plan: CapacityPlan | None = None
    spec: CapacityPlanSpec
    if arguments.demand is not None:
        spec = parse_mix(body, str(file))
    elif isinstance(body, dict):
        plan = CapacityPlan.from_json(body)
        spec = plan.spec
    else:
        raise InputError("file", "a CapacityPlan", body, str(file))
    if arguments.table is not None:
        spec = asked_by(spec, parse_mix(read_yaml(arguments.table), str(arguments.table)))
    return plan, spec, str(file)


def _beside_signals(work: Callable[[], Answer]) -> Answer:
    """What the work returns or raises, while this thread hears signals.

    MathOpt loses an exception that a signal raises while it reads its solver's answer, and the
    command would go on for minutes; a thread that only waits loses none.
    """
    outcome: list[Answer | BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    worker = threading.Thread(target=run, name="mix", daemon=True)
    worker.start()
    worker.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


@contextmanager
def _solver_lines_to_stderr() -> Iterator[None]:
    """HiGHS 1.12 writes lines of its own to descriptor 1, whatever it is told."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def replica_table(problem: MixProblem, solution: MixSolution) -> Table:
    """One row per offer and shape, with what it serves."""
    shapes = {shape.name: shape for shape in problem.shapes}
    serves: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in sorted(solution.served, key=lambda row: -row.share):
        phase = "" if row.phase is Phase.WHOLE else f" {row.phase.value}"
        serves[row.offer, row.shape].append(f"{row.bucket}{phase} {row.share:.1%}")
    table = Table(title="GPU mix")
    for name in ("offer", "replica", "GPU"):
        table.add_column(name, no_wrap=True)
    for name in ("cap W", "replicas", "GPUs"):
        table.add_column(name, justify="right")
    table.add_column("serves")
    for count in solution.replicas:
        shape = shapes[count.shape]
        table.add_row(
            escape(count.offer),
            escape(count.shape),
            escape(shape.gpu_model),
            f"{shape.cap_watts:g}",
            str(count.replicas),
            str(count.replicas * shape.gpus),
            escape(", ".join(serves[count.offer, count.shape])),
        )
    return table


def summary_lines(answer: Answer) -> list[str]:
    """Costs, watts, carbon, the proof, and what the constraints cost."""
    solution, costs = answer.solution, answer.solution.costs
    lines = [
        f"${costs.total:.2f} an hour: GPUs {costs.rent:.2f}, energy {costs.energy:.2f}, "
        f"carbon {costs.carbon:.2f}, starts {costs.start:.2f}; gap {solution.gap:.2%}",
        f"{solution.mean_watts / 1000:.2f} kWh an hour, p99 at the breakers "
        f"{solution.p99_watts / 1000:.2f} kW; CO2e an hour: energy "
        f"{solution.operational_grams_per_hour / 1000:.2f} kg, hardware "
        f"{solution.embodied_grams_per_hour / 1000:.3f} kg",
    ]
    if answer.problem.goal is Goal.MOST_REQUESTS:
        lines.append(f"{solution.served_fraction:.1%} of every bucket is served")
    if answer.saved_fraction is not None:
        lines.append(f"{answer.saved_fraction:.1%} saved against what runs")
    if answer.cheapest is not None:
        lines.append(_kept_line(answer.problem, solution, answer.cheapest))
    if answer.explanation is not None:
        lines += _reasons(answer.problem, answer.explanation)
    return lines


def _kept_line(problem: MixProblem, kept: MixSolution, cheapest: MixSolution) -> str:
    """What keeping owned boards changes against the mix that cost alone would choose."""
    more_dollars = kept.costs.total - cheapest.costs.total
    more_kwh = (kept.mean_watts - cheapest.mean_watts) / 1000
    more_embodied = (kept.embodied_grams_per_hour - cheapest.embodied_grams_per_hour) / 1000
    return (
        f"Keeping owned GPUs: {_new_gpus(problem, kept)} instead of "
        f"{_new_gpus(problem, cheapest)} others for ${more_dollars:+.2f}, {more_kwh:+.2f} kWh and "
        f"{more_embodied:+.3f} kg of hardware's CO2e an hour"
    )


def _new_gpus(problem: MixProblem, solution: MixSolution) -> int:
    owned = {offer.name for offer in problem.offers if offer.is_owned}
    gpus = {shape.name: shape.gpus for shape in problem.shapes}
    return sum(r.replicas * gpus[r.shape] for r in solution.replicas if r.offer not in owned)


def _reasons(problem: MixProblem, explanation: Explanation) -> list[str]:
    is_most = problem.goal is Goal.MOST_REQUESTS
    lines = [
        f"  without {cost.constraint}: "
        + (f"{cost.gain:.1%} more served" if is_most else f"${cost.gain:.2f} an hour less")
        for cost in explanation.costs
    ]
    lines = ["What constraints cost:", *lines] if lines else ["No constraint costs anything."]
    if explanation.unasked:
        lines.append(f"  not answered in time: {', '.join(explanation.unasked)}")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
