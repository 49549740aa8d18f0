"""One field-values call a board and round, believed only where it equals the single calls."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from gpu.device import GpuReading, PowerLimits
from gpu.nvml.checked_fields import CHECK_EVERY
from gpu.nvml.nvml_device import NvmlDevice, NvmlDriver
from gpu.nvml.return_codes import NvmlFailure
from gpu.replay.recorder import record
from gpu.replay.replayed_device import ReplayCalls, open_recording, parse_recording
from tests.telemetry.telemetry_builders import FIXTURES, SECOND, KnownNvml
from wattpack.clock import ManualClock

SET, ENFORCED = "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit"
ECC = "nvmlDeviceGetTotalEccErrors"
FIELDS = "nvmlDeviceGetFieldValues"


class Board(KnownNvml):
    """A board that answers by field and by call; ``lies`` are fields with a value of their own."""

    def __init__(self, lies: dict[int, int] | None = None, offers: set[int] | None = None) -> None:
        self.set_mw = self.enforced_mw = 700_000
        self.lies = lies or {}
        self.offers = {185, 186, 82, 5, 6, 190, 192} if offers is None else offers
        self.refuses_batches = False
        answers = {
            "nvmlSystemGetDriverVersion": "580.1",
            FIELDS: self._fields,
            SET: lambda _i: self.set_mw,
            ENFORCED: lambda _i: self.enforced_mw,
            ECC: lambda _i, kind, _counter: 10 + kind,
        }
        super().__init__(answers)

    def _fields(self, _index: int, *ids: int) -> list[list[int]]:
        if self.refuses_batches and len(ids) > 2:
            raise NvmlFailure(2, FIELDS)
        values = {185: 400_000, 186: 410_000, 82: 50, 5: 10, 6: 11}
        values |= {190: self.enforced_mw, 192: self.set_mw} | self.lies
        return [[i, 0, values[i]] if i in self.offers else [i, 3, 0] for i in ids]


def one_second(device: NvmlDevice, second: int) -> tuple[GpuReading, PowerLimits]:
    """Five rounds, the limits with the first, as the sampler asks."""
    first = device.read(second * SECOND)
    limits = device.limits()
    for k in range(1, 5):
        device.read(second * SECOND + k * SECOND // 5)
    return first, limits


def test_limits_and_error_counts_come_with_power_in_one_call() -> None:
    board = Board()
    device = NvmlDevice(board, 0)
    one_second(device, 0)
    one_second(device, 5)
    board.asked.clear()
    for second in range(10, 50):
        reading, limits = one_second(device, second)
    counts = Counter(str(call[0]) for call in board.asked)
    assert counts[FIELDS] == 5 * 40
    assert counts[SET] <= 1
    assert counts[ENFORCED] <= 1
    assert counts[ECC] == 0
    assert (limits.limit_watts, limits.enforced_limit_watts) == (700.0, 700.0)
    assert (reading.ecc_corrected, reading.ecc_uncorrected) == (10, 11)
    assert reading.memory_temperature_celsius == 50


def test_a_set_limit_that_another_limiter_hides_is_seen_in_the_same_second() -> None:
    board = Board()
    device = NvmlDevice(board, 0)
    board.enforced_mw = 300_000
    one_second(device, 0)
    board.set_mw = 450_000
    _, limits = one_second(device, 1)
    assert (limits.limit_watts, limits.enforced_limit_watts) == (450.0, 300.0)


@pytest.mark.parametrize("field", [190, 192])
def test_a_field_that_is_something_else_on_this_board_is_never_believed(field: int) -> None:
    board = Board(lies={field: 123_000})
    device = NvmlDevice(board, 0)
    for second in range(3 * CHECK_EVERY):
        board.set_mw = board.enforced_mw = 400_000 + 1000 * (second % 3)
        _, limits = one_second(device, second)
        wanted = board.set_mw / 1000.0
        assert (limits.limit_watts, limits.enforced_limit_watts) == (wanted, wanted)


def test_a_field_that_begins_to_differ_is_found_and_left() -> None:
    board = Board()
    device = NvmlDevice(board, 0)
    one_second(device, 0)
    board.lies = {190: 123_000}
    seen = [one_second(device, 1 + k)[1].enforced_limit_watts for k in range(2 * CHECK_EVERY)]
    assert seen[CHECK_EVERY] == 700.0
    assert set(seen[CHECK_EVERY:]) == {700.0}


def test_a_field_that_differed_once_is_not_believed_when_it_happens_to_agree() -> None:
    board = Board(lies={190: 123_000})
    device = NvmlDevice(board, 0)
    one_second(device, 0)
    board.lies = {}
    one_second(device, 1)
    board.lies = {190: 123_000}
    assert {one_second(device, 2 + k)[1].enforced_limit_watts for k in range(3)} == {700.0}


def test_the_read_back_after_a_write_asks_the_board_by_single_calls() -> None:
    board = Board()
    device = NvmlDevice(board, 0)
    for second in range(3):
        one_second(device, second)
    board.answers["nvmlDeviceSetPowerManagementLimit"] = None
    board.asked.clear()
    device.set_power_limit(500.0)
    board.set_mw = board.enforced_mw = 500_000
    assert device.limits().limit_watts == 500.0
    assert {(SET,), (ENFORCED,)} <= set(board.asked)


@pytest.mark.parametrize("offers", [set(), {185}, {185, 186}, {185, 186, 190}])
def test_what_a_board_does_not_offer_is_asked_by_single_calls(offers: set[int]) -> None:
    board = Board(offers=offers)
    board.answers["nvmlDeviceGetPowerUsage"] = 399_000
    device = NvmlDevice(board, 0)
    reading, limits = one_second(device, 0)
    assert reading.draw_watts == (400.0 if 185 in offers else 399.0)
    assert (limits.limit_watts, reading.ecc_corrected) == (700.0, 10)
    board.asked.clear()
    one_second(device, 1)
    assert all(len(call) <= 1 + 2 + 1 for call in board.asked if call[0] == FIELDS)


def test_a_driver_that_refuses_the_whole_call_for_one_field_still_gives_power() -> None:
    board = Board()
    board.refuses_batches = True
    reading, limits = one_second(NvmlDevice(board, 0), 0)
    assert (reading.draw_watts, reading.instant_draw_watts) == (400.0, 410.0)
    assert limits.limit_watts == 700.0


def test_limits_of_an_earlier_round_are_no_read_back() -> None:
    board = Board()
    device = NvmlDevice(board, 0)
    one_second(device, 0)
    device.read(SECOND)
    device.read(SECOND + SECOND // 5)
    board.set_mw = board.enforced_mw = 450_000
    assert device.limits().enforced_limit_watts == 450.0


def test_a_recording_of_either_kind_replays_for_this_adapter() -> None:
    out = io.StringIO()
    record(Board(), ManualClock(), out, seconds=3.0, hz=5.0, label="by fields")
    by_fields = parse_recording(io.StringIO(out.getvalue()))
    assert by_fields.answer(0, f"{SET}()", 0) == {"value": 700_000}
    (device,) = NvmlDriver(ReplayCalls(by_fields, ManualClock())).devices()
    assert (device.read(0).draw_watts, device.limits().limit_watts) == (400.0, 700.0)
    (old,) = open_recording(FIXTURES / "idle.jsonl.gz", ManualClock()).devices()
    assert old.read(0).draw_watts > 50.0
    assert old.limits().limit_watts == 700.0
