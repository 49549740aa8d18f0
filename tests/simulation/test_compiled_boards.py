"""Compiled boards against the numpy form, to the last bit, through all that can befall a board."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.simulated.board_arrays import BoardBank, BoardSpec, WriteDelays
from gpu.simulated.board_spec import PowerSensor
from simulation.capping_boards import CappingRegulation, row_loops
from simulation.compiled_boards import CompiledBank
from wattpack.compiled import AVAILABLE
from wattpack.errors import InputError
from wattpack.units import GpuUuid, NodeName

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="numba is not there")

NODES, EACH, IDLE = 5, 4, 76.0
BOARDS = NODES * EACH
WINDOWS = 1500
LENGTHS_NS = (250_000_000, 250_000_000, 100_000_000, 1_000_000_000, 37_000_001, 10_000_000_000)
STATE = (
    "drawn_watts", "shed_watts", "demand_watts", "counted_joules", "energy_joules", "limit_watts",
    "_acting_lock_mhz", "_instant_watts",
)  # fmt: skip


def specs() -> list[BoardSpec]:
    return [
        BoardSpec(GpuUuid(f"GPU-{i}"), "NVIDIA H200", NodeName(f"n{i // EACH}"), i % EACH, IDLE,
                  700.0, 200.0, 700.0, 1980, knee_watts=450.0 if i % 3 else 0.0,
                  sensor=tuple(PowerSensor)[i % 3])
        for i in range(BOARDS)
    ]  # fmt: skip


def made(kind: type[BoardBank], seed: int) -> BoardBank:
    generator = np.random.default_rng(seed)
    loops = row_loops(["H200-SXM", "H100-SXM"] * (BOARDS // 2), generator)
    delays = WriteDelays(generator.uniform(0.0, 1.0, BOARDS), 0.3)
    regulation = CappingRegulation(loops, np.full(BOARDS, IDLE))
    return kind(specs(), seed=generator, start_ns=7, regulation=regulation, delays=delays)


def befall(bank: BoardBank, generator: np.random.Generator) -> None:
    """One of the things that can happen between two steps; most often nothing."""
    what, some = generator.integers(0, 24), generator.random(BOARDS) < 0.3
    if what < 4:
        bank.set_limits(generator.choice([200.0, 350.0, 500.0, 700.0], BOARDS), some)
    elif what == 4:
        bank.lock_max_mhz[some] = generator.choice([0.0, 1100.0, 1980.0])
    elif what == 5:
        bank.ignores_cap = some
    elif what == 6:
        bank.sensor_gain = np.where(some, 0.96, bank.sensor_gain)
    elif what == 7:
        bank.silent_writes, bank.hung = some, ~some
    elif what == 8:
        bank.lost[:] = some & (generator.random() < 0.5)
    elif what == 9:
        bank.reload_driver(NodeName("n2"))
    elif what == 10:
        bank.reboot(NodeName(f"n{generator.integers(0, NODES)}"))
    elif what == 11:
        bank.ignores_cap = np.zeros(BOARDS, dtype=np.bool_)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_compiled_boards_are_the_boards(seed: int) -> None:
    plain, compiled = (made(kind, seed) for kind in (BoardBank, CompiledBank))
    chance = [np.random.default_rng((seed, 1)) for _ in range(2)]
    demands = np.random.default_rng((seed, 2))
    level, held, turned = np.full(BOARDS, 300.0), 0, 0
    for window in range(WINDOWS):
        for bank, generator in zip((plain, compiled), chance, strict=True):
            befall(bank, generator)
        if demands.random() < 0.3:
            level = demands.choice([0.0, IDLE, 400.0, 735.0, 900.0], BOARDS)
        demand = level * demands.uniform(0.97, 1.03, BOARDS)
        now_ns = plain.now_ns + LENGTHS_NS[demands.integers(0, len(LENGTHS_NS))]
        for bank in (plain, compiled):
            bank.advance(demand, now_ns)
        for name in STATE:
            np.testing.assert_array_equal(
                getattr(plain, name), getattr(compiled, name), f"{name} in window {window}"
            )
        np.testing.assert_array_equal(plain.sensed_draw_watts(), compiled.sensed_draw_watts())
        np.testing.assert_array_equal(
            plain.sensed_instant_draw_watts(), compiled.sensed_instant_draw_watts()
        )
        held += int((plain.shed_watts > 0.0).sum())
        turned += int(((plain.shed_watts > 0.0) & (plain.shed_watts < 1.0)).sum())
    assert held > WINDOWS
    assert turned > 0


@pytest.mark.parametrize("wrong", [np.full(BOARDS, np.nan), np.full(BOARDS, -1.0), np.zeros(3)])
def test_compiled_boards_refuse_what_boards_refuse(wrong: np.ndarray) -> None:
    bank = made(CompiledBank, 1)
    before = bank.demand_watts.copy()
    with pytest.raises(InputError, match="demand_watts"):
        bank.advance(wrong, 1_000_000_000)
    np.testing.assert_array_equal(bank.demand_watts, before)
    assert bank.now_ns == 7
