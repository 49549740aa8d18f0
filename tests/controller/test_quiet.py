"""Batches that would bring nothing are not sent; everything else is, at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.commitments import Commitments, initial_commitments, record
from controller.quiet import quieted
from controller.tick_values import Commands, Observations, PowerSettings, Tick, Topology
from tests.controller.builders import make_observations, make_topology, seconds

SETTINGS = PowerSettings()


def make_commands(topology: Topology, sequence: int, watts: float = 500.0) -> Commands:
    return Commands(
        epoch=1,
        sequence=sequence,
        ttl_ms=4000,
        send=np.ones(topology.n_nodes, dtype=np.bool_),
        nonce=np.full(topology.n_nodes, 7, dtype=np.uint64),
        cap_watts=np.full(topology.n_gpus, watts),
        lock_max_mhz=np.zeros(topology.n_gpus, dtype=np.int64),
        guaranteed_watts=np.zeros(topology.n_gpus),
    )


def sent_at(topology: Topology, at: float, **observed: object) -> tuple[Commitments, Observations]:
    """What is remembered after a batch to every node, and what is observed later."""
    first = make_commands(topology, 1)
    sent = record(
        Tick(topology, make_observations(topology, seconds(at)), SETTINGS, seconds(at)),
        initial_commitments(topology.n_gpus, topology.n_nodes, 1, 0),
        first,
    )
    confirmed = np.ones(topology.n_gpus, dtype=np.int64)
    values = {"gpu_confirmed_sequence": confirmed, **observed}
    return sent, make_observations(topology, seconds(at + 0.4), **values)


def test_a_confirmed_lease_is_renewed_a_second_later_and_not_before() -> None:
    topology = make_topology()
    sent, seen = sent_at(topology, 10.0)
    again = make_commands(topology, 2)
    assert not quieted(Tick(topology, seen, SETTINGS, seconds(10.5)), sent, again).send.any()
    assert quieted(Tick(topology, seen, SETTINGS, seconds(11.0)), sent, again).send.all()


@pytest.mark.parametrize(
    "news",
    [
        {"cap_watts": 450.0},
        {"cap_watts": 550.0},
        {"lock_max_mhz": 1200},
        {"guaranteed_watts": 250.0},
    ],
)
def test_news_for_one_gpu_is_sent_at_once_and_only_to_its_node(news: dict[str, float]) -> None:
    topology = make_topology()
    sent, seen = sent_at(topology, 10.0)
    commands = make_commands(topology, 2)
    ((name, value),) = news.items()
    column = getattr(commands, name).copy()
    column[0] = value
    commands = replace(commands, **{name: column})
    send = quieted(Tick(topology, seen, SETTINGS, seconds(10.5)), sent, commands).send
    assert send[topology.node_of_gpu[0]]
    assert send.sum() == 1


def test_what_a_later_report_does_not_confirm_is_sent_again() -> None:
    topology = make_topology()
    nothing = np.zeros(topology.n_gpus, dtype=np.int64)
    sent, seen = sent_at(topology, 10.0, gpu_confirmed_sequence=nothing)
    again = make_commands(topology, 2)
    assert quieted(Tick(topology, seen, SETTINGS, seconds(10.5)), sent, again).send.all()


def test_a_report_from_before_the_batch_says_nothing_about_it() -> None:
    topology = make_topology()
    nothing = np.zeros(topology.n_gpus, dtype=np.int64)
    earlier = np.full(topology.n_nodes, seconds(9.5))
    sent, seen = sent_at(topology, 10.0, gpu_confirmed_sequence=nothing, node_received_ns=earlier)
    again = make_commands(topology, 2)
    assert not quieted(Tick(topology, seen, SETTINGS, seconds(10.5)), sent, again).send.any()


@given(ttl_ms=st.integers(500, 10_000), period=st.floats(0.1, 2.0))
def test_a_held_lease_never_runs_out_between_two_renewals(ttl_ms: int, period: float) -> None:
    topology = make_topology()
    settings = PowerSettings(lease_ttl_ms=ttl_ms)
    sent, seen = sent_at(topology, 0.0)
    again = make_commands(topology, 2)
    silent, now = 0.0, 0.0
    while True:
        now += period
        if quieted(Tick(topology, seen, settings, seconds(now)), sent, again).send.all():
            break
        silent = now
    assert silent < 0.2 * ttl_ms / 1000 + 1e-9
