"""``wattpack plan parallel --capped``: what caps do to a running job, and whether it moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats
from capacity.training.capped_job import CappedJob, capped_speed
from capacity.training.link_matrix import LinkMatrix
from capacity.training.plan_values import ParallelPlan, TrainingCluster, TrainingProblem
from capacity.training.replan import DWELL_SECONDS, REMAINING_SECONDS
from capacity.training.step_work import TrainingGpu
from wattpack.errors import InputError
from wattpack.live_view import LiveView

__all__ = ["gpu_speeds", "host_caps", "live_caps", "move_lines"]

SAME_WATTS: Final = 1.0
"""Limits are read back in whole watts."""


def host_caps(texts: Sequence[str], hosts: Sequence[str]) -> dict[str, float]:
    """Watts of each GPU by host, from ``HOST=WATTS``.

    Raises:
        InputError: another form, an unknown host, a host named twice.
    """
    caps: dict[str, float] = {}
    for text in texts:
        host, _, watts = text.rpartition("=")
        try:
            # Python reads 5_0_0 as a number, too.
            cap = float("nan") if "_" in watts else float(watts)
        except ValueError:
            cap = float("nan")
        if not host or not isfinite(cap):
            raise InputError("--capped", "HOST=WATTS, for example a-1=500", text)
        if host not in hosts:
            raise InputError("--capped", f"one of {', '.join(hosts)[:200]}", host)
        if host in caps:
            raise InputError("--capped", "each host once", host)
        caps[host] = cap
    return caps


def live_caps(
    view: LiveView, hosts: Sequence[str], cluster: TrainingCluster, limit_watts: float
) -> dict[str, float]:
    """Watts by host of those whose GPUs are limited now; the lowest limit of a host counts.

    Args:
        hosts: Names of the cluster's hosts, which are names of nodes.
        limit_watts: That the running plan was made for, of the first type.

    Raises:
        InputError: a host without GPUs in the view, or with one whose limit nobody knows.
    """
    limits: dict[str, list[float | None]] = {}
    for node, watts in zip(view.gpus.node, view.gpus.limit_watts, strict=True):
        limits.setdefault(node, []).append(watts)
    boards, caps = (cluster.gpus[0], *cluster.others), {}
    for number, host in enumerate(hosts):
        known = [watts for watts in limits.get(host, []) if watts is not None]
        if not known or len(known) < len(limits[host]):
            raise InputError("--live", f"a limit of every GPU of node {host}", "none")
        kind = int(cluster.types[cluster.links.host == number][0])
        whole = boards[kind].limit_watts if kind else limit_watts
        if min(known) < whole - SAME_WATTS:
            caps[host] = min(known)
    return caps


def gpu_speeds(
    problem: TrainingProblem,
    running: ParallelPlan,
    caps: Mapping[str, float],
    hosts: Sequence[str],
    board: Callable[[int, float], TrainingGpu],
) -> Floats:
    """Of each GPU under its host's cap relative to the limit of the running plan, shape (n_gpus,).

    Args:
        board: A GPU type, by its position in the cluster, under a limit.

    Raises:
        InputError: a cap that the type cannot be set to.
    """
    cluster = problem.cluster
    boards = (board(0, running.limit_watts), *cluster.others)
    speeds = np.ones(cluster.links.gpus)
    for host, watts in caps.items():
        here = cluster.links.host == hosts.index(host)
        kind = int(cluster.types[here][0])
        speeds[here] = capped_speed(boards[kind], board(kind, watts), problem.job, running)
    return speeds


def move_lines(capped: CappedJob, hosts: Sequence[str], links: LinkMatrix) -> list[str]:
    """The verdict in words, the reason below it."""
    running, staying, move = capped.running, capped.staying, capped.move
    lost = 1 - running.step_seconds / staying.step_seconds
    said = [
        f"running: {running.layout}, {running.step_seconds:.3g} s a step without the caps",
        f"staying: {staying.step_seconds:.3g} s a step ({lost:.1%} slower work)",
    ]
    if move.lost_share <= 0:
        return [*said, "verdict: stay; no other plan is faster under these caps"]
    said += [
        f"moving: {move.plan.layout}, {move.step_seconds:.3g} s a step "
        f"(staying loses {move.lost_share:.1%} of the time)",
        *_what_moves(staying, move.plan, hosts, links),
        f"price: {move.price_seconds:.0f} s without work to re-shard and restart, and again to go "
        f"back: it pays if the caps last on for {_minutes(move.pays_after_seconds)}",
    ]
    return [*said, f"verdict: {_verdict(capped)}"]


def _verdict(capped: CappedJob) -> str:
    after, pays = capped.moves_after_seconds, capped.move.pays_after_seconds
    if not isfinite(after):
        return f"stay; caps of {_minutes(capped.lasting_seconds or 0.0)} end before a move pays"
    if capped.lasting_seconds is not None:
        return f"move; the caps outlast what the move needs (first {_minutes(after)} are a pause)"
    if pays <= REMAINING_SECONDS:
        dwell = max(DWELL_SECONDS, capped.move.price_seconds)
        return f"move once the caps have lasted {_minutes(dwell)}; shorter ones are a pause"
    return f"stay at first; move once the caps have lasted {_minutes(after)}"


def _what_moves(
    old: ParallelPlan, new: ParallelPlan, hosts: Sequence[str], links: LinkMatrix
) -> list[str]:
    """Layers of each stage before and after where the cut stays, else nothing."""
    if old.layout != new.layout or not np.array_equal(old.ranks, new.ranks):
        return ["  other ranks or another cut: every GPU fetches what it did not hold"]
    said = []
    for stage, (before, after) in enumerate(zip(old.layers, new.layers, strict=True)):
        if before != after:
            names = {hosts[h] for h in links.host[old.ranks[stage].ravel()].tolist()}
            said.append(f"  stage {stage} ({', '.join(sorted(names))}): {before} -> {after} layers")
    return said


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"
