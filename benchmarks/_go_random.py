"""Go's ``math/rand`` of a seeded source, to the last bit: published samples were drawn with it.

An additive lagged Fibonacci generator, x[n] = x[n - 607] + x[n - 273] modulo 2^64 (D. P. Mitchell
and J. A. Reeds). Go mixes each seed with the state that the generator has after 7.8e12 steps from
seed 1; that state is reached here by powers of the recurrence's polynomial instead of a table.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from functools import cache
from typing import Any, Final

import numpy as np

LAG: Final = 607
SHORT_LAG: Final = 273
_STEPS: Final = 7_800_000_000_000
_WORD: Final = 2**64
_MODULUS: Final = 2**31 - 1
_ZERO_SEED: Final = 89_482_311


class GoRandom:
    """One source of ``rand.New(rand.NewSource(seed))``, or the global one after ``rand.Seed``."""

    def __init__(self, seed: int) -> None:
        mixed = zip(_words(seed, (40, 20, 0)), _far_state(), strict=True)
        self._state = [word ^ far for word, far in mixed]
        self._tap = 0
        self._feed = LAG - SHORT_LAG

    def int63(self) -> int:
        """``Int63``; ``Int`` is the same on 64 bits."""
        self._tap = (self._tap - 1) % LAG
        self._feed = (self._feed - 1) % LAG
        drawn = (self._state[self._feed] + self._state[self._tap]) % _WORD
        self._state[self._feed] = drawn
        return drawn & (2**63 - 1)

    def below(self, bound: int) -> int:
        """``Intn`` of a bound below 2^31."""
        if bound & (bound - 1) == 0:
            return (self.int63() >> 32) & (bound - 1)
        highest = 2**31 - 1 - 2**31 % bound
        drawn = self.int63() >> 32
        while drawn > highest:
            drawn = self.int63() >> 32
        return drawn % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """``Shuffle``, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = self._below_by_product(last + 1)
            items[last], items[other] = items[other], items[last]

    def permutation(self, length: int) -> list[int]:
        """``Perm``."""
        made = [0] * length
        for i in range(length):
            j = self.below(i + 1)
            made[i] = made[j]
            made[j] = i
        return made

    def _below_by_product(self, bound: int) -> int:
        """What ``Shuffle`` draws with (D. Lemire, ACM TOMACS 29, 2019), not what ``Intn`` does."""
        product = (self.int63() >> 31) * bound
        if product % 2**32 < bound:
            while product % 2**32 < (2**32 - bound) % bound:
                product = (self.int63() >> 31) * bound
        return product >> 32


def _words(seed: int, shifts: tuple[int, ...]) -> list[int]:
    """Words of the state, each of as many numbers of a congruential generator as shifts."""
    seed %= _MODULUS
    number = seed or _ZERO_SEED
    for _ in range(20):
        number = number * 48_271 % _MODULUS
    words = []
    for _ in range(LAG):
        word = 0
        for shift in shifts:
            number = number * 48_271 % _MODULUS
            word ^= number << shift
        words.append(word % _WORD)
    return words


@cache
def _far_state() -> tuple[int, ...]:
    """State after ``_STEPS`` steps from seed 1: t^steps modulo t^607 - t^334 - 1."""
    start = _words(1, (20, 10, 0))
    # Values in the order in which they are drawn, and as many drawn after them.
    drawn = [start[(LAG - SHORT_LAG - n) % LAG] for n in range(1, LAG + 1)]
    for i in range(LAG):
        drawn.append((drawn[i] + drawn[i + LAG - SHORT_LAG]) % _WORD)
    values = np.array(drawn, dtype=np.uint64)
    power = np.zeros(LAG, dtype=np.uint64)
    power[0] = 1
    for bit in f"{_STEPS:b}":
        product = np.convolve(power, power)
        if bit == "1":
            product = np.concatenate((np.zeros(1, dtype=np.uint64), product))
        for high in range(len(product), LAG, -SHORT_LAG):
            low = max(LAG, high - SHORT_LAG)
            top = product[low:high].copy()
            product[low - SHORT_LAG : high - SHORT_LAG] += top
            product[low - LAG : high - LAG] += top
        power = product[:LAG]
    state = [0] * LAG
    for i in range(LAG):
        step = _STEPS - LAG + 1 + i
        place = (LAG - SHORT_LAG - step) % LAG
        state[place] = int((power * values[i : i + LAG]).sum(dtype=np.uint64))
    return tuple(state)
