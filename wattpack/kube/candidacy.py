"""What one candidate for a Lease knows, and every rule of the election as a pure value (I4).

``wattpack.kube.election`` reads and writes the Lease; nothing in here does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says, and its version: any write is a sign of life, whatever it says."""

    holder: str
    transitions: int
    duration_ns: int
    version: str

    @classmethod
    def read(cls, lease: JsonObject) -> LeaseRecord:
        """The record of a Lease object; missing fields as the API defines them."""
        spec: dict[str, Any] = lease.get("spec") or {}
        return cls(
            str(spec.get("holderIdentity") or ""),
            int(spec.get("leaseTransitions") or 0),
            int(spec.get("leaseDurationSeconds") or 0) * NS_PER_SECOND,
            str(lease["metadata"].get("resourceVersion", "")),
        )


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What one candidate knows; every rule of the election is a method that changes nothing.

    Attributes:
        identity: Unique to this process, not only to its host.
        renew_deadline_ns: How long a leader believes in itself.
        lease_ns: How long a held Lease is left alone at least, whatever it says: its holder
            believes in itself by its own settings, not by a number that anybody may write there.
        record: The newest record seen.
        seen_at_ns: When that record was first seen, on the candidate's own clock.
        leading: Whether the last write made it leader, and nothing ended that since.
        epoch: Of its present or last term.
        renewed_at_ns: When it began its last successful write.
    """

    identity: str
    renew_deadline_ns: int
    lease_ns: int
    record: LeaseRecord | None = None
    seen_at_ns: int = 0
    leading: bool = False
    epoch: int = 0
    renewed_at_ns: int = 0

    def is_leader(self, now_ns: int) -> bool:
        """Whether nobody else can lead at this moment."""
        return self.leading and now_ns < self.renewed_at_ns + self.renew_deadline_ns

    def saw(self, record: LeaseRecord | None, now_ns: int) -> Candidacy:
        """After reading the Lease; a record that was seen before keeps its first time."""
        is_new = record != self.record and record is not None
        return replace(
            self,
            record=record if record is not None else self.record,
            seen_at_ns=now_ns if is_new else self.seen_at_ns,
            leading=self.is_leader(now_ns)
            and record is not None
            and record.holder == self.identity,
        )

    def may_write(self, now_ns: int) -> bool:
        """Whether the Lease is ours, free, or expired by our own clock."""
        if self.record is None or self.record.holder in {"", self.identity}:
            return True
        return now_ns >= self._expiry_ns(self.record)

    def attempt_at_ns(self, now_ns: int, pause_ns: int) -> int:
        """After a pause, or when somebody else's Lease expires within it: not a look later."""
        regular_ns = now_ns + pause_ns
        if self.record is None or self.record.holder in {"", self.identity}:
            return regular_ns
        expiry_ns = self._expiry_ns(self.record)
        return min(regular_ns, expiry_ns) if expiry_ns > now_ns else regular_ns

    def _expiry_ns(self, record: LeaseRecord) -> int:
        return self.seen_at_ns + max(record.duration_ns, self.lease_ns)

    def next_epoch(self, above: int = 0) -> int:
        """The epoch to write: the same within a term, a higher one for a new term."""
        known = max(self.epoch, self.record.transitions if self.record else 0)
        return max(known if self.leading else known + 1, above + 1 if above else 0)

    def wrote(self, record: LeaseRecord, began_ns: int) -> Candidacy:
        """After a successful write that began at ``began_ns``."""
        return replace(
            self,
            record=record,
            seen_at_ns=began_ns,
            leading=True,
            epoch=record.transitions,
            renewed_at_ns=began_ns,
        )

    def lost(self) -> Candidacy:
        """After somebody else's write came first, or after stepping down."""
        return replace(self, leading=False)
