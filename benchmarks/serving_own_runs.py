"""What a few own runs of a server tell of its other loads: the constants' correction, held out.

Public runs of one engine, model, GPU type and parallelism stand for a user's own server. What is
known without them are the priors of ``EngineConstants``, which no run was used for: the shipped
constants were fitted on these very runs. A few of the server's runs, drawn by a fixed seed, correct
them as ``--measurements`` does; the server's other runs judge both. A correction that its own
verdict did not use counts with the uncorrected error.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.runner import Options, Result, Target
from capacity.serving.engine import EngineConstants
from capacity.serving.engine_fit import predict_run
from capacity.serving.measured_runs import correct
from capacity.serving.reference_runs import ReferenceRun, scored_runs

NAME = "serving_own_runs"
SUMMARY = "what one or four own runs of a server take from the errors of its other loads"

Floats = npt.NDArray[np.float64]

SEED: Final = 3
OWN_RUNS: Final = (1, 4)
FEWEST_RUNS: Final = 12
"""Of a server, so that some are left to judge."""

MOST_JUDGED: Final = 12
"""Of a server's other runs."""

TARGETS: Final = {
    "tpot_error_ratio_4_runs": Target(at_most=1.0),
    "ttft_error_ratio_4_runs": Target(at_most=1.0),
}
"""Own runs must not do harm; no published figure says how much they should help."""


def run(options: Options) -> Result:
    """Every server with twelve runs; ``--quick`` takes two of H200s."""
    servers: dict[tuple[str, str, str, int], list[ReferenceRun]] = defaultdict(list)
    for one in scored_runs():
        servers[one.engine, one.language_model, one.gpu, one.tensor_parallel].append(one)
    judged = sorted(name for name, runs in servers.items() if len(runs) >= FEWEST_RUNS)
    if options.quick:
        judged = [name for name in judged if name[2] == "H200-SXM"][:2]
    prior = EngineConstants()
    draw = np.random.default_rng(SEED)
    errors: dict[int, list[tuple[Floats, Floats]]] = {count: [] for count in OWN_RUNS}
    used: dict[int, list[bool]] = {count: [] for count in OWN_RUNS}
    for name in judged:
        options.progress(" ".join(map(str, name)))
        runs = servers[name]
        order = draw.permutation(len(runs)).tolist()
        rest = [runs[index] for index in order[max(OWN_RUNS) :][:MOST_JUDGED]]
        before = _log_errors(rest, prior)
        for count in OWN_RUNS:
            made = correct([runs[index] for index in order[:count]], prior)
            after = _log_errors(rest, made.constants) if made.is_used else before
            errors[count].append((before, after))
            used[count].append(made.is_used)
    figures: dict[str, float | int | str] = {"servers": len(judged)}
    for count in OWN_RUNS:
        figures |= _figures(f"{count}_runs", errors[count], used[count])
    figures = {n: round(v, 3) if isinstance(v, float) else v for n, v in figures.items()}
    return Result(figures, {} if options.quick else TARGETS)


def _log_errors(runs: list[ReferenceRun], constants: EngineConstants) -> Floats:
    """Of times per token and to the first token, shape (n_runs, 2)."""
    rows = []
    for one in runs:
        made = predict_run(one, constants)
        rows.append((made.tpot_seconds / one.tpot_seconds, made.ttft_seconds / one.ttft_seconds))
    return np.asarray(np.abs(np.log(np.array(rows))))


def _figures(name: str, errors: list[tuple[Floats, Floats]], used: list[bool]) -> dict[str, float]:
    before, after = (np.vstack(parts) for parts in zip(*errors, strict=True))
    worse = [float(a.mean()) > float(b.mean()) for b, a in errors]
    figures = {
        f"used_share_{name}": float(np.mean(used)),
        f"servers_made_worse_{name}": float(np.mean(worse)),
    }
    for column, kind in enumerate(("tpot", "ttft")):
        figures |= {
            f"{kind}_before_median_error_percent_{name}": _median_percent(before[:, column]),
            f"{kind}_after_median_error_percent_{name}": _median_percent(after[:, column]),
            f"{kind}_error_ratio_{name}": float(after[:, column].mean() / before[:, column].mean()),
        }
    return figures


def _median_percent(logs: Floats) -> float:
    return 100 * float(np.median(np.expm1(logs)))
