"""Which measurement stands for which kernel class on which GPU type, and what is borrowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from capacity.fitting.board_power import (
    Draw,
    fleet_busy_draw,
    gemm_draw,
    prompt_draw,
    sweep_draw,
    transferred,
)
from capacity.fitting.curves import SweepPoint
from capacity.fitting.reference_files import Row, number
from capacity.kernels import Phase

SWEPT: Final = {"V100-PCIE": "V100", "A40": "A40", "RTX-6000": "RTX6000"}
SYSTEMS: Final = {
    "A100-SXM": "a100_sxm",
    "H100-SXM": "h100_sxm",
    "H200-SXM": "h200_sxm",
    "B200-SXM": "b200_sxm",
    "L40S": "l40s",
}
BUSY_A100_WATTS: Final = 150.0
"""Between the idle mode (62 W) and the busy mode (370-400 W) of the Acme fleet."""


def draws_by_class(
    folder: Path,
    points: Sequence[SweepPoint],
    gpus: Sequence[Row],
    steps: Mapping[str, Mapping[Phase, Draw]],
) -> dict[str, dict[str, Draw]]:
    """Uncapped draw of every class on every type, measured where there is a measurement.

    Args:
        steps: Draws of whole steps by phase, of the types where they were measured.
    """
    limit = {row["model"]: number(row, "default_limit_watts", "gpus.csv") for row in gpus}
    result: dict[str, dict[str, Draw]] = {name: {} for name in limit}
    for model, gpu in SWEPT.items():
        hot = sweep_draw(points, gpu, lambda s: s > 0.85, "training jobs above 85 % of the limit")
        cool = sweep_draw(
            points, gpu, lambda s: 0.5 < s <= 0.7, "training jobs at 50-70 % of the limit"
        )
        result[model] = {
            "training": sweep_draw(
                points, gpu, lambda s: s > 0.5, "training jobs above 50 % of the limit"
            ),
            "batch": hot,
            "prefill": _proxy(hot, "as the hottest training jobs"),
            "decode": _proxy(cool, "as the memory-bound training jobs"),
        }
    for model in ("H200-SXM", "B200-SXM"):
        gemm = gemm_draw(folder, SYSTEMS[model])
        result[model] = {"prefill": gemm, "batch": gemm}
    training = fleet_busy_draw(folder, BUSY_A100_WATTS)
    result["A100-SXM"] = {
        "training": training,
        "prefill": prompt_draw(folder, limit["A100-SXM"]),
    }
    for model, phases in steps.items():
        result[model] |= {str(phase): draw for phase, draw in phases.items()}
    gemm_from = [result[m]["batch"] for m in ("H200-SXM", "B200-SXM")]
    gemm_limits = [limit["H200-SXM"], limit["B200-SXM"]]
    decode_from = [phases["decode"] for phases in steps.values()]
    decode_limits = [limit[model] for model in steps]
    for model, draws in result.items():
        rule = "share of the limit as on H200 and B200"
        for kernel in ("prefill", "batch"):
            draws.setdefault(kernel, transferred(gemm_from, gemm_limits, limit[model], rule))
        rule = "share of the limit as on A100 (Acme fleet)"
        draws.setdefault(
            "training", transferred([training], [limit["A100-SXM"]], limit[model], rule)
        )
        rule = f"whole decode steps, share of the limit as on {' and '.join(steps)}"
        draws.setdefault("decode", transferred(decode_from, decode_limits, limit[model], rule))
    return result


def _proxy(draw: Draw, rule: str) -> Draw:
    """The same figures, labelled derived."""
    return Draw(draw.p50_watts, draw.p95_watts, "derived", f"{draw.source}; {rule}", 0)
