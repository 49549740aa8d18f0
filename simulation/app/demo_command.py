"""``wattpack demo``: 52 simulated GPU servers behind a breaker for 40, and all of wattpack.

Everything runs on this machine over loopback: agents, actuators, two controllers, planner,
watchdog, forecaster and the dashboard. Only the boards, the load and the electricity are simulated,
from real request traces; ten earlier days of history are simulated too, and labelled so.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from console.app.console_command import static_folder
from simulation.app.running_demo import DemoRow
from simulation.baselines import grows_with_servers
from simulation.presets import PRESETS, preset_file
from simulation.results import Comparison, TwinResult, end_seconds
from simulation.scenario import FaultKind, Scenario, load_scenario
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.ending import EndNotice, end_noted
from wattpack.errors import InputError, PermanentError, WattpackError
from wattpack.logs import log_plain
from wattpack.units import NS_PER_SECOND

PROGRESS_SECONDS = 2.0
# The demo's processes are real threads; stopping and starting them is the twin runner's business.
PROCESS_FAULTS = frozenset(
    {
        FaultKind.API_DOWN,
        FaultKind.FORECASTER_DOWN,
        FaultKind.PLANNER_DOWN,
        FaultKind.TELEMETRY_LOSS,
    }
)
Say = Callable[[str], None]


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack demo", description=__doc__)
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--scenario", type=Path, help="YAML file that overrides any number (docs/scenario.md)"
    )
    which.add_argument(
        "--preset", choices=sorted(PRESETS), help="a shipped scenario in place of a file of yours"
    )
    add("--seed", type=int, help="of every random draw (default: the scenario's)")
    add(
        "--duration",
        type=float,
        metavar="SECONDS",
        help="simulated length (default: 900, or until interrupted with the dashboard)",
    )
    add(
        "--speed",
        type=flags.positive,
        default=None,
        help="ceiling of simulated seconds a second (default: 5 with the dashboard, else 30)",
    )
    add("--headless", action="store_true", help="no dashboard; end with a summary")
    add("--json", type=flags.output_file, help="write the summary to this file")
    add("--port", type=flags.port, default=8080, help="of the dashboard")
    add(
        "--replicas",
        type=int,
        choices=[1, 2, 3],
        help="controller replicas (default: 2 with the dashboard, 1 headless)",
    )
    add("--verbose", action="store_true", help="log what the processes say")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the demo; 1 if a breaker tripped or an invariant was violated."""
    arguments = build_parser().parse_args(argv)
    log_plain("info" if arguments.verbose else "error")
    scenario = chosen_scenario(arguments)
    if not arguments.headless:
        static_folder()  # refuse before anything starts
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    with end_noted(clock) as end:
        row = run_row(arguments, scenario, clock, end)
    if end.number is not None and (row is None or end.number != signal.SIGINT):
        return 128 + end.number  # nothing to sum up, or nobody who waits for it
    assert row is not None, "told by nobody, it ran"
    if row.failure is not None:
        raise PermanentError(f"simulated time stopped: {row.failure}")
    _say("comparing with runs of the same seed: uncapped, without oversubscription, static caps")
    result = row.summary().model_copy(
        update={"wall_seconds": round((clock.monotonic_ns() - began_ns) / NS_PER_SECOND, 2)}
    )
    return conclude(result, scenario, arguments.json, _say)


def run_row(
    arguments: argparse.Namespace, scenario: Scenario, clock: Clock, end: EndNotice
) -> DemoRow | None:
    """The row after its run; None if the demo was told to end before it began."""
    _say(
        f"{scenario.row.servers} servers, {scenario.row.servers * scenario.row.gpus_per_server} "
        f"GPUs, a breaker for {scenario.row.rated_servers:g} servers; seed {scenario.seed}"
    )
    speed = arguments.speed or (30.0 if arguments.headless else 5.0)
    port = None if arguments.headless else arguments.port
    forever = not arguments.headless and arguments.duration is None
    row = DemoRow(scenario, speed, port, _replicas(arguments))
    try:
        if end.told():
            return None
        row.start()
        if row.console is not None:
            _say(f"dashboard: http://127.0.0.1:{row.console.port}  (Ctrl-C ends the demo)")
        run_until(row, None if forever else end_seconds(scenario), clock, _say, end.told)
        if end.told():
            _say("ending (once more: at once)")
    finally:
        row.stop()
    return row


def _replicas(arguments: argparse.Namespace) -> int:
    return arguments.replicas or (1 if arguments.headless else 2)


def chosen_scenario(arguments: argparse.Namespace) -> Scenario:
    """The scenario with the command line's numbers in it.

    Raises:
        InputError: naming the key of a bad file or flag.
    """
    file = preset_file(arguments.preset) if arguments.preset else arguments.scenario
    scenario = load_scenario(file, seed=arguments.seed, duration_seconds=arguments.duration)
    replicas = _replicas(arguments)
    for index, fault in enumerate(scenario.faults):
        if fault.kind is FaultKind.CONTROLLER_CRASH:
            replicas -= 1
            if replicas < 1 or fault.duration_seconds:
                raise InputError(
                    f"faults.{index}",
                    "a crash of duration 0 (a replica that dies stays dead), and more --replicas "
                    "than crashes",
                    f"{fault.duration_seconds:g} s, {_replicas(arguments)} replicas",
                    str(arguments.scenario),
                )
        if fault.kind in PROCESS_FAULTS:
            raise InputError(
                f"faults.{index}.kind",
                "a fault of the plant; faults of wattpack's own processes need run_twin",
                str(fault.kind),
                str(arguments.scenario),
            )
    return scenario


def run_until(
    row: DemoRow,
    until_seconds: float | None,
    clock: Clock,
    say: Say,
    told: Callable[[], bool] = lambda: False,
) -> None:
    """Tell how it goes until simulated time reaches the end, or the demo is told to end."""
    last_ns, last_said = clock.monotonic_ns(), -1.0
    while row.failure is None and not told():
        now = row.clock.monotonic_ns() / NS_PER_SECOND
        if until_seconds is not None and now >= until_seconds:
            return
        if clock.monotonic_ns() - last_ns >= PROGRESS_SECONDS * NS_PER_SECOND and now > last_said:
            last_ns, last_said = clock.monotonic_ns(), now
            say(row.progress())
        clock.wait_until(clock.monotonic_ns() + NS_PER_SECOND // 10)


def conclude(result: TwinResult, scenario: Scenario, file: Path | None, say: Say) -> int:
    """Print and keep the summary; the exit status."""
    document = json.dumps(result.model_dump(), indent=2)
    print(document, flush=True)
    if file is not None:
        flags.write_output(file, document + "\n")
    for line in (*comparison_lines(result.comparisons, scenario), *request_lines(result)):
        say(line)
    if result.trips or result.invariant_violations:
        say(f"FAILED: {result.trips} trips, {result.invariant_violations} invariant violations")
        for line in result.violations[:10]:
            say(f"  {line}")
        return 1
    say(
        f"no trip, no invariant violated; peak draw {result.peak_draw_ratio:.1%} of rating "
        f"(uncapped: {result.uncapped_peak_draw_ratio:.1%}, {result.uncapped_trips} trips)"
    )
    return 0


_NAMES = {
    "wattpack": "with wattpack",
    "unshared": "without oversubscription",
    "static_caps": "with static caps",
}


def comparison_lines(comparisons: Mapping[str, Comparison], scenario: Scenario) -> list[str]:
    """What wattpack brought, as a table for people; empty for a run that ended in its warm-up."""
    if "wattpack" not in comparisons:
        return []
    ours = comparisons["wattpack"]
    heads = f"{'tokens':>17}{'job GPU-hours':>21}{'peak':>9}{'trips':>7}"
    arrivals = "arrivals grow with servers" if grows_with_servers(scenario) else "the same arrivals"
    lines = ["", f"{arrivals:36}{heads}"]
    for name, run in comparisons.items():
        title = f"{run.servers} servers {_NAMES[name]}"
        tokens, hours = run.tokens_served / 1e6, run.job_gpu_seconds / 3600
        lines.append(
            f"{title:36}{tokens:8.1f} M{_apart(run.tokens_served, ours.tokens_served):>7}"
            f"{hours:14.1f}{_apart(run.job_gpu_seconds, ours.job_gpu_seconds):>7}"
            f"{run.peak_draw_ratio:9.1%}{run.trips:7}"
        )
    return [*lines, ""]


def request_lines(result: TwinResult) -> list[str]:
    """What an inference row's requests met, as a table for people; empty for other work."""
    if not result.request_losses:
        return []
    heads = f"{'first token p50, p99':>32}{'between tokens p50, p99':>36}"
    lines = ["", f"{'requests (uncapped)':20}{heads}"]
    uncapped = result.uncapped_request_seconds_by_workload
    for name, mine in result.request_seconds_by_workload.items():
        plain = uncapped.get(name)
        if plain is None:
            continue
        pairs = [
            (mine.first_token_p50, plain.first_token_p50),
            (mine.first_token_p99, plain.first_token_p99),
            (mine.per_token_p50, plain.per_token_p50),
            (mine.per_token_p99, plain.per_token_p99),
        ]
        cells = "".join(f"{own:9.3f} ({other:.3f}) s" for own, other in pairs)
        lines.append(f"{name:12}{cells}")
    broken = ", ".join(result.request_slos_broken)
    return [*lines, f"beyond POLCA's limits for peak hours: {broken or 'none'}", ""]


def _apart(theirs: float, ours: float) -> str:
    """How far theirs is from ours, in per cent; empty for our own."""
    # Adding zero turns -0 % into +0 %.
    return f"{round(theirs / ours - 1.0, 2) + 0.0:+.0%}" if ours and theirs != ours else ""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WattpackError as error:
        sys.exit(f"error: {error}")
