"""When requests come: many clients, each with a rate, a burstiness and moods of its own.

As ServeGen (Alibaba, Apache-2.0) describes production streams: a few clients carry most of the
load, single clients are burstier than a Poisson process, their rates wander over tens of minutes,
and chat comes in conversations. A stream is never another one's copy. What ServeGen's data tell is
measured (``RATE_SPREAD``, ``WANDER_SPREAD``); how bursty the requests of one client are and how
high the load is, ``row_calibration`` has fitted to the published row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from capacity.phase_times import ServerTimes, bloom_on_a100
from simulation.inference_row.request_classes import (
    POLCA_CLASSES,
    RequestClass,
    class_of_servers,
)
from simulation.inference_row.request_lengths import PUBLISHED, RequestLengths
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DAY_SECONDS = 86_400.0
BIN_SECONDS = 600.0
BINS_PER_DAY = 144

CLIENTS_PER_SERVER = 4
"""Assumed: some 40 clients a class at 40 servers; ServeGen's m-small has 43."""

RATE_SPREAD = 1.8
"""Standard deviation of the logarithm of clients' rates: the largest of 43 then carries about
three tenths, as in ServeGen's m-small (0.30; benchmarks/data/forecasting)."""

WANDER_SPREAD = 0.5
"""Standard deviation of the logarithm of a client's ten-minute rate around its day. ServeGen's
m-small: a coefficient of variation of 0.16 to 1.17, median 0.57, with the day in it."""

WANDER_SECONDS = 3600.0
"""Time constant with which a client's rate wanders. Assumed."""

TROUGH_RATIO = 1.0 / 3.3
"""Night's rate over the day's peak: DynamoLLM (HPCA 2025), chat trace, read second-hand."""

PEAK_HOUR = 14.0
WEEKEND_RATIO = 0.8
"""Rate on days 5 and 6 of a week over that of other days. Assumed."""

SPARE_SERVERS = 0.25
"""Servers of a class in use beyond what the hour's rate needs at the peak's load of each; the rest
idle, models loaded. Assumed; that instances follow the load is how DynamoLLM (HPCA 2025) runs."""

TURNS_MEAN = 3.0
THINK_SECONDS_MEDIAN = 60.0
THINK_SPREAD = 1.0
"""Conversations: turns are geometric, pauses lognormal. Assumed; ServeGen has such clients."""


@dataclass(frozen=True, slots=True)
class RowRequests:
    """Requests of all classes in order of arrival, each (n,).

    Attributes:
        arrival_seconds: Since Monday, midnight.
        of_class: Position in the classes.
        prompt_tokens: At least one.
        output_tokens: At least two, so that there is a time between tokens.
        server: That answers it.
    """

    arrival_seconds: Floats
    of_class: Integers
    prompt_tokens: Floats
    output_tokens: Floats
    server: Integers

    def __len__(self) -> int:
        return len(self.arrival_seconds)

    @classmethod
    def in_order(cls, parts: Sequence[tuple[Floats, ...]]) -> RowRequests:
        """Parts' requests, each part of the columns above, together in order of arrival."""
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        arrival, of_class, prompt, output, server = columns
        order = np.argsort(arrival, kind="stable")
        return cls(
            arrival[order],
            of_class[order].astype(np.int64),
            prompt[order],
            output[order],
            server[order].astype(np.int64),
        )


def day_shape(seconds: Floats) -> Floats:
    """Rate over the weekday's peak at times since Monday, midnight, (n,)."""
    hour = seconds / 3600.0
    wave = 0.5 + 0.5 * np.cos((hour - PEAK_HOUR) / 24.0 * 2.0 * np.pi)
    weekend = np.where(np.floor(hour / 24.0) % 7 >= 5, WEEKEND_RATIO, 1.0)
    return np.asarray((TROUGH_RATIO + (1.0 - TROUGH_RATIO) * wave) * weekend, dtype=np.float64)


def servers_in_use(n_servers: int, seconds: Floats) -> Integers:
    """How many of a class's servers get requests at times since Monday, midnight, (n,)."""
    share = np.minimum(1.0, (1.0 + SPARE_SERVERS) * day_shape(seconds))
    return np.asarray(np.ceil(n_servers * share), dtype=np.int64)


def saturated_seconds(
    one: RequestClass, times: ServerTimes | None = None, lengths: RequestLengths = PUBLISHED
) -> float:
    """Server seconds of a mean request on a full server: what load 1 means."""
    times, k = times or bloom_on_a100(), POLCA_CLASSES.index(one)
    prompts, output = lengths.prompts(k), lengths.mean_output(k)
    tokens = float(prompts.mean()) + output
    fits = int(np.clip(times.kv_tokens // tokens, 1, times.max_batch))
    batch = np.array([fits], dtype=np.int64)
    context = np.array([float(batch[0]) * (tokens - output / 2.0)])
    per_token = times.seconds_of_token(batch, context) / batch
    return float(times.seconds_of_prompt(prompts).mean() + output * per_token[0])


class ClientArrivals:
    """The requests of a row; the same arguments give the same requests, in any windows.

    Args:
        n_servers: Of the row; clients grow with them, so a larger row has more of them, not
            larger ones.
        load: Rate at the weekday's peak over what full servers can answer.
        burst_cv: Coefficient of variation of the gaps between a client's requests (or, in chat,
            conversations); 1 is a Poisson process.
        seed: Of clients and requests.
        days: Days that may be asked for.
        times: What a server takes and draws.
        lengths: Of prompts and answers.
    """

    def __init__(  # noqa: PLR0913 - what a row of requests is
        self,
        n_servers: int,
        *,
        load: float,
        burst_cv: float,
        seed: int,
        days: int = 42,
        times: ServerTimes | None = None,
        lengths: RequestLengths = PUBLISHED,
    ) -> None:
        self.times, self._lengths = times or bloom_on_a100(), lengths
        if not load > 0:
            raise InputError("load", "a rate above 0 of what full servers answer", load)
        if not burst_cv > 0:
            raise InputError("burst_cv", "a coefficient of variation above 0", burst_cv)
        self._burst_cv, self._seed, self._days = burst_cv, seed, days
        self.class_of_server = class_of_servers(n_servers)
        middle = (np.arange(days * BINS_PER_DAY, dtype=np.float64) + 0.5) * BIN_SECONDS
        shape = day_shape(middle)
        self._rates = [
            self._client_rates(k, load, shape) for k in range(len(POLCA_CLASSES))
        ]  # requests per second, (clients, bins)

    def _client_rates(self, k: int, load: float, shape: Floats) -> Floats:
        rng = np.random.default_rng([self._seed, 1, k])
        servers = int(np.count_nonzero(self.class_of_server == k))
        clients = CLIENTS_PER_SERVER * servers
        share = np.exp(RATE_SPREAD * rng.standard_normal(clients))
        share = share / share.sum()
        keep = np.exp(-BIN_SECONDS / WANDER_SECONDS)
        noise = rng.standard_normal((clients, len(shape))) * np.sqrt(1.0 - keep**2)
        start = rng.standard_normal((clients, 1))
        wander, _ = lfilter([1.0], [1.0, -keep], noise, axis=1, zi=keep * start)
        mood = np.exp(WANDER_SPREAD * wander - 0.5 * WANDER_SPREAD**2)
        peak = load * servers / saturated_seconds(POLCA_CLASSES[k], self.times, self._lengths)
        return np.asarray(peak * share[:, None] * shape * mood, dtype=np.float64)

    def expected_seconds(self, begin_seconds: float, end_seconds: float) -> float:
        """Server seconds of full servers that clients' rates ask for on average in a time.

        Raises:
            InputError: for times outside the days.
        """
        self._within_days(begin_seconds, end_seconds)
        edges = np.arange(self._days * BINS_PER_DAY + 1) * BIN_SECONDS
        inside = np.diff(np.clip(edges, begin_seconds, end_seconds))
        times, lengths = self.times, self._lengths
        return sum(
            float((rates.sum(axis=0) * inside).sum()) * saturated_seconds(one, times, lengths)
            for rates, one in zip(self._rates, POLCA_CLASSES, strict=True)
        )

    def _within_days(self, begin_seconds: float, end_seconds: float) -> None:
        if not 0 <= begin_seconds < end_seconds <= self._days * DAY_SECONDS:
            raise InputError(
                "begin_seconds, end_seconds", f"times within {self._days} days", begin_seconds
            )

    def between(self, begin_seconds: float, end_seconds: float) -> RowRequests:
        """Requests that arrive in [begin, end), dealt in turn to the servers in use of their class.

        Raises:
            InputError: for times outside the days.
        """
        self._within_days(begin_seconds, end_seconds)
        first = max(0, int(begin_seconds // DAY_SECONDS) - 1)
        last = int(np.ceil(end_seconds / DAY_SECONDS))
        parts = [
            self._class_requests(k, range(first, last), begin_seconds, end_seconds)
            for k in range(len(POLCA_CLASSES))
        ]
        return RowRequests.in_order(parts)

    def _class_requests(
        self, k: int, days: range, begin_seconds: float, end_seconds: float
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        drawn = []
        for day in days:
            rng = np.random.default_rng([self._seed, 2, k, day])
            times = self._day_times(k, day, rng)
            prompt, output = self._lengths.drawn(k, len(times), rng)
            drawn.append(np.stack([times, prompt, output]))
        times, prompt, output = np.concatenate(drawn, axis=1)
        inside = np.flatnonzero((times >= begin_seconds) & (times < end_seconds))
        order = inside[np.argsort(times[inside], kind="stable")]
        mine = np.flatnonzero(self.class_of_server == k)
        arrival = times[order]
        turn = np.arange(len(order)) % servers_in_use(len(mine), arrival)
        server = mine[turn].astype(np.float64)
        return arrival, np.full(len(order), float(k)), prompt[order], output[order], server

    def _day_times(self, k: int, day: int, rng: np.random.Generator) -> Floats:
        """Times of one class and day in no order; follow-ups may fall into the next day."""
        chat = POLCA_CLASSES[k].name.startswith("chat")
        per_session = TURNS_MEAN if chat else 1.0
        bins = self._rates[k][:, day * BINS_PER_DAY : (day + 1) * BINS_PER_DAY] / per_session
        expected = np.concatenate(
            [np.zeros((len(bins), 1)), np.cumsum(bins * BIN_SECONDS, axis=1)], axis=1
        )
        edges = day * DAY_SECONDS + BIN_SECONDS * np.arange(BINS_PER_DAY + 1, dtype=np.float64)
        times = [self._renewals(total, edges, rng) for total in expected]
        starts = np.concatenate(times)
        return _with_follow_ups(starts, rng) if chat else starts

    def _renewals(self, expected: Floats, edges: Floats, rng: np.random.Generator) -> Floats:
        """A gamma process run at a changing rate: ``expected`` arrivals until each edge."""
        shape = 1.0 / self._burst_cv**2
        total = expected[-1]
        spare = int(total + 6.0 * (1.0 + self._burst_cv) * np.sqrt(total + 1.0)) + 20
        gaps = rng.gamma(shape, 1.0 / shape, spare)
        # A day begins somewhere in a gap, in a long one more likely than in a short one; without
        # that all clients' bursts would come at midnight.
        first = rng.gamma(shape + 1.0, 1.0 / shape) * rng.random()
        at = np.cumsum(gaps) - gaps[0] + first
        return np.asarray(np.interp(at[at < total], expected, edges), dtype=np.float64)


def _with_follow_ups(starts: Floats, rng: np.random.Generator) -> Floats:
    turns = rng.geometric(1.0 / TURNS_MEAN, len(starts))
    pauses = THINK_SECONDS_MEDIAN * np.exp(THINK_SPREAD * rng.standard_normal(int(turns.sum())))
    first = np.cumsum(turns) - turns
    pauses[first] = 0.0
    since = np.cumsum(pauses)
    return np.asarray(np.repeat(starts - since[first], turns) + since, dtype=np.float64)
