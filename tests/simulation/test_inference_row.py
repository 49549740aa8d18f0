"""The inference row: queues against a plain one, arrivals, power, accounts."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from capacity.phase_times import (
    KV_TOKENS,
    MAX_BATCH,
    TDP_WATTS,
    bloom_on_a100,
)
from capacity.profile_library import shipped_library
from simulation.inference_row import compiled_servers
from simulation.inference_row.batching_servers import BatchingServers
from simulation.inference_row.client_arrivals import (
    DAY_SECONDS,
    ClientArrivals,
    RowRequests,
    day_shape,
    saturated_seconds,
    servers_in_use,
)
from simulation.inference_row.compiled_servers import CompiledServers
from simulation.inference_row.latency_accounts import latency_losses
from simulation.inference_row.request_classes import LOW, POLCA_CLASSES, class_of_servers
from simulation.inference_row.request_lengths import LENGTHS
from simulation.inference_row.row_calibration import frozen_calibration
from simulation.inference_row.row_power import FULL_GPU_WATTS, ServerPower, ServersAround
from simulation.inference_row.row_work import InferenceWork
from simulation.inference_row.served_rows import served_row
from simulation.inference_row.uncapped_row import marks
from simulation.traces import shipped_trace
from wattpack.errors import InputError

TIMES = bloom_on_a100()


def requests(*rows: tuple[float, int, int, int]) -> RowRequests:
    """(arrival, prompt, output, server) in order of arrival."""
    arrival, prompt, output, server = np.array(rows, dtype=np.float64).T
    return RowRequests(
        arrival, np.zeros(len(rows), dtype=np.int64), prompt, output, server.astype(np.int64)
    )


def ran(
    given: RowRequests, n: int, seconds: float, step: float = 1.0, speed: float = 1.0
) -> BatchingServers:
    servers = BatchingServers(given, n)
    for _ in range(round(seconds / step)):
        servers.step(step, np.full(n, speed), np.full(n, speed))
    return servers


def test_a_request_alone_takes_its_prompt_and_its_tokens() -> None:
    servers = ran(requests((0.5, 2048, 101, 0)), 1, 20.0, step=0.25)
    prompt = TIMES.seconds_of_prompt(np.array([2048.0]))[0]
    token = TIMES.seconds_of_token(np.array([1]), np.array([2100.0]))[0]
    assert servers.first_seconds[0] == pytest.approx(0.5 + prompt, abs=1e-6)
    assert servers.done_seconds[0] == pytest.approx(0.5 + prompt + 100 * token, rel=1e-3)


def test_half_the_speed_takes_twice_as_long() -> None:
    given = requests((0.0, 1024, 51, 0))
    fast, slow = (ran(given, 1, 20.0, speed=s) for s in (1.0, 0.5))
    assert slow.done_seconds[0] == pytest.approx(2 * fast.done_seconds[0], rel=1e-3)


def plain_queue(given: RowRequests, end: float) -> tuple[list[float], list[float]]:
    """One server, request by request and token by token, in the plainest code."""
    n = len(given)
    first, done = [np.nan] * n, [np.nan] * n
    now, head = 0.0, 0
    running: dict[int, int] = {}  # request: tokens still to come
    while now < end:
        held = sum(given.prompt_tokens[i] + given.output_tokens[i] for i in running)
        fits = (
            head < n
            and given.arrival_seconds[head] <= now
            and len(running) < MAX_BATCH
            and held + given.prompt_tokens[head] + given.output_tokens[head] <= KV_TOKENS
        )
        if fits:
            now += float(TIMES.seconds_of_prompt(given.prompt_tokens[head : head + 1])[0])
            first[head] = now
            running[head] = int(given.output_tokens[head]) - 1
            head += 1
        elif running:
            context = sum(
                given.prompt_tokens[i] + given.output_tokens[i] - left
                for i, left in running.items()
            )
            batch = np.array([len(running)])
            now += float(TIMES.seconds_of_token(batch, np.array([float(context)]))[0])
            for i in list(running):
                running[i] -= 1
                if not running[i]:
                    done[i] = now
                    del running[i]
        elif head < n:
            now = float(given.arrival_seconds[head])
        else:
            break
    return first, done


@pytest.mark.parametrize("seed", range(4))
def test_queues_agree_with_a_plain_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    given = RowRequests(
        np.sort(rng.uniform(0.0, 150.0, n)),
        np.zeros(n, dtype=np.int64),
        rng.integers(128, 9000, n).astype(float),
        rng.integers(2, 400, n).astype(float),
        np.zeros(n, dtype=np.int64),
    )
    servers = ran(given, 1, 600.0)
    first, done = plain_queue(given, 600.0)
    assert np.isfinite(done).all()
    # Here a prompt may begin between two tokens, there it waits for the token's end.
    np.testing.assert_allclose(servers.first_seconds, first, atol=1.0)
    np.testing.assert_allclose(servers.done_seconds, done, atol=1.0)
    assert servers.done_seconds.mean() == pytest.approx(np.mean(done), abs=0.2)


def test_steps_of_any_length_give_the_same_answers() -> None:
    arrivals = ClientArrivals(8, load=0.9, burst_cv=2.0, seed=3, days=1)
    given = arrivals.between(0.0, 300.0)
    fine, coarse = (ran(given, 8, 600.0, step=s) for s in (0.25, 10.0))
    ended = np.isfinite(fine.done_seconds)
    assert ended.sum() > 20
    np.testing.assert_allclose(coarse.done_seconds[ended], fine.done_seconds[ended], rtol=5e-3)


@pytest.mark.parametrize("step", [0.25, 1.0, 10.0])
def test_compiled_queues_are_the_same_to_the_last_bit(step: float) -> None:
    given = ClientArrivals(8, load=0.7, burst_cv=2.0, seed=4, days=1).between(36_000.0, 36_200.0)
    rng = np.random.default_rng(5)
    both = [made(given, 8, 36_000.0) for made in (BatchingServers, CompiledServers)]
    for _ in range(round(120.0 / step)):
        prompt, decode = rng.uniform(0.4, 1.0, (2, 8)) * (rng.random((2, 8)) > 0.02)
        plain, compiled = (one.step(step, prompt, decode) for one in both)
        np.testing.assert_array_equal(compiled.watts, plain.watts)
        np.testing.assert_array_equal(compiled.prompt_share, plain.prompt_share)
        np.testing.assert_array_equal(compiled.decode_share, plain.decode_share)
    assert np.isfinite(both[0].done_seconds).sum() > 10
    for name in ("done_seconds", "first_seconds", "work_seconds", "waiting"):
        np.testing.assert_array_equal(*(getattr(one, name) for one in both))
    with pytest.raises(InputError, match="above 0"):
        both[1].step(0.0, np.ones(8), np.ones(8))


def test_a_copy_of_compiled_queues_goes_its_own_way() -> None:
    given = ClientArrivals(8, load=0.7, burst_cv=2.0, seed=4, days=1).between(36_000.0, 36_100.0)
    servers, alone = (CompiledServers(given, 8, 36_000.0) for _ in range(2))
    full, half = np.ones(8), np.full(8, 0.5)
    for one in (servers, alone):
        one.step(30.0, full, full)
    copied = copy.deepcopy(servers)
    servers.step(30.0, half, half)
    for one in (copied, alone):
        one.step(30.0, full, full)
    for name in ("done_seconds", "first_seconds", "work_seconds", "waiting"):
        np.testing.assert_array_equal(getattr(copied, name), getattr(alone, name))
    assert (servers.work_seconds < copied.work_seconds).any()


def test_steps_at_full_speed_are_many_single_ones() -> None:
    given = ClientArrivals(8, load=0.7, burst_cv=2.0, seed=4, days=1).between(36_000.0, 36_100.0)
    many, compiled, single = (
        made(given, 8, 36_000.0) for made in (BatchingServers, CompiledServers, CompiledServers)
    )
    full = np.ones(8)
    expected = [single.step(1.0, full, full).watts for _ in range(50)]
    for one in (many, compiled):
        np.testing.assert_array_equal(one.full_speed_watts(50, 1.0), expected)


def test_without_a_compiler_the_queues_run_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    given = requests((0.5, 2048, 101, 0))
    monkeypatch.setattr(compiled_servers, "AVAILABLE", False)
    assert type(compiled_servers.fastest_servers(given, 1)) is BatchingServers


def test_work_is_what_was_asked_for_once_all_is_done() -> None:
    given = requests((0.0, 2048, 65, 0), (1.0, 512, 3, 1), (2.0, 8192, 129, 0))
    servers = ran(given, 2, 120.0)
    of_prompts = TIMES.seconds_of_prompt(given.prompt_tokens)
    of_answers = (given.output_tokens - 1) * TIMES.work_seconds_per_token
    each = np.bincount(given.server, of_prompts + of_answers)
    np.testing.assert_allclose(servers.work_seconds, each, rtol=1e-6)
    assert servers.waiting.tolist() == [0, 0]


def test_draw_is_that_of_the_phase() -> None:
    servers = BatchingServers(requests((1.0, 8192, 100, 0)), 2)
    one, idle_watts = np.ones(2), shipped_library().find("A100-SXM").idle_watts
    np.testing.assert_allclose(servers.step(1.0, one, one).watts, idle_watts)
    prompt = servers.step(1.0, one, one)
    np.testing.assert_allclose(prompt.watts, [TDP_WATTS, idle_watts])
    for _ in range(3):
        servers.step(1.0, one, one)
    decode = servers.step(1.0, one, one)
    assert decode.decode_share[0] == pytest.approx(1.0)
    assert decode.watts[0] == pytest.approx(0.544 * TDP_WATTS, rel=0.01)


def test_a_request_that_does_not_fit_waits_for_room() -> None:
    given = requests(*((0.0, 8192, 64, 0) for _ in range(9)))
    servers = ran(given, 1, 200.0)
    assert 7 * 8256 <= KV_TOKENS < 8 * 8256
    assert servers.first_seconds[7] > servers.done_seconds[0]


def test_arrivals_do_not_depend_on_the_window() -> None:
    made = ClientArrivals(8, load=0.5, burst_cv=1.5, seed=5, days=2)
    whole = made.between(DAY_SECONDS - 3600.0, DAY_SECONDS + 3600.0)
    half = made.between(DAY_SECONDS, DAY_SECONDS + 3600.0)
    late = whole.arrival_seconds >= DAY_SECONDS
    np.testing.assert_array_equal(whole.arrival_seconds[late], half.arrival_seconds)
    np.testing.assert_array_equal(whole.prompt_tokens[late], half.prompt_tokens)
    with pytest.raises(InputError, match="2 days"):
        made.between(0.0, 3 * DAY_SECONDS)


def test_rates_follow_load_and_day() -> None:
    made = ClientArrivals(40, load=0.5, burst_cv=1.0, seed=1, days=14)
    expected = sum(
        0.5 * 10 / saturated_seconds(one) * day_shape(np.arange(0.0, DAY_SECONDS, 600.0)).mean()
        for one in POLCA_CLASSES
    )
    weekdays = [
        len(made.between(d * DAY_SECONDS, (d + 1) * DAY_SECONDS)) / DAY_SECONDS
        for d in (0, 1, 2, 3, 7, 8, 9, 10)
    ]
    assert np.mean(weekdays) == pytest.approx(expected, rel=0.1)
    assert day_shape(np.array([2.0, 14.0]) * 3600.0) == pytest.approx([1 / 3.3, 1.0])


def test_at_night_fewer_servers_are_in_use() -> None:
    hours = np.array([2.0, 8.0, 14.0])
    assert servers_in_use(10, hours * 3600.0).tolist() == [4, 9, 10]
    made = ClientArrivals(40, load=0.5, burst_cv=1.0, seed=1, days=1)
    night, noon = (
        made.between(hour * 3600.0, (hour + 0.2) * 3600.0).server for hour in (2.0, 14.0)
    )
    assert len(np.unique(night)) == 16
    assert len(np.unique(noon)) == 40


def test_no_day_begins_with_a_burst() -> None:
    seconds = []
    for seed in range(8):
        made = ClientArrivals(40, load=0.5, burst_cv=3.0, seed=seed, days=2)
        seconds.append(made.between(DAY_SECONDS - 600.0, DAY_SECONDS + 600.0).arrival_seconds)
    counts = np.histogram(np.concatenate(seconds) - DAY_SECONDS, np.arange(-600.0, 601.0, 20.0))[0]
    # Without length bias in the first gap the first bin has 6.7 times the mean.
    assert counts[30] < 2.0 * counts.mean()


def test_lengths_stay_in_the_published_ranges() -> None:
    made = ClientArrivals(40, load=0.5, burst_cv=1.0, seed=1, days=1).between(0.0, DAY_SECONDS)
    for k, one in enumerate(POLCA_CLASSES):
        mine = made.of_class == k
        assert made.prompt_tokens[mine].min() >= one.prompt_tokens[0]
        assert made.prompt_tokens[mine].max() <= one.prompt_tokens[1]
        assert made.output_tokens[mine].max() <= one.output_tokens[1]
    assert (np.bincount(class_of_servers(52), minlength=4) == 13).all()


def test_a_server_at_full_load_draws_what_it_is_rated_for() -> None:
    for share in (0.45, 0.55, 0.65):
        power = ServerPower.of(share)
        full = np.array([FULL_GPU_WATTS])
        watts = ServersAround(power, full).step(full, 1.0)[0]
        assert watts == pytest.approx(power.rated_ac_watts)
        assert watts * share == pytest.approx(FULL_GPU_WATTS)
    with pytest.raises(InputError):
        ServerPower.of(0.95)


def test_marks_of_a_made_up_row() -> None:
    readings = np.full((1, 600), 0.5)
    readings[0, 300:] = 0.56
    readings[0, 310:] = 0.6
    made = marks(readings)
    assert (made.peak, made.trough) == pytest.approx((0.6, 0.5))
    assert (made.rise_2_seconds, made.rise_40_seconds) == pytest.approx((0.06, 0.1))


def test_a_run_loses_nothing_against_itself_and_something_when_slowed() -> None:
    made = ClientArrivals(8, load=0.5, burst_cv=1.0, seed=2, days=1)
    given = made.between(43_200.0, 43_500.0)

    def run(low_speed: float) -> BatchingServers:
        servers = BatchingServers(given, 8, 43_200.0)
        low = np.array([POLCA_CLASSES[k].priority == LOW for k in made.class_of_server])
        speed = np.where(low, low_speed, 1.0)
        for _ in range(600):
            servers.step(1.0, speed, speed)
        return servers

    counted, end = (43_200.0, 43_500.0), 43_800.0
    same = latency_losses(run(1.0), run(1.0), counted, end)
    assert set(same.values()) == {0.0}
    slowed = latency_losses(run(0.8), run(1.0), counted, end)
    assert slowed["low_whole_p50"] > 0.2
    assert slowed["high_whole_p99"] == 0.0


class Held(NamedTuple):
    drawn_share: NDArray[np.float64]
    clock_share: NDArray[np.float64]
    alive: NDArray[np.bool_]


def held(n: int, drawn: float = 1.0, clock: float = 1.0, *, alive: bool = True) -> Held:
    return Held(np.full(n, drawn), np.full(n, clock), np.full(n, alive))


def test_locks_slow_prompts_by_the_clock_and_decode_by_a_quarter_of_it() -> None:
    given = requests((0.0, 8192, 2000, 0))
    of_server = class_of_servers(4)
    full, locked = (InferenceWork(given, of_server, 0.0) for _ in range(2))
    for i in range(3):
        full.step(float(i), 1.0, held(32))
        locked.step(float(i), 1.0, held(32, clock=1110 / 1410))
    assert locked.done()[0] / full.done()[0] == pytest.approx(1110 / 1410)
    for i in range(3, 30):
        full.step(float(i), 1.0, held(32))
        locked.step(float(i), 1.0, held(32, clock=1110 / 1410))
    before = locked.done()[0], full.done()[0]
    full.step(30.0, 1.0, held(32))
    locked.step(30.0, 1.0, held(32, clock=1110 / 1410))
    ratio = (locked.done()[0] - before[0]) / (full.done()[0] - before[1])
    assert ratio == pytest.approx(1 / 1.0676, rel=0.01)


def test_dark_servers_do_nothing_and_the_slowest_board_sets_the_pace() -> None:
    given = requests((0.0, 8192, 2000, 0), (0.0, 8192, 2000, 1))
    work = InferenceWork(given, class_of_servers(4), 0.0)
    now = held(32)
    now.alive[:8] = False
    now.drawn_share[9] = 0.5
    watts = work.step(0.0, 1.0, now)
    assert work.done()[0] == 0.0
    assert watts[8] == pytest.approx(TDP_WATTS)
    assert 0.6 < work.done()[8] < 0.9
    assert work.priority[0] == LOW
    with pytest.raises(InputError):
        work.step(0.5, 1.0, now)


def test_lengths_of_azure_are_pairs_of_real_requests() -> None:
    made = ClientArrivals(40, load=0.3, burst_cv=1.0, seed=1, days=1, lengths=LENGTHS["azure"])
    day = made.between(36_000.0, 64_800.0)
    for k, one in enumerate(POLCA_CLASSES):
        trace = shipped_trace("code" if one.name == "summarise" else "conversation")
        real = set(zip(trace.prompt_tokens, np.maximum(trace.output_tokens, 2.0), strict=True))
        mine = day.of_class == k
        pairs = list(zip(day.prompt_tokens[mine], day.output_tokens[mine], strict=True))
        assert set(pairs) <= real
        assert np.mean(pairs, axis=0) == pytest.approx(
            [trace.prompt_tokens.mean(), trace.output_tokens.mean()], rel=0.1
        )


def test_load_is_of_full_servers_whatever_the_lengths() -> None:
    busy = []
    for lengths in LENGTHS.values():
        made = ClientArrivals(40, load=0.4, burst_cv=1.0, seed=1, days=1, lengths=lengths)
        busy.append(made.expected_seconds(46_800.0, 54_000.0) / 7200.0 / 40)
    assert busy == pytest.approx([0.4 * day_shape(np.array([50_400.0]))[0]] * 2, rel=0.15)
    assert busy[0] == pytest.approx(busy[1], rel=1e-9)


def test_each_set_of_lengths_has_a_calibration_of_its_own() -> None:
    published, azure = (frozen_calibration(name) for name in ("published", "azure"))
    assert published.sha256 != azure.sha256
    assert azure.lengths == "azure"
    row = served_row("a100_azure_lengths")
    assert (row.load, row.sha256) == (azure.load, azure.sha256)
    one, other = row.arrivals(8, seed=1), azure.arrivals(8, seed=1)
    np.testing.assert_array_equal(
        one.between(0.0, 3600.0).prompt_tokens, other.between(0.0, 3600.0).prompt_tokens
    )
