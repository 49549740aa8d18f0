"""The largest row that each policy carries behind one breaker, at the same limits on latency.

Rows are rated for 40 servers. A count is carried by a seed when no brake is pulled, nothing trips,
no invariant is violated and requests of the three hottest days' peak hours keep their limits
(``_row_slos``), against the uncapped row of the same requests: ``every`` counts whole requests,
first tokens and the time between tokens, ``whole`` what POLCA counts. Three common seeds bisect
from the rating up, and below it where that is not carried; then all seeds (ten, of variants three)
run at the count found and at the next one, with the share that carries it. The static row is never
held back: its highest reading of 2 s must not exceed the rating. Counts next to one another differ
by 2.5 % of the rating. Seeds are none that anything was fitted or tuned on.

Arms run on the same plant; ``wattpack_40s``, with boards that take a lowered limit 40 s late, is
reported without a line, as are options that are off by default (``wattpack_heat_budget``,
``wattpack_reserve``, ``wattpack_host_line`` and the same with a lower floor for low priority). The
first row sees all arms, the others ``SWEPT`` unless more are asked for. Every figure is simulated.

Of a scenario file: as ``polca_row``, with other counts of its servers behind its breakers (racks
carry all that stands in them); faults, in every window, strike domains or shares of everything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks._breaker_curves import row_marks
from benchmarks._frontier_cells import (
    ARMS,
    OPTIONS,
    STATIC,
    WATTPACK_SLOW,
    Cell,
    Hours,
    Variant,
    run_cell,
)
from benchmarks._frontier_figures import frontier_figures
from benchmarks._frontier_search import Search, all_cells
from benchmarks._given_power import power_figures
from benchmarks._given_row import given_row, refuse_beside_a_file, told_of
from benchmarks._rests_on import rests_on_digest
from benchmarks._row_slos import COUNTED
from benchmarks.runner import Options, Result, Target, sources_digest
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import WATTPACK, polca_scenario
from simulation.inference_row.served_rows import AZURE_LENGTHS, served_row
from simulation.plant import domain_names
from simulation.scenario import load_scenario
from wattpack.errors import InputError
from wattpack.sweep.sweep import sweep_of

NAME = "row_frontier"
SUMMARY = "largest server count of each policy behind a breaker for 40, at the same SLOs"
TAKES_ARGUMENTS = True
USAGE: Final = (
    "--variants NAME…, --arms NAME…, --slos every|whole, --days N, --hours X, --step-seconds X, "
    "--least N, --most N, --seeds N, --processes N, --scenario FILE"
)
TAKES_SCHEDULER = True

VARIANTS: Final = {
    "a100": Variant(),
    "h100_nameplate": Variant("h100_nameplate"),
    "h100_peak": Variant("h100_peak"),
    "h200_nameplate": Variant("h200_nameplate"),
    "h200_peak": Variant("h200_peak"),
    **{f"share_{share:g}": Variant(gpu_share=share) for share in (0.45, 0.5, 0.6, 0.65)},
    "azure_lengths": Variant(AZURE_LENGTHS),
    "hotter_5": Variant(hotter=0.05),
    "hotter_10": Variant(hotter=0.10),
}
FIRST_ROW: Final = "a100"
RATED: Final = 40
FIRST_SEED: Final = 10
"""Seeds 1 to 3 fitted the row and are used elsewhere; with ``--seed s`` they begin at 10 s + 1."""

BISECT_SEEDS: Final = 3
SEEDS: Final = 10
SWEPT: Final = (STATIC, "polca", WATTPACK)
QUICK: Final = Hours(1, 20.0 / 3600.0, 1.0, lead_seconds=90.0, tail_seconds=10.0)
QUICK_COUNTS: Final = (52, 54)
LINES: Final = {
    "a100_wattpack_every_servers": Target(at_least=1.40 * RATED),
    "h100_nameplate_wattpack_every_servers": Target(at_least=1.40 * RATED),
    "h200_nameplate_wattpack_every_servers": Target(at_least=1.40 * RATED),
    "h100_peak_wattpack_every_over_static": Target(at_least=1.08),
    "h200_peak_wattpack_every_over_static": Target(at_least=1.08),
}


def run(options: Options) -> Result:
    """Every search asked for; a cell that the folder of ``--resume`` holds is not run again."""
    given = _arguments(options)
    told = _told(given.scenario, options)
    hours = QUICK if options.quick else Hours(given.days, given.hours, given.step_seconds)
    variants = _variants(given)
    searches = _searches(given, list(variants), options)
    known = _kept(options, hours, variants)

    def evaluate(cells: list[Cell]) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
        jobs = [(cell, variants[cell.variant], hours) for cell in cells]
        sweep = sweep_of(options.scheduler, sources_digest, given.processes)
        made = (row for _, row in sweep.rows(_job, jobs))
        yield from _keeping(made, options, hours, variants)

    all_cells(searches, known, evaluate)
    row = polca_scenario(RATED, options.seed, ServerPower.of())
    figures: dict[str, float | int | str] = {
        "hours_a_day": hours.hours,
        "days": hours.days,
        "cells": len(known),
        **_powers(variants, options.seed),
        **row_marks(load_scenario(given.scenario) if given.scenario else row),
        **told,
    }
    made = frontier_figures(searches, known)
    lines = {} if options.quick else {name: line for name, line in LINES.items() if name in made}
    return Result({**figures, **made}, lines)


def _arguments(options: Options) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {NAME}", description=SUMMARY)
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), help="a100")
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="of every variant")
    parser.add_argument("--slos", nargs="+", choices=tuple(COUNTED), default=list(COUNTED))
    parser.add_argument("--days", type=int, default=3, help="so many of the hottest")
    parser.add_argument("--hours", type=float, default=1.0, help="of each day, from 13:00 on")
    parser.add_argument("--step-seconds", type=float, help="of the plant; 0.25, or a file's")
    parser.add_argument("--least", type=int, help="servers taken to be carried; 20")
    parser.add_argument("--most", type=int, help="servers taken not to be; 80")
    parser.add_argument("--seeds", type=int, help="at the counts found; 10, or 3 of a variant")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--scenario", type=Path, help="row, meter, plant and faults instead")
    given = parser.parse_args(options.arguments)
    least, most = QUICK_COUNTS if options.quick else (RATED // 2, 2 * RATED)
    given.least, given.most = given.least or least, given.most or most
    refuse_beside_a_file(given.scenario, variants=given.variants)
    given.variants = given.variants or [FIRST_ROW]
    if given.step_seconds is None:
        given.step_seconds = load_scenario(given.scenario).step_seconds
    if not 4 <= given.least < given.most:
        raise InputError("--least, --most", "at least 4 servers, in order", given.least)
    return given


def _told(file: Path | None, options: Options) -> dict[str, float | int | str]:
    """What a result says of a file, which is checked first.

    Raises:
        InputError: as ``told_of``, and for a fault of one server: counts of them differ.
    """
    told = told_of(file, options, ())
    if file is not None:
        scenario = load_scenario(file)
        domains = ("", *domain_names(scenario))
        for one in scenario.faults:
            if one.target not in domains:
                expected = "a domain, or nobody with a share: counts of servers differ"
                raise InputError("faults[].target", expected, one.target, str(file))
    return told


def _powers(variants: Mapping[str, Variant], seed: int) -> dict[str, float]:
    """What of each row is fixed before anything is tuned."""
    figures: dict[str, float] = {}
    for name, one in variants.items():
        if one.scenario is None:
            power = served_row(one.row, one.gpu_share).power
        else:
            power = given_row(one.scenario, seed).power
        figures |= {f"{name}_{key}": value for key, value in power_figures(power).items()}
    return figures


def _variants(given: argparse.Namespace) -> dict[str, Variant]:
    if given.scenario is None:
        return {name: VARIANTS[name] for name in given.variants}
    return {given.scenario.stem: Variant(scenario=given.scenario)}


def _searches(given: argparse.Namespace, variants: list[str], options: Options) -> list[Search]:
    first = FIRST_SEED * options.seed + 1
    # Rows on a measured peak do not all carry the rating itself.
    start = RATED if given.least < RATED < given.most else given.least
    made = []
    for variant in variants:
        swept = variant in VARIANTS and variant != FIRST_ROW
        wanted = SEEDS if variant == FIRST_ROW or variant not in VARIANTS else BISECT_SEEDS
        count = given.seeds or (1 if options.quick else wanted)
        seeds = tuple(range(first, first + count))
        arms = ARMS if variant == FIRST_ROW else [arm for arm in ARMS if arm not in OPTIONS]
        for arm in given.arms or (SWEPT if swept or options.quick else arms):
            common = seeds[: 1 if arm == WATTPACK_SLOW and swept else BISECT_SEEDS]
            of_arm = common if arm in OPTIONS else seeds
            for slos in given.slos[:1] if arm == STATIC else given.slos:
                limits = (given.least, given.most)
                made.append(Search(variant, arm, slos, *limits, common, of_arm, start))
    return made


def _job(job: tuple[Cell, Variant, Hours]) -> tuple[Cell, Mapping[str, Any]]:
    return job[0], run_cell(*job)


# -- what is kept ----------------------------------------------------------------------------------


def _file(options: Options, hours: Hours, variants: Mapping[str, Variant]) -> Path | None:
    """Where cells are kept: of these hours, this code and data, and these scenarios' words."""
    if options.resume is None:
        return None
    files = [one.scenario.read_text() for one in variants.values() if one.scenario]
    text = json.dumps([str(hours), files])
    asked = hashlib.sha256(text.encode()).hexdigest()[:8]
    rests_on = rests_on_digest(run_cell.__module__)
    return options.resume / f"{NAME}-{asked}-{rests_on}.jsonl"


def _kept(
    options: Options, hours: Hours, variants: Mapping[str, Variant]
) -> dict[Cell, Mapping[str, Any]]:
    file = _file(options, hours, variants)
    if file is None:
        return {}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    except OSError as error:
        raise InputError("--resume", "a folder to write to", str(options.resume)) from error
    return {Cell(*cell): row for cell, row in map(json.loads, lines)}


def _keeping(
    made: Iterator[tuple[Cell, Mapping[str, Any]]],
    options: Options,
    hours: Hours,
    variants: Mapping[str, Variant],
) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
    file = _file(options, hours, variants)
    for cell, row in made:
        if file is not None:
            with file.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps([cell, row]) + "\n")
        options.progress(f"{cell}: {row.get('peak_ratio', row)}")
        yield cell, row
