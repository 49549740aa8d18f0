"""Which devices draw what their caps allow, as the node itself sees it (I7). Pure.

The controller judges by the same rule and on its own; this word is for people who look at the node.
"""

from __future__ import annotations

from collections import deque

from telemetry.gpunode.gpunode_status import limit_watts
from telemetry.node_state import NodeState
from wattpack.units import NS_PER_SECOND

#: I7 in docs/architecture.md; and some way back before a device is trusted again.
UNTRUSTED_OVER_CAP = 1.10
TRUSTED_AGAIN_OVER_CAP = 1.06
TRUSTED_AFTER_NS = 30 * NS_PER_SECOND
#: 3 s of energy, 3 s of settling, 1 s of actuation: a cap lowered just now accuses nobody.
WINDOW_NS = 7 * NS_PER_SECOND


class TrustMemory:
    """Remembers the caps of the last seconds and who exceeded all of them."""

    def __init__(self) -> None:
        self._caps: dict[str, deque[tuple[int, float]]] = {}
        self._began_ns: int | None = None
        self._offended_ns: dict[str, int] = {}

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
            # What held before we looked is unknown, so nobody is accused for it.
            if caps and mean is not None and now_ns - self._began_ns >= WINDOW_NS:
                self._judge(uuid, mean / max(watts for _, watts in caps), now_ns)
        return frozenset(self._offended_ns)

    def _judge(self, uuid: str, ratio: float, now_ns: int) -> None:
        offended_ns = self._offended_ns.get(uuid)
        if ratio > UNTRUSTED_OVER_CAP or (
            offended_ns is not None and ratio > TRUSTED_AGAIN_OVER_CAP
        ):
            self._offended_ns[uuid] = now_ns
        elif offended_ns is not None and now_ns - offended_ns >= TRUSTED_AFTER_NS:
            del self._offended_ns[uuid]
