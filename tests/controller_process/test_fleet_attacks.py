"""What a broken or lying agent must not be able to do to the fleet that the tick works on."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from controller.app.fleet import DomainInputs, Fleet, Leadership
from controller.tick_values import Observations
from tests.controller_process.controller_builders import make_small_topology
from tests.controller_process.messages import make_hello, make_reading, make_report
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND
from wattpack.wire.v1 import power_pb2


def make_fleet(**hello: Any) -> Fleet:
    fleet = Fleet()
    fleet.hello(make_hello(**hello))
    return fleet


def observe(fleet: Fleet) -> Observations:
    one = np.full(1, np.nan)
    domains = DomainInputs(one, np.full(1, -1), one, np.full(1, 10_000.0))
    return fleet.observe(make_small_topology(), Leadership(1, True, True), domains, np.full(2, 1.0))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sequence": 2**64 - 1, "clock_ns": 1}, "sequence"),
        (
            {
                "devices": [
                    make_reading("node-1-gpu-0", confirmed_sequence=2**64 - 1),
                    make_reading("node-1-gpu-1"),
                ]
            },
            r"devices\[0\].confirmed_sequence",
        ),
        ({"pods": [power_pb2.PodUse(name="p")] * 1001}, "pods"),
    ],
)
def test_a_number_beyond_its_field_is_refused_and_the_tick_still_observes(
    fields: dict[str, Any], field: str
) -> None:
    fleet = make_fleet()
    fleet.report(make_report(), received_ns=1)
    with pytest.raises(InputError, match=field):
        fleet.report(make_report(**{"sequence": 2, **fields}), received_ns=2)
    assert observe(fleet).node_received_ns.tolist() == [1]


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**31, 2**20 + 2])
def test_an_epoch_that_our_lease_cannot_have_reached_is_ignored_and_told(epoch: int) -> None:
    fleet = make_fleet()
    fleet.report(make_report(highest_epoch=epoch), received_ns=1)
    seen = observe(fleet)
    assert seen.node_received_ns.tolist() == [1]
    assert seen.highest_epoch_seen == 0
    assert seen.poisoned_nodes.tolist() == [True]


def test_an_epoch_within_reach_is_believed() -> None:
    fleet = make_fleet()
    fleet.report(make_report(highest_epoch=2**20 + 1), received_ns=1)
    seen = observe(fleet)
    assert seen.highest_epoch_seen == 2**20 + 1
    assert not seen.poisoned_nodes.any()


def test_a_reading_whose_watts_or_state_are_missing_counts_as_unknown_never_as_zero() -> None:
    fleet = make_fleet()
    devices = [
        make_reading("node-1-gpu-0", draw_watts=0.0),
        make_reading("node-1-gpu-1", state=power_pb2.DEVICE_STATE_UNSPECIFIED),
    ]
    fleet.report(make_report(devices=devices), received_ns=1)
    seen = observe(fleet)
    assert np.isnan(seen.gpu_draw_watts).all()
    assert seen.gpu_controlled.tolist() == [True, False]


def test_an_agent_that_was_restarted_is_heard_at_once() -> None:
    fleet = make_fleet()
    fleet.report(make_report(sequence=5000), received_ns=1)
    fleet.hello(make_hello())
    fleet.report(make_report(sequence=1), received_ns=2)
    assert observe(fleet).node_received_ns.tolist() == [2]


def test_a_board_that_a_running_node_no_longer_names_is_still_counted() -> None:
    fleet = make_fleet(gpus=2)
    fleet.hello(make_hello(gpus=1))
    assert [d.uuid for d in fleet.records()[0].devices] == ["node-1-gpu-0", "node-1-gpu-1"]
    fleet.report(make_report(gpus=1), received_ns=1)
    assert np.isnan(observe(fleet).gpu_draw_watts).tolist() == [False, True]


def test_a_board_that_was_taken_out_is_gone_after_the_next_boot() -> None:
    fleet = make_fleet(gpus=2)
    fleet.hello(make_hello(gpus=1, boot_id="boot-2"))
    assert len(fleet.records()[0].devices) == 1


def test_a_node_that_loses_its_host_unit_makes_a_new_topology() -> None:
    fleet = make_fleet()
    before = fleet.version
    fleet.hello(make_hello(host_unit=False))
    assert fleet.version > before
    assert not fleet.records()[0].host_unit


def test_a_hello_cannot_grow_the_fleet_without_bound() -> None:
    with pytest.raises(InputError, match=r"hello\.devices"):
        Fleet().hello(make_hello(gpus=65))
    nameless = make_hello(gpus=1)
    nameless.unidentified_devices = 2**32 - 1
    with pytest.raises(InputError, match=r"hello\.devices"):
        Fleet().hello(nameless)
    fleet = make_fleet(gpus=40)
    other = make_hello(gpus=40)
    for i, device in enumerate(other.devices):
        device.uuid = f"another-{i}"
    with pytest.raises(InputError, match="between two boots"):
        fleet.hello(other)
    assert len(fleet.records()[0].devices) == 40


def test_a_deleted_node_is_counted_while_it_reports_and_dropped_when_it_is_silent() -> None:
    fleet = make_fleet()
    fleet.report(make_report(), received_ns=0)
    assert fleet.forget_silent(["node-1"], 30 * NS_PER_SECOND) == []
    assert fleet.forget_silent(["node-1"], 61 * NS_PER_SECOND) == ["node-1"]
    assert fleet.records() == []


@pytest.mark.parametrize(
    "uuid",
    ["unheard/node-9/0", "node-2/honest-gpu-0", "", " GPU", "GPU\n1", "x" * 97, "ü"],
)
def test_a_board_cannot_take_a_name_that_we_give_to_others(uuid: str) -> None:
    fleet = make_fleet()
    hello = make_hello("node-2")
    hello.devices[0].uuid = uuid
    with pytest.raises(InputError, match=r"hello\.devices"):
        fleet.hello(hello)
    assert [record.name for record in fleet.records()] == ["node-1"]


HOSTILE = [float("nan"), float("inf"), -1.0, 0.0, 1e308, 5e-324, 2.0**63]
WHOLE = [0, 1, 2**31, 2**63 - 1, 2**64 - 1]


def hostile_report(rng: random.Random) -> power_pb2.NodeReport:
    """A report of node-1 with some fields out of their range, doubled, missing or strange."""
    report = make_report()
    report.sequence = rng.choice(WHOLE)
    for name in ("nonce", "highest_epoch"):
        if rng.random() < 0.5:
            setattr(report, name, rng.choice(WHOLE))
    for device in report.devices:
        for name in ("draw_watts", "energy_joules", "limit_watts", "guaranteed_watts"):
            if rng.random() < 0.2:
                setattr(device, name, rng.choice(HOSTILE))
        if rng.random() < 0.2:
            device.confirmed_sequence = rng.choice(WHOLE)
        if rng.random() < 0.1:
            device.uuid = rng.choice(["node-1-gpu-0", "", "strange"])
    if rng.random() < 0.1:
        report.clock_ns = rng.choice([-(2**63), -1, 2**63 - 1])
    return report


def test_hostile_reports_are_refused_by_name_and_the_tick_still_observes() -> None:
    rng, fleet, refused, fields = random.Random(6), make_fleet(), 0, set[str]()
    for number in range(2000):
        if number % 10 == 0:
            fleet.hello(make_hello())
        try:
            fleet.report(hostile_report(rng), received_ns=number)
        except InputError as error:
            fields.add(error.field.partition(".")[0])
            refused += 1
        if number % 20 == 0:
            observe(fleet)
    assert 500 < refused < 2000
    assert fields == {"report"}
