"""Whether pods that no present node can serve are asked for, wait, or are let go. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from scheduler_plugin.kube_objects.provisioning_requests import Demand, OwnRequest, named_request
from scheduler_plugin.promises.provisioning_settings import ProvisioningSettings
from wattpack.kube.port import JsonObject

__all__ = ["HOUR_SECONDS", "Answer", "Verdict", "Wait", "answer", "next_free_seconds"]

HOUR_SECONDS: Final = 3600.0


class Verdict(Enum):
    """What is done with a demand now."""

    AS_EVER = "nobody provisions for it: it is let go when its patience is over"
    ASK = "a request is made for it"
    KEEP = "it waits for its request"
    LIMITED = "it waits until another request may be made"
    END = "its request brings nothing any more: it is let go at once"


@dataclass(frozen=True, slots=True)
class Wait:
    """How a demand stands at this moment.

    Attributes:
        is_hopeless: No present node can serve one of its pods.
        is_under_way: One of its pods waits for what is to come.
        is_due: The patience of one of its pods is over.
    """

    is_hopeless: bool
    is_under_way: bool
    is_due: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What is done with a demand, and why.

    Attributes:
        why: For people, where its request has ended.
        unmarked: Pods that are still to name the request.
    """

    verdict: Verdict
    why: str = ""
    unmarked: tuple[JsonObject, ...] = ()


def answer(
    demand: Demand,
    wait: Wait,
    request: OwnRequest | None,
    asked_at_seconds: Iterable[float],
    settings: ProvisioningSettings,
    now_seconds: float,
) -> Answer:
    """What to do for a demand; the same in every process that sees the same objects.

    Args:
        demand: The pods.
        wait: How they stand.
        request: The one of the demand's name, if there is one.
        asked_at_seconds: Unix times at which requests were made.
        settings: Limits.
        now_seconds: Unix time.
    """
    name, names = demand.request_name, [named_request(pod) for pod in demand.pods]
    if any(other not in ("", name) for other in names):
        return Answer(Verdict.AS_EVER)  # Its owner has somebody else ask.
    waits = wait.is_hopeless or wait.is_under_way
    if request is None:
        if not (settings.enabled and wait.is_due and wait.is_hopeless):
            return Answer(Verdict.AS_EVER)
        free_at = next_free_seconds(asked_at_seconds, settings.per_hour, now_seconds)
        return Answer(Verdict.ASK if free_at <= now_seconds else Verdict.LIMITED)
    if request.owners.isdisjoint(demand.owner_uids):
        return Answer(Verdict.AS_EVER)  # Of an earlier gang of this name, and collected with it.
    said = f": {request.message}" if request.message else ""
    if request.stage.has_ended:
        ends = wait.is_hopeless and (wait.is_due or any(names))
        why = f"ProvisioningRequest {name} {request.stage.value}{said}"
        return Answer(Verdict.END, why) if ends else Answer(Verdict.AS_EVER)
    if waits and now_seconds - request.since_seconds >= settings.timeout_seconds:
        after = f"for {settings.timeout_seconds:.0f} s and more"
        why = f"ProvisioningRequest {name} {request.stage.value} {after}{said}"
        return Answer(Verdict.END, why)
    marks = settings.enabled and waits
    unmarked = [pod for pod, named in zip(demand.pods, names, strict=True) if marks and not named]
    return Answer(Verdict.KEEP, "", tuple(unmarked))


def next_free_seconds(
    asked_at_seconds: Iterable[float], per_hour: int, now_seconds: float
) -> float:
    """From when another request may be made, Unix time; at most now if it may be made now."""
    lately = sorted(at for at in asked_at_seconds if at > now_seconds - HOUR_SECONDS)
    return now_seconds if len(lately) < per_hour else lately[-per_hour] + HOUR_SECONDS
