"""What engines add to kernels, learned from end-to-end runs.

A run's latencies are sums over the iterations that it lived through, and an iteration is linear in
the constants. So: simulate all runs, hold their schedules, solve for the constants by least squares
of log errors, and again with the schedules that the new constants make. Priors (the defaults of
``EngineConstants``) were set before any run was looked at; each model and engine counts about the
same however many runs it has.

``python -m capacity.serving.engine_fit`` writes ``capacity/data/serving_constants.yaml`` and, of
runs of models that a fit did not see, ``capacity/data/serving_errors.yaml``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from scipy.optimize import least_squares

from capacity.model.conformal import ConformalScores
from capacity.serving.deployment import Deployment
from capacity.serving.engine import CONSTANTS_FILE, BatchingRules, EngineConstants, Floats
from capacity.serving.reference_runs import ReferenceRun, scored_runs
from capacity.serving.served_requests import Work
from capacity.serving.time_bound import CONFIDENCE, ERRORS_FILE
from wattpack.errors import InputError

NAMES: Final = tuple(field.name for field in fields(EngineConstants))
PRODUCT_TERMS: Final = 2
"""Leading constants that hold for 8-bit products alone (``EngineConstants.of_format``)."""

STEP_TERMS: Final = 9
"""Leading constants that an iteration's seconds are linear in."""

PRIOR_WIDTHS: Final = np.array([
    *(0.15, 0.15), *(0.3, 0.3, 0.3, 0.3), *(0.7, 0.7, 0.7, 0.7, 0.7, 0.7)
])  # fmt: skip
"""Natural-log widths: products are measured well, other kernels less, overheads hardly."""

PRIOR_WEIGHT: Final = 2.0**0.5
ERROR_SCALE: Final = 0.1
"""Log error beyond which a run counts less and less."""

TTFT_WEIGHT: Final = 0.5
"""Of a time to first token against a time per token: it holds the queue's luck."""

GROUP_RUNS: Final = (30.0, 10)
"""A group of one engine and model counts as 30 runs; below 10 its runs count as three each."""

LEAST_SHARE: Final = 0.2
"""Of its present latency that a run may be thought to fall to in one round."""


class FittedRun(Protocol):
    """A measured run that can be simulated: means over its requests."""

    @property
    def engine(self) -> str:
        """Which engine served."""
        ...

    @property
    def language_model(self) -> str:
        """What it served."""
        ...

    @property
    def ttft_seconds(self) -> float:
        """To the first token."""
        ...

    @property
    def tpot_seconds(self) -> float:
        """For each further token."""
        ...

    @property
    def rules(self) -> BatchingRules:
        """How the server batched."""
        ...

    @property
    def work(self) -> Work:
        """What its clients sent."""
        ...

    def deployment(self, constants: EngineConstants) -> Deployment:
        """What served, with these constants."""
        ...


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """A simulated run and how its means depend on the constants, shapes (12,)."""

    ttft_seconds: float
    tpot_seconds: float
    ttft_terms: Floats
    tpot_terms: Floats


def predict_run(run: FittedRun, constants: EngineConstants) -> RunPrediction:
    """The run with these constants."""
    deployment = run.deployment(constants)
    done = deployment.serve(run.work)
    log = done.log
    iterations, counts = log.iterations(), np.array(log.counts, dtype=np.float64)
    terms = np.zeros((len(counts), len(NAMES)))
    terms[:, :STEP_TERMS] = deployment.steps.seconds.terms(iterations)
    terms[:, NAMES.index("sequence_seconds")] /= run.rules.stream_interval
    launch = NAMES.index("launch_layer_seconds")
    layers = float(deployment.model.layers)
    values = constants.of_format(deployment.number_format).as_array()
    prompted = iterations.prompt_tokens > iterations.prompts
    bound = prompted & (terms @ values < values[launch] * layers)
    terms[bound] = 0.0
    terms[bound, launch] = layers
    stretch = np.array(log.seconds) / np.maximum(1e-12, terms @ values)
    terms *= (stretch * counts)[:, None]
    if deployment.number_format != "fp8":
        terms[:, :PRODUCT_TERMS] = 0.0
    sums = np.vstack([np.zeros(len(NAMES)), np.cumsum(terms, axis=0)])
    strides = np.array([one.strides for one in done.requests])
    further = np.array([max(1, one.output - 1) for one in done.requests])
    ttft = (sums[strides[:, 1]] - sums[strides[:, 0]]).mean(axis=0)
    ttft[NAMES.index("request_seconds")] = 1.0
    prompts = float(np.mean([one.prompt for one in done.requests]))
    ttft[NAMES.index("prompt_token_seconds")] = prompts
    tpot = ((sums[strides[:, 2]] - sums[strides[:, 1]]) / further[:, None]).mean(axis=0)
    return RunPrediction(
        float(np.mean([one.ttft for one in done.requests])),
        float(np.mean([one.tpot for one in done.requests])),
        ttft,
        tpot,
    )


def fit_constants(
    runs: Sequence[FittedRun], rounds: int = 3, prior_constants: EngineConstants | None = None
) -> EngineConstants:
    """The constants that these runs speak for.

    Args:
        prior_constants: What is believed without them; priors that no run was used for if None.
    """
    prior = (prior_constants or EngineConstants()).as_array()
    values = prior
    weights = _weights(runs) / ERROR_SCALE
    measured_ttft = np.array([run.ttft_seconds for run in runs])
    measured_tpot = np.array([run.tpot_seconds for run in runs])
    for _ in range(rounds):
        made = [predict_run(run, EngineConstants(*values.tolist())) for run in runs]
        ttft = np.array([one.ttft_seconds for one in made])
        tpot = np.array([one.tpot_seconds for one in made])
        ttft_terms = np.stack([one.ttft_terms for one in made])
        tpot_terms = np.stack([one.tpot_terms for one in made])
        start = values

        def residuals(logs: Floats) -> Floats:
            moved = prior * np.exp(logs) - start  # noqa: B023 - used within this turn
            first = np.maximum(ttft + ttft_terms @ moved, LEAST_SHARE * ttft)  # noqa: B023
            each = np.maximum(tpot + tpot_terms @ moved, LEAST_SHARE * tpot)  # noqa: B023
            return np.concatenate([
                weights * np.log(each / measured_tpot),
                TTFT_WEIGHT * weights * np.log(first / measured_ttft),
                PRIOR_WEIGHT * logs / PRIOR_WIDTHS,
            ])  # fmt: skip

        found = least_squares(residuals, np.log(start / prior), loss="soft_l1")
        values = prior * np.exp(found.x)
    return EngineConstants(*values.tolist())


def _weights(runs: Sequence[FittedRun]) -> Floats:
    groups = Counter((run.engine, run.language_model) for run in runs)
    whole, least = GROUP_RUNS
    sizes = np.array([groups[run.engine, run.language_model] for run in runs])
    return np.asarray(np.sqrt(whole / np.maximum(least, sizes)))


def held_out_ratios(runs: Sequence[ReferenceRun]) -> list[float]:
    """A request's measured over its predicted time, by constants of the other models' runs."""
    models = sorted({run.language_model for run in runs})
    constants = {
        model: fit_constants([run for run in runs if run.language_model != model])
        for model in models
    }
    ratios = []
    for run in runs:
        made, further = predict_run(run, constants[run.language_model]), run.output_tokens - 1
        measured = run.ttft_seconds + further * run.tpot_seconds
        ratios.append(measured / (made.ttft_seconds + further * made.tpot_seconds))
    return ratios


def bounds_of(runs: Sequence[ReferenceRun], ratios: Sequence[float]) -> dict[str, float]:
    """By model and by GPU type: how many times as long as predicted held-out runs may take.

    Raises:
        InputError: a group with too few runs to say anything at this confidence.
    """
    groups: dict[str, list[float]] = {}
    for run, ratio in zip(runs, ratios, strict=True):
        for name in (run.language_model, run.gpu):
            groups.setdefault(name, []).append(ratio)
    made = {}
    for name, scores in sorted(groups.items()):
        factor = ConformalScores(np.sort(scores)).factor(CONFIDENCE)
        if factor is None:
            raise InputError(f"runs of {name}", f"enough for {CONFIDENCE:.0%}", len(scores))
        made[name] = factor
    return made


def main() -> int:
    """Write the constants that all scored runs speak for, and what such constants err by."""
    runs = scored_runs()
    constants = fit_constants(runs)
    named = zip(NAMES, constants.as_array(), strict=True)
    _write(
        CONSTANTS_FILE,
        "capacity/reference/serving; what each constant is: capacity/serving/engine.py.",
        ["constants:", *(f"  {name}: {value:.4g}" for name, value in named)],
    )
    bounds = bounds_of(runs, held_out_ratios(runs))
    _write(
        ERRORS_FILE,
        "capacity/reference/serving, each model by constants of the others; what a ratio is:\n"
        "# capacity/serving/time_bound.py.",
        [
            f"confidence: {CONFIDENCE}",
            f"runs: {len(runs)}",
            "time_ratios:",
            *(f"  {name}: {ratio:.4g}" for name, ratio in bounds.items()),
        ],
    )
    return 0


def _write(name: str, of: str, lines: Sequence[str]) -> None:
    head = ["# Written by python -m capacity.serving.engine_fit from the scored runs of", f"# {of}"]
    target = Path(__file__).parents[1] / name
    target.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
    print(f"wrote {target}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
