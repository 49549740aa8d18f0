"""Which epoch and sequence a command may carry: they only rise, and never far (I4).

The actuator cannot ask the API server which epoch the leader's Lease holds. What it has is the
highest pair that it accepted, which it persists, and the knowledge that an epoch counts changes of
leadership. So an honest epoch is near the highest one, and one far above it can only have been made
up to lock the real leader out. A jump of any size within the bound heals by itself: the leader
moves its Lease beyond what agents report, as long as that lies within the same bound.

Within an epoch commands are ordered by the reports that they answer, and by sequence only among the
answers to one report. A sequence that was made up thus outranks the leader until the next report
only, and nothing can be sent again: an older answer is refused, and after 2 s or a restart its
nonce is void.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattpack.errors import InputError
from wattpack.fencing import EPOCH_ROOM, MAX_EPOCH, MAX_SEQUENCE
from wattpack.units import NS_PER_SECOND

ROOM_PER_SECOND = 1
"""How fast used room comes back: several times the rate at which leaders can follow each other (a
Lease lasts seconds), and slow enough that nobody climbs out of the leader's reach while the leader
is away for less than twelve days."""


class ImplausibleEpoch(InputError):
    """An epoch or sequence that no leader can have reached: refused, and an alarm."""


@dataclass(frozen=True, slots=True)
class EpochFence:
    """The newest accepted command, and how far the next epoch may lie above it.

    Attributes:
        epoch: Highest accepted, 0 before the first.
        sequence: Of the newest command of that epoch.
        room: By how much the epoch might still rise at ``refilled_ns``.
        refilled_ns: Reading of the actuator's clock.
        issued_ns: When the status that the newest command answers was given, on the same clock; -1
            before this process accepted one.
    """

    epoch: int = 0
    sequence: int = 0
    room: int = EPOCH_ROOM
    refilled_ns: int = 0
    issued_ns: int = -1

    def after(self, epoch: int, sequence: int, issued_ns: int, now_ns: int) -> EpochFence:
        """The fence once a command with this pair, in answer to that status, is accepted.

        Raises:
            ImplausibleEpoch: for a pair that nobody can have reached honestly.
            InputError: for one that does not follow the newest.
        """
        if epoch < self.epoch:
            raise InputError("epoch", f"an integer >= {self.epoch}", epoch)
        if sequence > MAX_SEQUENCE:
            raise ImplausibleEpoch("sequence", f"an integer <= {MAX_SEQUENCE}", sequence)
        if epoch == self.epoch:
            if (issued_ns, sequence) <= (self.issued_ns, self.sequence):
                expected = f"> {self.sequence}, or the answer to a newer status, in epoch {epoch}"
                raise InputError("sequence", expected, sequence)
            return replace(self, sequence=sequence, issued_ns=issued_ns)
        earned = max(0, now_ns - self.refilled_ns) * ROOM_PER_SECOND // NS_PER_SECOND
        room = min(EPOCH_ROOM, self.room + earned, MAX_EPOCH - self.epoch)
        if epoch - self.epoch > room:
            raise ImplausibleEpoch("epoch", f"an integer <= {self.epoch + room}", epoch)
        refilled_ns = self.refilled_ns + earned * NS_PER_SECOND // ROOM_PER_SECOND
        return EpochFence(epoch, sequence, room - (epoch - self.epoch), refilled_ns, issued_ns)

    def recalled(self, now_ns: int, *, same_boot: bool) -> EpochFence:
        """The fence as a later process continues it; the clock of another boot earns nothing."""
        if self.epoch > MAX_EPOCH:
            return EpochFence(refilled_ns=now_ns)  # no leader could ever follow
        usable = same_boot and 0 <= self.refilled_ns <= now_ns and 0 <= self.room <= EPOCH_ROOM
        if usable:
            return self
        return replace(self, room=min(max(self.room, 0), EPOCH_ROOM), refilled_ns=now_ns)
