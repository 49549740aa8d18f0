"""``python -m benchmarks --list`` or ``python -m benchmarks NAME [--quick] [--json FILE] …``."""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks._rests_on import rests_on_digest
from benchmarks.expected import outside, read_ranges
from benchmarks.runner import Options, Result, discover, find, named, record
from wattpack.clock import SystemClock
from wattpack.ending import interruptible
from wattpack.errors import Terminated, WattpackError
from wattpack.flags import output_file, write_output

Line = Mapping[str, Any]
"""A result as JSON."""


def main(argv: list[str] | None = None) -> int:
    """Run one benchmark; its last line on standard output is one JSON object."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.help:
        return _help(parser, arguments.name)
    _refuse_what_nobody_takes(parser, arguments, rest)
    if arguments.list:
        for name, module in sorted(discover().items()):
            print(f"{name:24} {module.SUMMARY}")
        return 0
    if arguments.name is None:
        parser.error("name a benchmark, or --list")
    try:
        line = _measured(arguments, rest)
    except WattpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Terminated:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if arguments.record or arguments.record_as:
        print(_kept(arguments, line), file=sys.stderr)
    print(json.dumps(line), flush=True)
    status = _keep(arguments.json, json.dumps(line) + "\n") if arguments.json else 0
    return status or (_within_ranges(arguments, line) if arguments.within_ranges else 0)


def _parser() -> argparse.ArgumentParser:
    """What every benchmark takes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, add_help=False
    )
    parser.add_argument(
        "-h", "--help", action="store_true", help="tell this, or with a name what it does and takes"
    )
    parser.add_argument("name", nargs="?", help="which benchmark to run")
    parser.add_argument("--list", action="store_true", help="name each benchmark and stop")
    parser.add_argument("--quick", action="store_true", help="at most 20 s; fewer repetitions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="folder of finished shards")
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask scheduler, tcp://…: its workers run the cases of a sweep",
    )
    parser.add_argument("--json", type=output_file, help="also write the JSON object to this file")
    parser.add_argument(
        "--record", action="store_true", help="keep the result in benchmarks/results/"
    )
    parser.add_argument(
        "--record-as",
        metavar="WORD",
        help="the same under NAME_WORD: other seeds or settings, beside the plain result",
    )
    parser.add_argument(
        "--within-ranges",
        action="store_true",
        help="end with 1 if a figure has left its range in benchmarks/ranges.yaml",
    )
    return parser


def _refuse_what_nobody_takes(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, rest: Sequence[str]
) -> None:
    """End with a usage error; who names no benchmark, or none that is known, is told so later."""
    module = named(arguments.name or "")
    if rest and not getattr(module, "TAKES_ARGUMENTS", False):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments.scheduler and not getattr(module, "TAKES_SCHEDULER", not arguments.name):
        parser.error(f"argument --scheduler: {arguments.name} is no sweep")
    word = arguments.record_as
    if word is not None and not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", word):
        parser.error(f"argument --record-as: expected a-z, 0-9 and single _, got {word!r}")
    if not 0 <= arguments.seed < 2**31:
        parser.error(f"argument --seed: expected 0 to 2147483647, got {arguments.seed}")


def _measured(arguments: argparse.Namespace, rest: Sequence[str]) -> Line:
    """Run the benchmark; a measurement has no loop that could look, so it unwinds when ended.

    Raises:
        WattpackError: for an unknown name, or as the benchmark says.
        Terminated: when the process is told to end.
    """
    module = find(arguments.name)
    options = Options(
        quick=arguments.quick,
        seed=arguments.seed,
        resume=arguments.resume,
        scheduler=arguments.scheduler,
        arguments=tuple(rest),
    )
    with interruptible(SystemClock()):
        result: Result = module.run(options)
    return result.to_json(_result_name(arguments, module, rest))


def _kept(arguments: argparse.Namespace, line: Line) -> str:
    """What is said of the result; one that measured nothing takes no older one's place."""
    if "skipped" in line["figures"]:
        return "not kept: nothing was measured"
    return f"kept in {_recorded(arguments, line)}"


def _recorded(arguments: argparse.Namespace, line: Line) -> Path:
    """The file in which the result is kept."""
    now = datetime.fromtimestamp(SystemClock().wall_time_ns() / 1e9, tz=UTC)
    rests_on = rests_on_digest(f"benchmarks.{arguments.name}")
    return record(line, rests_on=rests_on, seed=arguments.seed, date=f"{now:%Y-%m-%d}")


def _within_ranges(arguments: argparse.Namespace, line: Line) -> int:
    """Name figures that have left their ranges; the exit status."""
    ranges = read_ranges().get(line["benchmark"], {})
    strangers = outside(ranges, line["figures"], quick=arguments.quick)
    for name, text in strangers.items():
        print(f"outside its range: {name} is {text}", file=sys.stderr)
    return 1 if strangers else 0


def _result_name(arguments: argparse.Namespace, module: ModuleType, rest: Sequence[str]) -> str:
    """Name of the result, which is its file's: ``KEPT_APART`` and ``--record-as`` add to it."""
    apart = [flag.removeprefix("--") for flag in getattr(module, "KEPT_APART", ()) if flag in rest]
    return "_".join([arguments.name, *apart, *filter(None, [arguments.record_as])])


def _help(parser: argparse.ArgumentParser, name: str | None) -> int:
    """Tell people what there is, or what one benchmark does; the exit status."""
    parser.print_help()
    if name is None:
        return 0
    try:
        module = find(name)
    except WattpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{name}: {(module.__doc__ or module.SUMMARY).strip()}")
    usage = getattr(module, "USAGE", "")
    print(f"\nIt takes besides: {usage}" if usage else "\nIt takes nothing besides.")
    return 0


def _keep(file: Path, text: str) -> int:
    """Write the result; the exit status."""
    try:
        write_output(file, text)
    except WattpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
