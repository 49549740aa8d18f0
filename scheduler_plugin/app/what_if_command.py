"""``wattpack plan what-if``: a snapshot's plan if nodes went or came, or a limit were another.

Both plans are made by the cluster's planner; nothing is written anywhere. ``--start-of`` asks when
a waiting gang would start instead, from when running pods are expected to end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from scheduler_plugin.app.plan_command import read_snapshot
from scheduler_plugin.app.planning_flags import add_planning_flags, chosen
from scheduler_plugin.app.snapshot_notes import print_notes
from scheduler_plugin.app.what_if_lines import comparison_lines, start_lines
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.gang_start import Forecast, GangStart, expected_start, parse_forecast
from scheduler_plugin.solve import SearchSettings, plan
from scheduler_plugin.what_if import (
    MAX_ADDED,
    AddedNodes,
    Comparison,
    FewerNodes,
    Question,
    altered,
    compared,
)
from wattpack.documents import parse_json, read_text
from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = ["main"]

_MOST = 10**9


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wattpack plan what-if", description=__doc__)
    parser.add_argument(
        "snapshot", metavar="SNAPSHOT", help="a wattpack.io/snapshot/v1; - for stdin"
    )
    parser.add_argument(
        "--drain", action="append", default=[], metavar="NODE", help="its pods wait again"
    )
    parser.add_argument(
        "--remove",
        action="append",
        default=[],
        metavar="NODE|N:TYPE[:DOMAIN]",
        help="it is gone; or N nodes of a GPU model are, the emptiest, below a power domain",
    )
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="N:TYPE[:DOMAIN]",
        help="N more nodes like those of a GPU model, or like one node, below a power domain",
    )
    parser.add_argument(
        "--limit", action="append", default=[], metavar="DOMAIN=WATTS", help="of a power domain"
    )
    parser.add_argument(
        "--start-of", metavar="GANG", help="when that gang, or pod (namespace/name), would start"
    )
    parser.add_argument(
        "--forecast",
        type=Path,
        metavar="FILE",
        help="with --start-of: a wattpack.io/what-if-forecast/v1, ends of pods, watts of domains",
    )
    parser.add_argument("--json", action="store_true", help="print the document")
    parser.add_argument("--moves", action="store_true", help="running pods may be moved, too")
    parser.add_argument(
        "--deadline-seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="for each plan; default 1",
    )
    add_planning_flags(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Print what would be; 0 whatever it is, 2 for wrong input."""
    arguments = _parser().parse_args(argv)
    try:
        print(_answer(arguments))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _answer(arguments: argparse.Namespace) -> str:
    question = _question(arguments)
    if question == Question() and not arguments.start_of:
        raise InputError("what-if", "--drain, --remove, --add, --limit or --start-of", "nothing")
    if arguments.forecast and not arguments.start_of:
        raise InputError("--forecast", "only with --start-of", str(arguments.forecast))
    planner = _planner(arguments)
    snapshot = read_snapshot(arguments.snapshot)
    print_notes(snapshot, arguments)
    changed = altered(snapshot, question)
    if arguments.start_of:
        start = expected_start(changed, arguments.start_of, planner, _forecast(arguments.forecast))
        return _printed(arguments, start, lambda: start_lines(changed, start))
    after = (changed, planner(changed))
    comparison = compared((snapshot, planner(snapshot)), after)
    return _printed(arguments, comparison, lambda: comparison_lines(changed, comparison))


def _printed(
    arguments: argparse.Namespace,
    document: Comparison | GangStart,
    for_people: Callable[[], list[str]],
) -> str:
    return document.model_dump_json(indent=2) if arguments.json else "\n".join(for_people())


def _planner(arguments: argparse.Namespace) -> Callable[[Snapshot], Plan]:
    seconds = require_number(
        "--deadline-seconds", arguments.deadline_seconds, minimum=0, maximum=3600, unit="seconds"
    )
    settings = SearchSettings(moves=arguments.moves, leaving=frozenset(arguments.drain))
    choice = chosen(arguments)
    return lambda snapshot: plan(choice.of(snapshot), deadline_seconds=seconds, settings=settings)


def _forecast(file: Path | None) -> Forecast | None:
    if file is None:
        return None
    text = read_text(file)
    forecast = parse_forecast(text, str(file))
    # A model takes the last of two keys unseen.
    parse_json(text, str(file))
    return forecast


def _question(arguments: argparse.Namespace) -> Question:
    return Question(
        drain=tuple(arguments.drain),
        remove=tuple(text for text in arguments.remove if ":" not in text),
        fewer=tuple(_fewer(text) for text in arguments.remove if ":" in text),
        add=tuple(_added(text) for text in arguments.add),
        limits=dict(_limit(text) for text in arguments.limit),
    )


def _added(text: str) -> AddedNodes:
    count, like, domain = _counted("--add", text)
    return AddedNodes(count=count, like=like, domain=domain)


def _fewer(text: str) -> FewerNodes:
    count, model, domain = _counted("--remove", text)
    return FewerNodes(count=count, model=model, domain=domain)


def _counted(flag: str, text: str) -> tuple[int, str, str]:
    """How many of what below which domain."""
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise InputError(flag, "N:TYPE or N:TYPE:DOMAIN", text)
    count = _whole(flag, parts[0], MAX_ADDED)
    if not count:
        raise InputError(flag, "one node at least", text)
    return count, parts[1], parts[2] if len(parts) == 3 else ""


def _limit(text: str) -> tuple[str, int]:
    name, equals, watts = text.rpartition("=")
    if not equals or not name:
        raise InputError("--limit", "DOMAIN=WATTS", text)
    return name, _whole("--limit", watts, _MOST, of="watts")


def _whole(flag: str, text: str, most: int, of: str = "nodes") -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= most):
        raise InputError(flag, f"a whole number of {of} up to {most:,}", text)
    return int(text)
