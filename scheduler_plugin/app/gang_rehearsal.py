"""Dry runs of a gang's patches: one member that admission refuses holds the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scheduler_plugin.app.patch_crew import beside_each_other
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.clock import Clock
from wattpack.kube.port import ConflictError, JsonObject, KubeError
from wattpack.units import NS_PER_SECOND

__all__ = ["ATTEMPTS", "REHEARSAL_NS", "GangRehearsal"]

#: How often a patch is made anew for a pod that changed meanwhile.
ATTEMPTS = 3
#: What one cycle spends on dry runs; the rest follows in the next.
REHEARSAL_NS = 5 * NS_PER_SECOND
#: What the API server answers where an admission webhook declares side effects.
_NO_DRY_RUN = "does not support dry run"


class _Patch(Protocol):
    def __call__(self, body: JsonObject, node: str, *, dry_run: bool) -> None: ...


class GangRehearsal:
    """What was tried stays tried until the pod changes: many members may take several cycles.

    Args:
        patch: Sends a pod's patch.
        read_again: The pod as it is now, and what that decides; None: it asks for the same.
        clock: For the time that dry runs may take.
        at_once: How many may be under way.
    """

    def __init__(
        self,
        patch: _Patch,
        read_again: Callable[[JsonObject, str], tuple[JsonObject, object | None]],
        clock: Clock,
        at_once: int,
    ) -> None:
        self._patch, self._read_again = patch, read_again
        self._clock, self._at_once = clock, at_once
        self._rehearsed: dict[str, str] = {}

    def of(self, plan: Plan, bodies: dict[str, JsonObject]) -> dict[str, str]:
        """Gangs that must not go now, with the refusal; empty text: the dry runs are not done.

        Args:
            plan: What is to be carried out.
            bodies: Pods by uid; those that changed meanwhile are read again and put here.
        """
        began_ns = self._clock.monotonic_ns()
        waiting = {p.uid for p in plan.placements} & bodies.keys()
        self._rehearsed = {u: v for u, v in self._rehearsed.items() if u in waiting}
        gangs: dict[str, list[Placement]] = {}
        for p in sorted(plan.placements, key=lambda p: p.gang):
            if p.gang and p.uid in waiting and self._is_new(p.uid, bodies[p.uid]):
                gangs.setdefault(p.gang, []).append(p)
        held: dict[str, str] = {}

        def tried(placement: Placement) -> None:
            if why := self._try(placement, bodies):
                held.setdefault(placement.gang, why)
            else:
                self._rehearsed[placement.uid] = _version(bodies[placement.uid])

        # Gang by gang: what ends in the middle must not leave all of them half tried.
        for gang, members in gangs.items():

            def goes_on(gang: str = gang) -> bool:
                if self._clock.monotonic_ns() - began_ns > REHEARSAL_NS:
                    held.setdefault(gang, "")
                return gang not in held

            beside_each_other(members, tried, self._at_once, goes_on)
        return held

    def _is_new(self, uid: str, body: JsonObject) -> bool:
        return self._rehearsed.get(uid) != _version(body)

    def _try(self, placement: Placement, bodies: dict[str, JsonObject]) -> str:
        """Why a member's patch would not be made; empty if it would."""
        body = bodies[placement.uid]
        for _ in range(ATTEMPTS):
            try:
                self._patch(body, placement.node, dry_run=True)
            except ConflictError:
                body, outcome = self._read_again(body, placement.node)
                if outcome is not None:
                    return f"{pod_facts.key(body)} changed meanwhile"
                bodies[placement.uid] = body
                continue
            except KubeError as error:
                # Some webhook of the cluster has side effects: then nothing can be rehearsed.
                rehearsable = _NO_DRY_RUN not in str(error)
                return f"{pod_facts.key(body)}: {error}" if rehearsable else ""
            return ""
        return f"{pod_facts.key(body)} keeps changing"


def _version(body: JsonObject) -> str:
    return str(body["metadata"]["resourceVersion"])
