"""``wattpack release --restore-defaults``: give a node's GPUs their default limits back.

Nothing in wattpack uncaps on silence, stop or error, so somebody has to say it: before wattpack is
uninstalled, say. Run it on the node as root (in the actuator's pod); the actuator does the writing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from actuator.app.actuator_command import DEFAULT_SOCKET
from actuator.lease_messages import ApplyResult
from actuator.unix_socket.client import ActuatorClient
from wattpack.clock import SystemClock
from wattpack.errors import InputError

EXAMPLES = """examples:
  kubectl get powerdomains,gpunodes,nodes -o json > cluster.json
  wattpack release --restore-defaults --cluster cluster.json --dry-run     what the breakers bear
  kubectl exec POD -- wattpack release --restore-defaults --yes            on each node
"""

UNKNOWN = "What the breakers bear is not known: give --cluster FILE to have it judged."


def build_parser() -> argparse.ArgumentParser:
    """The verb's command line."""
    parser = argparse.ArgumentParser(
        prog="wattpack release",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--restore-defaults",
        action="store_true",
        required=True,
        help="every GPU of this node goes to the limit that it has after a driver load",
    )
    add("--socket", type=Path, default=DEFAULT_SOCKET, help="the actuator's (%(default)s)")
    add(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="output of `kubectl get powerdomains,gpunodes,nodes -o json`",
    )
    add("--dry-run", action="store_true", help="say what the breakers bear; change nothing")
    add("--yes", action="store_true", help="do not ask, also if a breaker would be overloaded")
    return parser


def main(argv: Sequence[str] | None = None, ask: Callable[[str], str] = input) -> int:
    """Release the node; 0 done, 1 refused or not confirmed by a board.

    Raises:
        WattpackError: with a message for the person; the command line prints it.
    """
    options = build_parser().parse_args(argv)
    overloaded = _tell(options.cluster)
    if options.dry_run:
        return 1 if overloaded else 0
    if not options.yes and not _agreed(overloaded, ask):
        print("nothing was changed")
        return 1
    client = ActuatorClient(options.socket, SystemClock())
    try:
        return _report(client.restore_defaults())
    finally:
        client.close()


def _tell(cluster: Path | None) -> bool:
    """Say what the breakers bear; whether any might be overloaded."""
    if cluster is None:
        print(UNKNOWN)
        return False
    # Only here: on the node, where there is no such file, nothing of this is loaded.
    from actuator.release_judgement import breakers_at_defaults
    from wattpack.documents import read_json

    document = read_json(cluster)
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError("items", "a list of objects, as kubectl prints", items, str(cluster))
    print("With every GPU at its default limit (AC at the breaker, servers at their worst):")
    breakers = breakers_at_defaults(items)
    for breaker in breakers:
        print(f"  {breaker.sentence()}")
    return not all(breaker.bears_it for breaker in breakers)


def _agreed(overloaded: bool, ask: Callable[[str], str]) -> bool:
    warning = "A breaker may be OVERLOADED. " if overloaded else ""
    question = f"{warning}Give this node's GPUs their default limits back? [y/N] "
    try:
        return ask(question).strip().lower() in {"y", "yes"}
    except EOFError:
        print(file=sys.stderr)
        raise InputError("--yes", "an answer, or --yes where nobody can give one", None) from None


def _report(result: ApplyResult) -> int:
    if not result.accepted:
        print(f"refused: {result.field}: expected {result.expected}, got {result.got}")
        return 1
    for uuid, outcome in sorted(result.devices.items()):
        print(f"{uuid}: default limit {outcome}")
    print("The actuator holds nothing on this node until its pod starts again.")
    return 0 if all(outcome == "confirmed" for outcome in result.devices.values()) else 1
