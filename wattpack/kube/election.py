"""Who leads: a Lease of coordination.k8s.io/v1 whose transitions are the fencing epoch (I4).

Two candidates never lead at once while their clocks' rates differ by less than
``lease_seconds / renew_deadline_seconds``: a leader stops believing in itself a renew deadline
after it *began* its last successful write; others take over a full lease after they *saw* that
write. Only monotonic clocks and the API server's compare-and-swap decide; the times inside the
Lease are for people. The epoch rises with every term, so that agents can refuse whoever does not
know that it was replaced.

Source: the argument is that of client-go's leaderelection package; the fence is ours.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.fencing import MAX_EPOCH
from wattpack.kube.candidacy import Candidacy, LeaseRecord
from wattpack.kube.port import (
    LEASES,
    AlreadyExistsError,
    ConflictError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
)
from wattpack.times import rfc3339_micro
from wattpack.units import seconds_to_ns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Durations of an election.

    Attributes:
        lease_seconds: How long others wait after the last renewal that they saw.
        renew_deadline_seconds: How long a leader believes in itself after its last renewal.
        retry_seconds: Time between two attempts.
    """

    lease_seconds: int
    renew_deadline_seconds: float
    retry_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_deadline_seconds < self.lease_seconds:
            raise InputError(
                "election",
                "0 < retry_seconds < renew_deadline_seconds < lease_seconds",
                (self.retry_seconds, self.renew_deadline_seconds, self.lease_seconds),
            )


CONTROLLER_ELECTION = ElectionSettings(6, 4.0, 1.0)
"""Shorter than client-go's 15, 10 and 2 s: until a standby leads, GPUs fall to guaranteed caps. Its
renewals have a thread of their own, so that four seconds hold three attempts and a slow answer."""

PLANNER_ELECTION = ElectionSettings(15, 10.0, 2.0)
"""Those of client-go's components. The planner renews from the loop that plans, because success is
what keeps its term, and one search (up to 5 s) or two slow writes would end a term of 4 s. No GPU
waits for a planner: pods are held until the watchdog's 30 s are over."""


@dataclass(frozen=True, slots=True)
class Bid:
    """Which Lease a candidate stands for, as whom, and how.

    Attributes:
        name: Of the Lease.
        namespace: Of the Lease.
        identity: Of this process; must differ between two starts of the same process.
        settings: Durations.
        seed: Of the jitter between attempts.
        annotations: What the Lease's annotations start with, where it has none of that name.
        won: Called at the beginning of each term, in the thread of the attempt; must not wait.
    """

    name: str
    namespace: str
    identity: str
    settings: ElectionSettings
    seed: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    won: Callable[[], None] = lambda: None


def _require_epoch(epoch: int) -> None:
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < MAX_EPOCH:
        raise InputError("epoch", f"an integer from 0 to {MAX_EPOCH - 1}", epoch)


class LeaderElector:
    """One candidate for one Lease.

    Args:
        api: Where the Lease lies.
        clock: Its monotonic side decides, its wall time is written for people.
        bid: What it stands for.
    """

    def __init__(self, api: KubeApi, clock: Clock, bid: Bid) -> None:
        self._api, self._clock, self._bid = api, clock, bid
        self._random = random.Random(bid.seed)
        deadline_ns = seconds_to_ns(bid.settings.renew_deadline_seconds)
        lease_ns = seconds_to_ns(bid.settings.lease_seconds)
        self._candidacy = Candidacy(bid.identity, deadline_ns, lease_ns)
        self._calls = threading.Lock()
        self._wake = clock.new_wake()
        self._asked_above = 0
        self._new_annotations: dict[str, str] = {}
        self._annotations: Mapping[str, str] = {}
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.last_error: KubeError | None = None
        self.failure: Exception | None = None

    @property
    def identity(self) -> str:
        """Of this process."""
        return self._bid.identity

    @property
    def settings(self) -> ElectionSettings:
        """Durations; whoever paces attempts or steps aside takes them from here."""
        return self._bid.settings

    @property
    def namespace(self) -> str:
        """Of the Lease."""
        return self._bid.namespace

    def is_leader(self) -> bool:
        """Whether this process leads now; ask before each command, it can end at any moment."""
        return self._candidacy.is_leader(self._clock.monotonic_ns())

    def epoch(self) -> int:
        """The fencing epoch of the present term; 0 when not leading."""
        candidacy = self._candidacy
        return candidacy.epoch if candidacy.is_leader(self._clock.monotonic_ns()) else 0

    def renewed_within(self, seconds: float) -> bool:
        """Whether it leads and began its last successful renewal so recently (I4: may raise)."""
        candidacy, now_ns = self._candidacy, self._clock.monotonic_ns()
        age_ns = now_ns - candidacy.renewed_at_ns
        return candidacy.is_leader(now_ns) and age_ns <= seconds_to_ns(seconds)

    def holder(self) -> str:
        """The holder in the newest Lease that was seen; empty if none."""
        record = self._candidacy.record
        return record.holder if record else ""

    def annotate(self, key: str, value: str) -> None:
        """Say something in the Lease with the next write of this term."""
        self._new_annotations[key] = value

    def annotation(self, key: str) -> str:
        """What the Lease said after our last write; empty if nothing."""
        return self._annotations.get(key, "")

    def attempt(self) -> bool:
        """Read the Lease and renew or take it if allowed; whether this process leads now."""
        with self._calls:
            self._attempt(self._asked_above if self._candidacy.leading else 0)
        return self.is_leader()

    def raise_epoch_above(self, epoch: int) -> bool:
        """Move the Lease beyond an epoch that an agent reports; whether ours is above it now.

        Raises:
            InputError: if no Lease can hold a higher epoch.
        """
        _require_epoch(epoch)
        with self._calls:
            if self.is_leader() and self._candidacy.epoch <= epoch:
                self._attempt(epoch)
            return self.epoch() > epoch

    def ask_epoch_above(self, epoch: int) -> None:
        """The same by the thread's next attempt, at once: the caller never waits for the API.

        Raises:
            InputError: if no Lease can hold a higher epoch.
        """
        _require_epoch(epoch)
        if epoch > self._asked_above:
            self._asked_above = epoch
            self._wake.set()

    def release(self) -> None:
        """Stop leading and leave the Lease free, so that another takes over at once."""
        with self._calls:
            was = self._candidacy
            self._candidacy = was.lost()
            if not was.leading:
                return
            try:
                lease = self._api.get(LEASES, self._bid.name, self._bid.namespace)
                if LeaseRecord.read(lease).holder == was.identity:
                    lease["spec"].update(holderIdentity="", leaseDurationSeconds=1)
                    self._api.replace(LEASES, lease, self._bid.namespace)
            except KubeError as error:
                # Others wait for the full lease then; nothing else is lost.
                self.last_error = error
                log.warning("could not release lease %s: %s", self._bid.name, error)

    def start(self) -> None:
        """Attempt in a thread until ``stop``."""
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name=f"election-{self._bid.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and release the Lease."""
        self._stopping = True
        self._wake.set()
        self.join()
        self.release()

    def join(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._try()
                pause = seconds_to_ns(
                    self._bid.settings.retry_seconds * self._random.uniform(0.8, 1.0)
                )
                if not self._stopping:
                    due_ns = self._candidacy.attempt_at_ns(self._clock.monotonic_ns(), pause)
                    self._clock.wait_until(due_ns, self._wake)
        except Exception as error:
            # Without attempts the term ends by itself at its renew deadline.
            self.failure = error
            level = logging.INFO if self._stopping else logging.ERROR
            log.log(level, "election for %s ends", self._bid.name, exc_info=True)

    def _try(self) -> None:
        """One attempt; a Lease that makes no sense is told and looked at again later."""
        try:
            self.attempt()
            self.failure = None
        except Exception as error:
            self.failure = error
            level = logging.INFO if self._stopping else logging.ERROR
            log.log(level, "attempt for lease %s failed", self._bid.name, exc_info=True)

    def _attempt(self, above: int) -> None:
        try:
            lease = self._read()
            now_ns = self._clock.monotonic_ns()
            record = LeaseRecord.read(lease) if lease is not None else None
            self._candidacy = self._candidacy.saw(record, now_ns)
            if self._candidacy.may_write(now_ns):
                self._write(lease, above)
            self.last_error = None
        except (ConflictError, AlreadyExistsError) as error:
            # Somebody wrote in between: whoever it was, this term is over.
            self._candidacy = self._candidacy.lost()
            self.last_error = error
        except KubeError as error:
            # The write may have happened; what counts is the last one that surely did.
            self.last_error = error
            log.warning("lease %s: %s", self._bid.name, error)

    def _read(self) -> JsonObject | None:
        try:
            return self._api.get(LEASES, self._bid.name, self._bid.namespace)
        except NotFoundError:
            return None

    def _write(self, lease: JsonObject | None, above: int) -> None:
        candidacy = self._candidacy
        began_ns = self._clock.monotonic_ns()
        moment = rfc3339_micro(self._clock.wall_time_ns())
        epoch = candidacy.next_epoch(above)
        spec = dict((lease or {}).get("spec") or {})
        if not candidacy.leading:
            spec["acquireTime"] = moment
            # What an earlier term wanted to say is no news any more.
            self._new_annotations.clear()
        spec.update(
            holderIdentity=candidacy.identity,
            leaseTransitions=epoch,
            leaseDurationSeconds=self._bid.settings.lease_seconds,
            renewTime=moment,
        )
        metadata = (lease or {}).get("metadata") or {"name": self._bid.name}
        metadata |= {"namespace": self._bid.namespace}
        known = metadata.get("annotations") or {}
        said = {**self._bid.annotations, **known, **self._new_annotations}
        if said:
            metadata["annotations"] = said
        body = {
            **(lease or {"apiVersion": LEASES.api_version, "kind": LEASES.kind}),
            "metadata": metadata,
            "spec": spec,
        }
        if lease is None:
            stored = self._api.create(LEASES, body, self._bid.namespace)
        else:
            stored = self._api.replace(LEASES, body, self._bid.namespace)
        self._annotations = stored["metadata"].get("annotations") or {}
        self._new_annotations.clear()
        self._candidacy = candidacy.wrote(LeaseRecord.read(stored), began_ns)
        if not candidacy.leading:
            log.info("%s leads %s with epoch %d", candidacy.identity, self._bid.name, epoch)
            self._bid.won()
