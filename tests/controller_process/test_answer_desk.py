"""Reports are answered on arrival; ticks and answers leave in an order that the actuator takes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from actuator.lease_entry import DeviceBounds, Outcome, Write
from actuator.lease_table import LeaseTable
from controller.app.answer_desk import AnswerDesk, lease_batches, words_of
from controller.app.fleet import Fleet
from controller.tick_values import Commands, Topology
from telemetry.report_messages import to_command
from tests.controller_process.controller_builders import make_commands, make_small_topology
from tests.controller_process.messages import make_hello, make_reading, make_report
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

NODE = "node-1"
GUARANTEED_WATTS = 400.0


def ns(seconds: float) -> int:
    return round(seconds * NS_PER_SECOND)


class Conversation:
    """One node's actuator and the desk; the test decides what is lost and when ticks come."""

    def __init__(self, untold: int = 0) -> None:
        bounds = {f"{NODE}-gpu-{i}": DeviceBounds(200.0, 700.0, 700.0, 1980) for i in range(2)}
        self.table = LeaseTable(
            dict.fromkeys(bounds, GUARANTEED_WATTS), bounds, "boot-1", itertools.count(1).__next__
        )
        self.table.start(dict.fromkeys(bounds, GUARANTEED_WATTS))
        n_boards = 2 + untold
        self.topology: Topology = make_small_topology(nodes=(NODE,), gpus_per_node=n_boards)
        self.fleet = Fleet()
        self.fleet.hello(make_hello(NODE, gpus=n_boards))
        self.epoch = 1
        self.desk = AnswerDesk(lambda: self.epoch)
        self.sequence = self.reports = 0
        self.seen_nonce = 0

    def report(
        self, at: float, *, lost: bool = False, without: str = ""
    ) -> power_pb2.ControllerMessage | None:
        """The node reports, of all its boards but one; the answer, if there is one."""
        status = self.table.status(ns(at))
        self.reports += 1
        readings = [
            make_reading(
                uuid,
                limit_watts=device.limit_watts,
                guaranteed_watts=device.guaranteed_watts,
                confirmed_sequence=device.confirmed_sequence,
                lease_active=device.lease_active,
            )
            for uuid, device in status.devices.items()
            if uuid != without
        ]
        if lost:
            return None
        message = make_report(
            NODE,
            sequence=self.reports,
            devices=readings,
            nonce=status.nonce,
            highest_epoch=status.highest_epoch,
        )
        arrival = self.fleet.report(message, ns(at))
        self.seen_nonce = status.nonce
        return self.desk.arrived(NODE, arrival, ns(at))

    def decide(self, at: float, watts: float, nonce: int | None = None) -> Commands:
        """What a tick would command, in answer to the newest report unless told otherwise."""
        self.sequence += 1
        return make_commands(
            self.topology,
            epoch=1,
            sequence=self.sequence,
            nonce=np.array([self.seen_nonce if nonce is None else nonce], dtype=np.uint64),
            send=np.array([True]),
            cap_watts=watts,
            decided_ns=ns(at),
        )

    def tick(
        self, at: float, watts: float, nonce: int | None = None
    ) -> power_pb2.ControllerMessage | None:
        """A tick that tells the node this; the batch that leaves, if one does."""
        commands = self.decide(at, watts, nonce)
        leaving = self.desk.decided(
            words_of(self.topology, commands), lease_batches(self.topology, commands)
        )
        return leaving.get(NODE)

    def deliver(self, message: power_pb2.ControllerMessage | None, at: float) -> None:
        """The actuator gets a batch, carries it out and reads it back."""
        assert message is not None
        for uuid, writes in self.table.apply(to_command(message.leases), ns(at)).items():
            self._write(uuid, writes)

    def known(
        self, message: power_pb2.ControllerMessage | None
    ) -> power_pb2.ControllerMessage | None:
        """The batch as the agent passes it on: the boards that the actuator holds."""
        assert message is not None
        passed_on = power_pb2.ControllerMessage()
        passed_on.CopyFrom(message)
        del passed_on.leases.devices[:]
        passed_on.leases.devices.extend(
            lease for lease in message.leases.devices if lease.uuid in self.table.uuids
        )
        return passed_on

    def expire(self, at: float) -> bool:
        """Whether a lease ends now."""
        ended = self.table.expire(ns(at))
        for uuid, writes in ended.items():
            self._write(uuid, writes)
        return bool(ended)

    def _write(self, uuid: str, writes: tuple[Write, ...]) -> None:
        cap = self.table.held(uuid).cap_watts
        self.table.observe(uuid, Outcome(cap, cap, writes))

    def limits(self) -> list[float | None]:
        return [self.table.held(uuid).limit_watts for uuid in self.table.uuids]


def leased(untold: int = 0) -> Conversation:
    """A node whose boards hold 500 W since a tick at second 0.2.

    Args:
        untold: Further boards of the node, which its reports do not tell of.
    """
    talk = Conversation(untold)
    assert talk.report(0.0) is None
    talk.deliver(talk.known(talk.tick(0.2, 500.0)), 0.2)
    assert talk.limits() == [500.0, 500.0]
    return talk


def test_i3_a_report_is_answered_on_arrival_and_the_lease_runs_from_it() -> None:
    talk = leased()
    talk.deliver(talk.report(1.0), 1.01)
    assert talk.table.next_deadline_ns() == ns(1.0 + 4.0)


def test_i3_a_board_that_nobody_hears_does_not_keep_the_others_from_their_answers() -> None:
    """Lost, hung or without a name: nobody reads its limit."""
    talk = leased(untold=1)
    answer = talk.report(1.0)
    assert answer is not None
    assert [lease.uuid for lease in answer.leases.devices] == list(talk.table.uuids)
    talk.deliver(answer, 1.01)
    assert talk.table.next_deadline_ns() == ns(1.0 + 4.0)


def test_i3_ticks_go_on_for_a_board_that_answers_leave_out() -> None:
    """The agent does not see it and the actuator holds it: its lease would have ended."""
    talk = leased()
    hidden = f"{NODE}-gpu-1"
    for second in range(1, 8):
        talk.deliver(talk.report(float(second), without=hidden), second + 0.01)
        talk.deliver(talk.tick(second + 0.2, 500.0), second + 0.21)
        assert not talk.expire(second + 0.9)
    assert talk.limits() == [500.0, 500.0]


def test_a_tick_with_nothing_new_sends_nothing_and_its_sequence_goes_out_with_the_answer() -> None:
    talk = leased()
    talk.deliver(talk.report(1.0), 1.01)
    assert talk.tick(1.2, 500.0) is None
    answer = talk.report(2.0)
    assert answer is not None
    assert answer.leases.sequence == talk.sequence
    talk.deliver(answer, 2.01)
    assert talk.table.held(f"{NODE}-gpu-0").confirmed_sequence == talk.sequence


@pytest.mark.parametrize("lost", ["report", "answer"])
def test_after_a_loss_ticks_answer_too(lost: str) -> None:
    talk = leased()
    talk.deliver(talk.report(1.0), 1.01)
    assert talk.tick(1.2, 500.0) is None
    if talk.report(2.0, lost=lost == "report") is not None:
        assert talk.tick(2.2, 500.0) is None  # nobody knows of the loss yet
    talk.deliver(talk.report(3.0), 3.01)
    talk.deliver(talk.tick(3.2, 500.0), 3.21)


def test_a_lower_cap_leaves_at_once_and_outranks_the_answer_that_was_given_meanwhile() -> None:
    talk = leased()
    talk.deliver(talk.report(1.0), 1.01)
    older = talk.seen_nonce
    talk.deliver(talk.report(2.0), 2.01)
    # The tick had looked before the second report came.
    talk.deliver(talk.tick(2.02, 450.0, nonce=older), 2.03)
    assert talk.limits() == [450.0, 450.0]


def test_after_a_lower_cap_nobody_repeats_the_higher_one() -> None:
    talk = leased()
    talk.report(1.0)
    assert talk.tick(1.1, 450.0) is not None  # and is lost
    answer = talk.report(2.0)
    talk.deliver(answer, 2.01)
    assert talk.limits() == [450.0, 450.0]


def test_a_raise_waits_for_the_tick_that_permits_it() -> None:
    talk = leased()
    talk.report(1.0)
    assert talk.tick(1.1, 550.0) is not None  # and is lost
    assert talk.report(2.0) is None
    talk.deliver(talk.tick(2.1, 550.0), 2.1)
    assert talk.limits() == [550.0, 550.0]


def test_i4_a_replica_that_no_longer_leads_answers_nobody() -> None:
    talk = leased()
    talk.epoch = 0
    assert talk.report(1.0) is None


def test_a_node_that_is_not_sent_to_any_more_is_answered_only_by_what_still_holds() -> None:
    talk = leased()
    commands = talk.decide(0.6, 450.0)
    talk.desk.decided(words_of(talk.topology, commands), {})
    assert talk.report(1.0) is None


def test_i3_leases_end_when_only_the_streams_live_on() -> None:
    talk = leased()
    for at in range(1, 7):
        answer = talk.report(float(at))
        assert (answer is not None) == (at <= 2)
        if answer is not None:
            talk.deliver(answer, at + 0.01)
    assert not talk.expire(5.99)
    assert talk.expire(6.0)


@pytest.mark.parametrize("phase", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("lost", [*itertools.product(["report", "answer"], repeat=2)])
def test_i3_two_lost_exchanges_in_a_row_end_no_lease(lost: tuple[str, str], phase: float) -> None:
    talk = leased()
    expired, refusals = [], set()
    for second in range(1, 9):
        what = lost[second - 4] if second in (4, 5) else ""
        answer = talk.report(float(second), lost=what == "report")
        if answer is not None and what != "answer":
            talk.deliver(answer, second + 0.02)
        batch = talk.tick(second + phase, 500.0)
        if batch is not None and not what:
            try:
                talk.deliver(batch, second + phase + 0.02)
            except InputError as refused:
                refusals.add(refused.field)
        expired.append(talk.expire(second + 0.999))
    assert not any(expired)
    assert refusals <= {"sequence", "nonce"}  # what answered an earlier report than the newest
