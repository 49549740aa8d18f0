"""``wattpack plan gpus``: the cheapest GPU types, caps and counts for a demand, and what limits it.

``--demand FILE`` is one wattpack.io/gpu-mix/v1 with demand, offers and rates. ``-f FILE --table
FILE`` answers a CapacityPlan with the offers and rates of such a file. No cluster is needed, and
nothing is written to one. Format and example: docs/capacity-planning.md.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.mix.mix_conflict import plan_mix
from capacity.mix.mix_document import MixDocument, answer_json, asked_by, parse_mix, problem_of
from capacity.mix.mix_explain import Explanation, explain_mix
from capacity.mix.mix_model import NoMix, SolveOptions, solve_mix
from capacity.mix.mix_problem import Goal, MixProblem, Phase
from capacity.mix.mix_solution import MixSolution
from wattpack.api.planning import CapacityPlan, CapacityPlanStatus, PlannedReplicas
from wattpack.clock import Clock, SystemClock
from wattpack.documents import read_yaml
from wattpack.errors import DeadlineExceededError, InputError
from wattpack.flags import positive


@dataclass(frozen=True, slots=True)
class Answer:
    """A problem with its plan, why it costs what it costs, and the share saved against today."""

    problem: MixProblem
    solution: MixSolution
    explanation: Explanation | None
    saved_fraction: float | None


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack plan gpus", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--demand", type=Path, metavar="FILE", help="a wattpack.io/gpu-mix/v1")
    what.add_argument("-f", "--file", type=Path, help="a CapacityPlan; needs --table")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="with -f: a gpu-mix/v1 with offers and rates"
    )
    parser.add_argument("--json", action="store_true", help="print the wattpack.io/gpu-mix-plan/v1")
    parser.add_argument(
        "--deadline-seconds", type=positive, default=2.0, help="for the search; default 2"
    )
    parser.add_argument(
        "--no-explain", action="store_true", help="leave out what each constraint costs"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan; 2 for wrong input and for a demand that cannot be met, with the conflict."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if (arguments.file is None) != (arguments.table is None):
        parser.error("expected -f and --table together")
    plan, document, source = _read(arguments)
    problem = problem_of(document, source)
    with _solver_lines_to_stderr():
        answer = _beside_signals(lambda: _answer(problem, arguments, SystemClock()))
    if arguments.json:
        body = answer_json(answer.solution, answer.explanation)
        if plan is not None:
            body["capacityPlan"] = _answered(plan, answer)
        print(json.dumps(body, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(replica_table(problem, answer.solution))
    for line in summary_lines(answer):
        console.print(line, highlight=False, markup=False)
    return 0


def _read(arguments: argparse.Namespace) -> tuple[CapacityPlan | None, MixDocument, str]:
    file: Path = arguments.demand or arguments.table
    document = parse_mix(read_yaml(file), str(file))
    if arguments.file is None:
        return None, document, str(file)
    body = read_yaml(arguments.file)
    if not isinstance(body, dict):
        raise InputError("file", "a CapacityPlan", body, str(arguments.file))
    plan = CapacityPlan.from_json(body)
    return plan, asked_by(plan, document, str(arguments.file)), str(file)


def _answer(problem: MixProblem, arguments: argparse.Namespace, clock: Clock) -> Answer:
    seconds: float = arguments.deadline_seconds
    solution = plan_mix(problem, clock, seconds)
    explanation = None
    if not arguments.no_explain:
        explanation = explain_mix(problem, solution, clock, 5 * seconds)
    return Answer(problem, solution, explanation, _saved(problem, solution, seconds))


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


def _saved(problem: MixProblem, solution: MixSolution, seconds: float) -> float | None:
    """Share of the cost of what runs today, at its best caps; None if nothing does or it fails."""
    runs = any(sum(offer.running_replicas.values()) for offer in problem.offers)
    if not runs or problem.goal is not Goal.LEAST_COST:
        return None
    try:
        today = solve_mix(problem, SolveOptions(seconds=seconds, holds_running=True))
    except (NoMix, DeadlineExceededError):
        return None
    return 1.0 - solution.costs.total / today.costs.total if today.costs.total else 0.0


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


def _answered(plan: CapacityPlan, answer: Answer) -> dict[str, Any]:
    solution = answer.solution
    shapes = {shape.name: shape for shape in answer.problem.shapes}
    status = CapacityPlanStatus(
        observed_generation=plan.generation,
        cost_per_hour=solution.costs.total,
        power_watts=solution.mean_watts,
        p99_watts=solution.p99_watts,
        operational_grams_per_hour=solution.operational_grams_per_hour,
        embodied_grams_per_hour=solution.embodied_grams_per_hour,
        replicas=[
            PlannedReplicas(
                gpu_model=shapes[row.shape].gpu_model,
                cap_watts=shapes[row.shape].cap_watts,
                gpus=shapes[row.shape].gpus,
                replicas=row.replicas,
                offer=row.offer,
            )
            for row in solution.replicas
        ],
        gap=solution.gap,
        saved_fraction=answer.saved_fraction,
    )
    return plan.model_copy(update={"status": status}).to_json()


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
    if answer.explanation is not None:
        lines += _reasons(answer.problem, answer.explanation)
    return lines


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
