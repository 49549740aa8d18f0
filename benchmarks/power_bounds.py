"""How often matrix products of unseen layers draw more than their p99 bound, and what it costs.

Breakers are planned with such bounds. The held-out rows of ``gemm_power``, all of them: those at
the limit too. A constant bound at the limit is never exceeded and costs what is printed beside.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.gemm_power import (
    DRAWS,
    GPUS,
    SCORED_SHARE,
    few_shot_model,
    full_model,
    split,
)
from benchmarks.runner import Options, Result, Target
from capacity.model.kernel_samples import Floats, PowerSamples
from capacity.model.power_model import PowerModel

NAME = "power_bounds"
SUMMARY = "p99 bound of the draw of unseen matrix products: violations and excess"
TARGETS: Final = {
    "violated_percent_all": Target(at_most=1.0),
    "excess_percent_all": Target(at_most=8.0),
    "violated_percent_60_shapes": Target(at_most=1.0),
    "excess_percent_60_shapes": Target(at_most=8.0),
    "rows": Target(at_least=1000),
}


def run(options: Options) -> Result:
    """Measure; ``--quick`` makes one draw of 60 shapes on the H200 and leaves "all" out."""
    rows, few, full, naive = 0, [], [], []
    for gpu in GPUS[: 1 if options.quick else None]:
        known, held = split(gpu)
        rows += len(held)
        naive.append(_excess(held.limit_watts, held))
        for draw in range(1 if options.quick else DRAWS):
            few.append(_judged(few_shot_model(known, options.seed + draw), held))
            options.progress(f"{gpu}, 60 shapes, draw {draw}")
        if not options.quick:
            full.append(_judged(full_model(known, options.seed), held))
    figures: dict[str, float | int | str] = {
        "rows": rows,
        "excess_percent_bound_at_limit": float(np.concatenate(naive).mean()),
    }
    for name, tables in (("60_shapes", few), ("all", full)):
        if tables:
            every = np.concatenate(tables)
            free = every[every[:, 2] > 0]
            figures |= {
                f"violated_percent_{name}": float(every[:, 0].mean()),
                f"excess_percent_{name}": float(every[:, 1].mean()),
                f"violated_percent_{name}_below_limit": float(free[:, 0].mean()),
                f"excess_percent_{name}_below_limit": float(free[:, 1].mean()),
                "excess_percent_bound_at_limit_below_limit": float(free[:, 3].mean()),
            }
    return Result(figures, TARGETS)


def _judged(model: PowerModel, held: PowerSamples) -> Floats:
    """Four columns a row, in percent.

    100 where the bound is exceeded; the bound above the draw; whether the row stayed below 95 % of
    the limit; a bound at the limit above the draw.
    """
    bound = model.bound_watts(held.kernels, float(held.limit_watts[0]), 0.99)
    free = held.draw_watts < SCORED_SHARE * held.limit_watts
    return np.column_stack(
        [
            100.0 * (held.draw_watts > bound),
            _excess(bound, held),
            100.0 * free,
            _excess(held.limit_watts, held),
        ]
    )


def _excess(bound: Floats, held: PowerSamples) -> Floats:
    return np.asarray(100 * (bound / held.draw_watts - 1))
