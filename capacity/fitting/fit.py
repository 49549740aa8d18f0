"""``python -m capacity.fitting.fit``: make ``profiles.json`` and ``step_tables.json``.

From the reference data and the shipped rows of ``wattpack bench run``; to be run again when either
changes. The same files give the same bytes on one processor, and the same numbers but for the last
digit on any. A test refits and compares.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from capacity.fitting.board_power import Draw
from capacity.fitting.classes import SWEPT, SYSTEMS, draws_by_class
from capacity.fitting.curves import (
    Curve,
    Floats,
    SweepPoint,
    curve_error,
    fit_curve,
    leave_one_gpu_out,
    leave_one_job_out,
    mmbt_points,
    zeus_points,
)
from capacity.fitting.fit_comparison import text_difference
from capacity.fitting.iteration_times import (
    GpuSpeed,
    fits_in_memory,
    gemm_tflops,
    measured_times,
    transfer_error,
    transferred_times,
)
from capacity.fitting.map_classes import (
    SERVING_CLASSES,
    map_curves,
    map_error,
    network_held_out_errors,
    served_note,
    swept_note,
)
from capacity.fitting.reference_files import Row, number, read_csv, reference_sha256
from capacity.fitting.step_classes import (
    PHASES,
    STEP_CLASSES,
    boards,
    step_curves,
    step_draws,
    step_notes,
)
from capacity.fitting.step_tables import Board, build_tables, tables_document
from capacity.gpu_profile import GpuProfile, KernelClass, Provenance
from capacity.model.cap_map import CapMap, fit_cap_map
from capacity.profile_library import SCHEMA, library_from_dict
from capacity.serving_times import ServingTimes

HERE: Final = Path(__file__).parents[1]
REFERENCE: Final = HERE / "reference"
ROWS: Final = HERE / "data" / "profiles"
PROFILES: Final = HERE / "data" / "profiles.json"
STEP_TABLES: Final = "step_tables.json"
"""Beside the profiles."""

SWEEP: Final = "zeus_power_limit_sweep.csv.gz"

CAP_FRACTIONS: Final = np.round(np.linspace(0.1, 1.0, 37), 4)
KNEE_THROUGHPUT: Final = 0.85


def kernel_class(draw: Draw, limit: float, curve: Curve, note: Mapping[str, Any]) -> KernelClass:
    """A class whose curve is the fitted line read at cap / uncapped draw."""
    throughput, drawn = curve.at(CAP_FRACTIONS * limit / draw.p50_watts)
    return _kernel_class(draw, throughput, drawn, note)


def _mapped_class(
    cap_map: CapMap, swept: str | None, draw: Draw, limit: float, note: Mapping[str, Any]
) -> KernelClass:
    """A class whose curves are the cap map's."""
    speed, drawn = map_curves(cap_map, swept, draw, limit, CAP_FRACTIONS)
    return _kernel_class(draw, speed, drawn, note)


def _kernel_class(
    draw: Draw, throughput: Floats, drawn: Floats, note: Mapping[str, Any]
) -> KernelClass:
    """A class from its draw and what its curves are at ``CAP_FRACTIONS``, in any unit."""
    throughput = throughput / throughput[-1]
    drawn = np.minimum(1.0, drawn / drawn[-1])
    return KernelClass(
        power_p50_watts=round(draw.p50_watts, 1),
        power_p95_watts=round(max(draw.p95_watts, draw.p50_watts), 1),
        power_provenance=draw.provenance,
        power_source=draw.source,
        power_samples=draw.samples,
        cap_fractions=_tuple(CAP_FRACTIONS),
        throughput=_tuple(throughput),
        draw=_tuple(drawn),
        **note,
    )


def idle_class(idle_watts: float, source: str, provenance: str) -> KernelClass:
    """No work: no cap costs anything, the draw is the idle draw."""
    ones = tuple(1.0 for _ in CAP_FRACTIONS)
    return KernelClass(
        power_p50_watts=idle_watts,
        power_p95_watts=idle_watts,
        power_provenance=cast(Provenance, provenance),
        power_source=source,
        power_samples=0,
        cap_fractions=_tuple(CAP_FRACTIONS),
        throughput=ones,
        draw=ones,
        curve_provenance="assumed",
        curve_source="an idle GPU does not slow down",
        curve_samples=0,
        error_mape=0.0,
        error_kind="none: by definition",
    )


def _tuple(values: Iterable[float]) -> tuple[float, ...]:
    """Plain floats with five digits after the point."""
    return tuple(round(float(v), 5) for v in values)


def knee_fraction(kernel: KernelClass) -> float:
    """Lowest cap fraction at which the class keeps ``KNEE_THROUGHPUT``."""
    return float(np.interp(KNEE_THROUGHPUT, kernel.throughput, kernel.cap_fractions))


def build_profiles(folder: Path, rows: Path = ROWS) -> tuple[list[GpuProfile], dict[str, float]]:
    """Every profile, and the held-out errors of the shared curve."""
    tested = boards(rows, folder / SWEEP)
    gpus = read_csv(folder / "gpus.csv", ("model", "product_names", "idle_watts"))
    points = zeus_points(folder / SWEEP)
    pooled = fit_curve(points)
    held_out = leave_one_gpu_out(points)
    upper = leave_one_gpu_out(points, above_share=0.5)
    checks = {f"curve_mape_held_out_{g.lower()}": round(e, 4) for g, e in held_out.items()}
    checks |= {
        f"curve_mape_held_out_{g.lower()}_caps_above_half": round(e, 4) for g, e in upper.items()
    }
    outside = mmbt_points(folder / "mmbt_power_limit_sweep.csv.gz")
    checks["curve_mape_rtx_pro_6000_serving"] = round(curve_error(pooled, outside), 4)
    cap_map = fit_cap_map(points)
    unseen, served = network_held_out_errors(points), map_error(cap_map, outside)
    checks |= {f"map_mape_networks_held_out_{g.lower()}": round(e, 4) for g, e in unseen.items()}
    checks["map_mape_rtx_pro_6000_serving"] = round(served, 4)
    steps = {gpu: {phase: step_draws(board, phase) for phase in PHASES}
             for gpu, board in tested.items()}  # fmt: skip
    draws = draws_by_class(folder, points, gpus, steps)
    transfer = {
        "curve_provenance": "derived",
        "curve_source": "cap / uncapped draw line of the Zeus sweeps of four other GPU types",
        "curve_samples": pooled.samples,
        "error_mape": round(float(np.mean(list(held_out.values()))), 4),
        "error_kind": "each swept GPU type predicted from the others (mean; worst is A40)",
    }
    profiles = []
    knees: list[float] = []
    for row in sorted(gpus, key=lambda row: row["model"] not in SWEPT):
        model = row["model"]
        limit = number(row, "default_limit_watts", "gpus.csv")
        curve, notes = pooled, dict.fromkeys(draws[model], transfer)
        if model in SWEPT:
            own = [p for p in points if p.gpu == SWEPT[model]]
            curve, notes = fit_curve(own), _own_notes(own, SWEPT[model])
        swept = SWEPT.get(model)
        note = served_note(pooled.samples, served)
        if swept is not None:
            note = swept_note(swept, curve.samples, unseen[swept])
        kernels = {
            name: _mapped_class(cap_map, swept, draws[model][name], limit, note)
            for name in SERVING_CLASSES
        }
        kernels |= {
            name: kernel_class(draws[model][name], limit, curve, notes[name])
            for name in ("training", "batch")
        }
        if model in tested:
            kernels |= _step_kernels(tested[model], draws[model])
        kernels["idle"] = idle_class(
            number(row, "idle_watts", "gpus.csv"), row["idle_source"], row["idle_provenance"]
        )
        knee = float(np.mean(knees)) if model not in SWEPT else knee_fraction(kernels["training"])
        knees += [knee] if model in SWEPT else []
        profiles.append(_profile(row, kernels, knee))
    order = [row["model"] for row in gpus]
    profiles.sort(key=lambda profile: order.index(profile.model))
    return profiles, checks


def _step_kernels(board: Board, draws: Mapping[str, Draw]) -> dict[str, KernelClass]:
    """Classes whose curves are a board's own response to its limit.

    Batch work is made of the matrix products of prefill and slows down as they do.
    """
    made = {}
    for name, phase in STEP_CLASSES.items():
        curves = step_curves(board, phase, CAP_FRACTIONS)
        notes = step_notes(board, phase)
        if name != phase:
            notes = notes | {"power_error": None, "time_error": None}
        made[name] = _kernel_class(draws[name], curves["throughput"], curves["draw"], notes)
    return made


def _own_notes(own: Sequence[SweepPoint], gpu: str) -> dict[str, dict[str, Any]]:
    """Curve labels of a swept type's training."""
    samples = fit_curve(own).samples
    error = round(leave_one_job_out(own), 4)
    measured = {
        "curve_provenance": "measured",
        "curve_source": f"zeus_power_limit_sweep.csv.gz: {gpu}",
        "curve_samples": samples,
        "error_mape": error,
        "error_kind": "each network predicted from the others on the same GPU",
    }
    return {"training": measured, "batch": measured}


def _profile(row: Row, kernels: Mapping[str, KernelClass], knee_share: float) -> GpuProfile:
    """The scalar columns of ``gpus.csv`` with the fitted classes."""
    limit = number(row, "default_limit_watts", "gpus.csv")
    low = number(row, "min_limit_watts", "gpus.csv")
    knee = 5.0 * round(knee_share * limit / 5.0)
    how = "measured" if row["model"] in SWEPT else "derived, mean share of the swept types"
    return GpuProfile(
        model=row["model"],
        product_names=tuple(row["product_names"].split("|")),
        idle_watts=number(row, "idle_watts", "gpus.csv"),
        context_watts=number(row, "context_watts", "gpus.csv"),
        min_limit_watts=low,
        default_limit_watts=limit,
        max_limit_watts=number(row, "max_limit_watts", "gpus.csv"),
        max_clock_mhz=number(row, "max_clock_mhz", "gpus.csv"),
        knee_watts=min(limit, max(low, knee)),
        kernel_classes=kernels,
        sources={
            "idle_watts": f"{row['idle_provenance']}: {row['idle_source']}",
            "context_watts": f"{row['context_provenance']}: {row['context_source']}",
            "limits": row["limit_source"],
            "max_clock_mhz": row["clock_source"],
            "knee_watts": f"{how}: lowest cap with training throughput >= {KNEE_THROUGHPUT}",
        },
    )


def gpu_speeds(folder: Path) -> dict[str, GpuSpeed]:
    """What iteration times scale with, by GPU type."""
    gpus = read_csv(
        folder / "gpus.csv",
        ("model", "gemm_tflops", "memory_gbytes_per_second", "memory_gbytes", "fp8"),
    )
    measured_tflops = {model: gemm_tflops(folder, system) for model, system in SYSTEMS.items()}
    return {
        row["model"]: GpuSpeed(
            measured_tflops.get(row["model"]) or 0.7 * number(row, "gemm_tflops", "gpus.csv"),
            number(row, "memory_gbytes_per_second", "gpus.csv"),
            row["fp8"] == "yes",
            number(row, "memory_gbytes", "gpus.csv"),
        )
        for row in gpus
    }


def build_serving(folder: Path) -> tuple[list[ServingTimes], dict[str, float]]:
    """Iteration times on every type, measured where there are runs, else transferred from H100."""
    gpus = read_csv(folder / "gpus.csv", ("model",))
    speeds = gpu_speeds(folder)
    measured = measured_times(folder, {system: model for model, system in SYSTEMS.items()})
    error = round(transfer_error(measured, speeds), 4)
    done = {(t.gpu, t.language_model, t.tensor_parallel) for t in measured}
    entries = list(measured)
    for reference in (t for t in measured if t.gpu == "H100-SXM"):
        for row in gpus:
            key = (row["model"], reference.language_model, reference.tensor_parallel)
            fp8 = reference.precision == "fp8"
            roomy = fits_in_memory(
                reference.language_model, reference.tensor_parallel, speeds[row["model"]], fp8
            )
            if key not in done and roomy:
                entries.append(transferred_times(reference, speeds, row["model"], error))
    entries.sort(key=lambda t: (t.language_model, t.gpu, t.tensor_parallel))
    return entries, {"serving_transfer_mape": error}


def build_document(folder: Path, rows: Path = ROWS) -> dict[str, Any]:
    """The profiles file as plain values, checked by the loader."""
    profiles, curve_checks = build_profiles(folder, rows)
    serving, serving_checks = build_serving(folder)
    document = {
        "schema": SCHEMA,
        "reference_sha256": reference_sha256(folder),
        "checks": curve_checks | serving_checks,
        "profiles": [profile.as_dict() for profile in profiles],
        "serving": [_rounded(times) for times in serving],
    }
    library_from_dict(document, "capacity.fitting.fit")
    return document


def _rounded(times: ServingTimes) -> dict[str, Any]:
    """Six significant digits: the last bits differ between linear algebra libraries."""
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in times.as_dict().items()
    }


def build_texts(folder: Path, rows: Path = ROWS) -> tuple[str, str]:
    """Both files: profiles, and step tables with one table a line."""
    profiles = build_document(folder, rows)
    gpus = read_csv(folder / "gpus.csv", ("model", "default_limit_watts"))
    limits = {row["model"]: number(row, "default_limit_watts", "gpus.csv") for row in gpus}
    own, (serving, _) = boards(rows, folder / SWEEP), build_serving(folder)
    tables = build_tables(own, serving, gpu_speeds(folder), limits)
    document = tables_document(rows, tables, serving)
    lines = ",\n".join(json.dumps(table) for table in document.pop("tables"))
    head = json.dumps(document)[:-1]
    return json.dumps(profiles, indent=1) + "\n", f'{head}, "tables": [\n{lines}\n]}}\n'


def _stale(file: Path, fresh: str) -> str:
    """What a shipped file says otherwise than a fresh fit; empty if nothing."""
    if not file.exists():
        return "no such file"
    return text_difference(fresh, file.read_text(encoding="utf-8"))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the two files, or check that they are up to date."""
    parser = argparse.ArgumentParser(prog="python -m capacity.fitting.fit", description=__doc__)
    parser.add_argument(
        "--reference", type=Path, default=REFERENCE, help="folder of reference CSVs"
    )
    parser.add_argument(
        "--out", type=Path, default=PROFILES, help="file to write; step tables go beside it"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    args = parser.parse_args(argv)
    files = (args.out, args.out.with_name(STEP_TABLES))
    texts = dict(zip(files, build_texts(args.reference), strict=True))
    if args.check:
        stale = {file: why for file, text in texts.items() if (why := _stale(file, text))}
        for file, why in stale.items():
            print(f"{file}: a fresh fit differs: {why}")
        if not stale:
            print("up to date")
        return 1 if stale else 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
