"""Which devices draw what their caps allow, as the node itself sees it (I7). Pure.

The controller judges by the same rules on its own; this word is for people who look at the node.
"""

from __future__ import annotations

from collections import deque

from telemetry.gpunode.gpunode_status import limit_watts
from telemetry.node_state import NodeState
from wattpack.power.energy_trust import (
    CALM_OVER_CAP,
    TRUSTED_AGAIN_NS,
    UNTRUSTED_OVER_CAP,
    trust_window_ns,
)

#: 3 s of settling, 1 s of actuation.
WINDOW_NS = trust_window_ns(4.0)


class TrustMemory:
    """Remembers the caps of the last seconds and who exceeded all of them."""

    def __init__(self) -> None:
        self._caps: dict[str, deque[tuple[int, float]]] = {}
        self._began_ns: int | None = None
        self._doubted_ns: dict[str, int] = {}

    def update(self, state: NodeState) -> frozenset[str]:
        """The devices that are untrusted after one more look."""
        now_ns = state.now_ns
        if self._began_ns is None:
            self._began_ns = now_ns
        for sample in state.samples:
            uuid, limit = sample.identity.uuid, limit_watts(state, sample)
            caps = self._caps.setdefault(uuid, deque())
            if limit is not None:
                caps.append((now_ns, limit))
            while len(caps) > 1 and caps[0][0] < now_ns - WINDOW_NS:
                caps.popleft()
            mean = sample.energy_mean_watts
            if caps and mean is not None and now_ns - self._began_ns >= WINDOW_NS:
                self._judge(uuid, mean, max(watts for _, watts in caps), now_ns)
        return frozenset(self._doubted_ns)

    def _judge(self, uuid: str, mean_watts: float, cap_watts: float, now_ns: int) -> None:
        doubted_ns = self._doubted_ns.get(uuid)
        allowed = UNTRUSTED_OVER_CAP if doubted_ns is None else CALM_OVER_CAP
        if mean_watts > allowed * cap_watts:
            self._doubted_ns[uuid] = now_ns
        elif doubted_ns is not None and now_ns - doubted_ns >= TRUSTED_AGAIN_NS:
            del self._doubted_ns[uuid]
