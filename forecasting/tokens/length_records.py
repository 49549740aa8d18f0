"""How long the requests of each client were lately: mean, second moment and p99, with a half-life.

The mean alone says what tokens are spent on average; how far a minute can stray from it is said by
the second moment, and what a single request can hold of a cache by the p99.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.units import require_number

HALF_LIFE_SECONDS: Final = 6 * 3600
"""Lengths follow what a client does, which changes within a day (design advice of the issue)."""

LONGEST: Final = 1 << 24
"""Tokens; beyond any context there is."""

BINS_PER_DOUBLING: Final = 16
"""A bin is 4.4 % wide: a p99 is known to half of that."""

_BINS: Final = 24 * BINS_PER_DOUBLING + 1


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    """Of each client, shape (n_clients,); NaN where nothing was ever seen.

    Attributes:
        mean: Tokens.
        second_moment: Mean of the squared length.
        p99: Tokens that one request in a hundred exceeds.
        weight: Requests behind it, older ones counted less.
    """

    mean: Floats
    second_moment: Floats
    p99: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class LengthRecord:
    """What is known of the clients' lengths: a value, renewed by ``after``.

    Attributes:
        clients: Names, in the order of the first axis.
        counts: Decayed requests by client and length, shape (n_clients, bins).
        sums: Decayed sums of length and squared length, shape (n_clients, 2).
        at_seconds: Time that the decay was reckoned to.
    """

    clients: tuple[str, ...]
    counts: Floats
    sums: Floats
    at_seconds: float

    @classmethod
    def new(cls, clients: tuple[str, ...], at_seconds: float) -> Self:
        """Nothing seen yet."""
        shape = len(clients)
        return cls(clients, np.zeros((shape, _BINS)), np.zeros((shape, 2)), at_seconds)

    def after(self, at_seconds: float, client: np.ndarray, tokens: Floats) -> LengthRecord:
        """The record with requests that ended by ``at_seconds``; older ones lost weight.

        Args:
            at_seconds: Unix time, not before the record's.
            client: Place of each request's client, shape (n,).
            tokens: Its length, shape (n,), 0 to ``LONGEST``.

        Raises:
            InputError: a time that goes back, a client that is none, a length that is none.
        """
        require_number("atSeconds", at_seconds, minimum=self.at_seconds)
        who, lengths = np.asarray(client), np.asarray(tokens, dtype=np.float64)
        if who.shape != lengths.shape or who.ndim != 1:
            raise InputError("tokens", f"one length a request, {who.shape}", lengths.shape)
        if len(who) and not (who.min() >= 0 and who.max() < len(self.clients)):
            raise InputError("client", f"0 to {len(self.clients) - 1}", (who.min(), who.max()))
        if not np.all((lengths >= 0) & (lengths <= LONGEST)):
            raise InputError("tokens", f"lengths from 0 to {LONGEST}", lengths[:5].tolist())
        left = 0.5 ** ((at_seconds - self.at_seconds) / HALF_LIFE_SECONDS)
        counts, sums = self.counts * left, self.sums * left
        np.add.at(counts, (who, _bins(lengths)), 1.0)
        np.add.at(sums, who, np.stack([lengths, lengths**2], axis=1))
        return replace(self, counts=counts, sums=sums, at_seconds=at_seconds)

    def statistics(self) -> LengthStatistics:
        """Of every client."""
        weight = self.counts.sum(axis=1)
        seen = weight > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            moments = np.where(seen[:, None], self.sums / weight[:, None], np.nan)
        reached = np.cumsum(self.counts, axis=1) >= 0.99 * weight[:, None] * (1 - 1e-12)
        p99 = np.where(seen, _EDGES[np.argmax(reached, axis=1)], np.nan)
        return LengthStatistics(moments[:, 0], moments[:, 1], p99, weight)


def _bins(lengths: Floats) -> np.ndarray:
    """0 for nothing, then 16 bins a doubling."""
    places = 1 + np.floor(np.log2(np.maximum(lengths, 1.0)) * BINS_PER_DOUBLING).astype(np.intp)
    result: np.ndarray = np.where(lengths < 1, 0, np.minimum(places, _BINS - 1))
    return result


_EDGES: Final = np.concatenate([[0.0], np.exp2((np.arange(1, _BINS) - 0.5) / BINS_PER_DOUBLING)])
"""Geometric middle of each bin, tokens."""
