"""Embodied CO2e over a board's life, and an agents' fleet of old and new boards against new ones.

First the proportional model beside FLOPs to Footprints (2025): utilisation from 20 to 60 %, three
years of life instead of one, both: arithmetic, printed without a pass line. Then agents (a graph of
model calls and look-ups) on H200 boards only and with A100 boards that are there already: wherever
some mix costs at most 1.05 times as much as H200 only, `--keep-old 1.05` has to find one with as
few H200 boards as a search that shares no code with the planner, and kWh are compared. Rates are
the serving model's; rents and the look-ups' CPU servers are assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from benchmarks.runner import Options, Result, Target
from capacity.mix.embodied_share import Embodied
from capacity.mix.mix_answer import Answer, AnswerOptions, answer_mix
from capacity.mix.mix_problem import Phase
from capacity.mix.mix_question import problem_of
from capacity.mix.predicted_rates import BoardRate, RateQuestion
from capacity.mix.served_rates import ServedRates
from wattpack.api.capacity_question import CapacityPlanSpec
from wattpack.clock import SystemClock

NAME = "embodied"
SUMMARY = "CO2e of boards by use and life; old and new boards for agents against new ones only"
#: Dearer than H200 only by at most this, a mix with old boards counts as its match.
RATIO = 1.05
LANGUAGE_MODEL = "llama-3.1-8b"
#: Input tokens, output tokens and calls of one agent's request. Assumed, in the proportions that
#: Agentic AI on heterogeneous systems (2025) draws: plan, a few tool calls, look-ups, an answer.
CALLS: Mapping[str, tuple[int, int, float]] = {
    "plan": (1200, 150, 1.0),
    "act": (2500, 60, 4.0),
    "answer": (6000, 400, 1.0),
}
LOOK_UPS, LOOK_UPS_PER_SERVER, SERVER_WATTS = 3.0, 60.0, 350.0
H200_DOLLARS = 3.5
#: Watts at the wall: server's share and supply, as the planner's defaults.
SERVER_SHARE_WATTS, SUPPLY = 125.0, 0.94
IDLE_WATTS = {"H200-SXM": 215.0, "A100-SXM": 190.0}
CAP_WATTS = {"H200-SXM": 700.0, "A100-SXM": 400.0}
EMBODIED_KG = {"H200-SXM": 200.0, "A100-SXM": 150.0}
SEVERAL = 40
TARGETS = {
    "kept_boards_missed": Target(at_most=0),
}
Rates = Mapping[tuple[str, str], BoardRate]


def proportional() -> dict[str, float]:
    """What the model returns for the published comparison, percent of one year at 20 %."""
    base = Embodied(150.0, 1.0, 0.2).grams_per_used_hour

    def saved(years: float, use: float) -> float:
        return 100 * (1 - Embodied(150.0, years, use).grams_per_used_hour / base)

    return {
        "utilisation_saves_percent": saved(1.0, 0.6),
        "life_saves_percent": saved(3.0, 0.2),
        "both_save_percent": saved(3.0, 0.6),
        "published_both_percent": 93.0,
    }


@dataclass(frozen=True, slots=True)
class Fleet:
    """One case: demand of agents, rent and stock of the old boards, price of energy."""

    agents_per_second: float
    old_dollars: float
    old_boards: int
    dollars_per_kwh: float


def fleet(rng: np.random.Generator) -> Fleet:
    """Old boards at 15 to 60 % of the new ones' rent."""
    return Fleet(
        float(np.exp(rng.uniform(np.log(0.5), np.log(15)))),
        float(rng.uniform(0.15, 0.6)) * H200_DOLLARS,
        int(rng.integers(0, 65)),
        float(rng.uniform(0.08, 0.3)),
    )


def predicted() -> Rates:
    """Each call on each type at its default cap, by (type, call)."""
    served, rates = ServedRates(), {}
    for gpu_model, cap in CAP_WATTS.items():
        for call, (tokens_in, tokens_out, _) in CALLS.items():
            question = RateQuestion(
                LANGUAGE_MODEL, gpu_model, 1, cap, (cap, cap), Phase.WHOLE, "bf16",
                tokens_in, tokens_out, 2.0, 0.06,
            )  # fmt: skip
            rate = served.rate(question)
            if rate is not None:
                rates[gpu_model, call] = rate
    return rates


def asked(case: Fleet, rates: Rates, *, keeps_old: bool) -> CapacityPlanSpec:
    """The question as a plan's spec."""
    calls = {name: each for name, (_, _, each) in CALLS.items()}
    shapes = [_shape(model, rates) for model in CAP_WATTS]
    look_ups = {"requestsPerSecond": LOOK_UPS_PER_SERVER, "busyWatts": SERVER_WATTS}
    shapes.append({
        "name": "CPU-64", "gpuModel": "CPU-64", "capWatts": SERVER_WATTS, "idleWatts": 120.0,
        "p99Watts": SERVER_WATTS, "rates": {"look-up": {"whole": look_ups}},
    })  # fmt: skip
    offers = [
        _offer("new", "H200-SXM", 10_000, H200_DOLLARS, life=4.0, owned=False),
        _offer("servers", "CPU-64", 100, 0.5, life=6.0, owned=True),
    ]
    if keeps_old:
        offers.append(_offer("old", "A100-SXM", case.old_boards, case.old_dollars, 8.0, owned=True))
    else:
        shapes = [shape for shape in shapes if shape["gpuModel"] != "A100-SXM"]
    body = {
        "buckets": [{"name": name, "tier": "bestEffort"} for name in (*CALLS, "look-up")],
        "graphs": [
            {
                "name": "agent",
                "requestsPerSecond": case.agents_per_second,
                "calls": {**calls, "look-up": LOOK_UPS},
            }
        ],
        "shapes": shapes,
        "offers": offers,
        "prices": {"dollarsPerKwh": case.dollars_per_kwh},
    }
    return CapacityPlanSpec.model_validate(body)


def _shape(model: str, rates: Rates) -> dict[str, object]:
    cap = CAP_WATTS[model]
    return {
        "name": f"{model}@{cap:g}", "gpuModel": model, "capWatts": cap,
        "idleWatts": IDLE_WATTS[model], "p99Watts": _wall(1.05 * cap),
        "rates": {
            call: {"whole": {
                "requestsPerSecond": rate.requests_per_second, "busyWatts": _wall(rate.board_watts),
            }}
            for (owner, call), rate in rates.items()
            if owner == model
        },
    }  # fmt: skip


def _wall(board_watts: float) -> float:
    return (board_watts + SERVER_SHARE_WATTS) / SUPPLY


def _offer(
    name: str, model: str, gpus: int, dollars: float, life: float, *, owned: bool
) -> dict[str, object]:
    made = {
        "kilogramsPerGpu": EMBODIED_KG.get(model, 300.0),
        "lifetimeYears": life,
        "utilisation": 0.6,
    }
    return {
        "name": name, "gpuModel": model, "gpus": gpus, "dollarsPerGpuHour": dollars,
        "isOwned": owned, "embodied": made,
    }  # fmt: skip


def fewest_new_by_hand(case: Fleet, rates: Rates, most_dollars: float) -> int | None:
    """Fewest H200 boards of any mix within the dollars; None if no mix keeps an old board.

    For each number of H200 boards the fewest A100 boards carry the rest: calls go to the H200s in
    the order of what they would cost the A100s for each H200 second (exact for two types). The
    dollars are those of that assignment, so the search may miss a mix but never invents one.
    """
    work = {name: case.agents_per_second * each for name, (_, _, each) in CALLS.items()}
    new, old = (
        {name: work[name] / rates[model, name].requests_per_second for name in work}
        for model in ("H200-SXM", "A100-SXM")
    )
    order = sorted(work, key=lambda name: -old[name] / new[name])
    for boards in range(ceil(sum(new.values()) - 1e-9)):
        shares, left = {}, float(boards)
        for name in order:
            shares[name] = min(1.0, left / new[name])
            left -= shares[name] * new[name]
        kept = ceil(sum(old[name] * (1 - shares[name]) for name in work) - 1e-9)
        if kept > case.old_boards:
            continue
        watts = boards * IDLE_WATTS["H200-SXM"] + kept * IDLE_WATTS["A100-SXM"]
        for name in work:
            for model, busy in (
                ("H200-SXM", new[name] * shares[name]),
                ("A100-SXM", old[name] * (1 - shares[name])),
            ):
                watts += busy * (_wall(rates[model, name].board_watts) - IDLE_WATTS[model])
        servers, look_ups = _servers(case)
        watts += look_ups
        dollars = boards * H200_DOLLARS + kept * case.old_dollars + servers * 0.5
        if dollars + watts / 1000 * case.dollars_per_kwh <= most_dollars:
            return boards
    return None


def _servers(case: Fleet) -> tuple[int, float]:
    """CPU servers for the look-ups, and their mean draw."""
    busy = case.agents_per_second * LOOK_UPS / LOOK_UPS_PER_SERVER
    return ceil(busy - 1e-9), ceil(busy - 1e-9) * 120.0 + busy * (SERVER_WATTS - 120.0)


def planned(spec: CapacityPlanSpec, ratio: float | None) -> Answer:
    """The planner's answer."""
    options = AnswerOptions(10.0, explains=False, keep_owned_within_cost_ratio=ratio)
    return answer_mix(problem_of(spec), SystemClock(), options)


def new_boards(answer: Answer) -> int:
    """H200 boards of the plan."""
    return sum(row.replicas for row in answer.solution.replicas if row.offer == "new")


def agents(seed: int, cases: int) -> dict[str, float | int]:
    """Old and new boards together against new ones only."""
    rates = predicted()
    there = missed = kept = 0
    kwh, dollars, grams = [], [], []
    for i in range(cases):
        case = fleet(np.random.default_rng([seed, 4, i]))
        only = planned(asked(case, rates, keeps_old=False), None)
        mixed = planned(asked(case, rates, keeps_old=True), RATIO)
        least = only.solution.costs.total
        wanted = fewest_new_by_hand(case, rates, RATIO * min(least, _cheapest(mixed)))
        there += wanted is not None and wanted < new_boards(only)
        missed += wanted is not None and new_boards(mixed) > wanted
        if new_boards(mixed) < new_boards(only):
            kept += 1
            kwh.append(_percent(mixed.solution.mean_watts, only.solution.mean_watts))
            dollars.append(_percent(mixed.solution.costs.total, least))
            grams.append(
                _percent(
                    mixed.solution.embodied_grams_per_hour, only.solution.embodied_grams_per_hour
                )
            )
    return {
        "agent_cases": cases,
        "mixes_within_5_percent_by_hand": there,
        "mixes_found": kept,
        "kept_boards_missed": missed,
        "kwh_more_percent_mean": _mean(kwh),
        "kwh_more_percent_min": min(kwh, default=0.0),
        "kwh_more_percent_max": max(kwh, default=0.0),
        "dollars_more_percent_mean": _mean(dollars),
        "embodied_more_percent_mean": _mean(grams),
    }


def _cheapest(answer: Answer) -> float:
    return (answer.cheapest or answer.solution).costs.total


def _percent(value: float, base: float) -> float:
    return 100 * (value / base - 1)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def run(options: Options) -> Result:
    """Both parts; a quick run has fewer fleets."""
    figures: dict[str, float | int | str] = {**proportional()}
    figures |= agents(options.seed, 5 if options.quick else SEVERAL)
    return Result(figures, TARGETS)
