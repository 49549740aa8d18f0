"""``wattpack history import | list | compact``: what is in a history file, and how it gets there.

``import`` fills a file from a table (CSV, Parquet) or from a trace of requests (Azure, BurstGPT,
Mooncake, ServeGen), so that forecasts need not start from nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from forecasting.app.forecast_tables import plain_table, print_whole, table_console
from forecasting.files.text_lines import Progress as Told
from forecasting.history_import import (
    End,
    ImportedHistory,
    history_of_table,
    history_of_trace,
)
from forecasting.series_source import DAY_SECONDS
from forecasting.sqlite import HistoryStore
from forecasting.sqlite.history_store import KEPT_DAYS, KEPT_MEBIBYTES
from forecasting.sqlite.stored_series import StoredSeries
from forecasting.traces import FORMATS
from wattpack.clock import SystemClock
from wattpack.errors import InputError
from wattpack.flags import output_file, positive
from wattpack.printable import printable
from wattpack.sqlite_retention import kept
from wattpack.times import parse_rfc3339, rfc3339
from wattpack.units import NS_PER_SECOND, seconds_to_ns


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack history", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    loaded = verbs.add_parser("import", help="fill a file from a table or a trace of requests")
    loaded.add_argument("file", type=Path, help="CSV, Parquet or trace; of ServeGen a folder")
    loaded.add_argument("--format", choices=("table", *FORMATS), default="table")
    loaded.add_argument("--name", help="a trace's series are requests_per_second/NAME …")
    loaded.add_argument("--time-zone", help="of a table's times that state none: Europe/Berlin")
    loaded.add_argument(
        "--ends", default=None, metavar="own|now|TIME",
        help="where the history is laid: as it says (tables), ending now (traces), or RFC 3339",
    )  # fmt: skip
    loaded.add_argument(
        "--lengths", type=output_file, metavar="FILE",
        help="write a trace's token lengths by client and six hours as JSON",
    )  # fmt: skip
    listed = verbs.add_parser("list", help="series of a file, and from when to when")
    listed.add_argument("--json", action="store_true", help="as JSON")
    small = verbs.add_parser("compact", help="merge, delete what is old, and make the file small")
    small.add_argument("--days", type=positive, default=KEPT_DAYS, help=f"kept ({KEPT_DAYS:g})")
    small.add_argument(
        "--max-mebibytes", type=positive, default=KEPT_MEBIBYTES, help=f"kept ({KEPT_MEBIBYTES})"
    )
    for verb in (loaded, listed, small):
        verb.add_argument("--history-file", type=Path, required=True, help="SQLite history")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Do it; 0 done, 1 some series could not be read, 2 wrong usage."""
    args = build_parser().parse_args(argv)
    try:
        if args.verb == "import":
            return _import(args)
        return _list(args) if args.verb == "list" else _compact(args)
    except InputError as error:
        print(f"wattpack history {args.verb}: {error}", file=sys.stderr)
        return 2


def _import(args: argparse.Namespace) -> int:
    """Read all of the input, then store it as one transaction."""
    now_seconds = SystemClock().wall_time_ns() / NS_PER_SECOND
    is_table = args.format == "table"
    for flag, wrong in (("time_zone", not is_table), ("name", is_table), ("lengths", is_table)):
        if wrong and getattr(args, flag) is not None:
            raise InputError(flag, "another --format", args.format)
    end = _end(args.ends or ("own" if is_table else "now"), now_seconds)
    with _shown(args.file) as told:
        if is_table:
            made = history_of_table(args.file, args.time_zone, end, told)
        else:
            made = history_of_trace(args.file, args.format, args.name, end, told)
    with HistoryStore(args.history_file) as store:
        store.append_rows(made.start_seconds, made.means, made.maxima)
    if args.lengths is not None:
        args.lengths.write_text(json.dumps([asdict(one) for one in made.lengths], indent=1))
    print(_told(made, args.history_file))
    for error in made.refused.values():
        print(f"wattpack history import: left out: {error}", file=sys.stderr)
    if made.until_seconds < now_seconds - KEPT_DAYS * DAY_SECONDS:
        print(
            f"it ends over {KEPT_DAYS:g} days ago: a controller that keeps this file will delete "
            "it; --ends now moves it",
            file=sys.stderr,
        )
    return 1 if made.refused else 0


def _end(text: str, now_seconds: float) -> End:
    """Where the history is to end."""
    if text == "own":
        return None
    if text == "now":
        return now_seconds
    try:
        return parse_rfc3339(text).timestamp()
    except ValueError as error:
        raise InputError("ends", "own, now or a time like 2026-11-23T18:00:00Z", text) from error


def _told(made: ImportedHistory, file: Path) -> str:
    """What was stored."""
    flags = f" ({', '.join(made.flags)})" if made.flags else ""
    return (
        f"{len(made.means)} series, {_time(made.start_seconds)} to {_time(made.until_seconds)}, "
        f"into {file}{flags}"
    )


def _list(args: argparse.Namespace) -> int:
    """The series of a file."""
    with HistoryStore(args.history_file, read_only=True) as store:
        stored = store.overview()
        size = store.size_bytes()
    if args.json:
        print(json.dumps([asdict(one) for one in stored], indent=1))
        return 0
    title = f"{args.history_file}: {len(stored)} series, {size / 2**20:.1f} MiB"
    lines = plain_table(Text(printable(title)))
    lines.add_column("series", overflow="fold", min_width=14)
    for heading in ("from", "until", "10-min bins", "hours"):
        lines.add_column(heading, no_wrap=True)
    for one in stored:
        lines.add_row(*(Text(printable(cell)) for cell in _cells(one)))
    print_whole(lines, table_console())
    return 0


def _cells(one: StoredSeries) -> tuple[str, ...]:
    times = (_time(one.since_seconds), _time(one.until_seconds))
    return (one.name, *times, str(one.fine_bins), str(one.hours))


def _compact(args: argparse.Namespace) -> int:
    """Everything that the controller does step by step, at once, and a small file at the end."""
    now_seconds = SystemClock().wall_time_ns() / NS_PER_SECOND
    retention = kept(args.days, math.ceil(args.max_mebibytes))
    if not args.history_file.is_file():
        raise InputError("history_file", "a file that is there", str(args.history_file))
    with HistoryStore(args.history_file, retention=retention) as store:
        before, after = store.shrink(now_seconds)
    print(f"{args.history_file}: {before / 2**20:.1f} MiB, now {after / 2**20:.1f} MiB")
    return 0


def _time(seconds: float) -> str:
    return rfc3339(seconds_to_ns(seconds))


@contextmanager
def _shown(file: Path) -> Iterator[Told | None]:
    """A bar on the terminal while a file is read; nothing where nobody looks."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(),
        TimeRemainingColumn(), console=console, transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(printable(str(file)), total=1.0)
        yield lambda share: bar.update(task, completed=share)


if __name__ == "__main__":
    raise SystemExit(main())
