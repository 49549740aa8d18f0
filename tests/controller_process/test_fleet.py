"""Reports become samples as a whole or not at all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from controller.app.fleet import Fleet
from tests.controller_process.messages import make_hello, make_reading, make_report
from wattpack.errors import InputError
from wattpack.wire.v1 import power_pb2


def fleet_with_node() -> Fleet:
    fleet = Fleet()
    fleet.hello(make_hello())
    return fleet


def test_a_report_is_kept_in_the_order_of_the_devices() -> None:
    fleet = fleet_with_node()
    devices = [
        make_reading("node-1-gpu-1", draw_watts=111.0),
        make_reading("node-1-gpu-0", draw_watts=99.0),
    ]
    fleet.report(make_report(devices=devices), received_ns=5)
    sample = fleet.records()[0].sample
    assert sample is not None
    assert sample.draw_watts.tolist() == [99.0, 111.0]
    assert sample.controlled.all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("draw_watts", math.nan),
        ("draw_watts", -1.0),
        ("draw_watts", 300_000.0),  # milliwatts
        ("limit_watts", math.inf),
        ("guaranteed_watts", -0.5),
        ("energy_joules", math.nan),
    ],
)
def test_an_impossible_figure_is_refused_by_name_and_the_last_good_report_stays(
    field: str, value: float
) -> None:
    fleet = fleet_with_node()
    fleet.report(make_report(sequence=1), received_ns=1)
    bad = [make_reading("node-1-gpu-0", **{field: value}), make_reading("node-1-gpu-1")]
    with pytest.raises(InputError, match=field):
        fleet.report(make_report(sequence=2, devices=bad), received_ns=2)
    sample = fleet.records()[0].sample
    assert sample is not None
    assert (sample.sequence, sample.received_ns) == (1, 1)


def test_an_unknown_device_is_refused() -> None:
    devices = [make_reading("somebody-else"), make_reading("node-1-gpu-1")]
    with pytest.raises(InputError, match="devices"):
        fleet_with_node().report(make_report(devices=devices), received_ns=1)


def test_a_replayed_sequence_is_refused_within_one_boot() -> None:
    fleet = fleet_with_node()
    fleet.report(make_report(sequence=5), received_ns=1)
    with pytest.raises(InputError, match="sequence"):
        fleet.report(make_report(sequence=5), received_ns=2)


def test_a_new_boot_id_marks_the_node_as_rebooted() -> None:
    fleet = fleet_with_node()
    fleet.report(make_report(sequence=5), received_ns=1)
    fleet.report(make_report(sequence=1, boot_id="boot-2"), received_ns=2)
    assert fleet.records()[0].rebooted


def test_a_report_without_a_nonce_is_not_controlled() -> None:
    fleet = fleet_with_node()
    fleet.report(make_report(nonce=0), received_ns=1)
    sample = fleet.records()[0].sample
    assert sample is not None
    assert not sample.controlled.any()


def test_an_unreadable_device_has_no_power_rather_than_zero() -> None:
    fleet = fleet_with_node()
    devices = [
        make_reading("node-1-gpu-0", state=power_pb2.DEVICE_STATE_UNREADABLE, draw_watts=0.0),
        make_reading("node-1-gpu-1"),
    ]
    fleet.report(make_report(devices=devices), received_ns=1)
    sample = fleet.records()[0].sample
    assert sample is not None
    assert np.isnan(sample.draw_watts[0])
    assert sample.draw_watts[1] == 300.0


def test_a_board_that_hangs_as_another_agent_starts_keeps_the_limits_that_it_told() -> None:
    fleet = fleet_with_node()
    fleet.report(make_report(), received_ns=1)
    before = fleet.records()[0]
    hello = make_hello(instance="the next one")
    for name in ("min_limit_watts", "default_limit_watts", "max_limit_watts"):
        setattr(hello.devices[1], name, 0.0)
    fleet.hello(hello)
    after = fleet.records()[0]
    assert after.devices == before.devices
    assert after.sample is not None


def test_a_reboot_is_not_forgotten_where_a_board_answers_a_moment_after_the_hello() -> None:
    fleet = fleet_with_node()
    fleet.report(make_report(), received_ns=1)
    hello = make_hello(boot_id="boot-2")
    for name in ("min_limit_watts", "default_limit_watts", "max_limit_watts"):
        setattr(hello.devices[1], name, 0.0)
    fleet.hello(hello)
    fleet.hello(make_hello(boot_id="boot-2"))
    assert fleet.report(make_report(boot_id="boot-2"), received_ns=2).rebooted


def test_servers_that_rise_together_ask_for_a_tick_at_once() -> None:
    fleet = fleet_with_node()
    fleet.begin_tick(largest_rating_watts=25_000.0)
    fleet.report(make_report(sequence=1), received_ns=1)
    risen = [
        make_reading("node-1-gpu-0", draw_watts=690.0),
        make_reading("node-1-gpu-1", draw_watts=690.0),
    ]
    assert fleet.report(make_report(sequence=2, devices=risen), received_ns=2).calls_for_tick
    fleet.begin_tick(largest_rating_watts=25_000.0)
    assert not fleet.report(make_report(sequence=3, devices=risen), received_ns=3).calls_for_tick


def test_a_small_rise_waits_for_the_next_tick() -> None:
    fleet = fleet_with_node()
    fleet.begin_tick(largest_rating_watts=25_000.0)
    fleet.report(make_report(sequence=1), received_ns=1)
    risen = [
        make_reading("node-1-gpu-0", draw_watts=390.0),
        make_reading("node-1-gpu-1", draw_watts=390.0),
    ]
    assert not fleet.report(make_report(sequence=2, devices=risen), received_ns=2).calls_for_tick


@pytest.mark.parametrize(
    "devices",
    [
        [],
        [
            power_pb2.DeviceDescription(
                uuid="a", min_limit_watts=200, default_limit_watts=100, max_limit_watts=700
            )
        ],
        [
            power_pb2.DeviceDescription(
                uuid="a", min_limit_watts=200, default_limit_watts=0, max_limit_watts=700
            )
        ],
        [
            power_pb2.DeviceDescription(
                uuid="", min_limit_watts=1, default_limit_watts=2, max_limit_watts=3
            )
        ],
        [
            power_pb2.DeviceDescription(
                uuid="a", min_limit_watts=200, default_limit_watts=700_000, max_limit_watts=700_000
            )
        ],
    ],
)
def test_a_hello_with_nonsense_limits_is_refused(devices: list[Any]) -> None:
    hello = power_pb2.Hello(node="node-1", versions=[1], devices=devices)
    with pytest.raises(InputError):
        Fleet().hello(hello)


def test_mean_power_comes_from_the_energy_counter_over_three_seconds() -> None:
    fleet = fleet_with_node()
    for second in range(1, 6):
        joules = (1000.0 + 250.0 * second, 500.0 - second)
        devices = [make_reading(f"node-1-gpu-{i}", energy_joules=joules[i]) for i in range(2)]
        fleet.report(make_report(sequence=second, devices=devices), received_ns=second)
    mean = fleet.records()[0].energy_mean_watts
    assert mean[0] == pytest.approx(250.0)
    assert np.isnan(mean[1])  # a counter that goes back: driver reload


def test_without_an_energy_counter_there_is_no_mean() -> None:
    fleet = fleet_with_node()
    for second in range(1, 6):
        devices = [make_reading(f"node-1-gpu-{i}", energy_joules=0.0) for i in range(2)]
        fleet.report(make_report(sequence=second, devices=devices), received_ns=second)
    assert np.isnan(fleet.records()[0].energy_mean_watts).all()


def of_a_board(at_seconds: float, highest: float | None, since_seconds: float) -> Any:
    """A report of boards that drew 400 W on average and 350 W now."""
    told = {} if highest is None else {"highest_draw_watts": highest}
    joules = 1000.0 + 400.0 * at_seconds
    readings = [
        make_reading(f"node-1-gpu-{i}", draw_watts=350.0, energy_joules=joules, **told)
        for i in (0, 1)
    ]
    return make_report(
        sequence=round(at_seconds),
        devices=readings,
        highest_since_clock_ns=round(since_seconds * 10**9),
    )


def highest_after(*reports: Any) -> list[float]:
    fleet = fleet_with_node()
    for report in reports:
        fleet.report(report, received_ns=report.clock_ns)
    told = fleet.records()[0].highest_watts
    assert told is not None
    return [float(watts) for watts in told]


def test_the_first_report_after_a_silence_tells_the_highest_of_all_of_it() -> None:
    before = of_a_board(10, None, 0)
    assert np.isnan(highest_after(before)).all()
    fleet = fleet_with_node()
    fleet.report(before, received_ns=0)
    fleet.records()[0].highest_watts = None  # a tick has taken it
    fleet.report(of_a_board(70, 480.0, 10), received_ns=1)
    fleet.report(of_a_board(71, 420.0, 70), received_ns=2)
    told = fleet.records()[0].highest_watts
    assert told is not None
    assert told.tolist() == [480.0, 480.0]


@pytest.mark.parametrize(
    ("highest", "since"),
    [
        (None, 10),  # an older agent
        (480.0, 0),
        (480.0, 20),  # an agent that began within the silence
        (360.0, 10),  # the counter says that more was drawn
        (340.0, 10),  # less than now
        (float("nan"), 10),
        (480_000.0, 10),  # milliwatts
    ],
)
def test_a_highest_reading_that_cannot_bound_the_silence_tells_nothing(
    highest: float | None, since: float
) -> None:
    fleet = fleet_with_node()
    fleet.report(of_a_board(10, None, 0), received_ns=0)
    fleet.records()[0].highest_watts = None
    fleet.report(of_a_board(70, highest, since), received_ns=1)
    told = fleet.records()[0].highest_watts
    assert told is not None
    assert np.isnan(told).all()


def test_another_boot_tells_nothing_of_the_one_before() -> None:
    fleet = fleet_with_node()
    fleet.report(of_a_board(10, None, 0), received_ns=0)
    fleet.records()[0].highest_watts = None
    report = of_a_board(70, 480.0, 10)
    report.boot_id = "boot-2"
    fleet.report(report, received_ns=1)
    told = fleet.records()[0].highest_watts
    assert told is not None
    assert np.isnan(told).all()
