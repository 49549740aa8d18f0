"""``wattpack bench import``: result files of serving benchmarks as measurement rows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.catalogue.result_formats import read_results
from capacity.catalogue.serving_measurement import (
    Latency,
    ServingMeasurement,
    require_possible,
)
from capacity.language_models import LanguageModel, find_language_model
from capacity.roofs import asked_roofs
from wattpack.documents import read_text
from wattpack.errors import InputError, read_from
from wattpack.flags import output_file, write_output


def add_import(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb's own command line."""
    imported = verbs.add_parser(
        "import",
        help="results of vLLM's benchmark, GenAI-Perf or AIPerf as serving measurements",
        description="Rows of TTFT, TPOT and throughput by request size. Refused as a whole: files "
        "that are cut off, of several versions, or that say what these GPUs cannot do.",
    )
    imported.add_argument("files", type=Path, nargs="+", help="result files of one benchmark")
    imported.add_argument("--format", choices=("vllm", "genai-perf"), required=True)
    imported.add_argument("--gpu", required=True, help="GPU type that served")
    imported.add_argument("--gpus", type=int, default=1, help="of one replica (default 1)")
    imported.add_argument("--out", type=output_file, help="rows as JSON Lines")
    imported.set_defaults(act=import_results)


def import_results(args: argparse.Namespace) -> int:
    """0 imported; InputError for what is refused, before anything is written."""
    gpu = asked_roofs(args.gpu).model
    rows: list[ServingMeasurement] = []
    for file in args.files:
        made = read_results(read_text(file), args.format, gpu, args.gpus, str(file))
        with read_from(str(file)):
            unknown = require_possible(made, _known_models(made))
        for name in unknown:
            print(f"{name}: no language model of that name; not held against roofs",
                  file=sys.stderr)  # fmt: skip
        rows += made
    versions = sorted({row.run.version for row in rows})
    if len(versions) > 1:
        raise InputError("files", "results of one version of the benchmark", versions)
    if args.out:
        write_output(args.out, "".join(json.dumps(row.document()) + "\n" for row in rows))
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(_table(rows))
    return 0


def _known_models(rows: Sequence[ServingMeasurement]) -> dict[str, LanguageModel]:
    found: dict[str, LanguageModel] = {}
    for name in {row.run.model for row in rows}:
        try:
            found[name] = find_language_model(name)
        except InputError:
            continue
    return found


def _table(rows: Sequence[ServingMeasurement]) -> Table:
    table = Table(title=f"{len(rows)} serving measurements")
    for name in ("model", "GPUs"):
        table.add_column(name)
    for name in ("in", "out", "requests", "TTFT p50 / p99 s", "TPOT p50 / p99 ms", "out tokens/s"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            escape(row.run.model), escape(f"{row.run.gpus} {row.run.gpu}"),
            f"{row.input_tokens:.0f}",
            f"{row.output_tokens:.0f}", str(row.requests), _pair(row.time_to_first_token, 1.0),
            _pair(row.time_per_output_token, 1e3), f"{row.output_tokens_per_second:.1f}",
        )  # fmt: skip
    return table


def _pair(latency: Latency | None, scale: float) -> str:
    if latency is None:
        return "-"
    p99 = "-" if latency.p99 is None else f"{latency.p99 * scale:.3g}"
    return f"{latency.p50 * scale:.3g} / {p99}"
