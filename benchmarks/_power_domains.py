"""Domains of the twin whose past is not like their present: the world of ``power_forecast``.

A domain has three kinds of work whose shares nobody tells the forecaster:

    serving    requests of the inference row (``simulation.inference_row``), one by one, on 8 to 20
               servers; load and lengths of the requests drawn
    training   gangs of whole servers, for hours
    batch      single boards, for minutes to hours

Draws are means of ten minutes, no controller in the loop: where the work would draw more than
``HELD_RATIO`` of the limit, caps hold it there, and the bin says so. Ten days of history come
before, of the twin's coarse kind (a raised cosine with lasting noise, as
``simulation.app.earlier_days``): of another level, peak hour, trough and mix. What can be known of
pods is told as a cluster tells it: when each began and ended, and its boards; not what they draw.

Drawn from seed and number. Calibration: requests and servers are the inference row's, fitted to a
published row (``row_calibration``); everything else here is assumed, and was frozen before a
forecaster saw it. No forecaster's code and none of the model that it takes watts from is behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import TDP_WATTS
from simulation.inference_row.client_arrivals import (
    BIN_SECONDS,
    ClientArrivals,
    saturated_seconds,
)
from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.request_lengths import LENGTHS, LengthsName
from simulation.inference_row.row_calibration import frozen_calibration
from simulation.inference_row.row_power import GPUS_PER_SERVER, ServerPower

Floats = NDArray[np.float64]

RUN_BINS: Final = 3 * 144
HISTORY_BINS: Final = 10 * 144
DECIMALS: Final = 3

LENGTHS_NAMES: Final[tuple[LengthsName, ...]] = ("published", "azure")
SERVED_DAYS: Final = 6
LOAD_RATIO: Final = (0.6, 1.15)
"""Of the published row's rate."""

SERVING_CURVE: Final[dict[LengthsName, tuple[float, float, float]]] = {
    "published": (0.3535, 0.3831, 0.255),
    "azure": (0.3486, 0.4054, 0.142),
}
"""A server's draw over its nameplate without work, what full work adds, and the work at which 63 %
of that is reached; servers that are not in use counted in. Fitted to the row request by request
(``uncapped_days``), six days of 8 to 20 servers: within 4 and 6 % a bin (standard deviation)."""
SERVING_NOISE: Final = 0.01

HELD_RATIO: Final = 0.98
"""Of the limit, where caps hold what would draw more; the twin's earlier days have it, too."""

LIMIT_OF_FULL: Final = (0.75, 1.05)
RARELY_HELD: Final = 0.97
"""A domain's limit over all its servers at full draw, but never lower than what it draws in this
share of bins: some domains are capped at times."""

GANG_SERVERS: Final = (0, 8)
GANG_HOURS: Final = (6.0, 1.0)
"""Median of a job's hours, and the spread of their logarithm."""
GANG_GAP_HOURS: Final = 3.0
GANG_DRAW: Final = (0.78, 0.95)
"""Mean of a board over its TDP, the exchange in it."""

BATCH_BOARDS: Final = (0, 32)
BATCH_HOURS: Final = (1.5, 0.8)
BATCH_GAP_HOURS: Final = 0.75
BATCH_DRAW: Final = (0.5, 1.0)
IDLE_BOARD_RATIO: Final = 0.2
"""Of a board's TDP with its context open and no work; A100: 80 of 400 W."""

HISTORY_LEVEL_SPREAD: Final = 0.25
"""Of the logarithm of the history's mean over the run's. The demo's row: 283 against 375 kW."""
HISTORY_PEAK_HOURS: Final = 4.0
HISTORY_TROUGH: Final = (0.5, 0.95)
HISTORY_NOISE: Final = (0.01, 0.05)


@dataclass(frozen=True, slots=True)
class Pod:
    """What a cluster knows of a pod: bins since the run's start; it may outlive it.

    Attributes:
        begin, end: Bins, not whole. What ran as the run began, began with it: of the days before
            nothing is told.
        boards: That it has.
        kind: ``training`` or ``batch``.
    """

    begin: float
    end: float
    boards: int
    kind: str


@dataclass(frozen=True, slots=True)
class PowerDomain:
    """One domain over ten days of history and three days of run, bins of ten minutes.

    Attributes:
        draw_watts: (HISTORY_BINS + RUN_BINS,).
        held: Bins in which caps held work back, the same shape.
        requests: A second, the same shape.
        limit_watts: Its rating.
        serving_boards: That serve.
        pod_boards: That pods come to.
        pods: Of the run, those that ran as it began included.
    """

    draw_watts: Floats
    held: NDArray[np.bool_]
    requests: Floats
    limit_watts: float
    serving_boards: int
    pod_boards: int
    pods: tuple[Pod, ...]


def domain_row(seed: int, number: int) -> dict[str, Any]:
    """One domain as JSON can hold it."""
    random = np.random.default_rng((seed, number, 0xD0A1))
    power = ServerPower.of()
    serving, requests, servers = _serving(random, power)
    pods: list[Pod] = []
    full = servers * power.rated_ac_watts
    watts = serving
    gang_servers = int(random.integers(GANG_SERVERS[0], GANG_SERVERS[1] + 1))
    batch_boards = int(random.integers(BATCH_BOARDS[0], BATCH_BOARDS[1] + 1))
    for boards, kind in ((gang_servers * GPUS_PER_SERVER, "training"), (batch_boards, "batch")):
        board_watts = _others(random, boards, kind, pods)
        hosts = -(-boards // GPUS_PER_SERVER)
        watts = watts + _ac_watts(power, board_watts, hosts)
        full += hosts * power.rated_ac_watts
    limit = full * float(random.uniform(*LIMIT_OF_FULL))
    limit = max(limit, float(np.quantile(watts, RARELY_HELD)))
    past, past_requests = _history(random, watts, requests)
    wanted = np.concatenate([past, watts])
    return {
        "draw_watts": np.minimum(wanted, HELD_RATIO * limit).round(DECIMALS).tolist(),
        "held": np.flatnonzero(wanted > HELD_RATIO * limit).tolist(),
        "requests": np.concatenate([past_requests, requests]).round(DECIMALS).tolist(),
        "limit_watts": round(limit, DECIMALS),
        "serving_boards": servers * GPUS_PER_SERVER,
        "pod_boards": gang_servers * GPUS_PER_SERVER + batch_boards,
        "pods": [[round(p.begin, 2), round(p.end, 2), p.boards, p.kind] for p in pods],
    }


def domain_of(row: dict[str, Any]) -> PowerDomain:
    """The domain of a kept row."""
    draw = np.array(row["draw_watts"])
    held = np.zeros(len(draw), dtype=np.bool_)
    held[row["held"]] = True
    pods = tuple(Pod(begin, end, boards, kind) for begin, end, boards, kind in row["pods"])
    return PowerDomain(
        draw_watts=draw,
        held=held,
        requests=np.array(row["requests"]),
        limit_watts=row["limit_watts"],
        serving_boards=row["serving_boards"],
        pod_boards=row["pod_boards"],
        pods=pods,
    )


def _serving(random: np.random.Generator, power: ServerPower) -> tuple[Floats, Floats, int]:
    """AC watts and requests a second of the serving servers, each (RUN_BINS,), and how many."""
    servers = 4 * int(random.integers(2, 6))
    lengths = LENGTHS_NAMES[int(random.integers(2))]
    frozen = frozen_calibration(lengths)
    arrivals = ClientArrivals(
        servers,
        load=frozen.load * float(random.uniform(*LOAD_RATIO)),
        burst_cv=frozen.burst_cv,
        seed=int(random.integers(2**31)),
        lengths=LENGTHS[lengths],
        days=SERVED_DAYS,
    )
    begin = float(random.integers(0, 2 * 24)) * 3600.0
    work, counts = asked(arrivals, lengths, begin, RUN_BINS)
    noise = 1.0 + SERVING_NOISE * random.standard_normal(RUN_BINS)
    watts = servers * serving_watts(work, lengths, power) * noise
    return watts, counts / BIN_SECONDS, servers


def asked(
    arrivals: ClientArrivals, lengths: LengthsName, begin_seconds: float, bins: int
) -> tuple[Floats, Floats]:
    """What requests ask of each server, in seconds of a full server a second, and their number.

    Args:
        arrivals: Of some servers.
        lengths: Of their requests.
        begin_seconds: Since Monday, midnight.
        bins: From then on.

    Returns:
        (bins,) each.
    """
    seen = arrivals.between(begin_seconds, begin_seconds + bins * BIN_SECONDS)
    where = ((seen.arrival_seconds - begin_seconds) // BIN_SECONDS).astype(np.int64)
    work = np.zeros(bins)
    for k, one in enumerate(POLCA_CLASSES):
        mine = seen.of_class == k
        prompts, outputs = seen.prompt_tokens[mine], seen.output_tokens[mine]
        size = 0.5 * (prompts / prompts.mean() + outputs / outputs.mean())
        seconds = size * saturated_seconds(one, arrivals.times, LENGTHS[lengths])
        work += np.bincount(where[mine], seconds, minlength=bins)
    counts = np.bincount(where, minlength=bins).astype(np.float64)
    return work / BIN_SECONDS / len(arrivals.class_of_server), counts


def serving_watts(work: Floats, lengths: LengthsName, power: ServerPower) -> Floats:
    """Mean AC watts of a server while each is asked for so much, (n,)."""
    idle, more, bend = SERVING_CURVE[lengths]
    return np.asarray(power.rated_ac_watts * (idle + more * (1.0 - np.exp(-work / bend))))


def _others(random: np.random.Generator, boards: int, kind: str, pods: list[Pod]) -> Floats:
    """GPU watts of training or batch boards, (RUN_BINS,); their pods are appended."""
    watts = np.full(RUN_BINS, boards * IDLE_BOARD_RATIO * TDP_WATTS)
    each = 1 if kind == "batch" else boards
    lanes = boards // each if boards else 0
    median, spread = BATCH_HOURS if kind == "batch" else GANG_HOURS
    gap = BATCH_GAP_HOURS if kind == "batch" else GANG_GAP_HOURS
    low, high = BATCH_DRAW if kind == "batch" else GANG_DRAW
    for _ in range(lanes):
        # Long before the run, so that jobs are under way as it begins.
        now = -24.0 * random.random() - 24.0
        while now < RUN_BINS / 6.0:
            now += random.exponential(gap)
            hours = median * float(np.exp(spread * random.standard_normal()))
            taken = GPUS_PER_SERVER * int(random.integers(1, each // GPUS_PER_SERVER + 1)) \
                if kind == "training" else 1  # fmt: skip
            begin, end = 6.0 * now, 6.0 * (now + hours)
            level = float(random.uniform(low, high)) - IDLE_BOARD_RATIO
            if end > 0 and begin < RUN_BINS:
                watts += taken * level * TDP_WATTS * _overlap(begin, end)
                pods.append(Pod(max(0.0, begin), end, taken, kind))
            now += hours
    return watts


def _overlap(begin: float, end: float) -> Floats:
    """Share of each bin between two times, (RUN_BINS,)."""
    edges = np.arange(RUN_BINS + 1.0)
    return np.diff(np.clip(edges, begin, end))


def _ac_watts(power: ServerPower, board_watts: Floats, servers: int) -> Floats:
    """AC watts of servers with settled fans, (n,)."""
    if servers == 0:
        return np.zeros(len(board_watts))
    plant, each = power.plant, board_watts / servers
    heat = np.minimum(1.0, each / plant.fan_full_gpu_watts)
    host = plant.host_base_watts + plant.fan_range_watts * heat**plant.fan_exponent
    total = each * (1.0 + plant.host_watts_per_gpu_watt) + host
    return np.asarray(servers * total / plant.supply_efficiency)


def _history(random: np.random.Generator, watts: Floats, requests: Floats) -> tuple[Floats, Floats]:
    """Earlier days that do not resemble the run: watts and requests a second, (HISTORY_BINS,)."""
    mean = float(watts.mean()) * float(np.exp(HISTORY_LEVEL_SPREAD * random.standard_normal()))
    hours = np.arange(-HISTORY_BINS, 0) / 6.0
    peak = HISTORY_PEAK_HOURS * random.standard_normal() + 24.0 * random.random()
    trough, noise = random.uniform(*HISTORY_TROUGH), random.uniform(*HISTORY_NOISE)
    wave = 0.5 + 0.5 * np.cos(2.0 * np.pi * (hours - peak) / 24.0)
    raw = np.convolve(random.standard_normal(HISTORY_BINS + 5), np.full(6, 6**-0.5), "valid")
    shape = (trough + (1.0 - trough) * wave) * np.maximum(0.1, 1.0 + noise * raw)
    past = mean * shape / shape.mean()
    asked = float(requests.mean()) * float(np.exp(HISTORY_LEVEL_SPREAD * random.standard_normal()))
    return past, np.maximum(0.0, asked * (1.0 + 2.0 * (shape / shape.mean() - 1.0)))
