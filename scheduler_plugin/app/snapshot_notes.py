"""What a snapshot file and the flags beside it name, and nothing is there for: told, not refused.

A price list may be of a whole fleet, and a node may have gone while its pods still end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from capacity.profile_library import normal_name
from scheduler_plugin.app.plan_text import pod_names
from scheduler_plugin.documents.snapshot import Snapshot
from wattpack.near_names import one_of

__all__ = ["notes", "print_notes"]

_TOLD = 4


def print_notes(snapshot: Snapshot, arguments: argparse.Namespace) -> None:
    """On standard error, a line each.

    Args:
        snapshot: As it was read.
        arguments: With the planning flags.
    """
    for note in notes(snapshot, arguments.gpu_prices or (), arguments.carbon_grams_per_kwh or ()):
        print(f"note: {note}", file=sys.stderr)


def notes(snapshot: Snapshot, priced: Iterable[str], weighed: Iterable[str]) -> Iterator[str]:
    """A line for each name without effect.

    Args:
        snapshot: As it was read.
        priced: GPU models of ``--gpu-prices``.
        weighed: Power domains of ``--carbon-grams-per-kwh``.
    """
    models = sorted({node.gpu_model for node in snapshot.nodes if node.gpu_model})
    known = {normal_name(model) for model in models}
    for name in priced:
        if normal_name(name) not in known:
            yield f"--gpu-prices: no node has GPU model {name!r}: expected {one_of(name, models)}"
    domains = sorted(domain.name for domain in snapshot.domains)
    for name in weighed:
        if name not in domains:
            yield f"--carbon-grams-per-kwh: no domain {name!r}: expected {one_of(name, domains)}"
    nodes, names = {node.name for node in snapshot.nodes}, pod_names(snapshot)
    lost = [pod for pod in snapshot.pods if pod.node and pod.node not in nodes]
    if lost:
        told = ", ".join(f"{names[pod.uid]} on {pod.node}" for pod in lost[:_TOLD])
        more = f" and {len(lost) - _TOLD} more" if len(lost) > _TOLD else ""
        yield f"pods on nodes that the snapshot does not have take no room: {told}{more}"
