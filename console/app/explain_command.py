"""``wattpack explain cap GPU``: the decision, the constraint that bound it, and what would lift it.

Read from a controller's live view, of this moment; nothing is written.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from console.cap_reasons import explain_gpu
from wattpack.clock import SystemClock
from wattpack.errors import InputError
from wattpack.flags import http_url
from wattpack.live_client import READ_ERRORS, LiveClient, cause_of
from wattpack.live_view import LiveView

__all__ = ["cap_text", "leading_view", "main", "uuid_of"]

_WIDTH = 12


def build_parser() -> argparse.ArgumentParser:
    """The arguments."""
    parser = argparse.ArgumentParser(prog="wattpack explain cap", description=__doc__)
    parser.add_argument("gpu", metavar="GPU", help="UUID, or a part of it that only one GPU has")
    parser.add_argument(
        "--controller", action="append", required=True, metavar="URL", type=http_url,
        help="live view of a controller replica, for example http://controller-0:8081/v1/live; "
        "of several the leader is asked",
    )  # fmt: skip
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="bearer token to show")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the answer; 2 for a GPU that nobody knows or a controller that does not answer."""
    arguments = build_parser().parse_args(argv)
    view = leading_view(arguments.controller, LiveClient(SystemClock(), arguments.token_file))
    answer = explain_gpu(view, uuid_of(view, arguments.gpu))
    print(json.dumps(answer, indent=2) if arguments.json else cap_text(answer))
    return 0


def leading_view(urls: Sequence[str], client: LiveClient) -> LiveView:
    """The leader's view, of the highest epoch if several think that they lead; else the newest.

    Raises:
        InputError: naming the first replica that did not answer, if none did.
    """
    views: list[LiveView] = []
    failed: list[str] = []
    for url in urls:
        try:
            views.append(client.read(url))
        except READ_ERRORS as error:
            failed.append(f"{url}: {cause_of(error)}")
    if not views:
        raise InputError("--controller", "a controller that answers", failed[0])
    return max(views, key=lambda view: (view.leading, view.epoch, view.wall_time_ns))


def uuid_of(view: LiveView, wanted: str) -> str:
    """The GPU of that UUID, or the only one whose UUID has such a part.

    Raises:
        InputError: for none or several; names some of them.
    """
    known = view.gpus.uuid
    found = [uuid for uuid in known if uuid == wanted] or [u for u in known if wanted in u]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError("GPU", f"one of the {len(known)} GPUs that the controller knows", wanted)
    some = ", ".join(found[:3])
    raise InputError("GPU", f"a part of one UUID ({some} and others have it)", wanted)


def cap_text(answer: Mapping[str, Any]) -> str:
    """The answer of ``explain_gpu`` for people."""
    pod = f"{answer['pod']}, priority {answer['priority']}" if answer["pod"] else "no pod"
    lines = [
        f"{answer['uuid']} ({answer['model']}) on {answer['node']}, below {answer['rack']}: {pod}",
        _line("decided", _decision(answer)),
        _line("because", f"{answer['reason']}: {answer['sentence']}"),
        _line("bound by", answer["limit"]),
        _line("to lift it", answer["lifts"]),
    ]
    if answer["work"]:
        lines.append(_line("work", answer["work"]))
    for number, holder in enumerate(answer["holders"]):
        text = (
            f"{holder['pod']}: {holder['drawWatts']:.0f} W on {holder['gpus']} GPUs, "
            f"priority {holder['priority']}"
        )
        lines.append(_line("" if number else "power is at", text))
    for number, action in enumerate(answer["actions"]):
        lines.append(_line("" if number else "you can", action))
    return "\n".join([*lines, _line("as of", f"tick {answer['tick']}, epoch {answer['epoch']}")])


def _line(name: str, text: object) -> str:
    return f"  {name:{_WIDTH}}{text}"


def _decision(answer: Mapping[str, Any]) -> str:
    decided = answer["decidedWatts"]
    parts = [
        "cap not told by this controller" if decided is None else f"cap {decided:.0f} W",
        f"limit read back {_watts(answer['limitWatts'])}",
        f"asked for {answer['requestWatts']:.0f} W",
        f"floor {_watts(answer['floorWatts'])}",
        f"draws {_watts(answer['drawWatts'])}",
    ]
    return ", ".join(parts)


def _watts(watts: float | None) -> str:
    return "unknown" if watts is None else f"{watts:.0f} W"
