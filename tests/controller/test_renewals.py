"""I3: when a report may be answered on arrival by what the last tick said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.commitments import holding, initial_commitments, record
from controller.renewals import (
    REPEATED_WITHIN_NS,
    Heard,
    Word,
    may_be_repeated,
    repeatable,
    says_the_same,
)
from controller.tick_values import Commands, Tick
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds

WORD = Word(3, 17, seconds(100.0), np.array([500.0, 450.0]), np.zeros(2, dtype=np.int64))
HEARD = Heard(
    nonce=7,
    received_ns=seconds(100.5),
    highest_epoch=3,
    rebooted=False,
    calls_for_tick=False,
    limit_watts=np.array([500.0, 450.0]),
    guaranteed_watts=np.array([400.0, 400.0]),
)
NOW = seconds(100.5)


def repeated(word: Word = WORD, heard: Heard = HEARD, epoch: int = 3, now_ns: int = NOW) -> bool:
    return may_be_repeated(word, heard, epoch, SETTINGS.nonce_max_age_ns, now_ns)


def test_i3_a_report_that_changes_nothing_is_answered_by_the_same_caps() -> None:
    assert repeated()


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": 0},
        {"received_ns": NOW - SETTINGS.nonce_max_age_ns - 1},
        {"highest_epoch": 4},
        {"rebooted": True},
        {"calls_for_tick": True},
        {"limit_watts": np.array([500.0])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_i3_what_a_tick_has_to_judge_is_not_answered_before_it(change: dict[str, object]) -> None:
    assert not repeated(heard=replace(HEARD, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("epoch", [0, 2, 4])
def test_i4_only_the_leader_who_decided_repeats(epoch: int) -> None:
    assert not repeated(epoch=epoch)


def test_i3_the_words_of_a_tick_loop_that_hangs_end_soon() -> None:
    last_ns = WORD.decided_ns + REPEATED_WITHIN_NS
    heard = replace(HEARD, received_ns=last_ns)
    assert repeated(heard=heard, now_ns=last_ns)
    assert not repeated(heard=heard, now_ns=last_ns + 1)


@pytest.mark.parametrize(
    ("limits", "answered"),
    [
        ((600.0, 450.0), True),  # the lower cap was lost on its way
        ((490.0, 450.0), False),  # a raise, or a cut by the node itself
        ((400.0, 400.0), False),  # the lease ran out
    ],
)
def test_i6_a_repetition_never_raises(limits: tuple[float, float], answered: bool) -> None:
    assert repeated(heard=replace(HEARD, limit_watts=np.array(limits))) == answered


def test_i6_up_to_the_guaranteed_cap_is_no_raise() -> None:
    low = replace(WORD, cap_watts=np.array([400.0, 400.0]))
    assert repeated(low, replace(HEARD, limit_watts=np.array([np.nan, 300.0])))


@pytest.mark.parametrize("guaranteed_watts", [np.nan, 300.0])
def test_i3_a_board_whose_limit_nobody_reads_is_left_to_the_ticks(guaranteed_watts: float) -> None:
    """Lost, hung or without a name: the others have their answer."""
    heard = replace(
        HEARD,
        limit_watts=np.array([500.0, np.nan]),
        guaranteed_watts=np.array([300.0, guaranteed_watts]),
    )
    assert repeated(heard=heard)
    assert repeatable(WORD, heard).tolist() == [True, False]
    assert not repeated(heard=replace(heard, limit_watts=np.full(2, np.nan)))


def test_a_word_is_the_same_only_in_one_term_with_the_same_limits_and_locks() -> None:
    assert says_the_same(WORD, replace(WORD, sequence=18))
    assert not says_the_same(WORD, replace(WORD, cap_watts=np.array([501.0, 450.0])))
    assert not says_the_same(WORD, replace(WORD, epoch=4))
    assert not says_the_same(WORD, replace(WORD, lock_max_mhz=np.array([0, 1200])))


@pytest.mark.parametrize(("after_seconds", "counted"), [(7.4, True), (7.6, False)])
def test_i3_a_command_counts_for_as_long_as_it_may_have_been_repeated(
    after_seconds: float, counted: bool
) -> None:
    """A lease of 3.5 s, renewed up to 2 s after the tick, and reports of up to 2 s of age."""
    topology = make_topology()
    n = topology.n_gpus
    sent = record(
        Tick(topology, make_observations(topology, seconds(10)), SETTINGS, seconds(10)),
        initial_commitments(n, topology.n_nodes, 1, 0),
        Commands(
            epoch=1,
            sequence=1,
            ttl_ms=SETTINGS.lease_ttl_ms,
            send=np.ones(topology.n_nodes, dtype=np.bool_),
            nonce=np.ones(topology.n_nodes, dtype=np.uint64),
            cap_watts=np.full(n, 650.0),
            lock_max_mhz=np.zeros(n, dtype=np.int64),
            guaranteed_watts=np.zeros(n),
        ),
    )
    now = seconds(10 + after_seconds)
    observed = make_observations(
        topology,
        now,
        gpu_limit_watts=np.full(n, 400.0),
        gpu_confirmed_sequence=np.zeros(n, dtype=np.int64),
    )
    held = holding(Tick(topology, observed, SETTINGS, now), sent).held_watts
    assert np.all(held == (650.0 if counted else 400.0))
