"""``wattpack profiles``: what is known about each GPU type, with its source and its error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.gpu_profile import GpuProfile
from capacity.profile_library import (
    ProfileLibrary,
    gpu_profile_object,
    load_library,
    shipped_library,
)
from wattpack.errors import InputError


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack profiles", description=__doc__)
    parser.add_argument("model", nargs="?", help="one GPU type, by model or driver product name")
    parser.add_argument("--file", type=Path, help="a profiles file instead of the shipped one")
    parser.add_argument("--json", action="store_true", help="GPUProfile objects as a JSON list")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the profiles; 2 if the model is unknown or the file is refused."""
    args = build_parser().parse_args(argv)
    try:
        library = load_library(args.file) if args.file else shipped_library()
        profiles = [library.find(args.model)] if args.model else list(library.profiles.values())
    except InputError as error:
        print(f"wattpack profiles: {error}", file=sys.stderr)
        return 2
    if args.json:
        objects = [gpu_profile_object(p, library.reference_sha256) for p in profiles]
        print(json.dumps(objects, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(summary_table(profiles))
    for line in footnotes(library):
        console.print(line, highlight=False)
    return 0


def summary_table(profiles: Sequence[GpuProfile]) -> Table:
    """One row per GPU type and kernel class."""
    table = Table(title="GPU profiles")
    for name in ("GPU", "limits W", "knee W", "class", "draw W p50 / p95"):
        table.add_column(name, no_wrap=True)
    for name in ("speed at 80 %", "at 60 %"):
        table.add_column(name, justify="right")
    table.add_column("errors %", justify="right", no_wrap=True)
    for name in ("power", "cap curve"):
        table.add_column(name, min_width=len("measured"), no_wrap=True)
    for profile in profiles:
        limits = f"{profile.min_limit_watts:g}-{profile.max_limit_watts:g}"
        first = (escape(profile.model), limits, f"{profile.knee_watts:g}")
        for name, kernel in profile.kernel_classes.items():
            at_80, at_60 = np.interp([0.8, 0.6], kernel.cap_fractions, kernel.throughput)
            table.add_row(
                *first,
                name,
                f"{kernel.power_p50_watts:.0f} / {kernel.power_p95_watts:.0f}",
                f"{at_80:.2f}",
                f"{at_60:.2f}",
                " / ".join(
                    _percent(error)
                    for error in (kernel.error_mape, kernel.power_error, kernel.time_error)
                ),
                kernel.power_provenance,
                kernel.curve_provenance,
            )
            first = ("", "", "")
        table.add_section()
    return table


def _percent(error: float | None) -> str:
    """An error in per cent, or a dash where nothing was held out."""
    return "-" if error is None else f"{100 * error:.1f}"


def footnotes(library: ProfileLibrary) -> list[str]:
    """What the error means, and what was held out."""
    checks = library.checks
    return [
        "Errors of speed where the cap binds / of draw below the limit / of time, each held out. "
        "Measured curves: each network predicted from the others. Derived curves: each swept GPU "
        "predicted from the others; prefill, decode and batch of H200 and H100: own kernels at the "
        "default limit, lower caps unmeasured.",
        f"Worst held-out GPU: A40 {checks['curve_mape_held_out_a40']:.1%} "
        f"({checks['curve_mape_held_out_a40_caps_above_half']:.1%} for caps above half of the "
        f"limit). Check on an RTX PRO 6000 serving LLMs: "
        f"{checks['curve_mape_rtx_pro_6000_serving']:.1%}, too pessimistic.",
        "No licensed cap sweep of an A100, H100, H200, B200 or L40S exists: their curves are "
        "derived. Sources: wattpack profiles --json.",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
