"""``wattpack forecaster``: keep every DemandForecast fresh and every CapacityPlan answered.

With ``--series`` it needs no cluster: it prints one forecast from the history and ends.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import Field
from rich.console import Console
from rich.table import Table

from capacity.app.solver_lines import solver_lines_dropped
from capacity.catalogue.catalogue_files import find_workload, shipped_catalogue
from capacity.catalogue.pod_works import lead_seconds
from capacity.mix.mix_answer import AnswerOptions
from capacity.mix.served_rates import ServedRates
from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.app.forecast_verdicts import VerdictThread
from forecasting.app.plan_metrics import PlanMetrics
from forecasting.app.plan_thread import PlanSources, PlanThread
from forecasting.forecast_round import ForecasterState, step
from forecasting.forecast_status import has_figures, status_of
from forecasting.issued_forecast import LAST_TIME_SECONDS
from forecasting.lead_time import StepWindow, needed_within
from forecasting.prometheus import PrometheusSource
from forecasting.series_source import BIN_SECONDS, SeriesId, SeriesSource
from forecasting.sqlite import HistoryStore
from forecasting.targets import Target
from wattpack.api import CapacityPlan, DemandForecast, GPUProfile
from wattpack.clock import Clock, SystemClock
from wattpack.ending import end_noted
from wattpack.errors import InputError
from wattpack.http_port import HttpPort
from wattpack.kube.informer import Informer
from wattpack.kube.port import AccessReviews
from wattpack.logs import add_log_level, log_json
from wattpack.metrics_port import metrics_port, reader_access
from wattpack.settings import Settings
from wattpack.times import parse_rfc3339
from wattpack.units import NS_PER_SECOND, require_number

_FLAGS: Final = (
    "history_file", "prometheus_url", "interval_seconds", "metrics_host", "metrics_port",
    "metrics_insecure", "kubeconfig",
)  # fmt: skip


class ForecasterSettings(Settings):
    """How the forecaster runs (file < environment ``WATTPACK_…`` < flag)."""

    history_file: Path | None = Field(None, description="SQLite history")
    prometheus_url: str | None = Field(None, description="query API instead of SQLite")
    prometheus_deadline_seconds: float = Field(10.0, gt=0, le=300)
    interval_seconds: float = Field(600.0, ge=10, le=86400, description="between rounds")
    plan_solve_seconds: float = Field(
        2.0, gt=0, le=60, description="search for one CapacityPlan; explaining takes 5 x as long"
    )
    metrics_host: str = Field("0.0.0.0", description="on loopback nobody is asked who they are")
    metrics_port: int = Field(0, ge=0, le=65535, description="0 serves no metrics")
    metrics_insecure: bool = Field(False, description="metrics for whoever reaches the port")
    kubeconfig: Path | None = Field(None, description="outside a cluster")


class _Closable(SeriesSource, Protocol):
    """A history with an end."""

    def close(self) -> None:
        """Release it."""
        ...


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack forecaster", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file of settings")
    parser.add_argument("--history-file", type=Path, help="SQLite history")
    parser.add_argument("--prometheus-url", help="for example http://prometheus:9090")
    parser.add_argument("--interval-seconds", type=float, help="between rounds (600)")
    parser.add_argument("--metrics-host", help="address of --metrics-port (0.0.0.0)")
    parser.add_argument("--metrics-port", type=int, help="serve /metrics here (0: do not)")
    parser.add_argument(
        "--metrics-insecure", action="store_true", default=None,
        help="show metrics to whoever reaches the port",
    )  # fmt: skip
    parser.add_argument("--kubeconfig", type=Path, help="outside a cluster")
    parser.add_argument("--once", action="store_true", help="one round, then end")
    parser.add_argument("--series", help="print the forecast of this series and end")
    parser.add_argument("--hours", type=float, default=6.0, help="window of --series (6)")
    parser.add_argument("--ceiling", type=float, help="what --series cannot exceed")
    parser.add_argument(
        "--lead-for", metavar="WORKLOAD",
        help="with --series: what it needs until a new replica of this catalogue entry works",
    )  # fmt: skip
    parser.add_argument("--at", type=float, help="Unix time of --series (now)")
    parser.add_argument("--json", action="store_true", help="print the status as JSON")
    add_log_level(parser)
    return parser


def open_history(settings: ForecasterSettings) -> _Closable:
    """The history that the settings name.

    Raises:
        InputError: unless exactly one is named.
    """
    if (settings.history_file is None) == (settings.prometheus_url is None):
        raise InputError(
            "history_file", "either history_file or prometheus_url", settings.history_file
        )
    if settings.history_file is not None:
        return HistoryStore(settings.history_file, read_only=True)
    return PrometheusSource(settings.prometheus_url or "", settings.prometheus_deadline_seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the forecaster; 0 fine, 1 a failed round with ``--once``, 2 wrong usage."""
    args = build_parser().parse_args(argv)
    try:
        settings = ForecasterSettings.load(
            file=args.config, flags={name: getattr(args, name) for name in _FLAGS}
        )
        source = open_history(settings)
    except InputError as error:
        print(f"wattpack forecaster: {error}", file=sys.stderr)
        return 2
    try:
        if args.series:
            return print_series(args, source)
        log_json(args.log_level)
        # CapacityPlans are solved here, and what is printed goes into the log that people read.
        with solver_lines_dropped():
            return serve(settings, source, args.once)
    except InputError as error:
        print(f"wattpack forecaster: {error}", file=sys.stderr)
        return 2
    finally:
        source.close()


def serve(settings: ForecasterSettings, source: SeriesSource, once: bool) -> int:
    """The loop against a cluster, until SIGTERM or SIGINT."""
    # Loaded here so that --series works where the Kubernetes client is not installed.
    from wattpack.kube.client import connect

    clock, kube = SystemClock(), connect(settings.kubeconfig)
    process = ForecasterProcess(clock, kube, source, settings.interval_seconds)
    if once:
        return 0 if process.tick() else 1
    wake = clock.new_wake()
    forecasts, plans, profiles = (
        Informer(kube, clock, kind.meta.resource)
        for kind in (DemandForecast, CapacityPlan, GPUProfile)
    )
    informers = (forecasts, plans, profiles)
    verdicts = VerdictThread(clock, kube, forecasts.list, process.metrics)
    answers = PlanThread(
        clock,
        kube,
        PlanSources(
            plans.list,
            forecasts.list,
            profiles.list,
            ServedRates(),
            lambda: all(informer.synced() for informer in informers),
        ),
        PlanMetrics(process.metrics.registry),
        AnswerOptions(seconds=settings.plan_solve_seconds),
    )

    def failure() -> str:
        ended = any(informer.failure is not None for informer in informers)
        return process.failure() or answers.failure() or ("an informer has ended" if ended else "")

    http = _metrics_port(settings, process, kube, failure, clock)
    with end_noted(clock) as end:
        end.call(wake.set)
        if http is not None:
            http.start()
        for part in (*informers, verdicts, answers):
            part.start()
        process.run(end.told, wake)
        if http is not None:
            http.stop()
        for part in (answers, verdicts, *informers):
            part.stop()
    return 0


def _metrics_port(
    settings: ForecasterSettings,
    process: ForecasterProcess,
    reviews: AccessReviews,
    failure: Callable[[], str],
    clock: Clock,
) -> HttpPort | None:
    """The port that the settings ask for, not started yet."""
    host, port, insecure = settings.metrics_host, settings.metrics_port, settings.metrics_insecure
    if not port:
        return None
    access = reader_access(host, insecure, lambda: reviews, clock)
    return metrics_port((host, port), process.metrics.registry, access, failure)


def print_series(args: argparse.Namespace, source: SeriesSource) -> int:
    """One series' forecast as a table or as JSON."""
    now = SystemClock().wall_time_ns() / NS_PER_SECOND
    if args.at is not None:
        now = require_number("at", args.at, minimum=0, maximum=LAST_TIME_SECONDS, unit="s")
    hours = require_number("hours", args.hours, minimum=BIN_SECONDS / 3600, maximum=168)
    horizon = round(hours * 3600 / BIN_SECONDS)
    if args.ceiling is not None:
        require_number("ceiling", args.ceiling, exclusive_minimum=0)
    if args.lead_for:
        find_workload(shipped_catalogue(), args.lead_for)
    target = Target(
        namespace="", name="series", series=SeriesId(args.series), kind="series", horizon=horizon,
        step_seconds=BIN_SECONDS, asked_levels=(0.5, 0.9, 0.99), ceiling=args.ceiling, generation=0,
    )  # fmt: skip
    _, (answer,) = step(ForecasterState(), now, source, [target])
    if answer.error is not None:
        raise answer.error
    status = status_of(answer, now)
    if args.json:
        print(json.dumps(status, indent=2))
    elif not has_figures(answer):
        print(f"{args.series}: {ready_message(status)}")
    else:
        Console().print(series_table(args.series, status))
        if args.lead_for:
            print(lead_line(args.lead_for, status, now))
    return 0


def lead_line(workload: str, status: dict[str, Any], now_seconds: float) -> str:
    """What the series may need within the lead time of a catalogue entry.

    Raises:
        InputError: an unknown entry, or a lead time beyond the window.
    """
    lead = lead_seconds(find_workload(shipped_catalogue(), workload).name)
    window = StepWindow(parse_rfc3339(status["windowStart"]).timestamp(), BIN_SECONDS)
    needed = {
        path["level"]: needed_within(window, path["values"], now_seconds, lead)
        for path in status["quantiles"]
    }
    figures = ", ".join(f"p{level * 100:g} {value:.6g}" for level, value in needed.items())
    return f"within the {lead:.0f} s until a new {workload} works (p95 of its start): {figures}"


def ready_message(status: dict[str, Any]) -> str:
    """What the Ready condition says."""
    return next(str(c["message"]) for c in status["conditions"] if c["type"] == "Ready")


def series_table(series: str, status: dict[str, Any]) -> Table:
    """The window hour by hour, then its peak."""
    shown = f"{status['coverageN']} windows" if status.get("coverageN") else "no window yet"
    coverage = f"{status['coverageP99']:.1%} of {shown}" if status.get("coverageN") else shown
    table = Table(title=f"{series}: {status['method']}, p99 held in {coverage}")
    table.add_column("in")
    for path in status["quantiles"]:
        table.add_column(f"p{path['level'] * 100:g}", justify="right")
    steps = len(status["quantiles"][0]["values"])
    for k in range(5, steps, 6):
        values = [f"{path['values'][k]:.6g}" for path in status["quantiles"]]
        table.add_row(f"{(k + 1) * BIN_SECONDS / 3600:g} h", *values)
    table.caption = (
        f"peak of the window: p50 {status['p50']:g}, p95 {status['p95']:g}, "
        f"p99 {status['p99']:g}; {ready_message(status)}"
    )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
