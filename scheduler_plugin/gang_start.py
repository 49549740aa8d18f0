"""When a waiting gang or pod would start: running pods end as expected, and plans go on.

Whenever something is expected to end, or a power domain's forecast takes another value, everything
that waits is planned again, the most important first as ever. Pods that start meanwhile are taken
to run on. What nobody expects to end never does, so the answer is an expectation, not a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from scheduler_plugin.documents.plan_document import Pending, Plan
from scheduler_plugin.documents.snapshot import PodState, Snapshot
from scheduler_plugin.documents.snapshot_limits import MAX_NODES, MAX_PODS, refuse_huge
from scheduler_plugin.documents.value import Id, Label, Value
from scheduler_plugin.documents.value_json import parse_value
from scheduler_plugin.what_if import held, with_parts, without_pods
from wattpack.errors import InputError
from wattpack.near_names import did_you_mean

__all__ = [
    "ExpectedWatts",
    "Forecast",
    "GangStart",
    "expected_start",
    "parse_forecast",
    "with_expected_ends",
]

Planner = Callable[[Snapshot], Plan]
MAX_MOMENTS: Final = 300
"""Plans that are made for one answer at most; the answer says up to when was looked."""

Seconds = Annotated[int, Field(ge=0, le=10**9)]


class ExpectedWatts(Value):
    """What a power domain will use, from some seconds after the snapshot on."""

    after_seconds: Seconds
    used_watts: Annotated[int, Field(ge=0, le=10**9)]


class Forecast(Value):
    """``wattpack.io/what-if-forecast/v1``: what is expected beyond the snapshot.

    Attributes:
        ends: Seconds from the snapshot on after which running pods end, by uid; beside their
            ``expected_end_seconds``, which it outranks.
        domains: Of power domains, in place of what ending pods are taken to draw.
    """

    api_version: Literal["wattpack.io/what-if-forecast/v1"] = "wattpack.io/what-if-forecast/v1"
    ends: dict[Id, Seconds] = Field(default_factory=dict)
    domains: dict[Id, tuple[ExpectedWatts, ...]] = Field(default_factory=dict)


class GangStart(Value):
    """``wattpack.io/gang-start/v1``.

    Attributes:
        start_seconds: From the snapshot on; None where nothing that is expected lets it start.
        nodes: Where its members would go, by uid.
        ended: Running pods that end before.
        looked_until_seconds: The last moment that was planned.
        cause: Why it waits now, or at the last moment; None if it starts at once.
    """

    api_version: Literal["wattpack.io/gang-start/v1"] = "wattpack.io/gang-start/v1"
    waiting: Id
    start_seconds: int | None
    nodes: dict[Id, Label] = Field(default_factory=dict)
    ended: tuple[Id, ...] = ()
    looked_until_seconds: int = 0
    cause: Pending | None = None


def parse_forecast(text: str | bytes, source: str = "") -> Forecast:
    """A forecast from JSON.

    Raises:
        InputError: naming the first wrong field.
    """
    refuse_huge(text, source, {"ends": MAX_PODS, "domains": MAX_NODES})
    return parse_value(Forecast, text, source)


def expected_start(
    snapshot: Snapshot, waiting: str, planner: Planner, forecast: Forecast | None = None
) -> GangStart:
    """When all waiting members of a gang, or a pod, would have a place.

    Args:
        snapshot: With expected ends of running pods, as far as they are known.
        waiting: Id of a gang, uid of a pod, or its namespace/name.
        planner: Makes plans.
        forecast: What is expected beyond the snapshot.

    Raises:
        InputError: if nobody waits by that name, or the forecast names what is not there.
    """
    forecast = forecast or Forecast()
    wanted = _members(snapshot, waiting)
    ends = _ends(snapshot, forecast)
    steps = (e.after_seconds for each in forecast.domains.values() for e in each)
    moments = sorted({0, *ends.values(), *steps})[:MAX_MOMENTS]
    state = snapshot
    first: Pending | None = None
    entry: Pending | None = None
    gone: list[str] = []
    nodes: dict[str, str] = {}
    for moment in moments:
        over = [p for p in state.pods if p.uid in ends and ends[p.uid] <= moment and p.node]
        gone += [pod.uid for pod in over]
        state = _at(without_pods(state, over, waiting=False), forecast, moment)
        made = planner(state)
        nodes |= {p.uid: p.node for p in made.placements if p.uid in wanted}
        if nodes.keys() >= wanted:
            return GangStart(
                waiting=waiting,
                start_seconds=moment,
                nodes=nodes,
                ended=tuple(gone),
                looked_until_seconds=moment,
                cause=first,
            )
        entry = next(
            (e for e in made.pending if e.uid in wanted and (e.changes or e.gang == "")), None
        )
        entry = entry or next((e for e in made.pending if e.uid in wanted), None)
        first = first or entry
        state = held(state, made)
    return GangStart(
        waiting=waiting,
        start_seconds=None,
        ended=tuple(gone),
        looked_until_seconds=moments[-1],
        cause=entry,
    )


def with_expected_ends(snapshot: Snapshot, ends: Mapping[str, int]) -> Snapshot:
    """The snapshot with ``expected_end_seconds`` of running pods, by uid.

    A planner's own snapshots go without: they would differ with every second.
    """
    pods = tuple(
        pod.model_copy(update={"expected_end_seconds": ends[pod.uid]})
        if pod.uid in ends and pod.state is PodState.BOUND
        else pod
        for pod in snapshot.pods
    )
    return with_parts(snapshot, pods=pods)


def _members(snapshot: Snapshot, waiting: str) -> set[str]:
    """Uids of who is asked about."""
    found = {
        pod.uid
        for pod in snapshot.pods
        if waiting in (pod.gang, pod.uid, f"{pod.namespace}/{pod.name}") and pod.state.waits
    }
    if not found:
        there = [pod for pod in snapshot.pods if pod.state.waits]
        gangs = {pod.gang for pod in there if pod.gang}
        names = {f"{pod.namespace}/{pod.name}" for pod in there}
        # Who leaves out the namespace, and of a gang its source, most likely means this one.
        ending = [name for name in gangs | names if name.endswith(f"/{waiting}")]
        meant = ending[0] if len(ending) == 1 else waiting
        near = did_you_mean(meant, gangs) or did_you_mean(meant, names)
        expected = f"a gang or pod of the snapshot that waits{near}"
        raise InputError("--start-of", expected, waiting)
    gangs = {pod.gang for pod in snapshot.pods if pod.uid in found} - {""}
    return found | {p.uid for p in snapshot.pods if p.gang in gangs and p.state.waits}


def _ends(snapshot: Snapshot, forecast: Forecast) -> Mapping[str, int]:
    running = {p.uid: p for p in snapshot.pods if p.state is PodState.BOUND}
    unknown = sorted(forecast.ends.keys() - {pod.uid for pod in snapshot.pods})
    if unknown:
        raise InputError("forecast.ends", "uids of pods of the snapshot", unknown[0])
    domains = sorted(forecast.domains.keys() - {domain.name for domain in snapshot.domains})
    if domains:
        raise InputError("forecast.domains", "power domains of the snapshot", domains[0])
    known = {
        uid: pod.expected_end_seconds
        for uid, pod in running.items()
        if pod.expected_end_seconds is not None
    }
    return known | {uid: end for uid, end in forecast.ends.items() if uid in running}


def _at(snapshot: Snapshot, forecast: Forecast, moment: int) -> Snapshot:
    """With what domains are expected to use by then, where the forecast says it."""
    used: dict[str, int] = {}
    for name, values in forecast.domains.items():
        past = [value for value in values if value.after_seconds <= moment]
        if past:
            used[name] = max(past, key=lambda value: value.after_seconds).used_watts
    if not used:
        return snapshot
    domains = tuple(
        domain.model_copy(
            update={"used_watts": used.get(domain.at_risk_of or domain.name, domain.used_watts)}
        )
        for domain in snapshot.domains
    )
    return with_parts(snapshot, domains=domains)
