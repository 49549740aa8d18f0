"""The node's own limit: cuts lower, never below the guaranteed cap, and suffice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.node_limit import GuardedDevice, emergency_cuts
from tests.examples import examples
from wattpack.errors import InputError

device_values = st.tuples(st.floats(0, 800), st.floats(150, 400), st.floats(0, 500))


def devices_of(values: list[tuple[float, float, float]]) -> list[GuardedDevice]:
    return [
        GuardedDevice(f"GPU-{i}", watts, guaranteed + above, guaranteed, 1800)
        for i, (watts, guaranteed, above) in enumerate(values)
    ]


@examples(100)
@given(
    values=st.lists(device_values, min_size=1, max_size=16),
    limit=st.floats(100, 8000),
    other=st.floats(0, 2000),
)
def test_cuts_only_lower_and_stop_at_the_guaranteed_cap(
    values: list[tuple[float, float, float]], limit: float, other: float
) -> None:
    devices = {device.uuid: device for device in devices_of(values)}
    total = other + sum(device.draw_watts for device in devices.values())
    cuts = emergency_cuts(list(devices.values()), limit, other)
    if total <= limit:
        assert cuts == ()
    for cut in cuts:
        device = devices[cut.uuid]
        assert device.guaranteed_watts - 1e-6 <= cut.cap_watts < device.limit_watts
        assert cut.lock_max_mhz is None or 1 <= cut.lock_max_mhz <= device.sm_clock_mhz


@examples(100)
@given(values=st.lists(device_values, min_size=1, max_size=16), share=st.floats(0.3, 0.99))
def test_after_the_cuts_the_node_is_below_its_limit_or_at_its_guaranteed_caps(
    values: list[tuple[float, float, float]], share: float
) -> None:
    devices = devices_of(values)
    total = sum(device.draw_watts for device in devices)
    limit = max(1.0, share * total)
    cut_to = {cut.uuid: cut.cap_watts for cut in emergency_cuts(devices, limit)}
    after = sum(min(d.draw_watts, cut_to.get(d.uuid, d.limit_watts)) for d in devices)
    floor = sum(min(d.draw_watts, d.guaranteed_watts) for d in devices)
    assert after <= max(limit, floor) + 1e-6


def test_what_lies_above_the_guaranteed_caps_is_cut_in_proportion() -> None:
    devices = [
        GuardedDevice("a", 700.0, 700.0, 300.0, 1980),
        GuardedDevice("b", 500.0, 700.0, 300.0, 1980),
        GuardedDevice("c", 100.0, 700.0, 300.0, 1980),
    ]
    cuts = {cut.uuid: cut for cut in emergency_cuts(devices, 1200.0)}
    # 1300 W drawn, cut to 1140 W: 160 of the 600 W above the guaranteed caps.
    assert cuts["a"].cap_watts == pytest.approx(700.0 - 400.0 * 160 / 600)
    assert cuts["b"].cap_watts == pytest.approx(500.0 - 200.0 * 160 / 600)
    assert cuts["c"].cap_watts == pytest.approx(300.0)
    assert cuts["c"].lock_max_mhz is None
    assert cuts["a"].lock_max_mhz is not None
    assert cuts["a"].lock_max_mhz < 1980


def test_an_unknown_clock_is_not_locked() -> None:
    (cut,) = emergency_cuts([GuardedDevice("a", 700.0, 700.0, 300.0)], 500.0)
    assert cut.lock_max_mhz is None


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf"), "500", True])
def test_a_limit_that_is_no_positive_number_is_refused(limit: float) -> None:
    with pytest.raises(InputError):
        emergency_cuts([], limit)


@pytest.mark.parametrize(
    "values",
    [("a", float("nan"), 1.0, 1.0), ("a", -1.0, 1.0, 1.0), ("a", 1.0, 0.0, 1.0)],
)
def test_an_impossible_device_is_refused(values: tuple[str, float, float, float]) -> None:
    with pytest.raises(InputError):
        GuardedDevice(*values)
