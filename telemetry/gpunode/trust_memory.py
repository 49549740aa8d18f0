"""Which devices draw what their caps allow, as the node itself sees it (I7). Pure.

The controller judges by the same rules on its own; this word is for people who look at the node.
"""

from __future__ import annotations

from collections import deque

from telemetry.gpunode.gpunode_status import limit_watts
from telemetry.node_state import NodeState
from wattpack.power.energy_trust import (
    OFFENDS_FOR_NS,
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
        self._over_since_ns: dict[str, int] = {}
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
            if caps and mean is not None:
                self._judge(uuid, mean, max(watts for _, watts in caps), now_ns)
        return frozenset(self._doubted_ns)

    def _judge(self, uuid: str, mean_watts: float, cap_watts: float, now_ns: int) -> None:
        if mean_watts > UNTRUSTED_OVER_CAP * cap_watts:
            since_ns = self._over_since_ns.setdefault(uuid, now_ns)
            known = self._began_ns is not None and now_ns - self._began_ns >= WINDOW_NS
            if known and now_ns - since_ns >= OFFENDS_FOR_NS:
                self._doubted_ns[uuid] = now_ns
            return
        self._over_since_ns.pop(uuid, None)
        doubted_ns = self._doubted_ns.get(uuid)
        if doubted_ns is not None and now_ns - doubted_ns >= TRUSTED_AGAIN_NS:
            del self._doubted_ns[uuid]
