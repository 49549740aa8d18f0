"""TTFT and TPOT of public end-to-end runs, each model predicted from runs of other models alone.

559 aggregated 8-bit runs of dense models (AIConfigurator's silicon sample); those of engines with
two models or more are scored, SGLang's are printed. Kernel times are those of the shipped rows and
tables, which hold no end-to-end run; the constants that engines add are fitted without any run of
the model that is judged, on either engine. Ranking: pairs of two GPU types in one cell (model,
prompt, output, concurrency, parallelism; two engines may share one) by generated tokens per dollar.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.runner import Options, Result, Target
from capacity.language_models import find_language_model
from capacity.roofs import require_roofs
from capacity.serving.engine import EngineConstants
from capacity.serving.engine_fit import NAMES, fit_constants, predict_run
from capacity.serving.reference_runs import ReferenceRun, reference_runs, scored_runs

NAME = "serving_latency"
SUMMARY = "time to first token and per token of whole servers, and which GPU is worth its price"

Floats = npt.NDArray[np.float64]

QUICK_STEP: Final = 24
"""The short form takes every 24th run."""

DOLLARS_PER_GPU_HOUR: Final = {"H100-SXM": 2.69, "H200-SXM": 3.59, "B200-SXM": 5.98}
"""RunPod's list prices as quoted in deploybase.ai, "B200 vs H200 vs H100"; swept below."""

PRICE_FACTORS: Final = (0.5, 0.71, 1.0, 1.41, 2.0)
APART: Final = 0.10

RANKINGS: Final = ("", "bandwidth_", "cheaper_")
"""The prediction, "the higher bandwidth wins" and "the cheaper GPU-hour wins"."""

TARGETS: Final = {
    "tpot_median_error_percent": Target(at_most=12.0),
    "ttft_median_error_percent": Target(at_most=25.0),
    "ranking_right_ratio": Target(at_least=0.95),
    "ranking_right_ratio_over_prices": Target(at_least=0.95),
    "ranking_gain_over_bandwidth": Target(at_least=0.001),
    "ranking_gain_over_cheaper": Target(at_least=0.001),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A run with what was predicted of it."""

    run: ReferenceRun
    ttft_seconds: float
    tpot_seconds: float


def run(options: Options) -> Result:
    """Leave one model out, over both engines; ``--quick`` takes every 24th run, one round less."""
    step, rounds = (QUICK_STEP, 2) if options.quick else (1, 3)
    scored = scored_runs()[::step]
    judged, factors = leave_one_model_out(scored, rounds, options)
    figures: dict[str, float | int | str] = {"runs_scored": len(judged)}
    figures |= _errors("", judged)
    for engine in sorted({one.run.engine for one in judged}):
        figures |= _errors(f"{engine}_", [one for one in judged if one.run.engine == engine])
    for model in sorted({one.run.language_model for one in judged}):
        mine = [one for one in judged if one.run.language_model == model]
        figures |= _errors(f"{model.replace('.', '_').replace('-', '_')}_", mine)
    figures |= _errors("roofline_alone_", [roofline_alone(one.run) for one in judged])
    figures |= _errors("kernels_alone_", [predict(one.run, EngineConstants()) for one in judged])
    figures |= factors
    if not options.quick:
        sglang = [one for one in reference_runs() if one.engine == "sglang"]
        constants = fit_constants(scored, 1)
        figures |= _errors("sglang_not_scored_", [predict(one, constants) for one in sglang])
    figures |= time_bound(judged)
    figures |= ranking(judged)
    targets = {} if options.quick else TARGETS
    return Result({name: _rounded(value) for name, value in figures.items()}, targets)


def leave_one_model_out(
    runs: Sequence[ReferenceRun], rounds: int, options: Options
) -> tuple[list[Judged], dict[str, float]]:
    """Every run as predicted by constants of other models, and the range of the format factor."""
    judged: list[Judged] = []
    factors = []
    for model in sorted({one.language_model for one in runs}):
        constants = fit_constants([one for one in runs if one.language_model != model], rounds)
        told = ", ".join(f"{n} {v:.3g}" for n, v in zip(NAMES, constants.as_array(), strict=True))
        options.progress(f"without {model}: {told}")
        factors.append(constants.decode_products)
        judged += [predict(one, constants) for one in runs if one.language_model == model]
    return judged, {
        "number_format_factor_least": min(factors),
        "number_format_factor_most": max(factors),
    }


def time_bound(judged: Sequence[Judged]) -> dict[str, float]:
    """How often a request of an unseen model or GPU type takes longer than plans allow for.

    The allowance comes from the other models' (or types') runs: of each model and type among them
    the 95 % point of measured over predicted time; the largest counts. Predictions of these others
    stand on constants that saw runs of the one judged: of three models none can be spared.
    """
    named = {
        "model": [one.run.language_model for one in judged],
        "type": [one.run.gpu for one in judged],
    }
    figures = {}
    for kind, names in named.items():
        late = []
        for held in sorted(set(names)):
            mine = [one for one, name in zip(judged, names, strict=True) if name == held]
            rest = [one for one, name in zip(judged, names, strict=True) if name != held]
            late.append(_late(mine, rest))
        exceeded = f"time_bound_exceeded_percent_{kind}"
        figures[f"{exceeded}_held_out"] = 100 * float(np.concatenate(late).mean())
        figures[f"{exceeded}_worst"] = 100 * max(float(one.mean()) for one in late)
    return figures


def _late(held: Sequence[Judged], rest: Sequence[Judged]) -> npt.NDArray[np.bool_]:
    """Which of the held runs last longer than the rest lets expect, shape (n,)."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one in rest:
        for name in (one.run.language_model, one.run.gpu):
            groups[name].append(_time_ratio(one))
    allowed = max((float(np.quantile(group, 0.95)) for group in groups.values()), default=1.0)
    return np.array([_time_ratio(one) for one in held]) > max(1.0, allowed)


def _time_ratio(one: Judged) -> float:
    """Measured over predicted time of a request, from sending to its last token."""
    further = one.run.output_tokens - 1
    predicted = one.ttft_seconds + further * one.tpot_seconds
    return (one.run.ttft_seconds + further * one.run.tpot_seconds) / predicted


def predict(one: ReferenceRun, constants: EngineConstants) -> Judged:
    """The run simulated."""
    made = predict_run(one, constants)
    return Judged(one, made.ttft_seconds, made.tpot_seconds)


def roofline_alone(one: ReferenceRun) -> Judged:
    """The naive reference: weights and cache over bandwidth, operations over the 8-bit peak."""
    model, roofs = find_language_model(one.language_model), require_roofs(one.gpu)
    gpus, peak = one.tensor_parallel, roofs.flops_per_second("fp8")
    context = one.prompt_tokens + one.output_tokens / 2
    moved = model.weight_bytes(8) + one.concurrency * context * model.kv_bytes_per_token("fp8")
    prompt = 2 * model.active_parameters * one.prompt_tokens / (gpus * peak)
    step = moved / (gpus * roofs.bytes_per_second)
    return Judged(one, prompt, step + one.concurrency / one.output_tokens * prompt)


def ranking(judged: Sequence[Judged]) -> dict[str, float | int | str]:
    """Share of pairs over 10 % apart that are ranked right, at list prices and over a sweep."""
    figures: dict[str, float | int | str] = {}
    for prefix, by_engine in (("ranking_", False), ("ranking_within_engine_", True)):
        pairs = _pairs(judged, by_engine)
        listed = _right(pairs, dict.fromkeys(DOLLARS_PER_GPU_HOUR, 1.0))
        swept = np.sum(
            [
                _right(pairs, dict(zip(DOLLARS_PER_GPU_HOUR, factors, strict=True)))
                for factors in product(PRICE_FACTORS, repeat=len(DOLLARS_PER_GPU_HOUR))
            ],
            axis=0,
        )
        figures[f"{prefix}pairs"] = int(listed[-1])
        for name, right, over in zip(RANKINGS, listed, swept, strict=False):
            figures[f"{prefix}{name}right_ratio"] = right / max(1, listed[-1])
            figures[f"{prefix}{name}right_ratio_over_prices"] = over / max(1, swept[-1])
        for rule, over in zip(("bandwidth", "cheaper"), swept[1:3], strict=True):
            figures[f"{prefix}gain_over_{rule}"] = (swept[0] - over) / max(1, swept[-1])
    return figures


def _pairs(judged: Sequence[Judged], by_engine: bool) -> list[tuple[Judged, Judged]]:
    """Runs of different GPU types in one cell."""
    cells: dict[object, list[Judged]] = defaultdict(list)
    for one in judged:
        r = one.run
        cell = (
            r.language_model,
            r.prompt_tokens,
            r.output_tokens,
            r.concurrency,
            r.tensor_parallel,
        )
        cells[(*cell, r.engine) if by_engine else cell].append(one)
    return [
        (a, b)
        for cell in cells.values()
        for a, b in combinations(cell, 2)
        if a.run.gpu != b.run.gpu
    ]


def _right(
    pairs: Sequence[tuple[Judged, Judged]], factors: Mapping[str, float]
) -> tuple[int, int, int, int]:
    """Pairs that are right as ``RANKINGS`` says, and pairs far enough apart."""
    right = by_bandwidth = by_price = apart = 0
    for a, b in pairs:
        prices = [factors[x.run.gpu] * DOLLARS_PER_GPU_HOUR[x.run.gpu] for x in (a, b)]
        measured = [
            _tokens_per_second(x.run, x.run.ttft_seconds, x.run.tpot_seconds) / price
            for x, price in zip((a, b), prices, strict=True)
        ]
        if max(measured) <= (1 + APART) * min(measured):
            continue
        predicted = [
            _tokens_per_second(x.run, x.ttft_seconds, x.tpot_seconds) / price
            for x, price in zip((a, b), prices, strict=True)
        ]
        widths = [require_roofs(x.run.gpu).bytes_per_second for x in (a, b)]
        first = measured[0] > measured[1]
        apart += 1
        right += (predicted[0] > predicted[1]) == first
        by_bandwidth += (widths[0] > widths[1]) == first
        by_price += (prices[0] < prices[1]) == first
    return right, by_bandwidth, by_price, apart


def _tokens_per_second(one: ReferenceRun, ttft: float, tpot: float) -> float:
    """Of one GPU, from the mean latencies of so many clients."""
    request = ttft + tpot * (one.output_tokens - 1)
    return one.concurrency * one.output_tokens / request / one.tensor_parallel


def _errors(prefix: str, judged: Sequence[Judged]) -> dict[str, float]:
    ttft = np.array([one.ttft_seconds / one.run.ttft_seconds for one in judged])
    tpot = np.array([one.tpot_seconds / one.run.tpot_seconds for one in judged])
    return {
        f"{prefix}tpot_median_error_percent": 100 * float(np.median(np.abs(tpot - 1))),
        f"{prefix}ttft_median_error_percent": 100 * float(np.median(np.abs(ttft - 1))),
        f"{prefix}tpot_p90_error_percent": 100 * float(np.quantile(np.abs(tpot - 1), 0.9)),
        f"{prefix}ttft_p90_error_percent": 100 * float(np.quantile(np.abs(ttft - 1), 0.9)),
    }


def _rounded(value: float | int | str) -> float | int | str:
    return round(float(value), 4) if isinstance(value, float | np.floating) else value
