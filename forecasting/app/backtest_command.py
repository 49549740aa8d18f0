"""``wattpack backtest SERIES…``: what the forecaster would have promised before, and what came.

It goes through earlier times of a history with the rounds of the forecaster process, each with what
was known then, and writes a folder with figures, a page and pictures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from forecasting.app.backtest_report import write_report
from forecasting.app.backtest_runs import Runs, run_backtest
from forecasting.app.domain_choice import (
    add_domain_flags,
    chosen_domains,
    require_one_forecaster,
    unknown_here,
)
from forecasting.app.forecast_shards import Division, add_division_flags
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
from forecasting.app.unknown_series import require_known_events, unknown_series
from forecasting.backtest.backtest_verdicts import Verdict
from forecasting.backtest.plan import Asked, BacktestPlan, plan_of
from forecasting.backtest.window import Window
from forecasting.events import events_from_csv
from forecasting.series_source import SeriesId, SeriesSource
from wattpack.clock import SystemClock
from wattpack.errors import InputError, WattpackError
from wattpack.units import require_number


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack backtest", description=__doc__)
    parser.add_argument("series", nargs="*", metavar="SERIES", help="names, or PromQL")
    parser.add_argument("--all", action="store_true", help="every series of a file")
    add_file_flags(parser)
    parser.add_argument("--out", type=Path, default=Path("backtest"), help="folder of the report")
    parser.add_argument("--days", type=float, default=7.0, help="over which origins lie (7)")
    parser.add_argument("--every", type=float, default=6.0, help="hours between origins (6)")
    parser.add_argument("--horizon", type=float, default=6.0, help="hours of a window (6)")
    parser.add_argument("--ceiling", type=float, help="what no series can exceed")
    parser.add_argument(
        "--until", metavar="TIME",
        help="end of the history: Unix seconds, or 2026-11-20 or 2026-11-20T18:00, in --time-zone "
        "or UTC (now; the end of a table)",
    )  # fmt: skip
    parser.add_argument(
        "--events", type=Path, metavar="FILE",
        help="what was planned, as wattpack forecast takes it, and known before each window",
    )  # fmt: skip
    add_domain_flags(parser)
    add_division_flags(parser)
    add_models_flag(parser, "all")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="keep what is done, or go on")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run and write; 0 done, whatever it found, 1 a history that cannot be read, 2 wrong usage."""
    args = build_parser().parse_args(argv)
    try:
        _require_folder(args.out)
        settings = FileHistorySettings.load(
            flags={name: getattr(args, name) for name in FILE_FLAGS}
        )
        until = None
        if args.until is not None:
            until = moment_seconds(args.until, "--until", settings.time_zone)
        source = open_file_history(settings)
        try:
            series = chosen_series(source, args.series, args.all)
            # A run takes minutes: a name at fault is told before it.
            for error in unknown_series(source, series).values():
                raise error
            end_seconds = end_seconds_of(source, SystemClock()) if until is None else until
            plan = _plan(args, source, series, end_seconds)
            require_plug_ins(args.plug_ins)
            division = Division.of(len(series), args.shards, args.processes, args.scheduler)
            require_one_forecaster(plan.domains, division.shards)
            plug_ins = tuple(dict.fromkeys(args.plug_ins))
            runs = Runs(settings, args.models, division, plug_ins, args.resume)
            windows = _run(plan, runs)
            verdict, why = write_report(args.out, plan, windows, source)
        finally:
            source.close()
    except WattpackError as error:
        print(f"wattpack backtest: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    if domains := unknown_here(plan.domains):
        print(domains)
    print("\n".join(told(verdict, args.out, why)))
    return 0


def _require_folder(folder: Path) -> None:
    """Pass only a folder that is there or can be made: known before a run of minutes."""
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise InputError("--out", "a folder that is there or can be made", str(folder))


def _plan(
    args: argparse.Namespace,
    source: SeriesSource,
    series: Sequence[SeriesId],
    end_seconds: float,
) -> BacktestPlan:
    if args.ceiling is not None:
        require_number("ceiling", args.ceiling, exclusive_minimum=0)
    asked = Asked(args.days, args.every, args.horizon)
    plan = plan_of(series, end_seconds, asked, args.ceiling)
    events = () if args.events is None else events_from_csv(args.events)
    require_known_events(source, events)
    return replace(plan, domains=chosen_domains(args, source, series), events=events)


def _run(plan: BacktestPlan, runs: Runs) -> list[Window]:
    """All windows, with a bar on a terminal's standard error."""
    console = Console(stderr=True)
    columns = ("origins", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("origins", total=None)
        return run_backtest(plan, runs, lambda done, of: bar.update(task, completed=done, total=of))


def told(verdict: Verdict, folder: Path, why_no_pictures: str) -> list[str]:
    """What the terminal says; the folder has the rest."""
    share = verdict.missed / verdict.windows if verdict.windows else 0.0
    lines = [
        f"{verdict.windows} windows judged, {verdict.unanswered} not; peak above its p99 in "
        f"{verdict.missed} ({share:.2%}; 95 % bounds {verdict.missed_low:.2%} to "
        f"{verdict.missed_high:.2%})"
    ]
    if not verdict.windows:
        lines.append("a window needs a day of values before it and values within: --until, --days?")
    for loss in verdict.losses:
        if loss.geometric_ratio is not None:
            lines.append(f"  {loss.model:16} loss {loss.geometric_ratio:.3f} of seasonal naive's")
    for tier in verdict.tiers:
        if tier.geometric_ratio is not None and tier.over_forecast is not None:
            lines.append(
                f"  {tier.model:16} loss {tier.geometric_ratio:.3f} of seasonal naive's, "
                f"{tier.over_forecast:.3f} of the forecast's; weight {tier.weight:.0%}"
            )
    for one in verdict.reserves:
        if one.reserve is not None:
            equal = "–" if one.equal_risk is None else f"{one.equal_risk:.2f}"
            lines.append(
                f"  {one.policy:16} missed {one.missed:6.2%}, reserve {one.reserve:.2f}, "
                f"at 1 % missed {equal}"
            )
    lines.append(f"report: {folder / 'index.html'}")
    return [*lines, f"no pictures: {why_no_pictures}"] if why_no_pictures else lines


if __name__ == "__main__":
    raise SystemExit(main())
