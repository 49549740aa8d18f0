"""Compiled levels and sums against their forms in numpy, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from controller import filling_levels
from controller.allocation import Limit, allocate
from controller.filling_levels import Held, Ways, lower_by_arrays
from tests.controller.builders import make_topology
from tests.controller.test_allocation import make_load, make_wants
from wattpack.compiled import AVAILABLE
from wattpack.power import feasibility
from wattpack.power.compiled_sums import sums_below, sums_below_some
from wattpack.power.feasibility import sums_by_arrays

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="numba is not there")

STATES = 300


def random_ways(rng: np.random.Generator) -> Ways:
    """Some movers below two depths of domains, some below none, some rooms closed or overdrawn."""
    n_movers, n_domains = int(rng.integers(1, 400)), int(rng.integers(1, 12))
    above = rng.integers(0, n_domains + 1, (2, n_movers))
    span = rng.uniform(1e-3, 500.0, n_movers)
    bends = [rng.choice([0.0, 0.25, 1.0, rng.random()], n_movers) for _ in range(2)]
    bends[0] = np.where(rng.random(n_movers) < 0.5, bends[0], rng.random(n_movers))
    most = span.sum() / n_domains
    rooms = [np.append(rng.uniform(-0.2, 1.2, n_domains) * most, np.inf) for _ in range(2)]
    for room in rooms:
        room[:-1][rng.random(n_domains) < 0.2] = rng.choice([-1.0, 0.0])
    return Ways(above, span, bends, rooms)


@pytest.mark.parametrize("alone", [False, True])
def test_compiled_levels_are_those_of_numpy(alone: bool) -> None:
    rng, held_back = np.random.default_rng(1), 0
    for _ in range(STATES):
        ways = random_ways(rng)
        plain, plain_domains = Held.free(len(ways.span)), np.ones(len(ways.rooms[0]))
        lower_by_arrays(ways, plain, plain_domains, alone=alone)
        made, made_domains = filling_levels._lowered(ways, alone=alone)
        for name in ("level", "domain", "kind"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(made, name), name)
        np.testing.assert_array_equal(plain_domains, made_domains)
        held_back += int((plain.level < 1.0).sum())
    assert held_back > STATES


def test_compiled_sums_are_those_of_numpy() -> None:
    rng = np.random.default_rng(2)
    for _ in range(STATES):
        n, n_domains, depths = (int(rng.integers(0, most)) for most in (300, 20, 4))
        bins = rng.integers(0, n_domains + 1, (depths, n))
        values, above_all = rng.uniform(-9.0, 700.0, n), np.arange(n_domains)[:2]
        plain = sums_by_arrays(bins, values, above_all, n_domains)
        np.testing.assert_array_equal(plain, sums_below(bins, values, above_all, n_domains))
        (some,) = (rng.random(n) < 0.4).nonzero()
        plain = sums_by_arrays(bins.take(some, axis=1), values[some], above_all, n_domains)
        made = sums_below_some(bins, some, values[some], above_all, n_domains)
        np.testing.assert_array_equal(plain, made)


def test_a_value_too_few_is_refused_by_the_compiled_sums_too() -> None:
    bins, nobody = np.zeros((1, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
    with pytest.raises(ValueError, match="value"):
        sums_below(bins, np.ones(2), nobody, 1)
    with pytest.raises(ValueError, match="value"):
        sums_below_some(bins, np.arange(2), np.ones(1), nobody, 1)


def test_caps_are_the_same_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = [0, -1, -1, 1, 1, 0, -1, -1, 0, -1, 1, -1]
    topology = make_topology(parents=(-1, 0, 0, 0), nodes=(1, 2, 3), gang=gang)
    rng, load = np.random.default_rng(3), make_load(topology)
    for _ in range(STATES):
        room = rng.uniform(1500.0, 2600.0, 4) * load.gpu_factor
        limits = (Limit(room, None), Limit(0.9 * room, rng.uniform(100.0, 800.0, 12)))
        wants = make_wants(topology)
        compiled = allocate(load, wants, *limits)
        with monkeypatch.context() as patch:
            for module in (filling_levels, feasibility):
                patch.setattr(module, "AVAILABLE", False)
            plain = allocate(load, wants, *limits)
        for name in ("cap_watts", "binding_domain", "binding_limit"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(compiled, name), name)
