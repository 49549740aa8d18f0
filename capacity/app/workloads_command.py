"""``wattpack workloads``: kinds of work as kernel mixes, and what binds them on a GPU type."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from capacity.catalogue.catalogue_files import catalogue_with, find_workload
from capacity.catalogue.draw_shape import draw_shape, seen_range
from capacity.catalogue.priced_gpu import REFERENCE_GPU, PricedGpu, priced_gpu
from capacity.catalogue.startup_time import startup_time
from capacity.catalogue.work_done import WorkDone, work_done
from capacity.catalogue.workload_memory import (
    checkpoint_bytes,
    gpus_needed,
    memory_use,
    stop_seconds,
)
from capacity.catalogue.workload_model import Conditions, CyclePrice, price_cycle
from capacity.catalogue.workload_schema import Workload
from capacity.model.clock_map import clock_map
from capacity.roofs import asked_roofs
from wattpack.api.object_meta import GROUP, VERSION
from wattpack.errors import InputError


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack workloads", description=__doc__)
    parser.add_argument("name", nargs="?", help="one entry, phase by phase")
    parser.add_argument("--gpu", default=REFERENCE_GPU, help="GPU type (default: %(default)s)")
    parser.add_argument("--limit-watts", type=float, help="power limit (default: the type's own)")
    parser.add_argument(
        "--clock-share",
        type=float,
        default=1.0,
        help="clock lock as a share of the clock that the work sustains (default: none)",
    )
    parser.add_argument("--catalogue", type=Path, metavar="FOLDER", help="more entries, *.yaml")
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    parser.add_argument(
        "--profile", action="store_true", help="a WorkloadProfile object of the entry, YAML"
    )
    parser.add_argument("--schema", action="store_true", help="the JSON Schema of one entry")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the catalogue; 2 if a name, a type or an entry is refused."""
    args = build_parser().parse_args(argv)
    if args.schema:
        print(entry_schema(), end="")
        return 0
    try:
        catalogue = catalogue_with(args.catalogue)
        if args.name:
            catalogue = {args.name: find_workload(catalogue, args.name)}
        gpu = priced_gpu(asked_roofs(args.gpu).model)
        held = Conditions(args.clock_share, args.limit_watts)
        if held.limit_watts is not None:
            gpu.require_limit(held.limit_watts)
        cycles = {name: price_cycle(entry, gpu, held) for name, entry in catalogue.items()}
    except InputError as error:
        print(f"wattpack workloads: {error}", file=sys.stderr)
        return 2
    if args.profile:
        print("---\n".join(_profile(entry) for entry in catalogue.values()), end="")
        return 0
    if args.json:
        lock = {"clockShare": held.clock_share, "clockResponse": clock_map(gpu.name).provenance}
        made = [document(catalogue[n], cycles[n], gpu, args.limit_watts) | lock for n in catalogue]
        print(json.dumps(made, indent=2))
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    if held.clock_share < 1:
        console.print(
            f"clock locked at {held.clock_share:.0%} of what the work sustains; "
            f"the draw's response to a lock is {clock_map(gpu.name).provenance} on {gpu.name}",
            highlight=False,
        )
    if args.name:
        _show(console, catalogue[args.name], cycles[args.name], gpu, args.limit_watts)
    else:
        console.print(listing(catalogue, cycles, gpu))
    return 0


def entry_schema() -> str:
    """The JSON Schema of an entry as it is after inheritance, a line each key."""
    return json.dumps(Workload.model_json_schema(), indent=1, sort_keys=True) + "\n"


def document(
    entry: Workload, cycle: CyclePrice, gpu: PricedGpu, limit_watts: float | None = None
) -> dict[str, Any]:
    """The entry and what follows from it on the GPU type, as plain values."""
    memory = memory_use(entry)
    limit = gpu.limit_watts if limit_watts is None else limit_watts
    lowest, highest = seen_range(cycle, gpu, limit)
    return {
        "entry": entry.model_dump(),
        "gpu": gpu.name,
        "basis": gpu.basis,
        "cycleSeconds": cycle.seconds,
        "limitWatts": limit,
        "meanWatts": cycle.mean_watts,
        "lowestWatts": lowest,
        "highestWatts": highest,
        "shape": draw_shape(cycle, gpu, limit).model_dump(),
        "gpuBytes": memory.gpu_bytes,
        "gpuP99Bytes": memory.gpu_p99_bytes,
        "boardBytes": gpu.roofs.memory_bytes,
        "fits": _fits(entry, gpu),
        "gpusNeeded": gpus_needed(entry, gpu.roofs.memory_bytes),
        "checkpointBytes": checkpoint_bytes(entry),
        "stopSeconds": stop_seconds(entry),
        "startSeconds": _start(entry),
        "workDone": _camel(asdict(work_done(entry, cycle))),
        "phases": [
            {
                "name": phase.name,
                "seconds": phase.seconds,
                "busySeconds": phase.busy_seconds,
                "hostSeconds": phase.host_seconds,
                "binds": phase.binds,
                "meanWatts": phase.mean_watts,
                "isAboveLimit": phase.mean_watts > limit,
            }
            for phase in cycle.phases
        ],
    }


def workload_profile(entry: Workload) -> dict[str, Any]:
    """A WorkloadProfile object (``wattpack.io/v1alpha1``) as plain values."""
    stop = stop_seconds(entry)
    spec: dict[str, Any] = {
        "kind": entry.kind,
        "workload": entry.name,
        "kernelMix": {},
        "phases": [phase.name for phase in entry.phases],
        "malleable": entry.malleability.suspend,
    }
    if stop is not None:
        spec["checkpointSeconds"] = round(stop, 1)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "WorkloadProfile",
        "metadata": {"name": entry.name},
        "spec": spec,
    }


def _profile(entry: Workload) -> str:
    made: str = yaml.safe_dump(workload_profile(entry), sort_keys=False)
    return made


def listing(
    catalogue: Mapping[str, Workload], cycles: Mapping[str, CyclePrice], gpu: PricedGpu
) -> Table:
    """One row an entry."""
    table = Table(title=f"workloads on {gpu.name} ({gpu.basis})")
    lacking = sum(not _fits(entry, gpu) for entry in catalogue.values())
    if lacking:
        table.caption = (
            f"{lacking} of {len(catalogue)} do not fit in {_board_memory(gpu)}: "
            "their draw is that of a board which had the memory"
        )
    for name in ("workload", "kind", "phases: what binds"):
        table.add_column(name)
    for name in ("draw W", "memory GB", "loses by a stop"):
        table.add_column(name, justify="right")
    for name in ("SLO", "evidence", "source"):
        table.add_column(name)
    for name, entry in catalogue.items():
        cycle = cycles[name]
        phases = ", ".join(f"{phase.name}: {phase.binds}" for phase in cycle.phases)
        table.add_row(
            name, entry.kind, phases, f"{cycle.mean_watts:.0f}",
            _memory_cell(entry, gpu), _lost(entry), entry.slo.kind,
            entry.evidence, escape(entry.source),
        )  # fmt: skip
    return table


def _fits(entry: Workload, gpu: PricedGpu) -> bool:
    return memory_use(entry).gpu_p99_bytes <= gpu.roofs.memory_bytes


def _board_memory(gpu: PricedGpu) -> str:
    return f"{gpu.roofs.memory_bytes / 1e9:.0f} GB of {gpu.name}"


def _memory_cell(entry: Workload, gpu: PricedGpu) -> str:
    text = f"{memory_use(entry).gpu_bytes / 1e9:.0f}"
    return text if _fits(entry, gpu) else f"{text}\n{_lack(entry, gpu)}"


def _lack(entry: Workload, gpu: PricedGpu) -> str:
    return f"does not fit: needs {gpus_needed(entry, gpu.roofs.memory_bytes)} GPUs"


def _camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {to_camel(name): value for name, value in fields.items()}


def _work_lines(entry: Workload, done: WorkDone) -> list[str]:
    """What users get of it, as far as the entry says how."""
    lines = []
    if done.tokens_per_second and done.joules_per_token and done.seconds_per_token:
        lines.append(
            f"tokens: {done.tokens_per_second:.0f} a second, {done.joules_per_token:.3g} J each; "
            f"{1000 * done.seconds_per_token:.3g} ms a token and sequence"
        )
    if done.answer_seconds:
        lines.append(
            f"a call's {entry.parameters.output_tokens:g} tokens: {done.answer_seconds:.3g} s"
        )
    if done.requests_per_second and done.joules_per_request:
        lines.append(
            f"requests of users: {done.requests_per_second:.3g} a second, "
            f"{done.joules_per_request:.3g} J each"
        )
    if entry.parameters.step_time_spread:
        members = entry.malleability.max_gpus
        lines.append(
            f"a cycle's 95th percentile {done.p95_seconds:.3g} s; "
            f"{done.gang_seconds:.3g} s where {members} GPUs wait for one another"
        )
    return lines


def _start(entry: Workload) -> dict[str, float]:
    time = startup_time(entry)
    p50, p95 = time.quantiles([0.5, 0.95])
    return {"mean": time.mean_seconds, "p50": p50, "p95": p95}


def _lost(entry: Workload) -> str:
    seconds = stop_seconds(entry)
    return "all" if seconds is None else f"{seconds:.0f} s"


def _show(
    console: Console,
    entry: Workload,
    cycle: CyclePrice,
    gpu: PricedGpu,
    limit_watts: float | None,
) -> None:
    limit = gpu.limit_watts if limit_watts is None else limit_watts
    console.print(f"[bold]{entry.name}[/bold]: {escape(entry.title)} ({entry.kind})")
    console.print(_phase_table(cycle, gpu, limit))
    if not _fits(entry, gpu):
        console.print(f"{_lack(entry, gpu)} ({_board_memory(gpu)})", highlight=False)
    for line in _work_lines(entry, work_done(entry, cycle)):
        console.print(line, highlight=False)
    if entry.stages:
        asked = f"wattpack plan serving MODEL --graph {entry.name}"
        console.print(f"one request: {_stages(entry)} ({asked})", highlight=False, markup=False)
    memory = memory_use(entry)
    start = _start(entry)
    lowest, highest = seen_range(cycle, gpu, limit)
    parts = ", ".join(f"{name} {part.mean:.0f}" for name, part in startup_time(entry).parts)
    console.print(
        f"draw {cycle.mean_watts:.0f} W of {limit:g}, over 100 ms {lowest:.0f} to {highest:.0f} W\n"
        "GPU memory "
        f"{memory.gpu_bytes / 1e9:.1f} GB (p99 {memory.gpu_p99_bytes / 1e9:.1f}), host "
        f"{memory.host_bytes / 1e9:.0f} GB, NVMe {memory.storage_bytes / 1e9:.0f} GB\n"
        f"SLO {entry.slo.kind}; checkpoint {entry.checkpoint.mode}, "
        f"{checkpoint_bytes(entry) / 1e9:.1f} GB a GPU; a stop loses {_lost(entry)}\n"
        f"start: mean {start['mean']:.0f} s, p95 {start['p95']:.0f} s ({parts})\n"
        f"{entry.evidence}; source: {escape(entry.source)}",
        highlight=False,
    )


def _stages(entry: Workload) -> str:
    """What one user request waits for, in words."""
    words = []
    for stage in entry.stages:
        times = f"{stage.calls} × " if stage.calls > 1 else ""
        size = (
            f"{stage.seconds:g} s"
            if stage.seconds is not None
            else f"{stage.prompt_tokens} + {stage.output_tokens} tokens"
        )
        waits = "" if stage.after is None else f", after {', '.join(stage.after) or 'nothing'}"
        words.append(f"{times}{stage.name} ({size}{waits})")
    return " → ".join(words)


def _phase_table(cycle: CyclePrice, gpu: PricedGpu, limit_watts: float) -> Table:
    table = Table(title=f"one cycle on {gpu.name} ({gpu.basis}), {cycle.seconds:.3g} s")
    for name in ("phase", "binds"):
        table.add_column(name)
    for name in ("seconds", "GPU busy", "host", "storage", "network", "draw W"):
        table.add_column(name, justify="right")
    for phase in cycle.phases:
        outside = [f"{phase.host_seconds[path]:.3g}" for path in ("host", "storage", "network")]
        is_above = phase.mean_watts > limit_watts
        table.add_row(
            phase.name, phase.binds, f"{phase.seconds:.3g}", f"{phase.busy_seconds:.3g}",
            *outside, f"{phase.mean_watts:.0f}" + "*" * is_above,
        )  # fmt: skip
        if is_above:
            table.caption = "* shorter than a board regulates over: the cycle's mean is held"
    return table


if __name__ == "__main__":
    raise SystemExit(main())
