"""Letting held pods go without a plan: when no planner lives, and before an uninstall."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from scheduler_plugin.app.leadership import LeadershipLostError
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode
from wattpack.gangs import GangSources, gang_of
from wattpack.kube.port import (
    MUTATING_WEBHOOKS,
    PODS,
    ConflictError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
)

log = logging.getLogger(__name__)
#: Passes over all pods: a pod that changed during one is met again in the next.
PASSES = 5


@dataclass(frozen=True, slots=True)
class Released:
    """How many pods were let go, and how many still wait."""

    released: int
    left: int


def release_all(api: KubeApi, passes: int = PASSES) -> Released:
    """No pod waits at our gate any more: plain pods first, then gangs, whole and one by one."""
    released = 0
    for _ in range(passes):
        held = held_pods(api)
        if not held:
            return Released(released, 0)
        released += sum(_release(api, pod) for pod in held)
    return Released(released, len(held_pods(api)))


class OpenGate:
    """Lets go of everybody at our gate, where pods are placed without it (modes Off and Shadow).

    Planning that works keeps the watchdog quiet, so nobody else would. Pods may come to the gate
    after the first look: the webhook of a replica that still runs in Manage holds them.

    Args:
        api: The cluster.
        mode: For the log.
        pods: All pods as a local copy shows them.
    """

    def __init__(
        self, api: KubeApi, mode: Mode, pods: Callable[[], tuple[JsonObject, ...]]
    ) -> None:
        self._api, self._mode, self._pods = api, mode, pods
        self._is_empty = False

    def step(self) -> None:
        """Look, and let go."""
        try:
            if self._is_empty and not any(map(pod_facts.is_gated, self._pods())):
                return
            done = release_all(self._api)
        except KubeError as error:
            log.warning("held pods not read: %s", error)
            return
        if done.released:
            log.info("mode %s: %d held pods released", self._mode, done.released)
        self._is_empty = done.left == 0


def uninstall(api: KubeApi, webhook: str) -> Released:
    """Remove the webhook, so that no new pod is held, then release every pod."""
    try:
        api.delete(MUTATING_WEBHOOKS, webhook)
    except NotFoundError:
        log.info("webhook %s is already gone", webhook)
    return release_all(api)


def held_pods(api: KubeApi) -> list[JsonObject]:
    """Pods at our gate: plain ones by name, then gangs by id with all their members."""
    held = [pod for pod in api.list(PODS).items if pod_facts.is_gated(pod)]
    return sorted(held, key=lambda pod: (_gang_id(pod), pod_facts.key(pod)))


def _gang_id(pod: JsonObject) -> str:
    try:
        gang = gang_of(pod, GangSources.empty())
    except Exception as error:
        # Whatever the API server admitted is let go: what cannot be read counts as a plain pod.
        log.warning("gang of %s not read: %r", pod_facts.key(pod), error)
        return ""
    return gang.id if gang is not None else ""


def _release(api: KubeApi, pod: JsonObject) -> bool:
    metadata = pod["metadata"]
    try:
        api.patch_json(
            PODS,
            metadata["name"],
            pod_facts.release_patch(pod),
            metadata.get("namespace", "default"),
        )
    except (ConflictError, NotFoundError):
        return False
    except LeadershipLostError:
        raise
    except Exception as error:
        # One pod that cannot be released keeps no other waiting.
        log.warning("could not release %s: %r", pod_facts.key(pod), error)
        return False
    return True
