"""``wattpack forecast SERIES…``: what a history's series will need, as a table, JSON or picture.

It needs no cluster: it makes one forecast of each series from the history, as the forecaster
process would make its first without what only a cluster tells (boards, pods, loads, ratings, the
power tree), and ends.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from capacity.catalogue.catalogue_files import find_workload, shipped_catalogue
from forecasting.app.domain_choice import (
    add_domain_flags,
    chosen_domains,
    require_one_forecaster,
    unknown_here,
)
from forecasting.app.forecast_shards import (
    Division,
    SeriesAnswer,
    ShardJob,
    add_division_flags,
    answers_of,
)
from forecasting.app.forecast_tables import (
    lead_line,
    peak_line,
    peaks_table,
    print_whole,
    ready_message,
    steps_table,
    table_console,
    tokens_line,
)
from forecasting.app.history_choice import (
    FILE_FLAGS,
    FileHistorySettings,
    add_file_flags,
    chosen_series,
    end_seconds_of,
    moment_seconds,
    open_file_history,
)
from forecasting.app.model_choice import add_models_flag, require_plug_ins
from forecasting.app.path_files import ToldPaths, add_path_flags, asked_paths, write_paths
from forecasting.app.unknown_series import require_known_events, unknown_series
from forecasting.app.window_peaks import add_window_flags, windows_of, windows_table
from forecasting.domain_series import as_domains
from forecasting.events import events_from_csv
from forecasting.fan import Fan, fan_of
from forecasting.series_source import BIN_SECONDS, SeriesId, SeriesSource, window_steps
from forecasting.targets import Target, TokenSource
from forecasting.terminal_fan import terminal_fan
from wattpack.api.demand_forecast import HIGHEST_LEVEL, LOWEST_LEVEL, MAX_LEVELS
from wattpack.clock import SystemClock
from wattpack.errors import InputError, WattpackError
from wattpack.flags import output_file
from wattpack.printable import printable
from wattpack.times import parse_rfc3339
from wattpack.units import require_number

DEFAULT_LEVELS: Final = (0.5, 0.9, 0.99)
MOST_PICTURES: Final = 24
"""Fans in one PNG: more of them are no picture any more."""

_PAST_SECONDS: Final = 86400
_WIDEST: Final = 110


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack forecast", description=__doc__)
    parser.add_argument(
        "series", nargs="*", metavar="SERIES", help="names in the history, or PromQL"
    )
    parser.add_argument("--all", action="store_true", help="every series of a file")
    add_file_flags(parser)
    parser.add_argument("--hours", type=float, default=6.0, help="the window (6)")
    parser.add_argument(
        "--levels", default=",".join(f"{level:g}" for level in DEFAULT_LEVELS),
        help="of the steps' quantiles, rising, 0.01 to 0.999, with commas (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--ceiling", type=float, help="what no series can exceed")
    parser.add_argument(
        "--events", type=Path, metavar="FILE",
        help="planned events in CSV: name,start,end[,timeZone,series,factor,added,atLeast,atMost]",
    )  # fmt: skip
    parser.add_argument(
        "--at", metavar="TIME",
        help="forecast from: Unix seconds, or 2026-11-20 or 2026-11-20T18:00, in --time-zone or "
        "UTC (now; the end of a table)",
    )  # fmt: skip
    parser.add_argument(
        "--lead-for", metavar="WORKLOAD",
        help="also what is needed until a new replica of this catalogue entry works",
    )  # fmt: skip
    parser.add_argument(
        "--replica-rate", type=float,
        help="with --lead-for: what one replica serves, to be told how many to have",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", metavar="SERIES",
        help="tokens a second of one series' requests: also what they will be in tokens",
    )  # fmt: skip
    parser.add_argument(
        "--token-p99", metavar="SERIES",
        help="with --tokens: tokens that one request in 100 exceeds",
    )  # fmt: skip
    parser.add_argument(
        "--token-second-moment", metavar="SERIES",
        help="with --tokens: mean of the squared length of a request",
    )  # fmt: skip
    add_window_flags(parser)
    add_path_flags(parser)
    add_domain_flags(parser)
    add_models_flag(parser, "ridge")
    add_division_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the statuses as JSON")
    parser.add_argument("--plot", action="store_true", help="draw each forecast in the terminal")
    parser.add_argument("--png", type=output_file, metavar="FILE", help="draw them into a picture")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print forecasts; 0 fine, 1 a history that cannot be read, 2 wrong usage."""
    args = build_parser().parse_args(argv)
    try:
        if args.lead_for:
            find_workload(shipped_catalogue(), args.lead_for)
        if args.replica_rate is not None:
            require_number("replica-rate", args.replica_rate, exclusive_minimum=0)
            if not args.lead_for:
                raise InputError("replica-rate", "--lead-for beside it", args.replica_rate)
        flags = {name: getattr(args, name) for name in FILE_FLAGS}
        history = FileHistorySettings.load(flags=flags)
        at = None if args.at is None else moment_seconds(args.at, "--at", history.time_zone)
        source = open_file_history(history)
        try:
            now = end_seconds_of(source, SystemClock()) if at is None else at
            return _forecast(args, history, source, now)
        finally:
            source.close()
    except WattpackError as error:
        print(printable(f"wattpack forecast: {error}"), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1


def _forecast(
    args: argparse.Namespace, history: FileHistorySettings, source: SeriesSource, now: float
) -> int:
    """Forecast what was asked for, and show it; the exit status."""
    series = chosen_series(source, args.series, args.all)
    require_plug_ins(args.plug_ins)
    division = Division.of(len(series), args.shards, args.processes, args.scheduler)
    draws = chosen_domains(args, source, series)
    require_one_forecaster(draws, division.shards)
    targets = tuple(as_domains(targets_of(args, series), draws))
    levels = None
    if args.window_levels is not None:
        levels = parse_levels(args.window_levels, "window-levels")
    windows = windows_of(args.windows, levels, targets[0].horizon)
    plug_ins = tuple(dict.fromkeys(args.plug_ins))
    job = ShardJob(history, args.models, targets, now, plug_ins, windows)
    unknown = _unknown(args, source, job)
    for error in unknown.values():
        print(printable(f"wattpack forecast: {error}"), file=sys.stderr)
    if len(unknown) == len(series):
        return 2
    known = tuple(t for t in job.targets if t.series not in unknown)
    answers = answers_of(replace(job, targets=known), division, source)
    status = max(_shown(args, source, answers, now), 2 if unknown else 0)
    told = {name: draw for name, draw in draws.items() if name not in unknown}
    if not args.json and (words := unknown_here(told)):
        print(words)
    return status


def _unknown(
    args: argparse.Namespace, source: SeriesSource, job: ShardJob
) -> dict[SeriesId, InputError]:
    """The series that the history does not have; each costs only itself.

    Raises:
        InputError: an event or a flag names one that it does not have.
    """
    require_known_events(source, job.targets[0].events)
    for flag, name in (("tokens", args.tokens), *_length_flags(args)):
        for error in unknown_series(source, [] if name is None else [name], flag).values():
            raise error
    return unknown_series(source, [target.series for target in job.targets])


def targets_of(args: argparse.Namespace, series: Sequence[SeriesId]) -> list[Target]:
    """What the flags ask for, one target a series.

    Raises:
        InputError: naming the flag.
    """
    hours = require_number("hours", args.hours, minimum=BIN_SECONDS / 3600, maximum=168)
    if args.ceiling is not None:
        require_number("ceiling", args.ceiling, exclusive_minimum=0)
    levels = parse_levels(args.levels)
    horizon = window_steps(hours * 3600, BIN_SECONDS)
    n_paths = asked_paths(args, series, horizon)
    tokens = _token_source(args, series)
    events = () if args.events is None else events_from_csv(args.events)
    return [
        Target(
            namespace="", name=f"{i}:{name[:200]}", series=name, kind="series",
            horizon=horizon, step_seconds=BIN_SECONDS, asked_levels=levels, ceiling=args.ceiling,
            generation=0, events=events, tokens=tokens, n_paths=n_paths,
        )
        for i, name in enumerate(series)
    ]  # fmt: skip


def _token_source(args: argparse.Namespace, series: Sequence[SeriesId]) -> TokenSource | None:
    """Lengths of one series' requests.

    Raises:
        InputError: for more series, or a p99 alone.
    """
    if args.tokens is None:
        for flag, name in _length_flags(args):
            if name is not None:
                raise InputError(flag, "--tokens beside it", name)
        return None
    if len(series) != 1:
        raise InputError("tokens", "one series of requests", len(series))
    p99, square = (None if name is None else SeriesId(name) for _, name in _length_flags(args))
    return TokenSource(SeriesId(args.tokens), p99, square)


def _length_flags(args: argparse.Namespace) -> tuple[tuple[str, str | None], ...]:
    """What tells lengths beside their mean, by flag: the p99, the second moment."""
    return (("token-p99", args.token_p99), ("token-second-moment", args.token_second_moment))


def parse_levels(text: str, flag: str = "levels") -> tuple[float, ...]:
    """Rising levels among those that are computed, from text with commas.

    Args:
        text: As it was typed.
        flag: Named in a refusal.

    Raises:
        InputError: for anything else.
    """
    try:
        levels = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(flag, "numbers with commas between them", text) from error
    rising = all(low < high for low, high in pairwise(levels))
    inside = all(LOWEST_LEVEL <= level <= HIGHEST_LEVEL for level in levels)
    if not rising or not inside or len(levels) > MAX_LEVELS:
        wanted = f"at most {MAX_LEVELS} rising levels from {LOWEST_LEVEL:g} to {HIGHEST_LEVEL:g}"
        raise InputError(flag, wanted, text)
    return levels


def _shown(
    args: argparse.Namespace, source: SeriesSource, answers: Sequence[SeriesAnswer], now: float
) -> int:
    """Show what was forecast; a series that cannot be read or computed costs only itself."""
    statuses = [(a.series, a.status, a) for a in answers if a.status is not None]
    paths = {
        name: ToldPaths(name, status, a.step_seconds, a.paths)
        for name, status, a in statuses
        if a.paths is not None
    }
    if args.paths_file is not None:
        write_paths(args.paths_file, list(paths.values()))
    if args.json:
        shown = [
            {"series": name, "status": status}
            | ({"windows": [window.to_json() for window in a.windows]} if a.windows else {})
            | ({"paths": paths[name].to_json()} if name in paths else {})
            for name, status, a in statuses
        ]
        # Of paths each value would be a line of its own.
        print(json.dumps({"forecasts": shown}, indent=None if paths else 2))
    elif statuses:
        _print_tables(args, statuses, now)
    told = [(name, status, a) for name, status, a in statuses if a.has_figures]
    if args.plot or args.png:
        fans = [_fan(source, name, status, a) for name, status, a in told]
        for fan in fans if args.plot else ():
            print("\n" + "\n".join(terminal_fan(fan, min(_WIDEST, table_console().width))))
        if args.png:
            _draw(args.png, fans)
    wrong = [answer for answer in answers if answer.problem]
    for answer in wrong:
        print(printable(f"wattpack forecast: {answer.problem}"), file=sys.stderr)
    return max((2 if answer.is_wrong_input else 1 for answer in wrong), default=0)


def _print_tables(
    args: argparse.Namespace, statuses: Sequence[tuple[str, dict[str, Any], SeriesAnswer]],
    now: float,
) -> None:  # fmt: skip
    console = table_console()
    hours = window_steps(args.hours * 3600, BIN_SECONDS) * BIN_SECONDS / 3600
    told = [(name, status) for name, status, _ in statuses]
    print_whole(peaks_table(told, now, hours), console)
    if windows := [(name, one) for name, _, answer in statuses for one in answer.windows]:
        print_whole(windows_table(windows), console)
    for name, status, answer in statuses:
        if not answer.has_figures:
            print(printable(f"{name}: {ready_message(status)}"))
        elif len(statuses) == 1:
            console.print(steps_table(status))
            print(printable(ready_message(status)))
            if why := peak_line(status):
                print(why)
        if args.tokens is not None:
            print(printable(f"{name}: {tokens_line(status)}"))
        if args.lead_for and answer.has_figures:
            line = lead_line(args.lead_for, status, now, args.replica_rate)
            print(printable(f"{name}: {line}"))


def _fan(source: SeriesSource, name: str, status: dict[str, Any], answer: SeriesAnswer) -> Fan:
    """The picture of an answer, with the day before it."""
    step_seconds = answer.step_seconds
    until = int(parse_rfc3339(status["windowStart"]).timestamp())
    past = source.fetch([SeriesId(name)], until - _PAST_SECONDS, until, step_seconds)[0]
    return fan_of(name, status, step_seconds, np.asarray(past, dtype=np.float64))


def _draw(file: Path, fans: Sequence[Fan]) -> None:
    """One picture of all fans.

    Raises:
        InputError: for too many, none at all, or no library to draw with.
    """
    # Loaded here: the library takes a second, and most calls draw nothing.
    from forecasting.app.forecast_pictures import draw_fans

    if not 0 < len(fans) <= MOST_PICTURES:
        raise InputError("png", f"1 to {MOST_PICTURES} series with a forecast", len(fans))
    draw_fans(file, fans)


if __name__ == "__main__":
    raise SystemExit(main())
