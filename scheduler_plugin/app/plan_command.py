"""``wattpack plan pods``: place the pods of a snapshot file, or of a cluster without touching it.

The same planner and the same file format as in the cluster: ``--cluster --write-snapshot FILE``
takes a snapshot there, ``--snapshot FILE`` plans it anywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from scheduler_plugin.app.cluster_view import ClusterReader
from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.app.planning_flags import RISK_HELP, add_planning_flags, chosen, figures
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.snapshot_notes import print_notes
from scheduler_plugin.documents.plan_document import Plan, plan_schema
from scheduler_plugin.documents.snapshot import (
    Snapshot,
    parse_snapshot,
    snapshot_schema,
)
from scheduler_plugin.documents.snapshot_limits import read_bounded
from scheduler_plugin.gang_start import with_expected_ends
from scheduler_plugin.kube_objects.expected_ends import expected_ends
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.snapshot_builder import build_snapshot
from scheduler_plugin.solve import SearchSettings, plan
from wattpack.clock import Clock, SystemClock
from wattpack.documents import parse_json
from wattpack.errors import InputError
from wattpack.flags import output_file
from wattpack.kube.port import KubeApi
from wattpack.units import NS_PER_SECOND, require_number

_SCHEMAS = {"snapshot": snapshot_schema, "plan": plan_schema}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wattpack plan pods", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--snapshot", metavar="FILE", help="a wattpack.io/snapshot/v1; - for stdin")
    what.add_argument("--cluster", action="store_true", help="read a cluster; nothing is written")
    what.add_argument("--schema", choices=sorted(_SCHEMAS), help="print a JSON Schema and end")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="with --cluster; default: the usual one"
    )
    parser.add_argument(
        "--write-snapshot", type=output_file, metavar="FILE", help="keep what was planned"
    )
    parser.add_argument("--json", action="store_true", help="print the wattpack.io/plan/v1")
    parser.add_argument(
        "--deadline-seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="from the snapshot to the plan; default 1",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the search; default 0")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="solver threads; 1 is repeatable"
    )
    parser.add_argument(
        "--moves",
        action="store_true",
        help="running pods that can be moved may be, and may make room for more important ones",
    )
    add_planning_flags(parser)
    parser.add_argument(
        "--risk-below-priority",
        type=figures(float),
        metavar="PRIORITY=SHARE,…",
        help=f"with --cluster: {RISK_HELP}",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Print a plan; 0 even if pods stay pending, 2 for wrong input."""
    arguments = _parser().parse_args(argv)
    if arguments.schema:
        print(json.dumps(_SCHEMAS[arguments.schema](), indent=2, sort_keys=True))
        return 0
    try:
        result, snapshot = _plan(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(result.model_dump_json(indent=2) if arguments.json else describe(snapshot, result))
    return 0


def _plan(arguments: argparse.Namespace) -> tuple[Plan, Snapshot]:
    seconds = require_number(
        "--deadline-seconds", arguments.deadline_seconds, minimum=0, maximum=3600, unit="seconds"
    )
    workers = int(require_number("--workers", arguments.workers, minimum=1, maximum=256))
    if arguments.risk_below_priority is not None and not arguments.cluster:
        expected = "only with --cluster: the rows of a snapshot's domains say their risks"
        raise InputError("--risk-below-priority", expected, arguments.risk_below_priority)
    choice = chosen(arguments)
    snapshot = choice.of(_snapshot(arguments, choice.settings))
    print_notes(snapshot, arguments)
    if arguments.write_snapshot:
        _write(arguments.write_snapshot, snapshot)
    seed = int(require_number("--seed", arguments.seed, minimum=0, maximum=2**31 - 1))
    settings = SearchSettings(workers, moves=arguments.moves)
    return plan(snapshot, deadline_seconds=seconds, seed=seed, settings=settings), snapshot


def _snapshot(arguments: argparse.Namespace, settings: PlacementSettings) -> Snapshot:
    if not arguments.cluster:
        return read_snapshot(arguments.snapshot)
    from wattpack.kube.client import connect

    return cluster_snapshot(connect(arguments.kubeconfig), SystemClock(), settings)


def read_snapshot(name: str) -> Snapshot:
    """A snapshot file, or standard input for ``-``.

    Raises:
        InputError: if it cannot be read, or naming the first wrong field.
    """
    text = _read(name)
    source = "standard input" if name == "-" else name
    # A model takes the last of two keys unseen; people's files are refused by name.
    parse_json(text, source)
    return parse_snapshot(text, source)


def cluster_snapshot(api: KubeApi, clock: Clock, settings: PlacementSettings) -> Snapshot:
    """What a planner that starts now would see; pods that wait at our gate or would in Shadow.

    Beside that it knows when pods end that state it (``wattpack plan what-if`` asks).

    Args:
        api: Of the cluster.
        clock: Of the people who ask.
        settings: Of the planner: whose forecasts count, links, how peaks add up, and cap levels.

    Raises:
        KubeError: if the API does not answer.
    """
    reader = ClusterReader(api, clock, shadow=True, authority=settings.namespace)
    pods = reader.pods()
    objects = settings.applied_to(reader.objects(pods), reader.policy_floors)
    built = build_snapshot(objects, Ledger())
    ends = expected_ends(pods, clock.wall_time_ns() / NS_PER_SECOND)
    return with_expected_ends(built.snapshot, ends)


def _write(file: Path, snapshot: Snapshot) -> None:
    try:
        file.write_text(snapshot.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError("--write-snapshot", "a writable file", str(error), str(file)) from error


def _read(name: str) -> str:
    try:
        if name == "-":
            return read_bounded(sys.stdin.buffer, name)
        with Path(name).open("rb") as stream:
            return read_bounded(stream, name)
    except (OSError, UnicodeDecodeError) as error:
        # The name stands in front already.
        got = getattr(error, "strerror", None) or str(error)
        raise InputError("--snapshot", "a readable UTF-8 file", got, name) from error
