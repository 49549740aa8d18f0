"""The lease table: who may hold a GPU above its guaranteed cap, and how long (I3, I4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from actuator.lease_entry import (
    DeviceBounds,
    Memory,
    Outcome,
    RememberedDevice,
    Write,
    WriteKind,
)
from actuator.lease_messages import (
    DeviceCommand,
    DeviceState,
    LeaseCommand,
    Operation,
)
from actuator.lease_table import MAX_TTL_MS, NONCE_LIFE_NS, LeaseTable
from tests.examples import examples
from wattpack.errors import InputError
from wattpack.fencing import MAX_SEQUENCE
from wattpack.units import NS_PER_MS, NS_PER_SECOND

BOUNDS = DeviceBounds(200.0, 700.0, 700.0, 1980)
SECOND = NS_PER_SECOND


def counting() -> Callable[[], int]:
    counter = itertools.count(1)
    return lambda: next(counter)


def table(*uuids: str, boot_id: str = "boot", seen: float = 400.0) -> LeaseTable:
    """A table whose boards have been read at ``seen`` watts."""
    names = uuids or ("a",)
    made = LeaseTable(
        dict.fromkeys(names, 400.0), dict.fromkeys(names, BOUNDS), boot_id, counting()
    )
    settle(made, made.start(dict.fromkeys(names, seen)))
    return made


def settle(leases: LeaseTable, plans: dict[str, tuple[Write, ...]]) -> None:
    """Carry the writes out on perfect boards."""
    for uuid, writes in plans.items():
        watts = leases.held(uuid).limit_watts
        for write in writes:
            watts = write.cap_watts if write.cap_watts is not None else watts
        leases.observe(uuid, Outcome(watts, watts, writes))


def power(uuid: str = "a", watts: float = 600.0, guaranteed: float | None = None) -> DeviceCommand:
    return DeviceCommand(uuid, Operation.SET_POWER_LIMIT, watts, guaranteed_watts=guaranteed)


def lock(uuid: str = "a", mhz: int = 1200, watts: float | None = None) -> DeviceCommand:
    return DeviceCommand(uuid, Operation.LOCK_CLOCKS, watts, mhz)


def reset(uuid: str = "a") -> DeviceCommand:
    return DeviceCommand(uuid, Operation.RESET)


def command(
    leases: LeaseTable,
    *devices: DeviceCommand,
    now_ns: int = 0,
    epoch: int = 1,
    sequence: int = 1,
    ttl_ms: int = 5000,
    nonce: int | None = None,
) -> LeaseCommand:
    """A command that answers a status of ``now_ns``."""
    answered = leases.status(now_ns).nonce if nonce is None else nonce
    return LeaseCommand(epoch, sequence, answered, ttl_ms, devices or (power(),))


def refused_field(leases: LeaseTable, refused: LeaseCommand, now_ns: int = 0) -> str:
    before, memory = leases.entries(), leases.memory()
    with pytest.raises(InputError) as error:
        leases.apply(refused, now_ns)
    assert leases.entries() == before
    assert leases.memory() == memory
    return error.value.field


def test_an_accepted_command_writes_its_cap_and_is_confirmed_by_the_read_back() -> None:
    leases = table()
    plans = leases.apply(command(leases, sequence=7), 0)
    assert plans == {"a": (Write(WriteKind.POWER_LIMIT, 600.0),)}
    assert leases.status(0).devices["a"].confirmed_sequence == 0
    settle(leases, plans)
    row = leases.status(1 * SECOND).devices["a"]
    assert (row.limit_watts, row.confirmed_sequence, row.lease_active) == (600.0, 7, True)
    assert row.lease_remaining_ms == 4000


def test_i3_a_lease_runs_from_the_nonce_so_delay_only_shortens_it() -> None:
    leases = table()
    late = command(leases, now_ns=0, ttl_ms=3000)
    leases.apply(late, int(1.9 * SECOND))
    assert leases.next_deadline_ns() == 3 * SECOND


def test_i3_expiry_falls_to_the_guaranteed_cap_at_the_deadline() -> None:
    leases = table()
    settle(leases, leases.apply(command(leases), 0))
    assert leases.expire(5 * SECOND - 1) == {}
    plans = leases.expire(5 * SECOND)
    assert plans == {"a": (Write(WriteKind.POWER_LIMIT, 400.0),)}
    settle(leases, plans)
    assert not leases.status(5 * SECOND).devices["a"].lease_active


def test_i3_expiry_raises_neither_a_lower_cap_nor_removes_a_clock_lock() -> None:
    leases = table("a", "b")
    settle(leases, leases.apply(command(leases, power("a", 250.0), lock("b", 1200, 700.0)), 0))
    plans = leases.expire(6 * SECOND)
    assert plans == {"a": (), "b": (Write(WriteKind.POWER_LIMIT, 400.0),)}
    settle(leases, plans)
    assert leases.held("a").cap_watts == 250.0
    assert leases.status(6 * SECOND).devices["b"].lock_max_mhz == 1200


@pytest.mark.parametrize(("seen", "kept"), [(300.0, 300.0), (400.0, 400.0), (700.0, 400.0)])
def test_i3_start_lowers_to_the_guaranteed_cap_and_never_raises(seen: float, kept: float) -> None:
    leases = table(seen=seen)
    assert leases.held("a").limit_watts == kept
    assert leases.held("a").state is DeviceState.OK


def test_i3_refused_commands_extend_nothing() -> None:
    leases = table()
    first = command(leases, epoch=3)
    settle(leases, leases.apply(first, 0))
    for bad in (
        command(leases, epoch=2, sequence=9, now_ns=SECOND),
        first,
        command(leases, epoch=3, sequence=2, nonce=999),
        command(leases, epoch=3, sequence=2, ttl_ms=10_001, now_ns=SECOND),
        command(leases, power("z"), epoch=3, sequence=2, now_ns=SECOND),
    ):
        refused_field(leases, bad, SECOND)
    assert leases.next_deadline_ns() == 5 * SECOND


@pytest.mark.parametrize(
    ("epoch", "sequence", "field"),
    [(4, 99, "epoch"), (5, 7, "sequence"), (5, 6, "sequence"), (5, 8, ""), (6, 1, "")],
)
def test_i4_epochs_rise_and_sequences_among_answers_to_one_report(
    epoch: int, sequence: int, field: str
) -> None:
    leases = table()
    leases.apply(command(leases, epoch=5, sequence=7), 0)
    following = command(leases, epoch=epoch, sequence=sequence)
    if field:
        assert refused_field(leases, following) == field
    else:
        leases.apply(following, 0)
        assert (leases.highest_epoch, leases.highest_sequence) == (epoch, sequence)


def test_i4_a_command_must_answer_a_report_at_most_two_seconds_old() -> None:
    leases = table()
    answer = command(leases, now_ns=0)
    assert refused_field(leases, answer, NONCE_LIFE_NS + 1) == "nonce"
    leases.apply(answer, NONCE_LIFE_NS)


def test_i4_a_nonce_that_was_never_issued_is_refused() -> None:
    leases = table()
    assert refused_field(leases, command(leases, nonce=12345)) == "nonce"


def test_i4_the_highest_epoch_survives_a_restart_and_a_reboot() -> None:
    leases = table()
    leases.apply(command(leases, epoch=5, sequence=7), 0)
    for boot_id in ("boot", "other"):
        again = table(boot_id=boot_id)
        again.recall(leases.memory(), 0)
        assert again.highest_sequence == 7
        assert refused_field(again, command(again, epoch=4, sequence=9)) == "epoch"


def test_i4_what_a_restart_forgets_nobody_can_send_again() -> None:
    leases = table()
    sent = command(leases, epoch=5, sequence=7)
    leases.apply(sent, 0)
    again = table()
    again.recall(leases.memory(), SECOND)
    again.status(SECOND)
    assert refused_field(again, replace(sent, nonce=10**6), SECOND) == "nonce"
    again.apply(command(again, epoch=5, sequence=3, now_ns=SECOND), SECOND)
    assert (again.highest_epoch, again.highest_sequence) == (5, 3)


def test_i4_the_next_answer_goes_on_after_a_sequence_that_was_made_up() -> None:
    leases = table()
    leases.apply(command(leases, sequence=7), 0)
    leases.apply(command(leases, sequence=MAX_SEQUENCE), 0)
    assert refused_field(leases, command(leases, sequence=8)) == "sequence"
    leases.apply(command(leases, sequence=8, now_ns=1), 1)
    assert leases.highest_sequence == 8
    late = command(leases, sequence=9, now_ns=2)
    leases.apply(command(leases, sequence=10, now_ns=3), 3)
    assert refused_field(leases, late, 3) == "sequence"


@pytest.mark.parametrize(
    ("device", "field"),
    [
        (power(watts=199.0), "devices[1].cap_watts"),
        (power(watts=701.0), "devices[1].cap_watts"),
        (power(watts=600_000.0), "devices[1].cap_watts"),
        (power(guaranteed=701.0), "devices[1].guaranteed_watts"),
        (power(guaranteed=150.0), "devices[1].guaranteed_watts"),
        (lock(mhz=1981), "devices[1].lock_max_mhz"),
        (power("stranger"), "devices[1].uuid"),
    ],
)
def test_one_bad_device_refuses_the_whole_batch(device: DeviceCommand, field: str) -> None:
    leases = table("a", "b")
    assert refused_field(leases, command(leases, power("b"), device)) == field


def test_a_lease_that_has_run_out_on_arrival_is_refused() -> None:
    leases = table()
    assert refused_field(leases, command(leases, ttl_ms=1000), SECOND) == "ttl_ms"


def test_changing_actuator_sets_the_new_one_before_releasing_the_old() -> None:
    leases = table()
    to_lock = leases.apply(command(leases, lock(watts=700.0)), 0)["a"]
    assert [w.kind for w in to_lock] == [WriteKind.LOCK_CLOCKS, WriteKind.POWER_LIMIT]
    settle(leases, {"a": to_lock})
    back = leases.apply(command(leases, power(watts=350.0), sequence=2), 0)["a"]
    assert [w.kind for w in back] == [WriteKind.POWER_LIMIT, WriteKind.RESET_CLOCKS]


def test_a_lower_guaranteed_cap_is_taken_at_once_and_both_directions_persist() -> None:
    leases = table()
    leases.apply(command(leases, power(watts=300.0, guaranteed=350.0)), 0)
    assert leases.memory().devices["a"].guaranteed_watts == 350.0
    settle(leases, leases.apply(command(leases, power(guaranteed=450.0), sequence=2), 0))
    settle(leases, leases.expire(6 * SECOND))
    assert leases.held("a").limit_watts == 450.0
    again = table()
    again.recall(leases.memory(), 7 * SECOND)
    assert again.held("a").guaranteed_watts == 450.0


def test_another_configuration_outweighs_a_remembered_guaranteed_cap() -> None:
    leases = table()
    leases.apply(command(leases, power(guaranteed=450.0)), 0)
    again = LeaseTable({"a": 300.0}, {"a": BOUNDS}, "boot", counting())
    again.recall(leases.memory(), 9 * SECOND)
    assert again.held("a").guaranteed_watts == 300.0


@pytest.mark.parametrize(("remembered", "held"), [(10.0, 200.0), (5000.0, 700.0)])
def test_a_remembered_guaranteed_cap_stays_within_what_the_board_accepts(
    remembered: float, held: float
) -> None:
    past = RememberedDevice(400.0, remembered, remembered, None, None)
    again = table()
    again.recall(Memory("boot", 1, 1, {"a": past}), SECOND)
    assert again.held("a").guaranteed_watts == again.held("a").cap_watts == held


def test_i3_a_remembered_lease_longer_than_any_that_is_given_is_none() -> None:
    for left_ns, active in ((MAX_TTL_MS * NS_PER_MS, True), (MAX_TTL_MS * NS_PER_MS + 1, False)):
        past = RememberedDevice(400.0, 400.0, 600.0, None, SECOND + left_ns)
        again = table()
        again.recall(Memory("boot", 1, 1, {"a": past}), SECOND)
        assert again.held("a").cap_watts == (600.0 if active else 400.0)
        assert again.status(SECOND).devices["a"].lease_active is active


def test_reset_returns_to_the_guaranteed_cap_without_a_lease() -> None:
    leases = table()
    settle(leases, leases.apply(command(leases, lock(watts=250.0)), 0))
    plans = leases.apply(command(leases, reset(), sequence=2), 0)
    settle(leases, plans)
    row = leases.status(0).devices["a"]
    assert (row.limit_watts, row.lock_max_mhz, row.lease_active) == (400.0, None, False)


def test_a_restart_keeps_what_is_left_of_a_lease_in_the_same_boot_only() -> None:
    leases = table()
    settle(leases, leases.apply(command(leases), 0))
    for boot_id, active in (("boot", True), ("other", False)):
        again = LeaseTable({"a": 400.0}, {"a": BOUNDS}, boot_id, counting())
        again.recall(leases.memory(), 2 * SECOND)
        settle(again, again.start({"a": 600.0}))
        row = again.status(2 * SECOND).devices["a"]
        assert row.lease_active is active
        assert row.limit_watts == (600.0 if active else 400.0)


def test_i3_a_restart_never_raises_even_under_a_lease() -> None:
    leases = table()
    settle(leases, leases.apply(command(leases), 0))
    again = LeaseTable({"a": 400.0}, {"a": BOUNDS}, "boot", counting())
    again.recall(leases.memory(), 2 * SECOND)
    assert again.start({"a": 400.0}) == {"a": ()}


def test_a_foreign_raise_is_undone_with_its_clock_lock_and_counted() -> None:
    leases = table()
    settle(leases, leases.apply(command(leases, lock(watts=500.0)), 0))
    writes = leases.observe("a", Outcome(700.0, 700.0))
    assert [w.kind for w in writes] == [WriteKind.LOCK_CLOCKS, WriteKind.POWER_LIMIT]
    assert leases.status(0).devices["a"].tampered == 1
    settle(leases, {"a": writes})
    assert leases.held("a").limit_watts == 500.0
    assert leases.held("a").state is DeviceState.OK


def test_a_foreign_lower_limit_stays_without_a_lease_and_is_undone_under_one() -> None:
    leases = table()
    assert leases.observe("a", Outcome(300.0, 300.0)) == ()
    assert leases.held("a").cap_watts == 300.0
    settle(leases, leases.apply(command(leases), 0))
    assert leases.observe("a", Outcome(300.0, 300.0)) == (Write(WriteKind.POWER_LIMIT, 600.0),)


def test_a_write_without_effect_is_counted_retried_and_makes_the_gpu_uncontrolled() -> None:
    leases = table("a", seen=400.0)
    settle(leases, leases.apply(command(leases), 0))
    writes = leases.expire(6 * SECOND)["a"]
    for _ in range(3):
        writes = leases.observe("a", Outcome(600.0, 600.0, writes))
        assert writes == (Write(WriteKind.POWER_LIMIT, 400.0),)
    row = leases.status(6 * SECOND).devices["a"]
    assert (row.state, row.failed_writes) == (DeviceState.UNCONTROLLED, 3)


def test_a_gpu_is_uncontrolled_until_its_guaranteed_cap_was_read_back() -> None:
    leases = LeaseTable({"a": 400.0}, {"a": BOUNDS}, "boot", counting())
    assert leases.held("a").state is DeviceState.UNREADABLE
    writes = leases.start({"a": 700.0})["a"]
    assert leases.held("a").state is DeviceState.UNCONTROLLED
    leases.observe("a", Outcome(400.0, 400.0, writes))
    assert leases.held("a").state is DeviceState.OK


def test_an_unreadable_gpu_has_no_known_cap() -> None:
    leases = table()
    leases.observe("a", Outcome(error="GpuLost"))
    row = leases.status(0).devices["a"]
    assert (row.state, row.limit_watts) == (DeviceState.UNREADABLE, None)


@pytest.mark.parametrize("watts", [100.0, 701.0, float("nan")])
def test_a_guaranteed_cap_that_the_board_cannot_hold_is_refused(watts: float) -> None:
    with pytest.raises(InputError, match=r"guaranteed_watts\.a"):
        LeaseTable({"a": watts}, {"a": BOUNDS}, "boot", counting())


class Conversation(RuleBasedStateMachine):
    """Commands good and bad, silence, faults and restarts, in any order.

    The model remembers only what was promised: until when the last accepted lease runs.
    """

    @initialize()
    def begin(self) -> None:
        self.now_ns = 1000 * SECOND
        self.draw = counting()
        self.nonces: list[tuple[int, int]] = []
        self.accepted: list[tuple[int, int, int, int]] = []
        self.restarts = 0
        self.lease_ends_ns: dict[str, int] = {}
        self.board = {"a": 700.0, "b": 300.0}
        self.leases = self.fresh()
        self.carry_out(self.leases.start(dict(self.board)))

    def fresh(self) -> LeaseTable:
        caps, bounds = dict.fromkeys(self.board, 400.0), dict.fromkeys(self.board, BOUNDS)
        return LeaseTable(caps, bounds, "boot", self.draw)

    def carry_out(self, plans: dict[str, tuple[Write, ...]], works: bool = True) -> None:
        for uuid, writes in plans.items():
            for write in writes:
                if write.cap_watts is not None and works:
                    self.board[uuid] = write.cap_watts
            self.leases.observe(uuid, Outcome(self.board[uuid], self.board[uuid], writes))

    @rule(milliseconds=st.integers(1, 4000))
    def time_passes(self, milliseconds: int) -> None:
        self.now_ns += milliseconds * NS_PER_MS
        self.carry_out(self.leases.expire(self.now_ns))

    @rule()
    def report(self) -> None:
        self.nonces.append((self.leases.status(self.now_ns).nonce, self.now_ns))

    @precondition(lambda self: self.nonces)
    @rule(
        epoch=st.integers(1, 4),
        sequence=st.integers(1, 6),
        ttl_ms=st.sampled_from([1, 900, 5000, 10_000, 20_000]),
        watts=st.sampled_from([200.0, 350.0, 400.0, 650.0, 700.0, 900.0]),
        uuid=st.sampled_from(["a", "b"]),
        operation=st.sampled_from(list(Operation)),
        age=st.integers(1, 3),
        works=st.booleans(),
    )
    def command(
        self,
        epoch: int,
        sequence: int,
        ttl_ms: int,
        watts: float,
        uuid: str,
        operation: Operation,
        age: int,
        works: bool,
    ) -> None:
        nonce, issued_ns = self.nonces[-min(age, len(self.nonces))]
        device = {
            Operation.SET_POWER_LIMIT: power(uuid, watts),
            Operation.LOCK_CLOCKS: lock(uuid, 1200, watts),
            Operation.RESET: reset(uuid),
        }[operation]
        asked = LeaseCommand(epoch, sequence, nonce, ttl_ms, (device,))
        before = self.leases.entries()
        try:
            plans = self.leases.apply(asked, self.now_ns)
        except InputError:
            assert self.leases.entries() == before
            return
        assert self.now_ns - issued_ns <= NONCE_LIFE_NS
        self.accepted.append((epoch, self.restarts, issued_ns, sequence))
        if operation is Operation.RESET:
            self.lease_ends_ns.pop(uuid, None)
        else:
            self.lease_ends_ns[uuid] = issued_ns + ttl_ms * NS_PER_MS
        self.carry_out(plans, works)

    @rule(uuid=st.sampled_from(["a", "b"]), watts=st.sampled_from([250.0, 400.0, 700.0]))
    def foreign_writer(self, uuid: str, watts: float) -> None:
        self.board[uuid] = watts
        plans = {uuid: self.leases.observe(uuid, Outcome(watts, watts))}
        self.carry_out(plans)

    @rule()
    def restart(self) -> None:
        memory, before = self.leases.memory(), dict(self.board)
        self.leases = self.fresh()
        self.nonces.clear()
        self.restarts += 1
        self.leases.recall(memory, self.now_ns)
        self.carry_out(self.leases.start(dict(self.board)))
        assert all(self.board[uuid] <= before[uuid] for uuid in before)

    @invariant()
    def i3_above_guaranteed_only_under_a_promised_lease(self) -> None:
        for uuid in getattr(self, "board", {}):
            ends_ns = self.lease_ends_ns.get(uuid, 0)
            assert self.leases.held(uuid).cap_watts <= 400.0 or ends_ns > self.now_ns
            row = self.leases.status(self.now_ns).devices[uuid]
            assert row.lease_remaining_ms * NS_PER_MS <= max(0, ends_ns - self.now_ns)

    @invariant()
    def i4_accepted_commands_rise_strictly(self) -> None:
        accepted = getattr(self, "accepted", [])
        assert all(later > earlier for earlier, later in itertools.pairwise(accepted))


def test_i3_and_i4_hold_in_any_conversation() -> None:
    run_state_machine_as_test(Conversation, settings=examples(60, stateful_step_count=30))


@given(
    delay_ms=st.integers(0, 2000),
    ttl_ms=st.integers(1, 10_000),
)
@examples(60)
def test_i3_no_delay_makes_a_lease_longer(delay_ms: int, ttl_ms: int) -> None:
    leases = table()
    asked = command(leases, ttl_ms=ttl_ms)
    try:
        leases.apply(asked, delay_ms * NS_PER_MS)
    except InputError:
        assert delay_ms >= ttl_ms
    else:
        assert leases.next_deadline_ns() == ttl_ms * NS_PER_MS
