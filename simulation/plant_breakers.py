"""Breakers and meters of the plant, written without a look at the controller's own model.

A breaker is a thermal accumulator: above its rating it heats by 1 / t_trip(r) a second and opens at
1; below it cools exponentially. At its magnetic pick-up it opens at once.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from simulation.row_settings import MeterSettings
from simulation.trip_bands import TripBands
from wattpack.units import NS_PER_SECOND, seconds_to_ns

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Breakers:
    """One breaker a feed and domain; the feeds that are left carry the load in equal parts.

    Args:
        rating_watts: What a domain's required feeds carry together, (n,).
        bands: Times to trip, drawn for the run.
        cooling_seconds: Time constant of cooling.
        magnetic_ratio: Load over rating that opens at once.
        feeds: Feeds of every domain.
        required_feeds: As many carry ``rating_watts``; each one's breaker is rated an equal part.
    """

    def __init__(
        self,
        rating_watts: Floats,
        bands: TripBands,
        *,
        cooling_seconds: float,
        magnetic_ratio: float,
        feeds: int = 1,
        required_feeds: int = 1,
    ) -> None:
        n = len(rating_watts)
        self.rating_watts = rating_watts
        self._bands = bands
        self._cooling_seconds = cooling_seconds
        self._magnetic_ratio = magnetic_ratio
        self._feeds, self._feed_watts = feeds, rating_watts / required_feeds
        self.lost_feeds = np.zeros(n, dtype=np.int64)
        self.ratio = np.zeros(n)  # load over rating in the last step
        self.heat = np.zeros(n)
        self.tripped: Bools = np.zeros(n, dtype=np.bool_)
        self.max_heat = np.zeros(n)
        self.peak_ratio = np.zeros(n)
        self.seconds_above_rating = np.zeros(n)

    def reset_peaks(self) -> None:
        """Begin the records of heat, load and time above rating anew; heat itself stays."""
        self.max_heat = self.heat.copy()
        self.peak_ratio = np.zeros(len(self.heat))
        self.seconds_above_rating = np.zeros(len(self.heat))

    def busiest_share(self) -> Floats:
        """What one of the feeds that are left carries of each domain's load, (n,)."""
        return 1.0 / np.maximum(1, self._feeds - self.lost_feeds)

    def load_ratio(self, watts: Floats) -> Floats:
        """Load of the busiest feed over its rating, (n,)."""
        feeds = np.maximum(1, self._feeds - self.lost_feeds)
        return np.asarray(watts / feeds / self._feed_watts, dtype=np.float64)

    def earliest_seconds(self, ratio: Floats) -> Floats:
        """Time to trip at the lower edge of the band, whatever was drawn, (n,)."""
        return self._bands.earliest_seconds(ratio)

    def advance(self, watts: Floats, seconds: float) -> Bools:
        """Carry a load for a time; which breakers opened in it, (n,)."""
        self.ratio = ratio = self.load_ratio(watts)
        over = ratio > 1.0
        cooled = np.exp(-seconds / self._cooling_seconds)
        if not over.any():
            self.heat = self.heat * cooled
        else:
            self.heat = self.heat * np.where(over, 1.0, cooled)
            self.heat = self.heat + seconds / self._bands.seconds_to_trip(ratio)
            self.seconds_above_rating += np.where(over, seconds, 0.0)
        self.max_heat = np.maximum(self.max_heat, self.heat)
        self.peak_ratio = np.maximum(self.peak_ratio, ratio)
        opens = ~self.tripped & ((self.heat >= 1.0) | (ratio >= self._magnetic_ratio))
        self.tripped = self.tripped | opens
        return opens


class Meters:
    """Power meters at breakers or in servers: means over each period, late, noisy, with gaps.

    Args:
        settings: Period, delay, resolution, noise and gaps.
        n_meters: Their number.
        generator: Of noise and gaps.
        start_ns: First instant.

    Attributes:
        silent: Those that measure nothing now, (n_meters,).
        stuck: Those that say again what they said last, as if it were new, (n_meters,).
        watts: Newest delivered readings, NaN before the first, (n_meters,).
        time_ns: When each was measured, -1 before the first, (n_meters,).
    """

    def __init__(
        self,
        settings: MeterSettings,
        n_meters: int,
        generator: np.random.Generator,
        start_ns: int = 0,
    ) -> None:
        self._settings = settings
        self._generator = generator
        self._period_ns = seconds_to_ns(settings.period_seconds)
        self._delay_ns = seconds_to_ns(settings.delay_seconds)
        self._begin_ns = start_ns
        self._joules = np.zeros(n_meters)
        self._on_the_way: deque[tuple[int, int, Floats]] = deque()
        self.silent: Bools = np.zeros(n_meters, dtype=np.bool_)
        self.stuck: Bools = np.zeros(n_meters, dtype=np.bool_)
        self._measured = np.full(n_meters, np.nan)
        self.watts = np.full(n_meters, np.nan)
        self.time_ns = np.full(n_meters, -1, dtype=np.int64)

    @property
    def delivered_ns(self) -> Integers:
        """When each reading was delivered, -1 before the first: a scrape's stamp, (n_meters,)."""
        return np.asarray(np.where(self.time_ns < 0, -1, self.time_ns + self._delay_ns))

    def advance(self, watts: Floats, begin_ns: int, end_ns: int) -> None:
        """Take in a step's mean load and deliver what has arrived, (n,)."""
        self._joules += watts * ((end_ns - begin_ns) / NS_PER_SECOND)
        if end_ns - self._begin_ns >= self._period_ns:
            self._measure(end_ns)
        while self._on_the_way and self._on_the_way[0][0] <= end_ns:
            _, taken_ns, reading = self._on_the_way.popleft()
            known = np.isfinite(reading)
            self.watts[known] = reading[known]
            self.time_ns[known] = taken_ns

    def _measure(self, now_ns: int) -> None:
        mean = self._joules / ((now_ns - self._begin_ns) / NS_PER_SECOND)
        n = len(mean)
        noise = 1.0 + self._settings.noise_ratio * self._generator.standard_normal(n)
        lost = (self._generator.random(n) < self._settings.gap_probability) | self.silent
        reading = np.where(lost, np.nan, mean * noise)
        step = self._settings.resolution_watts
        if step > 0.0:
            reading = np.round(reading / step) * step
        if self.stuck.any():
            reading = np.where(self.stuck & ~lost, self._measured, reading)
        self._measured = np.where(np.isnan(reading), self._measured, reading)
        self._on_the_way.append((now_ns + self._delay_ns, now_ns, reading))
        self._joules = np.zeros(n)
        self._begin_ns = now_ns
