"""Nobody can lock the real leader out by an epoch that was made up (I4)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuator.app.persisted_state import FileStore
from actuator.epoch_fence import EpochFence, ImplausibleEpoch
from actuator.lease_entry import Memory
from actuator.lease_messages import DeviceCommand, LeaseCommand, Operation
from tests.actuator.test_actuator_socket import Node
from wattpack.errors import InputError
from wattpack.fencing import EPOCH_ROOM, MAX_EPOCH, MAX_SEQUENCE
from wattpack.units import NS_PER_SECOND

UINT64 = 2**64 - 1


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="wp") as path:
        made = Node(Path(path))
        yield made
        made.client.close()
        made.hosted.close()


def attack(node: Node, epoch: int, sequence: int = 1) -> str:
    """The field that the actuator refuses, empty if it accepts."""
    device = DeviceCommand("GPU-0", Operation.SET_POWER_LIMIT, 700.0)
    nonce = node.client.status().nonce
    return node.client.apply(LeaseCommand(epoch, sequence, nonce, 5000, (device,))).field


@pytest.mark.parametrize("epoch", [UINT64, 2**63, MAX_EPOCH, EPOCH_ROOM + 8])
def test_i4_one_poisoned_epoch_takes_no_lease_away(node: Node, epoch: int) -> None:
    assert node.client.apply(node.command(600.0, epoch=7)).accepted
    assert attack(node, epoch) == "epoch"
    assert node.boards[0].limit_watts == 600.0
    assert node.client.apply(node.command(650.0, epoch=7)).accepted
    assert node.client.apply(node.command(640.0, epoch=8)).accepted
    assert node.client.status().implausible_epochs == 1
    assert "implausible" in node.events()


def test_i4_the_very_first_command_cannot_poison_an_actuator_without_history(node: Node) -> None:
    assert attack(node, UINT64) == "epoch"
    assert attack(node, EPOCH_ROOM + 1) == "epoch"
    assert node.client.apply(node.command(600.0, epoch=1)).accepted


def test_i4_a_sequence_that_no_controller_would_read_back_is_refused(node: Node) -> None:
    assert attack(node, 1, UINT64) == "sequence"
    assert node.client.apply(node.command(600.0)).accepted


def test_i4_a_made_up_sequence_in_the_leaders_own_epoch_lasts_until_its_next_answer(
    node: Node,
) -> None:
    assert node.client.apply(node.command(600.0, epoch=7)).accepted
    node.pass_time(0.1)
    assert attack(node, 7, MAX_SEQUENCE) == ""
    for _ in range(10):
        node.pass_time(0.1)
        assert node.client.apply(node.command(650.0, epoch=7)).accepted
        assert node.boards[0].limit_watts == 650.0


@pytest.mark.parametrize("sequence", [2**62, 2**62 - 1, UINT64, MAX_SEQUENCE + 1])
def test_i4_a_sequence_that_no_leader_can_have_reached_changes_nothing(
    node: Node, sequence: int
) -> None:
    assert node.client.apply(node.command(600.0, epoch=7)).accepted
    node.pass_time(0.1)
    assert attack(node, 7, sequence) == "sequence"
    assert node.boards[0].limit_watts == 600.0
    assert node.client.status().implausible_epochs == 1
    assert "implausible" in node.events()
    assert node.client.apply(node.command(650.0, epoch=7)).accepted


def test_i4_nothing_that_was_accepted_or_is_older_can_be_sent_again(node: Node) -> None:
    older = node.command(500.0, epoch=7)
    node.pass_time(0.1)
    newer = node.command(600.0, epoch=7)
    assert node.client.apply(newer).accepted
    assert node.client.apply(newer).field == "sequence"
    assert node.client.apply(older).field == "sequence"
    assert node.client.apply(replace(older, sequence=MAX_SEQUENCE)).field == "sequence"
    assert node.client.apply(replace(newer, sequence=newer.sequence - 1)).field == "sequence"
    assert node.boards[0].limit_watts == 600.0


def test_i4_climbing_step_by_step_ends_where_the_leader_can_follow(node: Node) -> None:
    lease_epoch = 3
    assert node.client.apply(node.command(600.0, epoch=lease_epoch)).accepted
    for _ in range(60):
        highest = node.client.status().highest_epoch
        for jump in (EPOCH_ROOM, EPOCH_ROOM // 2, 1000, 60, 1):
            attack(node, highest + jump)
        node.pass_time(1.0)
    highest = node.client.status().highest_epoch
    assert lease_epoch < highest <= lease_epoch + EPOCH_ROOM + 60
    # The leader moves its Lease beyond what agents report, and is heard at once.
    node.pass_time(1.0)
    assert node.client.apply(node.command(650.0, epoch=highest + 1)).accepted


def test_i4_the_used_room_outlives_a_restart_but_not_an_impossible_epoch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(Path(folder) / "state.json")
        fence = EpochFence().after(EPOCH_ROOM - 5, 1, 0, 0)
        store.save(Memory("boot", fence.epoch, fence.sequence, {}, fence.room, fence.refilled_ns))
        memory, problem = store.load()
        assert memory is not None
        assert problem == ""
        again = memory.fence().recalled(NS_PER_SECOND, same_boot=True)
        assert again.room == 5
        with pytest.raises(ImplausibleEpoch):
            again.after(EPOCH_ROOM + 100, 1, 0, NS_PER_SECOND)
        elsewhere = memory.fence().recalled(10**18, same_boot=False)
        with pytest.raises(ImplausibleEpoch):
            elsewhere.after(EPOCH_ROOM + 100, 1, 0, 10**18)
    poisoned = EpochFence(UINT64, 1).recalled(5, same_boot=True)
    assert poisoned.after(4, 1, 6, 6).epoch == 4


def test_a_state_file_of_an_earlier_release_gives_its_epoch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(
            '{"version": 1, "boot_id": "b", "highest_epoch": 9,'
            ' "highest_sequence": 4, "devices": {}}'
        )
        memory, problem = FileStore(file).load()
    assert problem == ""
    assert memory is not None
    assert (memory.highest_epoch, memory.highest_sequence) == (9, 4)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 100), st.integers(1, 2**22), st.integers(1, UINT64)),
        max_size=30,
    )
)
def test_i4_pairs_only_rise_and_epochs_never_outrun_their_room(
    steps: list[tuple[int, int, int]],
) -> None:
    fence, now_ns = EpochFence(), 0
    for seconds, jump, sequence in steps:
        now_ns += seconds * NS_PER_SECOND
        before = fence
        try:
            fence = fence.after(fence.epoch + jump - 1, sequence, now_ns, now_ns)
        except InputError:
            assert fence is before
            continue
        now, then = ((one.epoch, one.issued_ns, one.sequence) for one in (fence, before))
        assert now > then
        assert fence.epoch <= EPOCH_ROOM + now_ns // NS_PER_SECOND
        assert fence.sequence <= MAX_SEQUENCE


def test_who_asks_often_cannot_push_out_the_nonce_that_the_leader_answers(node: Node) -> None:
    answered = node.command(600.0)
    for _ in range(90):
        node.client.status()
    assert node.client.apply(answered).accepted
