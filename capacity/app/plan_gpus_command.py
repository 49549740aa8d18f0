"""``wattpack plan gpus``: the cheapest GPU types, caps and counts for a demand, and what limits it.

``--demand FILE`` is a wattpack.io/gpu-mix/v1, ``-f FILE`` a CapacityPlan; both hold the same
fields. ``--table FILE`` adds the offers and measured rates of another gpu-mix/v1. No cluster is
needed, and nothing is written to one. Format and example: docs/capacity-planning.md.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.app.own_measurements import (
    add_measurements,
    correction_json,
    correction_line,
    correction_of,
)
from capacity.app.solver_lines import solver_lines_dropped
from capacity.mix.mix_answer import Answer, AnswerOptions, answer_mix, counted_rates, status_of
from capacity.mix.mix_document import answer_json, asked_by, parse_mix
from capacity.mix.mix_explain import Explanation
from capacity.mix.mix_problem import Goal, MixProblem, Phase
from capacity.mix.mix_question import Knowledge, demand_of, problem_of
from capacity.mix.mix_solution import MixSolution
from capacity.mix.predicted_rates import RateMargin
from capacity.mix.served_rates import ENGINE, ServedRates
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from wattpack.api.capacity_plan import CapacityPlan, CountedRates
from wattpack.api.capacity_question import CapacityPlanSpec
from wattpack.clock import SystemClock
from wattpack.documents import read_yaml
from wattpack.errors import InputError
from wattpack.flags import positive

if TYPE_CHECKING:
    from capacity.serving.measured_runs import Correction


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack plan gpus", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--demand", type=Path, metavar="FILE", help="a wattpack.io/gpu-mix/v1")
    what.add_argument("-f", "--file", type=Path, help="a CapacityPlan")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="a gpu-mix/v1 whose measured rates win"
    )
    add_measurements(parser)
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
    correction = _correction(arguments.measurements, spec)
    known = _knowledge(spec, correction)
    problem = problem_of(spec, source, known)
    margin = known.predictor.margin() if known.predictor else None
    ratio = spec.keep_owned_within_cost_ratio
    options = AnswerOptions(arguments.deadline_seconds, not arguments.no_explain, ratio)
    with solver_lines_dropped():
        answer = _beside_signals(lambda: answer_mix(problem, SystemClock(), options))
    if arguments.json:
        body = answer_json(answer.solution, answer.explanation, counted_rates(answer, margin))
        if correction is not None:
            body["measurements"] = correction_json(correction)
        if plan is not None:
            status = status_of(answer, demand_of(spec, {}), margin)
            status = status.model_copy(update={"observed_generation": plan.generation})
            body["capacityPlan"] = plan.model_copy(update={"status": status}).to_json()
        print(json.dumps(body, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(replica_table(answer.problem, answer.solution))
    for line in summary_lines(answer, margin):
        console.print(line, highlight=False, markup=False)
    if correction is not None:
        console.print(correction_line(correction), highlight=False, markup=False)
    return 0


def _correction(files: list[Path] | None, spec: CapacityPlanSpec) -> Correction | None:
    if not files:
        return None
    if spec.serving is None:
        raise InputError("measurements", "a question with serving.languageModel", "none")
    number_format = spec.serving.number_format
    return correction_of(files, ENGINE, number_format, number_format)


def _knowledge(spec: CapacityPlanSpec, correction: Correction | None) -> Knowledge:
    """The serving model where the question names a language model, nothing else."""
    if spec.serving is None:
        return Knowledge()
    predictor = ServedRates(correction.constants if correction else None)
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


def summary_lines(answer: Answer, margin: RateMargin | None = None) -> list[str]:
    """Costs, watts, carbon, the proof, how careful it is, and what the constraints cost."""
    solution, costs = answer.solution, answer.solution.costs
    lines = [
        f"${costs.total:.2f} an hour: GPUs {costs.rent:.2f}, energy {costs.energy:.2f}, "
        f"carbon {costs.carbon:.2f}, starts {costs.start:.2f}; gap {solution.gap:.2%}",
        f"{solution.mean_watts / 1000:.2f} kWh an hour, p99 at the breakers "
        f"{solution.p99_watts / 1000:.2f} kW; CO2e an hour: {_carbon(answer.problem, solution)}",
    ]
    if answer.problem.goal is Goal.MOST_REQUESTS:
        lines.append(f"{solution.served_fraction:.1%} of every bucket is served")
    counted = counted_rates(answer, margin)
    if counted is not None:
        lines.append(_careful_line(counted))
    if answer.saved_fraction is not None:
        lines.append(f"{answer.saved_fraction:.1%} saved against what runs")
    if answer.cheapest is not None:
        lines.append(_kept_line(answer.problem, solution, answer.cheapest))
    if answer.explanation is not None:
        lines += _reasons(answer.problem, answer.explanation)
    return lines


def _carbon(problem: MixProblem, solution: MixSolution) -> str:
    """What is known of it: a figure nobody gave is not zero."""
    is_stated = problem.prices.grams_per_kwh > 0
    energy = f"{solution.operational_grams_per_hour / 1000:.2f} kg" if is_stated else "not stated"
    used = {row.offer for row in solution.replicas}
    silent = [
        offer.name
        for offer in problem.offers
        if offer.name in used and not offer.embodied_grams_per_gpu_hour
    ]
    if used and len(silent) == len(used):
        return f"energy {energy}, hardware not stated"
    rest = f" (not stated for {', '.join(silent)})" if silent else ""
    return f"energy {energy}, hardware {solution.embodied_grams_per_hour / 1000:.3f} kg{rest}"


def _careful_line(counted: CountedRates) -> str:
    """What hard tiers count on, and why."""
    shares = sorted({f"{counted.least_share:.0%}", f"{counted.most_share:.0%}"})
    line = f"Hard tiers count on {' to '.join(shares)} of the mean rates"
    if counted.time_factor is None or counted.confidence is None:
        return line
    return (
        f"{line}: those predicted are of replicas that take {counted.time_factor:.2f} times as "
        f"long, as {counted.confidence:.0%} of measured runs of unknown models stayed below"
    )


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
