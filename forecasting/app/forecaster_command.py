"""``wattpack forecaster``: keep every DemandForecast fresh and every CapacityPlan answered.

One forecast without a cluster: ``wattpack forecast``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from capacity.app.solver_lines import solver_lines_dropped
from capacity.mix.mix_answer import AnswerOptions
from capacity.mix.served_rates import ServedRates
from forecasting.app.forecast_loop import Beginning, ForecasterProcess
from forecasting.app.forecast_verdicts import VerdictThread
from forecasting.app.history_choice import (
    HISTORY_FLAGS,
    HistorySettings,
    add_history_flags,
    open_history,
)
from forecasting.app.issue_files import IssueFiles
from forecasting.app.memory_file import read_state, write_state
from forecasting.app.model_choice import tier_set
from forecasting.app.plan_metrics import PlanMetrics
from forecasting.app.plan_thread import PlanSources, PlanThread
from forecasting.app.rehearsal_process import RehearsalProcess
from forecasting.app.replica_minutes import Outlets, Pace, ReplicaMinutes
from forecasting.plan_due import LOWER_SECONDS
from forecasting.remembered_source import RememberedSource
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesSource
from forecasting.shards import Shard
from forecasting.side_training.child_training import ChildTraining
from forecasting.tiers.boosted import Training
from wattpack.api import CapacityPlan, DemandForecast, GPUProfile
from wattpack.clock import Clock, SystemClock
from wattpack.ending import end_noted
from wattpack.errors import InputError
from wattpack.http_port import HttpPort
from wattpack.kube.informer import Informer
from wattpack.kube.port import AccessReviews, JsonObject, KubeApi
from wattpack.logs import add_log_level, log_json
from wattpack.metrics_port import metrics_port, reader_access

log = logging.getLogger(__name__)

_FLAGS: Final = (
    *HISTORY_FLAGS, "interval_seconds", "replicas_interval_seconds", "state_file", "models",
    "shard", "metrics_host", "metrics_port", "metrics_insecure", "kubeconfig",
)  # fmt: skip


class ForecasterSettings(HistorySettings):
    """How the forecaster runs (file < environment ``WATTPACK_…`` < flag)."""

    interval_seconds: float = Field(600.0, ge=10, le=86400, description="between rounds")
    replicas_interval_seconds: float = Field(
        60.0, ge=30, le=3600, description="between decisions on replicas by their minutes"
    )
    state_file: Path | None = Field(
        None, description="what was learned of its own errors, kept over restarts; none: rehearse"
    )
    models: Literal["all", "ridge"] = Field(
        "all", description="ridge: no boosted trees and no smoothing, a tenth of the CPU"
    )
    plug_ins: list[str] = Field(
        [], max_length=8, description="entry points of wattpack.forecasters that answer, too"
    )
    shard: str = Field(
        "1/1", description="NUMBER/SHARDS: one of several that share the objects by their names"
    )
    plan_solve_seconds: float = Field(
        2.0, gt=0, le=60, description="search for one CapacityPlan; explaining takes 5 x as long"
    )
    plan_lower_seconds: float = Field(
        LOWER_SECONDS, ge=0, le=86400,
        description="from an answer of a CapacityPlan to one for less demand",
    )  # fmt: skip
    metrics_host: str = Field("0.0.0.0", description="on loopback nobody is asked who they are")
    metrics_port: int = Field(0, ge=0, le=65535, description="0 serves no metrics")
    metrics_insecure: bool = Field(False, description="metrics for whoever reaches the port")
    kubeconfig: Path | None = Field(None, description="outside a cluster")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wattpack forecaster", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file of settings")
    add_history_flags(parser)
    parser.add_argument("--interval-seconds", type=float, help="between rounds (600)")
    parser.add_argument(
        "--replicas-interval-seconds", type=float,
        help="between decisions on replicas by their minutes (60)",
    )  # fmt: skip
    parser.add_argument("--state-file", type=Path, help="keep what was learned over restarts")
    parser.add_argument("--models", choices=("all", "ridge"), help="which models answer (all)")
    parser.add_argument(
        "--shard", metavar="NUMBER/SHARDS", help="one of several that share the objects (1/1)"
    )
    parser.add_argument("--metrics-host", help="address of --metrics-port (0.0.0.0)")
    parser.add_argument("--metrics-port", type=int, help="serve /metrics here (0: do not)")
    parser.add_argument(
        "--metrics-insecure", action="store_true", default=None,
        help="show metrics to whoever reaches the port",
    )  # fmt: skip
    parser.add_argument("--kubeconfig", type=Path, help="outside a cluster")
    parser.add_argument("--once", action="store_true", help="one round, then end")
    add_log_level(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the forecaster; 0 fine, 1 a failed round with ``--once``, 2 wrong usage."""
    args = build_parser().parse_args(argv)
    try:
        settings = ForecasterSettings.load(
            file=args.config, flags={name: getattr(args, name) for name in _FLAGS}
        )
        Shard.parse(settings.shard)
        source = open_history(settings)
    except InputError as error:
        print(f"wattpack forecaster: {error}", file=sys.stderr)
        return 2
    try:
        log_json(args.log_level)
        # CapacityPlans are solved here, and what is printed goes into the log that people read.
        with solver_lines_dropped():
            return serve(settings, RememberedSource(source), args.once)
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
    if once:
        # It is awaited by somebody: it goes through its histories and fits its forests itself,
        # since what a process beside it makes would come after the answer.
        begin = _beginning(settings, _state(settings, None))
        rounds = ForecasterProcess(clock, kube, source, settings.interval_seconds, begin=begin)
        try:
            return 0 if rounds.tick() else 1
        finally:
            rounds.state.close()
    desk = RehearsalProcess(clock, settings.models, settings.plug_ins)
    state = replace(_state(settings, partial(ChildTraining, clock)), desk=desk)
    begin = _beginning(settings, state)
    rounds = ForecasterProcess(clock, kube, source, settings.interval_seconds, begin=begin)
    try:
        _run(settings, clock, kube, begin, rounds)
    finally:
        desk.close()
    return 0


def _beginning(settings: ForecasterSettings, state: ForecasterState) -> Beginning:
    """What the rounds begin with, and where they keep what they learn."""
    begin = Beginning(state, shard=Shard.parse(settings.shard))
    if settings.state_file is None:
        return begin
    return replace(begin, keep=partial(_kept, settings.state_file, IssueFiles(settings.state_file)))


def _run(
    settings: ForecasterSettings,
    clock: Clock,
    kube: KubeApi,
    begin: Beginning,
    rounds: ForecasterProcess,
) -> None:
    """Rounds in this thread until somebody ends them; what answers in between in others."""
    wake = clock.new_wake()
    forecasts, plans, profiles = informers = tuple(
        Informer(kube, clock, kind.meta.resource)
        for kind in (DemandForecast, CapacityPlan, GPUProfile)
    )

    def owned() -> Iterable[JsonObject]:
        return filter(begin.shard.owns, forecasts.list())

    verdicts = VerdictThread(clock, kube, owned, rounds.metrics)
    outlets = Outlets(kube, begin.minutes, rounds.metrics)
    answers = PlanThread(
        clock,
        kube,
        PlanSources(
            # A plan asks for several forecasts, whoever made them; one process answers it.
            plans.list if begin.shard.is_first else tuple,
            forecasts.list,
            profiles.list,
            ServedRates(),
            lambda: all(informer.synced() for informer in informers),
        ),
        PlanMetrics(rounds.metrics.registry),
        AnswerOptions(seconds=settings.plan_solve_seconds),
        settings.plan_lower_seconds,
    )

    def failure() -> str:
        ended = any(informer.failure is not None for informer in informers)
        return rounds.failure() or answers.failure() or ("an informer has ended" if ended else "")

    port = _metrics_port(settings, rounds, kube, failure, clock)
    replicas = replica_threads(settings, clock, owned, outlets)
    # Started in this order and stopped in the other one: readers before what they read from.
    parts = (*informers, verdicts, answers, *replicas, *((port,) if port else ()))
    with end_noted(clock) as end:
        end.call(wake.set)
        for part in parts:
            part.start()
        rounds.run(end.told, wake)
        for part in reversed(parts):
            part.stop()
        rounds.state.close()


def replica_threads(
    settings: ForecasterSettings,
    clock: Clock,
    objects: Callable[[], Iterable[JsonObject]],
    outlets: Outlets,
) -> tuple[ReplicaMinutes, ...]:
    """None with a history file: its bins are of ten minutes."""
    if settings.prometheus_url is None:
        return ()
    # Of its own: what remembers and what tells flags is for one reader.
    source = RememberedSource(open_history(settings))
    pace = Pace(settings.replicas_interval_seconds)
    return (ReplicaMinutes(clock, objects, source, outlets, pace),)


def _state(
    settings: ForecasterSettings, training: Callable[[], Training] | None
) -> ForecasterState:
    """What the process before has learned, if it can be read; a rehearsal replaces it.

    Args:
        settings: Of the process.
        training: As ``all_tiers`` takes it.
    """
    empty = ForecasterState(tier_set(settings.models, settings.plug_ins, training))
    if settings.state_file is None:
        return empty
    try:
        return read_state(settings.state_file, empty)
    except (InputError, OSError) as error:
        log.warning("begins without a state: %s", error)
        return empty


def _kept(path: Path, issues: IssueFiles, state: ForecasterState) -> None:
    """The state is in the file; a disk that is full costs a rehearsal and no round."""
    try:
        write_state(path, state, issues)
    except OSError as error:
        log.warning("cannot keep the state: %s", error)


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


if __name__ == "__main__":
    raise SystemExit(main())
